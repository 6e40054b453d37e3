-- The lease: who leads, and where the journal ends. One row, which every commit changes.
-- `version` counts the statements that changed the row, `commits` the takings and commits among them. `renewed` is the database's clock_timestamp() at the last of them,
-- and `own_ms` what the cluster's own clock showed when that statement was sent.
CREATE TABLE lease (
    one      bigint PRIMARY KEY CHECK (one = 1),
    history  text NOT NULL,
    epoch    bigint NOT NULL,
    holder   text,
    seq      bigint NOT NULL,
    version  bigint NOT NULL,
    commits  bigint NOT NULL,
    renewed  timestamptz NOT NULL,
    lasts_ms bigint NOT NULL,
    released boolean NOT NULL,
    address  text NOT NULL,
    own_ms   bigint
);

INSERT INTO lease VALUES (1, replace(gen_random_uuid()::text, '-', ''), 0, NULL, 0, 0, 0, clock_timestamp(), 0, true, '', NULL);

-- The journal; `sum` is the CRC-32 of the entry's other columns.
CREATE TABLE journal (
    seq   bigint PRIMARY KEY,
    epoch bigint NOT NULL,
    at    bigint NOT NULL,
    sum   bigint NOT NULL,
    body  bytea NOT NULL
);

-- Scripts and environments, whole and not compressed.
CREATE TABLE blob (
    id   bigint PRIMARY KEY,
    body bytea NOT NULL
);
ALTER TABLE blob ALTER COLUMN body SET STORAGE EXTERNAL;

-- Blobs that nothing refers to any more, until compaction has deleted them.
CREATE TABLE released (
    id bigint PRIMARY KEY
);

-- Requests already served. `line` is the order of arrival, in which they expire.
CREATE TABLE request (
    line  bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id    bytea UNIQUE NOT NULL CHECK (length(id) = 16),
    uid   bigint NOT NULL,
    seq   bigint NOT NULL,
    at    bigint NOT NULL,
    reply bytea NOT NULL
);

-- Snapshots of the state after entry `seq`, each by one reign. `chunks` is set when the snapshot is whole.
CREATE TABLE snapshot (
    seq    bigint NOT NULL,
    epoch  bigint NOT NULL,
    chunks bigint,
    PRIMARY KEY (seq, epoch)
);

-- The chunks of a snapshot, from 1, in the order in which they were written.
CREATE TABLE chunk (
    seq    bigint NOT NULL,
    epoch  bigint NOT NULL,
    number bigint NOT NULL,
    kind   text NOT NULL,
    body   bytea NOT NULL,
    PRIMARY KEY (seq, epoch, number),
    FOREIGN KEY (seq, epoch) REFERENCES snapshot ON DELETE CASCADE
);

-- The controllers that follow the journal, and the entry that each has reached.
CREATE TABLE standby (
    name    text PRIMARY KEY,
    address text NOT NULL,
    seq     bigint NOT NULL,
    seen    timestamptz NOT NULL,
    differs text NOT NULL
);

-- Accounting: the last entry of the journal that the rows take account of.
CREATE TABLE reached (
    one bigint PRIMARY KEY CHECK (one = 1),
    seq bigint NOT NULL
);

INSERT INTO reached VALUES (1, 0);

-- One run of a job.
CREATE TABLE job (
    job_id              bigint NOT NULL,
    restarts            bigint NOT NULL,
    array_job_id        bigint,
    array_task_id       bigint,
    array_tasks         text,
    het_job_id          bigint,
    het_job_offset      bigint,
    name                text NOT NULL,
    "user"              text NOT NULL,
    uid                 bigint NOT NULL,
    "group"             text NOT NULL,
    gid                 bigint NOT NULL,
    account             text NOT NULL,
    wckey               text NOT NULL,
    partition           text NOT NULL,
    qos                 text NOT NULL,
    reservation         text NOT NULL,
    state               text NOT NULL,
    cancelled_by        bigint,
    reason              text NOT NULL,
    exit_code           bigint NOT NULL,
    exit_signal         bigint NOT NULL,
    derived_exit_code   bigint NOT NULL,
    derived_exit_signal bigint NOT NULL,
    submitted           bigint NOT NULL,
    eligible            bigint,
    started             bigint,
    ended               bigint,
    suspended_secs      bigint NOT NULL,
    time_limit_secs     bigint,
    priority            bigint NOT NULL,
    req_nodes           bigint NOT NULL,
    req_cpus            bigint NOT NULL,
    req_memory_mb       bigint NOT NULL,
    req_memory_per_cpu  boolean NOT NULL,
    req_tres            text NOT NULL,
    alloc_nodes         bigint NOT NULL,
    alloc_cpus          bigint NOT NULL,
    alloc_tres          text NOT NULL,
    node_list           text NOT NULL,
    constraints         text NOT NULL,
    licenses            text NOT NULL,
    work_dir            text NOT NULL,
    submit_line         text NOT NULL,
    comment             text NOT NULL,
    admin_comment       text NOT NULL,
    system_comment      text NOT NULL,
    std_in              text NOT NULL,
    std_out             text NOT NULL,
    std_err             text NOT NULL,
    PRIMARY KEY (job_id, restarts)
);

-- One step of one run of a job. `usage` is JSON (`spur_core::model::usage::Usage`), or empty where nothing is known.
CREATE TABLE step (
    job_id           bigint NOT NULL,
    restarts         bigint NOT NULL,
    step_id          bigint NOT NULL,
    name             text NOT NULL,
    state            text NOT NULL,
    cancelled_by     bigint,
    exit_code        bigint NOT NULL,
    exit_signal      bigint NOT NULL,
    started          bigint,
    ended            bigint,
    suspended_secs   bigint NOT NULL,
    alloc_nodes      bigint NOT NULL,
    alloc_cpus       bigint NOT NULL,
    alloc_tres       text NOT NULL,
    tasks            bigint NOT NULL,
    node_list        text NOT NULL,
    layout           text NOT NULL,
    user_cpu_us      bigint NOT NULL,
    system_cpu_us    bigint NOT NULL,
    max_rss_bytes    bigint NOT NULL,
    max_vmsize_bytes bigint NOT NULL,
    submit_line      text NOT NULL,
    usage            text NOT NULL,
    PRIMARY KEY (job_id, restarts, step_id)
);

-- A time during which a node was out of service: down, drained, or both. The open one has no end.
CREATE TABLE node_event (
    node    text NOT NULL,
    started bigint NOT NULL,
    ended   bigint,
    state   text NOT NULL,
    reason  text NOT NULL,
    "user"  text NOT NULL,
    PRIMARY KEY (node, started, state)
);

CREATE INDEX node_event_started ON node_event (started);
CREATE INDEX job_by_array ON job (array_job_id) WHERE array_job_id IS NOT NULL;
CREATE INDEX job_by_het ON job (het_job_id) WHERE het_job_id IS NOT NULL;
CREATE INDEX job_by_user ON job (uid);
CREATE INDEX job_by_end ON job (ended);
