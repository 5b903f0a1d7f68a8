"""A request as the columns of a row, and back; shared by the stores that keep rows.

What is looked for stands in columns of its own; the rest are two JSON texts, `asked` (never changes) and `progress`.
Everything that may hold what a program or a person wrote passes through the seal.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any, NamedTuple

from sayso import errors
from sayso.clock import instant, microseconds
from sayso.model.call import Call, Question
from sayso.model.canonical.compact import dumps
from sayso.model.decision import Decision
from sayso.model.quorum import Quorum
from sayso.model.request import LIVE, Execution, Request, State
from sayso.model.reviewer import Identity
from sayso.stores.seal import Seal
from sayso.stores.select import search_text

__all__ = ["ASKED_COLUMNS", "PROGRESS_COLUMNS", "Row", "asked_values", "progress_values", "request_of"]

_MICROSECOND = timedelta(microseconds=1)
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
    holder: str | None
    state: str
    live: int | None
    ends_at: int | None
    claimed_by: str | None
    edited_form: str | None
    edited_masked: str | None
    edited_digest: str | None
    progress: str
    link: str


ASKED_COLUMNS = Row._fields[:14]
PROGRESS_COLUMNS = Row._fields[14:]


def asked_values(request: Request, seal: Seal) -> tuple[Any, ...]:
    """Return the values of `ASKED_COLUMNS`."""
    subject, request_id = request.subject, request.id
    if isinstance(subject, Call):
        tool, name, form, masked = subject.tool, subject.name, subject.form, subject.masked
    else:
        tool, name, form, masked = "", "", dumps({"text": subject.text}), None
    return (
        request_id, request.kind, request.run_id, request.fingerprint, tool, name, request.risk,
        _writable(search_text(request)) if seal.is_open else f"{request_id}\n{request.run_id}\n{tool}".casefold(),
        microseconds(request.created_at), seal.close(_asked_text(request), request_id),
        seal.close(form, request_id), None if masked is None else seal.close(masked, request_id),
        subject.digest, subject.shape_digest,
    )  # fmt: skip


def _writable(text: str) -> str:
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def _asked_text(request: Request) -> str:
    quorum = request.quorum
    fields: dict[str, Any] = {
        "requester": _pair(request.requester),
        "on_behalf_of": None if request.on_behalf_of is None else _pair(request.on_behalf_of),
        "window": request.approval_window // _MICROSECOND,
        "quorum": [quorum.count, *sorted(quorum.roles)] if quorum != Quorum() else None,
        "prompt": request.prompt,
        "description": request.description,
        "rule": request.rule,
        "context": request.context,
        "retries": request.retries,
        "idempotent": request.idempotent,
        "redact": request.redact,
    }
    return dumps({key: value for key, value in fields.items() if value not in _LEFT_OUT})


def progress_values(request: Request, seal: Seal, link: str) -> tuple[Any, ...]:
    """Return the values of `PROGRESS_COLUMNS`; `link` is that of the journal's row for the change."""
    request_id, state, edited = request.id, request.state, request.edited
    end = request.expires_at if state is State.PENDING else None
    if state is State.APPROVED:
        end = request.approval_expires_at
    return (
        request.fingerprint if request.holds else None,
        state.value,
        1 if state in LIVE else None,
        None if end is None else microseconds(end),
        None if request.claimed_by is None else request.claimed_by.folded,
        None if edited is None else seal.close(edited.form, request_id),
        None if edited is None or edited.masked is None else seal.close(edited.masked, request_id),
        None if edited is None else edited.digest,
        seal.close(_progress_text(request), request_id),
        link,
    )


def _progress_text(request: Request) -> str:
    fields: dict[str, Any] = {"ends": microseconds(request.expires_at)}
    if request.votes and request.votes[-1] is not request.decision:
        fields["votes"] = [_packed(vote) for vote in request.votes]
    elif request.votes:
        fields["earlier"] = [_packed(vote) for vote in request.votes[:-1]]
    if request.decision is not None:
        fields["decision"] = _packed(request.decision)
    if request.claimed_by is not None and request.claimed_at is not None:
        fields["claimed"] = [*_pair(request.claimed_by), microseconds(request.claimed_at)]
    if request.approval_expires_at is not None:
        fields["approval_ends"] = microseconds(request.approval_expires_at)
    execution = request.execution
    if execution is not None:
        fields["execution"] = [
            execution.token, execution.worker, execution.attempt, microseconds(execution.started_at),
            None if execution.finished_at is None else microseconds(execution.finished_at),
            execution.result, execution.error,
            None if execution.resolved_by is None else _pair(execution.resolved_by),
        ]  # fmt: skip
    return dumps(fields)


