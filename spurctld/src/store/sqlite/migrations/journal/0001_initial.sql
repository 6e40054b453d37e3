-- Facts about this database: the cluster it belongs to, the epoch of its last writer.
CREATE TABLE meta (
    key   TEXT PRIMARY KEY NOT NULL,
    value ANY NOT NULL
) STRICT, WITHOUT ROWID;

INSERT INTO meta (key, value) VALUES ('cluster', lower(hex(randomblob(16)))), ('epoch', 0);

-- The journal. Ascending keys: an append touches the last page only.
CREATE TABLE journal (
    seq   INTEGER PRIMARY KEY NOT NULL,
    epoch INTEGER NOT NULL,
    at    INTEGER NOT NULL,
    body  BLOB NOT NULL
) STRICT;

-- Parts of blobs; key = blob id * 256 + number of the part.
CREATE TABLE blob (
    key  INTEGER PRIMARY KEY NOT NULL,
    body BLOB NOT NULL
) STRICT;

-- Blobs that nothing refers to any more, until compaction has deleted their parts.
CREATE TABLE released (
    id INTEGER PRIMARY KEY NOT NULL
) STRICT;

-- Requests already served. `line` is the order of arrival, in which they expire.
CREATE TABLE request (
    line  INTEGER PRIMARY KEY NOT NULL,
    id    BLOB UNIQUE NOT NULL CHECK (length(id) = 16),
    uid   INTEGER NOT NULL,
    seq   INTEGER NOT NULL,
    at    INTEGER NOT NULL,
    reply BLOB NOT NULL
) STRICT;
