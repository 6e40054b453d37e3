-- Facts about the snapshot: cluster, seq, and, once it is whole, the number of chunks.
CREATE TABLE meta (
    key   TEXT PRIMARY KEY NOT NULL,
    value ANY NOT NULL
) STRICT, WITHOUT ROWID;

-- The chunks, from 1, in the order in which they were written.
CREATE TABLE chunk (
    number INTEGER PRIMARY KEY NOT NULL,
    kind   TEXT NOT NULL,
    body   BLOB NOT NULL
) STRICT;
