"""Converts requests to rows and back: columns, JSON, encryption, and the digests that tie a row to the journal."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import os
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import lru_cache
from operator import attrgetter
from typing import Any, NamedTuple

from sayso import errors
from sayso.clock import EPOCH, MICROSECOND, instant, microseconds
from sayso.model.canonical.json_tree import ascii_parts, dumps, dumps_sorted
from sayso.model.ids import effect_digest, key_digest
from sayso.model.journal import Entry, RowDigests, row_digest_in
from sayso.model.request import (
    LIVE,
    Call,
    Decision,
    Execution,
    Question,
    Request,
    State,
    notes_of,
    search_text,
)
from sayso.model.reviewer import Escalation, Identity, Quorum

_MARK = "sealed:1:"
_ANY = "sealed:"
_NONCE = 12


class Seal:
    """Encrypts and decrypts texts; without a key it returns them unchanged."""

    def __init__(self, key: str | None = None) -> None:
        self.has_key = key is not None
        self._cipher: Any = None if key is None else _cipher(key)

    def encrypt(self, text: str, owner: str, column: str) -> str:
        """Encrypt a text for one column of one request (or run, or record), to which the result is bound."""
        if not self.has_key:
            return text
        nonce = os.urandom(_NONCE)
        sealed = self._cipher.encrypt(nonce, text.encode(), f"{owner}/{column}".encode())
        return _MARK + base64.b64encode(nonce + sealed).decode("ascii")

    def decrypt(self, text: str, owner: str, column: str) -> str:
        """Decrypt a text.

        Raises:
            StoreSealedError: It was encrypted with another key or for another place, is not encrypted although there is
                a key, or is encrypted and there is no key.
        """
        if not self.has_key:
            if text.startswith(_ANY):
                raise errors.StoreSealedError(
                    f"{_owner(owner, column)} is sealed; set SAYSO_KEY to the key of this store"
                )
            return text
        if not text.startswith(_MARK):
            what = _owner(owner, column)
            what = f"{column} of {what}" if what.startswith("request ") else what
            raise errors.StoreSealedError(
                f"{what} is not sealed, and SAYSO_KEY is set; if it was written before the key was set and nobody"
                " altered it, run `sayso doctor --seal`"
            )
        try:
            packed = base64.b64decode(text[len(_MARK) :], validate=True)
            return self._cipher.decrypt(packed[:_NONCE], packed[_NONCE:], f"{owner}/{column}".encode()).decode()
        except Exception as error:  # the cipher's own error class must not be imported without the extra
            raise errors.StoreSealedError(
                f"{_owner(owner, column)} cannot be decrypted with this SAYSO_KEY: it was sealed with another key, or"
                " altered"
            ) from error


def _owner(owner: str, column: str) -> str:
    """Describe the owner of a text in a message: a record, a step of a run, or a request."""
    table, _, name = column.partition("/")
    return f"the {name} record {owner}" if table == "record" else f"{'run' if table == 'step' else 'request'} {owner}"


def record_column(kind: str) -> str:
    """Return the place, beside the key, to which the encrypted body of a record is bound."""
    return f"record/{kind}"


def step_column(n: int, place: str) -> str:
    """Return the place, beside the run, to which the encrypted body of a step is bound."""
    return f"step/{n}/{place}"


def _cipher(key: str) -> Any:
    try:
        raw = base64.b64decode(key, altchars=b"-_", validate=True)  # a mistyped key must be an error, not another key
    except (ValueError, binascii.Error):
        raw = b""
    if len(raw) != 32:
        raise errors.ConfigError(
            "SAYSO_KEY must be 32 random bytes in URL-safe base64, e.g. from "
            '`python -c "import base64, os; print(base64.urlsafe_b64encode(os.urandom(32)).decode())"`'
        )
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    except ImportError:
        raise errors.ConfigError('SAYSO_KEY needs the extra `crypto`: pip install "sayso[crypto]"') from None
    return AESGCM(raw)


_SEALED_WORDS = ("comment", "reason")


def sealed(detail: dict[str, Any], owner: str, seal: Seal) -> dict[str, Any]:
    """Return an entry's detail with people's words encrypted; the chain covers the encrypted words."""
    words = {name: detail[name] for name in _SEALED_WORDS if isinstance(detail.get(name), str)}
    return detail | {name: seal.encrypt(text, owner, f"journal/{name}") for name, text in words.items()}


def legible(entry: Entry, seal: Seal) -> Entry:
    """Return an entry with people's words decrypted, or a note if that fails. Its link covers the encrypted words."""
    # Somebody may have written bytes into the file, so check the type.
    if type(entry.detail) is not str or '"sealed:' not in entry.detail:
        return entry
    try:
        detail: Any = json.loads(entry.detail)
        words = {name: detail[name] for name in _SEALED_WORDS if str(detail.get(name)).startswith(_ANY)}
    except (AttributeError, ValueError, RecursionError):
        return entry
    for name, text in words.items():
        try:
            detail[name] = seal.decrypt(text, entry.request_id or entry.run_id, f"journal/{name}")
        except errors.StoreSealedError:
            detail[name] = "(sealed)"
    return entry._replace(detail=dumps_sorted(detail))


