"""A request as the columns of a row, and back; shared by the stores that keep rows.

What is looked for stands in columns of its own; the rest are JSON texts: `asked`, which never changes, and `progress`
and `execution`, which `sayso.stores.progress` writes. Everything that may hold what a program or a person wrote
passes through the seal.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import lru_cache
from typing import Any, NamedTuple

from sayso import errors
from sayso.clock import instant, microseconds
from sayso.model.call import Call, Question
from sayso.model.canonical.compact import dumps
from sayso.model.decision import Decision
from sayso.model.entry import Anchor
from sayso.model.escalation import Escalation
from sayso.model.quorum import Quorum
from sayso.model.request import Execution, Request, State
from sayso.model.reviewer import Identity
from sayso.model.trail import stands_in
from sayso.stores.progress import progress_values
from sayso.stores.seal import Seal
from sayso.stores.select import search_text

__all__ = [
    "ASKED_COLUMNS", "PROGRESS_COLUMNS", "SEALED_COLUMNS", "Row", "altered", "anchor_of", "asked_again", "asked_digest",
    "asked_values", "is_borne_out", "progress_values", "request_of", "sealed_search", "stands_digest", "text_key",
]  # fmt: skip

_MICROSECOND = timedelta(microseconds=1)
_KINDS = {
    "window": int, "shape": str, "process": str, "prompt": str, "description": str, "rule": str, "context": dict,
    "place": str, "retries": int, "idempotent": bool, "redact": list, "notify_arguments": bool, "purged": int,
}  # fmt: skip
_LEFT_OUT = (None, 0, ())  # what a field is when its key is missing; False is equal to 0


class Row(NamedTuple):
    """The columns of a request, in the order of the queries."""

    id: str
    kind: str
    run_id: str
    fingerprint: str
    tool: str
    name: str
    risk: str | None
    search: str
    created_at: int
    asked: str
    form: str
    masked: str | None
    digest: str
    shape_digest: str
    holds: int | None
    state: str
    live: int | None
    ends_at: int | None
    claimed_by: str | None
    edited_form: str | None
    edited_masked: str | None
    edited_digest: str | None
    progress: str
    execution: str | None
    link: str


ASKED_COLUMNS = Row._fields[:14]
PROGRESS_COLUMNS = Row._fields[14:]
SEALED_COLUMNS = ("asked", "form", "masked", "edited_form", "edited_masked", "progress", "execution")
_SEARCH, _ASKED, _FORM, _MASKED = map(ASKED_COLUMNS.index, ("search", "asked", "form", "masked"))
_ASKED_END, _LINK = len(ASKED_COLUMNS), Row._fields.index("link")
_SEALED_PROGRESS = [(name, Row._fields.index(name)) for name in SEALED_COLUMNS if name in PROGRESS_COLUMNS]


def asked_values(request: Request, seal: Seal) -> tuple[Any, ...]:
    """Return the values of `ASKED_COLUMNS`."""
    subject, request_id = request.subject, request.id
    if isinstance(subject, Call):
        tool, name, form, masked = subject.tool, subject.name, subject.form, subject.masked
    else:
        tool, name, form, masked = "", "", dumps({"text": subject.text}), None
    return (
        request_id, request.kind, request.run_id, request.fingerprint, tool, name, request.risk,
        _writable(search_text(request)) if seal.is_open else sealed_search(request_id, request.run_id, tool),
        microseconds(request.created_at), seal.close(_asked_text(request), request_id, "asked"),
        seal.close(form, request_id, "form"), None if masked is None else seal.close(masked, request_id, "masked"),
        subject.digest, subject.shape_digest,
    )  # fmt: skip


def asked_digest(values: Sequence[Any], seal: Seal) -> str:
    """Return the digest of what never changes, as the `asked` row of the journal carries it.

    Args:
        values: Those of `ASKED_COLUMNS`, perhaps sealed. What they say is covered, not how it is sealed.
        seal: Opens them.

    Raises:
        StoreSealedError: They do not open.
    """
    request_id, asked, form, masked = values[0], values[_ASKED], values[_FORM], values[_MASKED]
    asked, form = seal.open(asked, request_id, "asked"), seal.open(form, request_id, "form")
    if masked is not None:
        masked = seal.open(masked, request_id, "masked")
    opened = (*values[:_SEARCH], values[_SEARCH + 1], asked, form, masked, *values[_MASKED + 1 :])
    return hashlib.sha256(dumps(opened).encode()).hexdigest()


def stands_digest(values: Sequence[Any], seal: Seal, asked: str | None = None) -> str:
    """Return the digest of a whole row, as every row of the journal about its request carries it.

    Args:
        values: Those of a whole row, perhaps sealed. The link is not covered, for it covers this; nor is `search`,
            which follows from the rest.
        seal: Opens them.
        asked: Their `asked_digest`, where it is known.

    Raises:
        StoreSealedError: They do not open.
    """
    opened = [asked_digest(values[:_ASKED_END], seal) if asked is None else asked, *values[_ASKED_END:_LINK]]
    for name, place in _SEALED_PROGRESS:
        if values[place] is not None:
            opened[place - _ASKED_END + 1] = seal.open(values[place], values[0], name)
    return hashlib.sha256(dumps(opened).encode()).hexdigest()


def is_borne_out(values: Sequence[Any], newest: tuple[str, str] | None, seal: Seal) -> bool:
    """Say whether a whole row matches the newest row of the journal about it, given as link and detail."""
    row = Row._make(values)
    if newest is None or newest[0] != row.link:
        return False
    return stands_in(newest[1]) == _tied(stands_digest, row, seal)


def altered(request_id: str, *, is_start: bool = False) -> errors.SaysoError:
    """Return the fault of a verb on a row that is not borne out."""
    if is_start:
        return errors.AlteredRequestError(request_id, "its row does not match the journal")
    return errors.StoreCorruptError(
        f"the row of request {request_id} does not match the journal: it was altered; nothing was changed and nothing"
        " ran. `sayso log --verify` names what differs; restore the store from a copy, or ask anew in another run"
    )


def asked_again(before: Request, after: Request, seal: Seal, detail: dict[str, Any]) -> dict[str, Any]:
    """Return the columns of what was asked that a transition changed, by name; `detail` gets their digest.

    Only a purge changes them: its row in the journal then says what is left.
    """
    if after.purged_at is before.purged_at:
        return {}
    values = asked_values(after, seal)
    detail["asked"] = asked_digest(values, seal)
    return {name: values[ASKED_COLUMNS.index(name)] for name in ("search", "asked", "form", "masked")}


def anchor_of(values: Sequence[Any], seal: Seal) -> Anchor:
    """Return how a whole row is tied to the journal, whatever somebody wrote into it."""
    row = Row._make(values)
    asked, stands = (_tied(digest, row, seal) for digest in (_digest_of_asked, stands_digest))
    return Anchor(str(row.id), str(row.run_id), str(row.state), str(row.link), asked, stands)


def _digest_of_asked(row: Row, seal: Seal) -> str:
    return asked_digest(row[:_ASKED_END], seal)


def _tied(digest: Callable[[Row, Seal], str], row: Row, seal: Seal) -> str | None:
    try:
        return digest(row, seal)
    except errors.StoreSealedError:
        return None if seal.is_open else ""
    except (AttributeError, TypeError, ValueError):
        return ""


def sealed_search(request_id: str, run_id: str, tool: str) -> str:
    """Return what can be searched for where people's words are sealed."""
    return f"{request_id}\n{run_id}\n{tool}".casefold()