def _pair(identity: Identity) -> tuple[str, str]:
    return identity.issuer, identity.subject


def _packed(decision: Decision) -> list[Any]:
    return [
        decision.verb, decision.by.issuer, decision.by.subject, microseconds(decision.at), decision.channel,
        decision.comment, decision.fingerprint, decision.edited, decision.answer,
    ]  # fmt: skip


def _decision(packed: list[Any]) -> Decision:
    verb, issuer, subject, at, channel, comment, fingerprint, edited, answer = packed
    return Decision(verb, Identity(issuer, subject), instant(at), channel, comment, fingerprint, edited, answer)


def _execution(packed: list[Any]) -> Execution:
    token, worker, attempt, started, finished, result, error, resolved = packed
    return Execution(
        token, worker, attempt, instant(started), None if finished is None else instant(finished), result, error,
        None if resolved is None else Identity(*resolved),
    )  # fmt: skip


def request_of(row: Row, seal: Seal, shape: Callable[[str], str]) -> Request:
    """Return the request that a row holds; `shape` looks the text of a shape up by its digest.

    Raises:
        StoreCorruptError: The row is not as this module writes it.
        StoreSealedError: It does not open with this key.
    """
    try:
        return _read(row, seal, shape)
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        raise errors.StoreCorruptError(
            f"request {row.id!r} cannot be read ({type(error).__name__}): its row was altered; nothing was changed"
        ) from error


def _read(row: Row, seal: Seal, shape: Callable[[str], str]) -> Request:
    asked: dict[str, Any] = json.loads(seal.open(row.asked, row.id))
    progress: dict[str, Any] = json.loads(seal.open(row.progress, row.id))
    subject = _subject(row, seal, shape)
    decision = _decision(progress["decision"]) if "decision" in progress else None
    votes = [_decision(vote) for vote in progress.get("votes") or progress.get("earlier") or ()]
    if "earlier" in progress and decision is not None:
        votes.append(decision)
    needed: list[Any] = asked.get("quorum") or [1]
    claimed, ends = progress.get("claimed"), progress.get("approval_ends")
    return Request(
        id=row.id,
        kind="call" if row.kind == "call" else "question",
        run_id=row.run_id,
        fingerprint=row.fingerprint,
        subject=subject,
        requester=Identity(*asked["requester"]),
        created_at=instant(row.created_at),
        expires_at=instant(progress["ends"]),
        approval_window=timedelta(microseconds=asked["window"]),
        quorum=Quorum(needed[0], frozenset(needed[1:])),
        on_behalf_of=Identity(*asked["on_behalf_of"]) if "on_behalf_of" in asked else None,
        prompt=asked.get("prompt"),
        description=asked.get("description"),
        risk=row.risk,
        rule=asked.get("rule"),
        context=asked.get("context"),
        retries=asked.get("retries", 0),
        idempotent=asked.get("idempotent", False),
        redact=tuple(asked.get("redact", ())),
        state=State(row.state),
        holds=row.holder is not None,
        votes=tuple(votes),
        decision=decision,
        edited=_edited(row, seal, subject),
        claimed_by=None if claimed is None else Identity(*claimed[:2]),
        claimed_at=None if claimed is None else instant(claimed[2]),
        approval_expires_at=None if ends is None else instant(ends),
        execution=_execution(progress["execution"]) if "execution" in progress else None,
    )


def _subject(row: Row, seal: Seal, shape: Callable[[str], str]) -> Call | Question:
    form = seal.open(row.form, row.id)
    if row.kind == "question":
        return Question(json.loads(form)["text"], row.digest, shape(row.shape_digest), row.shape_digest)
    masked = None if row.masked is None else seal.open(row.masked, row.id)
    return Call(row.tool, row.name, form, masked, row.digest, shape(row.shape_digest), row.shape_digest)


def _edited(row: Row, seal: Seal, subject: Call | Question) -> Call | None:
    if row.edited_form is None or row.edited_digest is None or not isinstance(subject, Call):
        return None
    form = seal.open(row.edited_form, row.id)
    masked = None if row.edited_masked is None else seal.open(row.edited_masked, row.id)
    return Call(row.tool, row.name, form, masked, row.edited_digest, subject.shape, row.shape_digest)
