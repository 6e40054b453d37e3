-- How far the rows go: the last entry of the journal that they take account of.
CREATE TABLE reached (
    one INTEGER PRIMARY KEY NOT NULL CHECK (one = 1),
    seq INTEGER NOT NULL
) STRICT;

INSERT INTO reached (one, seq) VALUES (1, 0);

-- One run of a job.
CREATE TABLE job (
    job_id              INTEGER NOT NULL,
    restarts            INTEGER NOT NULL,
    array_job_id        INTEGER,
    array_task_id       INTEGER,
    array_tasks         TEXT,
    het_job_id          INTEGER,
    het_job_offset      INTEGER,
    name                TEXT NOT NULL,
    user                TEXT NOT NULL,
    uid                 INTEGER NOT NULL,
    "group"             TEXT NOT NULL,
    gid                 INTEGER NOT NULL,
    account             TEXT NOT NULL,
    wckey               TEXT NOT NULL,
    partition           TEXT NOT NULL,
    qos                 TEXT NOT NULL,
    reservation         TEXT NOT NULL,
    state               TEXT NOT NULL,
    cancelled_by        INTEGER,
    reason              TEXT NOT NULL,
    exit_code           INTEGER NOT NULL,
    exit_signal         INTEGER NOT NULL,
    derived_exit_code   INTEGER NOT NULL,
    submitted           INTEGER NOT NULL,
    eligible            INTEGER,
    started             INTEGER,
    ended               INTEGER,
    suspended_secs      INTEGER NOT NULL,
    time_limit_secs     INTEGER,
    priority            INTEGER NOT NULL,
    req_nodes           INTEGER NOT NULL,
    req_cpus            INTEGER NOT NULL,
    req_memory_mb       INTEGER NOT NULL,
    req_tres            TEXT NOT NULL,
    alloc_nodes         INTEGER NOT NULL,
    alloc_cpus          INTEGER NOT NULL,
    alloc_tres          TEXT NOT NULL,
    node_list           TEXT NOT NULL,
    constraints         TEXT NOT NULL,
    licenses            TEXT NOT NULL,
    work_dir            TEXT NOT NULL,
    submit_line         TEXT NOT NULL,
    comment             TEXT NOT NULL,
    admin_comment       TEXT NOT NULL,
    system_comment      TEXT NOT NULL,
    std_in              TEXT NOT NULL,
    std_out             TEXT NOT NULL,
    std_err             TEXT NOT NULL,
    PRIMARY KEY (job_id, restarts)
) STRICT, WITHOUT ROWID;

-- One step of one run of a job.
CREATE TABLE step (
    job_id             INTEGER NOT NULL,
    restarts           INTEGER NOT NULL,
    step_id            INTEGER NOT NULL,
    name               TEXT NOT NULL,
    state              TEXT NOT NULL,
    exit_code          INTEGER NOT NULL,
    exit_signal        INTEGER NOT NULL,
    started            INTEGER,
    ended              INTEGER,
    suspended_secs     INTEGER NOT NULL,
    alloc_nodes        INTEGER NOT NULL,
    alloc_cpus         INTEGER NOT NULL,
    alloc_tres         TEXT NOT NULL,
    tasks              INTEGER NOT NULL,
    node_list          TEXT NOT NULL,
    layout             TEXT NOT NULL,
    user_cpu_us        INTEGER NOT NULL,
    system_cpu_us      INTEGER NOT NULL,
    max_rss_bytes      INTEGER NOT NULL,
    max_vmsize_bytes   INTEGER NOT NULL,
    submit_line        TEXT NOT NULL,
    PRIMARY KEY (job_id, restarts, step_id)
) STRICT, WITHOUT ROWID;

CREATE INDEX job_by_array ON job (array_job_id) WHERE array_job_id IS NOT NULL;
CREATE INDEX job_by_het ON job (het_job_id) WHERE het_job_id IS NOT NULL;
CREATE INDEX job_by_user ON job (uid);
CREATE INDEX job_by_end ON job (ended);