def _writable(text: str) -> str:
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def _asked_text(request: Request) -> str:
    quorum, behalf = request.quorum, request.on_behalf_of
    fields: dict[str, Any] = {
        "requester": _pair(request.requester),
        "on_behalf_of": None if behalf is None else _pair(behalf),
        "also_for": [_pair(person) for person in request.also_for] if request.also_for else None,
        "process": request.process,
        "window": request.approval_window // _MICROSECOND,
        "shape": text_key(request.subject.shape),
        "quorum": [quorum.count, *sorted(quorum.roles)] if quorum.count != 1 or quorum.roles else None,
        "prompt": request.prompt,
        "description": request.description,
        "rule": request.rule,
        "context": request.context,
        "place": request.place or None,
        "retries": request.retries,
        "idempotent": request.idempotent,
        "redact": request.redact,
        "notify_arguments": request.notify_arguments,
        "purged": None if request.purged_at is None else microseconds(request.purged_at),
        "escalation": None if request.escalation is None else _escalation_values(request.escalation),
    }
    return dumps({key: value for key, value in fields.items() if value not in _LEFT_OUT})


def _escalation_values(escalation: Escalation) -> list[Any]:
    return [escalation.after // _MICROSECOND, sorted(escalation.roles), [_pair(person) for person in escalation.people]]


def _escalation(packed: list[Any]) -> Escalation:
    after, roles, people = packed
    return Escalation(timedelta(microseconds=after), frozenset(roles), tuple(Identity(*person) for person in people))


def _pair(identity: Identity) -> tuple[str, str]:
    return identity.issuer, identity.subject


_identity = lru_cache(maxsize=1024)(Identity)  # a long list names the same few people and programs


@lru_cache(maxsize=64)
def _quorum(count: int, *roles: str) -> Quorum:
    if not all(type(role) is str for role in roles):
        raise TypeError("a role that is no text")
    return Quorum(count, frozenset(roles))


def _decision(packed: list[Any]) -> Decision:
    verb, issuer, subject, at, channel, comment, fingerprint, edited, answer = packed
    return Decision(verb, _identity(issuer, subject), instant(at), channel, comment, fingerprint, edited, answer)


def _execution(packed: list[Any]) -> Execution:
    token, worker, attempt, started, finished, result, error, resolved, *stopped = packed
    return Execution(
        token, worker, attempt, instant(started), None if finished is None else instant(finished), result, error,
        None if resolved is None else Identity(*resolved), *stopped,
    )  # fmt: skip


@lru_cache(maxsize=256)
def text_key(text: str) -> str:
    """Return the key under which a store keeps the text of a shape: a digest of all of it, descriptions included."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def request_of(row: Row, seal: Seal, shape: Callable[[str], str]) -> Request:
    """Return the request that a row holds; `shape` looks the text of a shape up by its `text_key`.

    Raises:
        StoreCorruptError: The row is not as this module writes it.
        StoreSealedError: It does not open with this key.
    """
    try:
        return _read(row, seal, shape)
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        raise errors.StoreCorruptError(
            f"request {row.id!r} cannot be read ({type(error).__name__}): its row does not match the journal, it was"
            " altered; nothing was changed and nothing ran. `sayso log --verify` names what differs"
        ) from error


def _read(row: Row, seal: Seal, shape: Callable[[str], str]) -> Request:
    asked: dict[str, Any] = json.loads(seal.open(row.asked, row.id, "asked"))
    if any(name in _KINDS and type(value) is not _KINDS[name] for name, value in asked.items()):
        raise TypeError("a field of another type than is written")
    progress: dict[str, Any] = json.loads(seal.open(row.progress, row.id, "progress"))
    execution = None if row.execution is None else json.loads(seal.open(row.execution, row.id, "execution"))
    subject = _subject(row, seal, _shape_text(asked["shape"], shape))
    needed: list[Any] = asked.get("quorum") or [1]
    return _made(
        id=row.id,
        kind="call" if row.kind == "call" else "question",
        run_id=row.run_id,
        fingerprint=row.fingerprint,
        subject=subject,
        requester=_identity(*asked["requester"]),
        created_at=instant(row.created_at),
        approval_window=timedelta(microseconds=asked["window"]),
        quorum=_quorum(*needed),
        on_behalf_of=Identity(*asked["on_behalf_of"]) if "on_behalf_of" in asked else None,
        also_for=tuple(Identity(*person) for person in asked.get("also_for", ())),
        process=asked.get("process"),
        prompt=asked.get("prompt"),
        description=asked.get("description"),
        risk=row.risk,
        rule=asked.get("rule"),
        context=asked.get("context"),
        place=asked.get("place", ""),
        retries=asked.get("retries", 0),
        idempotent=asked.get("idempotent", False),
        redact=tuple(asked.get("redact", ())),
        notify_arguments=asked.get("notify_arguments", False),
        escalation=_escalation(asked["escalation"]) if "escalation" in asked else None,
        state=State(row.state),
        holds=row.holds is not None,
        edited=_edited(row, seal, subject),
        execution=None if execution is None else _execution(execution),
        purged_at=instant(asked["purged"]) if "purged" in asked else None,
        **_progressed(progress),
    )


def _made(**fields: Any) -> Request:
    request = object.__new__(Request)
    vars(request).update(fields)
    return request


def _progressed(progress: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a request that stand in its `progress`."""
    decision = _decision(progress["decision"]) if "decision" in progress else None
    votes = [_decision(vote) for vote in progress.get("votes") or progress.get("earlier") or ()]
    if "earlier" in progress and decision is not None:
        votes.append(decision)
    claimed, ends, escalated = progress.get("claimed"), progress.get("approval_ends"), progress.get("escalated")
    return {
        "expires_at": instant(progress["ends"]),
        "votes": tuple(votes),
        "decision": decision,
        "claimed_by": None if claimed is None else Identity(*claimed[:2]),
        "claimed_at": None if claimed is None else instant(claimed[2]),
        "escalated_at": None if escalated is None else instant(escalated),
        "approval_expires_at": None if ends is None else instant(ends),
    }


def _shape_text(key: str, shape: Callable[[str], str]) -> str:
    text = shape(key)
    if text_key(text) != key:
        raise ValueError("the text of a shape is not the one that was shown")
    return text


def _subject(row: Row, seal: Seal, shape: str) -> Call | Question:
    form = seal.open(row.form, row.id, "form")
    if row.kind == "question":
        return Question(json.loads(form)["text"], row.digest, shape, row.shape_digest)
    masked = None if row.masked is None else seal.open(row.masked, row.id, "masked")
    return Call(row.tool, row.name, form, masked, row.digest, shape, row.shape_digest)


def _edited(row: Row, seal: Seal, subject: Call | Question) -> Call | None:
    if row.edited_form is None or row.edited_digest is None or not isinstance(subject, Call):
        return None
    form = seal.open(row.edited_form, row.id, "edited_form")
    masked = None if row.edited_masked is None else seal.open(row.edited_masked, row.id, "edited_masked")
    return Call(row.tool, row.name, form, masked, row.edited_digest, subject.shape, row.shape_digest)
