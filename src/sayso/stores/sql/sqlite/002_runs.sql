-- Runs, their steps, and what they wait for.

CREATE TABLE run (
    n          INTEGER PRIMARY KEY,  -- the order in which runs were first kept; cursors are made of it
    run_id     TEXT NOT NULL UNIQUE,
    name       TEXT NOT NULL,
    kind       TEXT NOT NULL,
    state      TEXT NOT NULL,
    holder     TEXT,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL
);

-- What could go on is found without walking over what has ended.
CREATE INDEX run_open ON run (name, state, updated_at) WHERE state <> 'ended';

CREATE TABLE step (
    run_id TEXT NOT NULL,
    n      INTEGER NOT NULL,
    place  TEXT NOT NULL,
    body   TEXT NOT NULL,            -- JSON; sealed with a key
    waits  TEXT,                     -- id of the request for which the run waited then
    PRIMARY KEY (run_id, n)          -- not WITHOUT ROWID: bodies may be long, and would be moved when pages split
);

-- For which request a run waits at which place, now: what the last step of that place says.
CREATE TABLE wait (
    run_id     TEXT NOT NULL,
    place      TEXT NOT NULL,
    request_id TEXT NOT NULL,
    PRIMARY KEY (run_id, place)
) WITHOUT ROWID;
