-- works from 1
-- Requests, the schemas of what they are about, the journal of every transition, runs, and small records beside them.
-- Instants are whole microseconds since 1970, UTC. Texts are compared by their bytes, as in every other store.
-- What never changes of a request (`asked`) stands apart from what does (`standing`): a change then writes a narrow row,
-- mostly without touching an index.

CREATE TABLE sayso.schema_text (
    id   text COLLATE "C" PRIMARY KEY,   -- a digest of the text; requests name it in `asked`
    text text NOT NULL
);

CREATE TABLE sayso.asked (
    id            text COLLATE "C" PRIMARY KEY,
    n             bigint GENERATED ALWAYS AS IDENTITY,  -- the order in which requests were asked; cursors are made of it
    kind          text NOT NULL,
    run_id        text COLLATE "C" NOT NULL,
    tool          text COLLATE "C" NOT NULL,  -- module:function; empty for a question
    name          text COLLATE "C" NOT NULL,
    risk          text COLLATE "C",
    search        text NOT NULL,
    created_at    bigint NOT NULL,
    asked         text NOT NULL,         -- JSON: what never changes; sealed with a key
    form          text NOT NULL,         -- canonical arguments, or the question; sealed with a key
    masked        text,                  -- the same as people see it, where it differs
    digest        text NOT NULL,
    schema_digest text NOT NULL,
    key_digest    text COLLATE "C",      -- of the run and the key; the texts stand in `asked`
    effect_digest text COLLATE "C"
);
CREATE INDEX asked_run ON sayso.asked (run_id, n);
-- A key is asked once in its run, for ever.
CREATE UNIQUE INDEX asked_key ON sayso.asked (key_digest) WHERE key_digest IS NOT NULL;
CREATE INDEX asked_effect ON sayso.asked (effect_digest, n) WHERE effect_digest IS NOT NULL;

CREATE TABLE sayso.standing (
    n           bigint PRIMARY KEY,      -- that of `asked`, by which the row is found: an index over ids costs more
    id          text COLLATE "C" NOT NULL,
    fingerprint text COLLATE "C" NOT NULL,
    holds       smallint,                -- 1 while asking the same again finds this request
    state       text COLLATE "C" NOT NULL,
    live        smallint,                -- 1 while something can still happen to it
    ends_at     bigint,                  -- of the request while pending, of the approval while approved
    claimed_by  text,
    progress    text NOT NULL,           -- JSON: all that changes (ends, votes, edit, start ...); sealed with a key
    link        text COLLATE "C" NOT NULL,  -- of the journal's row that made this row what it is
    -- An index over `state` itself would rule out that a change leaves the indexes alone.
    final_state text COLLATE "C" GENERATED ALWAYS AS (CASE WHEN live IS NULL THEN state END) STORED
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.02);
-- The one row that answers for a fingerprint: two processes that ask the same at once get one request.
CREATE UNIQUE INDEX standing_holder ON sayso.standing (fingerprint) WHERE holds = 1;
CREATE INDEX standing_live ON sayso.standing (n) WHERE live = 1;
CREATE INDEX standing_final ON sayso.standing (final_state, n) WHERE final_state IS NOT NULL;

CREATE VIEW sayso.request AS
SELECT s.n, a.id, a.kind, a.run_id, s.fingerprint, a.tool, a.name, a.risk, a.search, a.created_at, a.asked, a.form,
    a.masked, a.digest, a.schema_digest, a.key_digest, a.effect_digest, s.holds, s.state, s.live, s.ends_at,
    s.claimed_by, s.progress, s.link, s.final_state, a.xmin AS asked_version, s.xmin AS version
FROM sayso.standing AS s JOIN sayso.asked AS a ON a.n = s.n AND a.id = s.id;

-- The primary key is the compare-and-set of a chain: of two who go on from the same row, one gets the next place.
CREATE TABLE sayso.journal (
    run_id     text COLLATE "C" NOT NULL,
    seq        bigint NOT NULL,
    at         bigint NOT NULL,
    request_id text COLLATE "C" NOT NULL,
    event      text COLLATE "C" NOT NULL,
    by         text NOT NULL,
    channel    text NOT NULL,
    detail     text NOT NULL,
    link       text COLLATE "C" NOT NULL,
    tx         xid8 NOT NULL DEFAULT pg_current_xact_id(),  -- the feed of changes is read by it, see `snapshot`
    PRIMARY KEY (run_id, seq)
) WITH (autovacuum_analyze_scale_factor = 0.02);
CREATE INDEX journal_tx ON sayso.journal (tx);
-- Which requests were asked with a key or an effect, as the journal says it: an ask or a start finds them although their
-- rows were altered or deleted.
CREATE INDEX journal_key ON sayso.journal ((substring(detail FROM '"key":"([^"]*)"')))
WHERE event = 'asked' AND detail LIKE '%"key":"%';
CREATE INDEX journal_effect ON sayso.journal ((substring(detail FROM '"effect":"([^"]*)"')))
WHERE event = 'asked' AND detail LIKE '%"effect":"%';

CREATE FUNCTION sayso.refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'the journal is only added to';
END $$;
CREATE TRIGGER journal_is_only_added_to BEFORE UPDATE OR DELETE OR TRUNCATE ON sayso.journal
FOR EACH STATEMENT EXECUTE FUNCTION sayso.refuse_change();

CREATE TABLE sayso.run (
    n          bigint GENERATED ALWAYS AS IDENTITY,  -- the order in which runs were first kept; cursors are made of it
    run_id     text COLLATE "C" PRIMARY KEY,
    name       text COLLATE "C" NOT NULL,
    kind       text NOT NULL,
    state      text COLLATE "C" NOT NULL,
    holder     text COLLATE "C",
    created_at bigint NOT NULL,
    updated_at bigint NOT NULL,
    link       text NOT NULL,            -- digest of the row and of the newest step's link
    tx         xid8 NOT NULL DEFAULT pg_current_xact_id()  -- of its last change, for who watches all changes
);
CREATE UNIQUE INDEX run_n ON sayso.run (n);
CREATE INDEX run_tx ON sayso.run (tx);
-- What could go on is found without walking over what has ended.
CREATE INDEX run_open ON sayso.run (name, state, updated_at) WHERE state <> 'ended';

CREATE TABLE sayso.step (
    run_id text COLLATE "C" NOT NULL,
    n      bigint NOT NULL,
    place  text COLLATE "C" NOT NULL,
    body   text NOT NULL,                -- JSON; sealed with a key
    waits  text COLLATE "C",             -- id of the request for which the run waited then
    link   text NOT NULL,                -- digest of the row and of the link of the step before
    PRIMARY KEY (run_id, n)
);

-- For which request a run waits at which place, now: what the last step of that place says.
CREATE TABLE sayso.wait (
    run_id     text COLLATE "C" NOT NULL,
    place      text COLLATE "C" NOT NULL,
    request_id text COLLATE "C" NOT NULL,
    PRIMARY KEY (run_id, place)
);

-- Small rows beside requests: tokens, registered channels, messages that are to be sent.
CREATE TABLE sayso.record (
    kind text COLLATE "C" NOT NULL,
    key  text COLLATE "C" NOT NULL,
    body text NOT NULL,                  -- JSON; sealed with a key
    due  bigint,                         -- when something is to be done about it
    PRIMARY KEY (kind, key)
);
-- What is due is found without walking over what is not.
CREATE INDEX record_due ON sayso.record (kind, due, key) WHERE due IS NOT NULL;