# The fields of a request that are stored unchanged, with the JSON type of each.
_PLAIN: dict[str, type] = {
    "process": str, "key": str, "effect": str, "title": str, "summary": str, "prompt": str, "description": str,
    "rule": str, "context": dict, "place": str, "retries": int, "idempotent": bool, "redact": list, "channels": list,
    "notify_arguments": bool, "always": bool, "approve_from_notification": bool, "budgets": list,
}  # fmt: skip
_PLAIN_VALUES = attrgetter(*_PLAIN)
_NOT_SAID: dict[str, Any] = {name: getattr(Request, name) for name in _PLAIN}
_KINDS: dict[str, type] = {**_PLAIN, "window": int, "schema_id": str, "purged": int}
_KEPT_EMPTY = {str, dict}  # other types: an empty, zero or None field equals the default for a missing key


class RequestRow(NamedTuple):
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
    schema_digest: str
    key_digest: str | None
    effect_digest: str | None
    holds: int | None
    state: str
    live: int | None
    ends_at: int | None
    claimed_by: str | None
    progress: str
    link: str


ASKED_COLUMNS = RequestRow._fields[:16]
PROGRESS_COLUMNS = RequestRow._fields[16:-1]
SEALED_COLUMNS = ("asked", "form", "masked", "progress")
_SEARCH, _ASKED, _FORM, _MASKED = map(ASKED_COLUMNS.index, ("search", "asked", "form", "masked"))
_ASKED_END = len(ASKED_COLUMNS)
_PROGRESS = RequestRow._fields.index("progress")


def insert_values(request: Request, seal: Seal, detail: dict[str, Any]) -> tuple[tuple[Any, ...], str]:
    """Return the column values of a new request except the link, and the digest of what never changes.

    Adds the digests to `detail`, the detail of the request's first journal entry.
    """
    values, progress = asked_values(request), _progress_values(request)
    digest = detail["asked"] = digest_of_asked(values)
    detail["row_digest"] = _digest_of_row(digest, progress)
    if not seal.has_key:
        return (*values, *progress), digest
    return (*_sealed_asked(values, seal), *_sealed_progress(progress, request.id, seal)), digest


def update_values(
    old: Sequence[Any], before: Request, after: Request, seal: Seal, detail: dict[str, Any], asked: str | None = None
) -> tuple[dict[str, Any], tuple[Any, ...], str]:
    """Return what a transition changes in a row; adds the digests to `detail`, that of its journal entry.

    Args:
        old: The current row, at least its `ASKED_COLUMNS`.
        before: The request of that row.
        after: The request after the transition.
        seal: Encrypts and decrypts texts.
        detail: The transition's detail.
        asked: The digest of what never changes, if it is known; computing it is slow for long requests.

    Returns:
        The changed columns of what was asked, by name (the search text also has notes, and a purge removes content);
        the values of `PROGRESS_COLUMNS`; and the new digest of what never changes.
    """
    again: dict[str, Any] = {}
    if after.purged_at is not before.purged_at:
        values = asked_values(after)
        asked = detail["asked"] = digest_of_asked(values)
        values = _sealed_asked(values, seal)
        again = {name: values[ASKED_COLUMNS.index(name)] for name in ("search", "asked", "form", "masked")}
    elif (
        (after.decision is not before.decision or after.votes is not before.votes)
        and not seal.has_key
        and notes_of(after) != (notes_of(before) if before.votes or before.decision is not None else [])
    ):
        again = {"search": search_text(after)}
    if asked is None:
        asked = asked_digest(old, seal)
    progress = _progress_values(after)
    detail["row_digest"] = _digest_of_row(asked, progress)
    return again, _sealed_progress(progress, after.id, seal) if seal.has_key else progress, asked


