-- Small rows beside requests: tokens, registered channels, messages that are to be sent.

CREATE TABLE slip (
    kind TEXT NOT NULL,
    key  TEXT NOT NULL,
    body TEXT NOT NULL,              -- JSON; sealed with a key
    due  INTEGER,                    -- when something is to be done about it
    PRIMARY KEY (kind, key)
) WITHOUT ROWID;

-- What is due is found without walking over what is not.
CREATE INDEX slip_due ON slip (kind, due) WHERE due IS NOT NULL;
