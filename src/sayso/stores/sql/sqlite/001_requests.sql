-- Requests, the shapes of what they are about, and the journal of every transition.
-- Instants are whole microseconds since 1970, UTC.

CREATE TABLE shape (
    digest TEXT PRIMARY KEY,          -- of the text; requests name it in `asked`
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
    shape_digest  TEXT NOT NULL,
    state         TEXT NOT NULL,
    live          INTEGER,              -- 1 while something can still happen to it
    ends_at       INTEGER,              -- of the request while pending, of the approval while approved
    claimed_by    TEXT,
    edited_form   TEXT,
    edited_masked TEXT,
    edited_digest TEXT,
    progress      TEXT NOT NULL,        -- JSON: ends, votes, decision; sealed with a key
    execution     TEXT,                 -- JSON: the start and the outcome; sealed with a key
    link          TEXT NOT NULL         -- of the journal's row that made this row what it is
);

-- The one row that answers for a fingerprint: two processes that ask the same at once get one request.
CREATE UNIQUE INDEX request_holder ON request (fingerprint) WHERE holds = 1;
-- What waits is found without walking over what is decided, and the other way round. A request enters each of these
-- once: an index over `state` itself would cost every transition two more pages.
CREATE INDEX request_live ON request (n) WHERE live = 1;
CREATE INDEX request_final ON request (state, n) WHERE live IS NULL;
CREATE INDEX request_run ON request (run_id, n);

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
    PRIMARY KEY (run_id, seq)
) WITHOUT ROWID;

CREATE TRIGGER journal_is_not_updated BEFORE UPDATE ON journal
BEGIN
    SELECT RAISE(ABORT, 'the journal is only added to');
END;

CREATE TRIGGER journal_is_not_deleted BEFORE DELETE ON journal
BEGIN
    SELECT RAISE(ABORT, 'the journal is only added to');
END;