def asked_values(request: Request) -> tuple[Any, ...]:
    """Return the values of `ASKED_COLUMNS`, unencrypted."""
    subject, requester, quorum = request.subject, request.requester, request.quorum
    if isinstance(subject, Call):
        tool, name, form, masked = subject.tool, subject.name, subject.form, subject.masked
    else:
        tool, name, form, masked = "", "", dumps({"text": subject.text}), None
    fields: dict[str, Any] = {
        "requester": (requester.issuer, requester.subject),
        "window": request.approval_window // MICROSECOND,
        "schema_id": schema_id(subject.schema),
    }
    if request.on_behalf_of is not None:
        fields["on_behalf_of"] = request.on_behalf_of.issuer, request.on_behalf_of.subject
    if request.also_for:
        fields["also_for"] = [(person.issuer, person.subject) for person in request.also_for]
    if quorum.count != 1 or quorum.roles:
        fields["quorum"] = [quorum.count, *sorted(quorum.roles)]
    if request.purged_at is not None:
        fields["purged"] = microseconds(request.purged_at)
    if request.escalation is not None:
        after, roles, people = request.escalation.after, request.escalation.roles, request.escalation.people
        people = [(person.issuer, person.subject) for person in people]
        fields["escalation"] = [after // MICROSECOND, sorted(roles), people]
    plain = zip(_PLAIN, _PLAIN_VALUES(request), strict=True)
    fields |= {name: value for name, value in plain if value or type(value) in _KEPT_EMPTY}
    asked = "".join(ascii_parts(fields, 0))
    return (
        request.id, request.kind, request.run_id, request.fingerprint, tool, name, request.risk,
        search_text(request), (request.created_at - EPOCH) // MICROSECOND, asked, form, masked,
        subject.digest, subject.schema_digest, None if request.key is None else key_digest(request.run_id, request.key),
        None if request.effect is None else effect_digest(request.effect),
    )  # fmt: skip


def _sealed_asked(values: tuple[Any, ...], seal: Seal) -> tuple[Any, ...]:
    if not seal.has_key:
        return values
    request_id, _, run_id, _, tool = values[:5]
    closed = list(values)
    closed[_SEARCH] = sealed_search(request_id, run_id, tool)
    for place, column in ((_ASKED, "asked"), (_FORM, "form"), (_MASKED, "masked")):
        if closed[place] is not None:
            closed[place] = seal.encrypt(closed[place], request_id, column)
    return tuple(closed)


def _sealed_progress(values: tuple[Any, ...], request_id: str, seal: Seal) -> tuple[Any, ...]:
    return (*values[:-1], seal.encrypt(values[-1], request_id, "progress"))


def digest_of_asked(values: Sequence[Any]) -> str:
    """Return the digest of what never changes, as in the journal's `asked` entry.

    `values` are those of `ASKED_COLUMNS`, decrypted, so that the digest does not depend on the encryption. `search` is
    not covered, because it follows from the rest and from people's words.
    """
    return hashlib.sha256("".join(ascii_parts((*values[:_SEARCH], *values[_SEARCH + 1 :]), 0)).encode()).hexdigest()


def _digest_of_row(asked: str, progress: Sequence[Any]) -> str:
    """Return the digest of a whole row, as in every journal entry of its request.

    `progress` are the values of `PROGRESS_COLUMNS`, decrypted. The link is not covered, because it covers this digest.
    """
    return hashlib.sha256(f"{asked}{tuple(progress[:-1])!a}{progress[-1]}".encode()).hexdigest()


def asked_digest(values: Sequence[Any], seal: Seal) -> str:
    """Return the `digest_of_asked` of a stored row, of which the `ASKED_COLUMNS` are enough; it may be encrypted.

    Raises:
        StoreSealedError: They cannot be decrypted.
    """
    request_id, asked, form, masked = values[0], values[_ASKED], values[_FORM], values[_MASKED]
    asked, form = seal.decrypt(asked, request_id, "asked"), seal.decrypt(form, request_id, "form")
    if masked is not None:
        masked = seal.decrypt(masked, request_id, "masked")
    return digest_of_asked((*values[:_ASKED], asked, form, masked, *values[_MASKED + 1 : _ASKED_END]))


def row_digest(values: Sequence[Any], seal: Seal) -> str:
    """Return the digest of a whole stored row, which may be encrypted.

    Raises:
        StoreSealedError: It cannot be decrypted.
    """
    progress = seal.decrypt(values[_PROGRESS], values[0], "progress")
    return _digest_of_row(asked_digest(values, seal), (*values[_ASKED_END:_PROGRESS], progress))


def verify_row(values: Sequence[Any], newest: tuple[str, str] | None, seal: Seal) -> bool:
    """Return whether a whole row matches the newest journal entry of its request, given as link and detail."""
    row = RequestRow._make(values)
    if newest is None or newest[0] != row.link:
        return False
    return row_digest_in(newest[1]) == _tied(row_digest, row, seal)


def altered(request_id: str, *, is_start: bool = False) -> errors.SaysoError:
    """Return the error for a verb on a row that does not match the journal."""
    if is_start:
        return errors.AlteredRequestError(request_id, "its row does not match the journal")
    return errors.StoreCorruptError(
        f"the row of request {request_id} does not match the journal: it was altered; nothing was changed and nothing"
        " ran. `sayso log --verify` names what differs; restore the store from a copy, or ask again in another run"
    )


def deleted(request_id: str) -> errors.AlteredRequestError:
    """Return the error for a request that only the journal still has."""
    return errors.AlteredRequestError(request_id, "the journal has it, but its row was deleted")


def digests_of(values: Sequence[Any], seal: Seal) -> RowDigests:
    """Return how a whole row is tied to the journal; works for any content of the row."""
    row = RequestRow._make(values)
    asked, whole = (_tied(digest, row, seal) for digest in (asked_digest, row_digest))
    return RowDigests(str(row.id), str(row.run_id), str(row.state), str(row.link), asked, whole)


def _tied(digest: Callable[[RequestRow, Seal], str], row: RequestRow, seal: Seal) -> str | None:
    try:
        return digest(row, seal)
    except errors.StoreSealedError:
        return "" if seal.has_key else None
    except (AttributeError, TypeError, ValueError):
        return ""


def sealed_search(request_id: str, run_id: str, tool: str) -> str:
    """Return the search text of a request whose words are encrypted."""
    return f"{request_id}\n{run_id}\n{tool}".casefold()


_identity = lru_cache(maxsize=1024)(Identity)  # cached, because a long list names the same few people and programs


@lru_cache(maxsize=64)
def _quorum(count: int, *roles: str) -> Quorum:
    if not all(type(role) is str for role in roles):
        raise TypeError("a role that is not a string")
    return Quorum(count, frozenset(roles))


def _decision(packed: list[Any]) -> Decision:
    verb, issuer, subject, at, *rest, held_for, claimed = packed
    rest.append(None if held_for is None else timedelta(microseconds=held_for))
    rest.append(None if claimed is None else _identity(*claimed))
    return Decision(verb, _identity(issuer, subject), instant(at), *rest)


@lru_cache(maxsize=256)
def schema_id(text: str) -> str:
    """Return the key under which a store keeps a schema: a digest of its whole text, descriptions included."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def request_of(row: RequestRow, seal: Seal, schema: Callable[[str], str]) -> Request:
    """Return the request in a row; `schema` returns the text of a schema by its `schema_id`.

    Raises:
        StoreCorruptError: This module did not write the row like this.
        StoreSealedError: It cannot be decrypted with this key.
    """
    try:
        return _read(row, seal, schema)
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        raise errors.StoreCorruptError(
            f"request {row.id!r} cannot be read ({type(error).__name__}): its row does not match the journal, so it was"
            " altered; nothing was changed and nothing ran. `sayso log --verify` names what differs"
        ) from error


def _read(row: RequestRow, seal: Seal, schema: Callable[[str], str]) -> Request:
    asked: dict[str, Any] = json.loads(seal.decrypt(row.asked, row.id, "asked"))
    if any(name in _KINDS and type(value) is not _KINDS[name] for name, value in asked.items()):
        raise TypeError("a field of another type than is written")
    progress: dict[str, Any] = json.loads(seal.decrypt(row.progress, row.id, "progress"))
    text = schema(asked["schema_id"])
    if schema_id(text) != asked["schema_id"]:
        raise ValueError("the text of a schema is not the one that was shown")
    form = seal.decrypt(row.form, row.id, "form")
    if row.kind == "question":
        subject = Question(json.loads(form)["text"], row.digest, text, row.schema_digest)
    else:
        masked = None if row.masked is None else seal.decrypt(row.masked, row.id, "masked")
        subject = Call(row.tool, row.name, form, masked, row.digest, text, row.schema_digest)
    escalation = None
    if "escalation" in asked:
        after, roles, people = asked["escalation"]
        people = tuple(Identity(*person) for person in people)
        escalation = Escalation(timedelta(microseconds=after), frozenset(roles), people)
    edited, packed = None, progress.get("edited")
    if packed is not None and isinstance(subject, Call):
        changed, masked, digest = packed
        if type(changed) is not str or type(masked) not in {str, type(None)} or type(digest) is not str:
            raise TypeError("an edit of another type than is written")
        edited = Call(row.tool, row.name, changed, masked, digest, text, row.schema_digest)
    needed: list[Any] = asked.get("quorum") or [1]
    plain = _NOT_SAID | {name: value for name, value in asked.items() if name in _PLAIN}
    plain["redact"], plain["channels"] = tuple(plain["redact"]), tuple(plain["channels"])
    plain["budgets"] = tuple((text, name) for text, name in plain["budgets"])
    return Request(
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
        risk=row.risk,
        escalation=escalation,
        state=State(row.state),
        holds=row.holds is not None,
        edited=edited,
        purged_at=instant(asked["purged"]) if "purged" in asked else None,
        **plain,
        **_progressed(progress),
    )


def _progressed(progress: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a request that are stored in its `progress`."""
    decision = _decision(progress["decision"]) if "decision" in progress else None
    votes = [_decision(vote) for vote in progress.get("votes") or progress.get("earlier") or ()]
    if "earlier" in progress and decision is not None:
        votes.append(decision)
    claimed, ends, escalated = progress.get("claimed"), progress.get("approval_ends"), progress.get("escalated")
    execution = None
    if "execution" in progress:
        token, worker, attempt, started, finished, result, error, resolved, *rest = progress["execution"]
        execution = Execution(
            token, worker, attempt, instant(started), None if finished is None else instant(finished), result, error,
            None if resolved is None else Identity(*resolved), *rest,
        )  # fmt: skip
    return {
        "expires_at": instant(progress["ends"]),
        "returned": progress.get("returned"),
        "execution": execution,
        "votes": tuple(votes),
        "decision": decision,
        "claimed_by": None if claimed is None else Identity(*claimed[:2]),
        "claimed_at": None if claimed is None else instant(claimed[2]),
        "escalated_at": None if escalated is None else instant(escalated),
        "approval_expires_at": None if ends is None else instant(ends),
    }


_PROGRESS_WORDS = {state: state.value for state in State}  # plain str: SQLite's driver is slow with subclasses


def _progress_values(request: Request) -> tuple[Any, ...]:
    """Return the values of `PROGRESS_COLUMNS`, unencrypted."""
    state, claimed_by, decision, votes = request.state, request.claimed_by, request.decision, request.votes
    execution, ends, approval_ends = request.execution, (request.expires_at - EPOCH) // MICROSECOND, None
    fields: dict[str, Any] = {"ends": ends}
    if votes and votes[-1] is not decision:
        fields["votes"] = [_packed(vote) for vote in votes]
    elif votes:
        fields["earlier"] = [_packed(vote) for vote in votes[:-1]] if len(votes) > 1 else ()
    if decision is not None:
        fields["decision"] = _packed(decision)
    if claimed_by is not None and request.claimed_at is not None:
        fields["claimed"] = claimed_by.issuer, claimed_by.subject, (request.claimed_at - EPOCH) // MICROSECOND
    if request.escalated_at is not None:
        fields["escalated"] = (request.escalated_at - EPOCH) // MICROSECOND
    if request.approval_expires_at is not None:
        fields["approval_ends"] = approval_ends = (request.approval_expires_at - EPOCH) // MICROSECOND
    if request.returned is not None:
        fields["returned"] = request.returned
    if request.edited is not None:
        fields["edited"] = request.edited.form, request.edited.masked, request.edited.digest
    if execution is not None:
        ended, resolver = execution.finished_at, execution.resolved_by
        fields["execution"] = (
            execution.token, execution.worker, execution.attempt, (execution.started_at - EPOCH) // MICROSECOND,
            None if ended is None else (ended - EPOCH) // MICROSECOND, execution.result, execution.error,
            None if resolver is None else (resolver.issuer, resolver.subject), execution.stopped, execution.unresolved,
            execution.kept, execution.not_kept,
        )  # fmt: skip
    return (
        1 if request.holds else None,
        _PROGRESS_WORDS[state],
        1 if state in LIVE else None,
        # The time until which its next step is possible.
        ends if state is State.PENDING else approval_ends if state is State.APPROVED else None,
        None if claimed_by is None else claimed_by.folded,
        "".join(ascii_parts(fields, 0)),
    )


def _packed(decision: Decision) -> tuple[Any, ...]:
    by, held_for, claimed = decision.by, decision.held_for, decision.claimed
    return (
        decision.verb, by.issuer, by.subject, (decision.at - EPOCH) // MICROSECOND, decision.channel, decision.comment,
        decision.fingerprint, decision.edited, decision.answer, decision.again, decision.under,
        None if held_for is None else held_for // MICROSECOND,
        None if claimed is None else (claimed.issuer, claimed.subject),
    )  # fmt: skip
