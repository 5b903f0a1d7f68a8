-- Requests, the schemas of what they are about, the journal of every transition, runs, and small records beside them.
-- Instants are whole microseconds since 1970, UTC.

CREATE TABLE schema_text (
    id   TEXT PRIMARY KEY,            -- a digest of the text; requests name it in `asked`
    text   TEXT NOT NULL
) WITHOUT ROWID;

CREATE TABLE request (
    n             INTEGER PRIMARY KEY,  -- the order in which requests were asked; cursors are made of it
    id            TEXT NOT NULL UNIQUE,
    kind          TEXT NOT NULL,
    run_id        TEXT NOT NULL,
    fingerprint   TEXT NOT NULL,
    holds         INTEGER,              -- 1 while asking the same again finds this request
    tool          TEXT NOT NULL,        -- module:function; empty for a question
    name          TEXT NOT NULL,
    risk          TEXT,
    search        TEXT NOT NULL,
    created_at    INTEGER NOT NULL,
    asked         TEXT NOT NULL,        -- JSON: what never changes; sealed with a key
    form          TEXT NOT NULL,        -- canonical arguments, or the question; sealed with a key
    masked        TEXT,                 -- the same as people see it, where it differs
    digest        TEXT NOT NULL,
    schema_digest  TEXT NOT NULL,
    key_digest    TEXT,                 -- of the run and the key; the texts stand in `asked`
    effect_digest TEXT,
    state         TEXT NOT NULL,
    live          INTEGER,              -- 1 while something can still happen to it
    ends_at       INTEGER,              -- of the request while pending, of the approval while approved
    claimed_by    TEXT,
    progress      TEXT NOT NULL,        -- JSON: all that changes (ends, votes, edit, start ...); sealed with a key
    link          TEXT NOT NULL,        -- of the journal's row that made this row what it is; the rest of it follows
    seq           INTEGER NOT NULL,
    at            INTEGER NOT NULL,
    event         TEXT NOT NULL,
    by            TEXT NOT NULL,
    channel       TEXT NOT NULL,
    detail        TEXT NOT NULL
);

-- The one row that answers for a fingerprint: two processes that ask the same at once get one request.
CREATE UNIQUE INDEX request_holder ON request (fingerprint) WHERE holds = 1;
-- What waits is found without walking over what is decided, and the other way round. A request enters each of these
-- once: an index over `state` itself would cost every transition two more pages.
CREATE INDEX request_live ON request (n) WHERE live = 1;
CREATE INDEX request_final ON request (state, n) WHERE live IS NULL;
CREATE INDEX request_run ON request (run_id, n);
-- A key is asked once in its run, for ever.
CREATE UNIQUE INDEX request_key ON request (key_digest) WHERE key_digest IS NOT NULL;
CREATE INDEX request_effect ON request (effect_digest, n) WHERE effect_digest IS NOT NULL;

CREATE TABLE journal (
    run_id     TEXT NOT NULL,
    seq        INTEGER NOT NULL,
    at         INTEGER NOT NULL,
    request_id TEXT NOT NULL,
    event      TEXT NOT NULL,
    by         TEXT NOT NULL,
    channel    TEXT NOT NULL,
    detail     TEXT NOT NULL,
    link       TEXT NOT NULL,
    PRIMARY KEY (run_id, seq)        -- not WITHOUT ROWID: at the table's end, an entry writes one page and moves none
);

-- Which requests were asked with a key or an effect, as the journal says it: an ask or a start finds them although their
-- rows were altered or deleted.
CREATE INDEX journal_key ON journal (json_extract(detail, '$.key'))
WHERE event = 'asked' AND instr(detail, '"key":"') > 0;
CREATE INDEX journal_effect ON journal (json_extract(detail, '$.effect'))
WHERE event = 'asked' AND instr(detail, '"effect":"') > 0;

CREATE TRIGGER journal_is_not_updated BEFORE UPDATE ON journal
BEGIN
    SELECT RAISE(ABORT, 'the journal is only added to');
END;

CREATE TRIGGER journal_is_not_deleted BEFORE DELETE ON journal
BEGIN
    SELECT RAISE(ABORT, 'the journal is only added to');
END;

-- INSERT OR REPLACE takes a row away without asking the trigger for DELETE.

CREATE TRIGGER journal_is_not_replaced BEFORE INSERT ON journal
WHEN EXISTS (SELECT 1 FROM journal WHERE run_id = NEW.run_id AND seq = NEW.seq OR rowid = NEW.rowid)
BEGIN
    SELECT RAISE(ABORT, 'the journal is only added to');
END;

CREATE TABLE run (
    n          INTEGER PRIMARY KEY,  -- the order in which runs were first kept; cursors are made of it
    run_id     TEXT NOT NULL UNIQUE,
    name       TEXT NOT NULL,
    kind       TEXT NOT NULL,
    state      TEXT NOT NULL,
    holder     TEXT,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    link       TEXT NOT NULL         -- digest of the row and of the newest step's link: an altered run does not go on
);

-- What could go on is found without walking over what has ended.
CREATE INDEX run_open ON run (name, state, updated_at) WHERE state <> 'ended';

CREATE TABLE step (
    run_id TEXT NOT NULL,
    n      INTEGER NOT NULL,
    place  TEXT NOT NULL,
    body   TEXT NOT NULL,            -- JSON; sealed with a key
    waits  TEXT,                     -- id of the request for which the run waited then
    link   TEXT NOT NULL,            -- digest of the row and of the link of the step before
    PRIMARY KEY (run_id, n)          -- not WITHOUT ROWID: bodies may be long, and would be moved when pages split
);

-- For which request a run waits at which place, now: what the last step of that place says.
CREATE TABLE wait (
    run_id     TEXT NOT NULL,
    place      TEXT NOT NULL,
    request_id TEXT NOT NULL,
    PRIMARY KEY (run_id, place)
) WITHOUT ROWID;

-- Small rows beside requests: tokens, registered channels, messages that are to be sent.

CREATE TABLE record (
    kind TEXT NOT NULL,
    key  TEXT NOT NULL,
    body TEXT NOT NULL,              -- JSON; sealed with a key
    due  INTEGER,                    -- when something is to be done about it
    PRIMARY KEY (kind, key)
) WITHOUT ROWID;

-- What is due is found without walking over what is not.
CREATE INDEX record_due ON record (kind, due) WHERE due IS NOT NULL;
