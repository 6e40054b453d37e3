-- A time during which a node was out of service: down, drained, or both. The open one has no end.
CREATE TABLE node_event (
    node    TEXT NOT NULL,
    started INTEGER NOT NULL,
    ended   INTEGER,
    state   TEXT NOT NULL,
    reason  TEXT NOT NULL,
    user    TEXT NOT NULL,
    PRIMARY KEY (node, started, state)
) STRICT, WITHOUT ROWID;

CREATE INDEX node_event_started ON node_event (started);
