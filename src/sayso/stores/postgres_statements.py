"""The statements of the Postgres store, and the translation of those that all SQL stores share.

A change of a request is one statement, which also writes its journal entry. It is a compare-and-set on `link`, the hash
of the request's newest journal entry, and on the position in the run's chain, which is the journal's primary key. If
another process was faster, it writes nothing.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache, lru_cache

from sayso.model.journal import Entry
from sayso.stores.codec import ASKED_COLUMNS, PROGRESS_COLUMNS, Row
from sayso.stores.sql_requests import Selects, none_of

_DIALECT = (
    ("instr(", "strpos("),
    ("json_each(?)", "json_array_elements_text(CAST(? AS json))"),
    ("live IS NULL AND state IN", "final_state IN"),
    ("link = excluded.link", "link = excluded.link, tx = pg_current_xact_id()"),
)
_TABLE = re.compile(r"\b(FROM|JOIN|INTO|UPDATE) (asked|journal|record|request|run|schema_text|standing|step|wait)\b")


@lru_cache(maxsize=1024)
def translated(sql: str) -> bytes:
    """Translate a statement of the SQL stores for Postgres: `$1` for `?`, and the schema before each table."""
    for ours, theirs in _DIALECT:
        sql = sql.replace(ours, theirs)
    first, *rest = _TABLE.sub(r"\1 sayso.\2", sql).split("?")
    return (first + "".join(f"${n}{part}" for n, part in enumerate(rest, 1))).encode()


CLOCK = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
_COLUMNS, _ENTRY = ", ".join(Row._fields), ", ".join(Entry._fields)
# With the request's newest journal entry, which its row must match, and the end of its chain.
_LOAD = f"""
SELECT {", ".join([*(f"r.{name}" for name in Row._fields), *(f"j.{name}" for name in Entry._fields)])},
h.seq, h.link, r.n
FROM request AS r LEFT JOIN LATERAL (
    SELECT {_ENTRY} FROM journal WHERE run_id = r.run_id AND request_id = r.id ORDER BY seq DESC LIMIT 1
) AS j ON TRUE LEFT JOIN LATERAL (
    SELECT seq, link FROM journal WHERE run_id = r.run_id ORDER BY seq DESC LIMIT 1
) AS h ON TRUE WHERE """
# Also requests whose effect only the journal still has: their rows were altered, which `verify` detects.
BY_EFFECT = f"""{_LOAD} r.id IN (
    SELECT id FROM asked WHERE effect_digest = $1 UNION SELECT request_id FROM journal
    WHERE event = 'asked' AND detail LIKE '%"effect":"%' AND substring(detail FROM '"effect":"([^"]*)"') = $1
) ORDER BY r.n"""
SELECTS = Selects(_COLUMNS, _LOAD, BY_EFFECT)
GET, FIND, FIND_KEY = f"{_LOAD}r.id = ?", f"{_LOAD}r.fingerprint = ? AND r.holds = 1", f"{_LOAD}r.key_digest = ?"
LAST = "SELECT seq, link FROM journal WHERE run_id = ? ORDER BY seq DESC LIMIT 1"

# A position in the chain is taken once, and only after the entry from which the link is computed.
FOLLOWS = "(SELECT link FROM journal WHERE run_id = ? ORDER BY seq DESC LIMIT 1) = ?"
BEGINS = "NOT EXISTS (SELECT 1 FROM journal WHERE run_id = ?)"
APPEND = f"INSERT INTO journal ({_ENTRY}) SELECT {', '.join('?' * len(Entry._fields))}"
_NOTIFY = ", pg_notify('sayso', ?)"
ASKED_OF = tuple(name for name in ASKED_COLUMNS if name != "fingerprint")
STANDING = ("fingerprint", *PROGRESS_COLUMNS)
LOCK = "SELECT pg_advisory_xact_lock(hashtextextended(?, 0))"
NEW_RECORD = "INSERT INTO record (kind, key, body, due) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING RETURNING 1"


def _marks(count: int) -> str:
    return ", ".join("?" * count)


@cache
def insert_of(*, is_first: bool, kinds: tuple[str, ...], has_key: bool, with_schema: bool, notifies: bool) -> str:
    """Return the statement that records a new request."""
    # Checked here, so that only a write at the very same moment hits a unique index and fails.
    guards = [
        BEGINS if is_first else FOLLOWS,
        "NOT EXISTS (SELECT 1 FROM standing WHERE fingerprint = ? AND holds = 1)",
    ]
    guards += ["NOT EXISTS (SELECT 1 FROM asked WHERE key_digest = ?)"] * has_key + [none_of(kinds)] * bool(kinds)
    schema = "known AS (INSERT INTO schema_text (id, text) VALUES (?, ?) ON CONFLICT DO NOTHING)," * with_schema
    return f"""WITH {schema} new AS (
        INSERT INTO asked ({", ".join(ASKED_OF)}) SELECT {_marks(len(ASKED_OF))} WHERE {" AND ".join(guards)}
        RETURNING n
    ), written AS (
        INSERT INTO standing (n, id, fingerprint, {", ".join(PROGRESS_COLUMNS)}, link)
        SELECT new.n, {_marks(len(PROGRESS_COLUMNS) + 3)} FROM new RETURNING n
    ) {_journal(notifies=notifies)}"""


def _journal(*, notifies: bool) -> str:
    """Return the end of a statement: insert the journal entry if the row of a request was written."""
    return f"{APPEND} FROM written RETURNING (SELECT n FROM written), {CLOCK}{_NOTIFY * notifies}"


@cache
def update_of(again: tuple[str, ...], *, is_first: bool, kinds: tuple[str, ...], is_start: bool, notifies: bool) -> str:
    """Return the statement that changes a request; `again` names the columns of what was asked that change too."""
    source, guards = "", ["s.n = ?", "s.id = ?", "s.link = ?", BEGINS if is_first else FOLLOWS]
    if is_start:
        # A manual change since this process read the row must be found before the call runs. So a start compares all
        # columns, and the newest journal entry.
        source = " FROM asked AS a CROSS JOIN journal AS j"
        guards += [
            "a.n = s.n", *_same("a", ASKED_OF), *_same("s", STANDING), *_same("j", Entry._fields),
            "NOT EXISTS (SELECT 1 FROM journal WHERE run_id = ? AND seq > ? AND request_id = ?)",
        ]  # fmt: skip
    guards += [none_of(kinds)] * bool(kinds)
    bare = f", bare AS (UPDATE asked SET {_set(again)} FROM written AS w WHERE asked.n = w.n)" if again else ""
    return f"""WITH written AS (
        UPDATE standing AS s SET {_set((*PROGRESS_COLUMNS, "link"))}{source} WHERE {" AND ".join(guards)} RETURNING s.n
    ){bare} {_journal(notifies=notifies)}"""


_OPTIONAL = {"risk", "masked", "key_digest", "effect_digest", "holds", "live", "ends_at", "claimed_by"}


def _same(table: str, names: Sequence[str]) -> tuple[str, ...]:
    # Only `=` can use an index.
    return tuple(f"{table}.{name} {'IS NOT DISTINCT FROM' if name in _OPTIONAL else '='} ?" for name in names)


def _set(names: Sequence[str]) -> str:
    return ", ".join(f"{name} = ?" for name in names)
