"""Deciding, and looking after requests: each verb of the person's door (`sayso.reviews`) as an operation.

An approval says what was seen, as `If-Match` with a request's ETag or as `seen` with its fingerprint. The invariant:
what would run now is what was seen, or nothing is decided.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from pydantic import Field

from sayso import errors
from sayso.model import duration
from sayso.server.api import wire
from sayso.server.api.look import request_at, shown
from sayso.server.api.operation import Answer, Asked, Input, Operation
from sayso.server.api.problem import Problem
from sayso.server.token import TokenKind

__all__ = [
    "OPERATIONS",
    "Approve",
    "Cancel",
    "Claim",
    "Extend",
    "Feedback",
    "Reject",
    "Release",
    "Reply",
    "Resolve",
    "answer",
    "approve",
    "cancel",
    "claim",
    "extend",
    "feedback",
    "reject",
    "release",
    "resolve",
]

Comment = Annotated[str | None, Field(max_length=20_000, description="The program is told, and the record keeps it.")]
Seen = Annotated[
    str | None, Field(min_length=1, max_length=200, description="`fingerprint` of the request as it was looked at.")
]
_MATCH = {"If-Match": "ETag of the request as it was looked at; instead of `seen`."}


class Approve(Input):
    """Let the call run, as it stands or with other arguments. `seen` or `If-Match` is needed."""

    changes: dict[str, Any] | None = Field(None, description="New values for some arguments.")
    arguments: dict[str, Any] | None = Field(None, description="All arguments, in place of those that stand.")
    comment: Comment = None
    seen: Seen = None
    again: bool = Field(False, description="Let it start although its effect is taken; `comment` says why.")


class Reject(Input):
    """Say no."""

    comment: Comment = None
    seen: Seen = None


class Feedback(Input):
    """Send a call back with words to the program."""

    comment: str = Field(min_length=1, max_length=20_000)
    seen: Seen = None


class Reply(Input):
    """Answer a question, by a value of its type."""

    value: Any
    comment: Comment = None


class Cancel(Input):
    """End the whole run."""

    comment: Comment = None


class Claim(Input):
    """Take a request on; the body is empty."""


class Release(Input):
    """Give a claimed request back."""

    force: bool = Field(False, description="Free what somebody else claimed; the journal says so.")


class Extend(Input):
    """Let a pending request, or an unused approval, end so long from now."""

    span: str = Field(min_length=1, max_length=100, description="`90s`, `15m`, `24h`, `7d`.")


class Resolve(Input):
    """Say whether a call had its effect whose outcome is unknown."""

    happened: bool
    comment: Comment = None
    force: bool = Field(False, description="Also while it is recorded as running: its worker is surely gone.")


def _seen(asked: Asked, said: str | None) -> str | None:
    """Return the fingerprint that was looked at, as the header or the body says it."""
    tag = asked.http.headers.get("if-match")
    if tag is None:
        return said
    matched = tag.strip().removeprefix("W/").strip('"').partition(".")[0]
    if said is not None and said != matched:
        raise Problem("invalid_input", "If-Match and `seen` name different fingerprints; nothing was decided")
    return matched or None


def approve(asked: Asked) -> Answer:
    """Approve."""
    request, said = request_at(asked), asked.said(Approve)
    seen = _seen(asked, said.seen)
    if seen is None or seen == "*":
        raise Problem(
            "seen_required",
            "an approval needs If-Match, or `seen`, with what was looked at; nothing was decided, look first",
        )
    return shown(asked, asked.review.approve(
        request.id, changes=said.changes, arguments=said.arguments, comment=said.comment, seen=seen,
        again=said.again,
    ))  # fmt: skip


def reject(asked: Asked) -> Answer:
    """Say no."""
    request, said = request_at(asked), asked.said(Reject)
    return shown(asked, asked.review.reject(request.id, said.comment, seen=_seen(asked, said.seen)))


def feedback(asked: Asked) -> Answer:
    """Send back."""
    request, said = request_at(asked), asked.said(Feedback)
    return shown(asked, asked.review.feedback(request.id, said.comment, seen=_seen(asked, said.seen)))


def answer(asked: Asked) -> Answer:
    """Answer a question."""
    request, said = request_at(asked), asked.said(Reply)
    return shown(asked, asked.review.answer(request.id, said.value, comment=said.comment))


def cancel(asked: Asked) -> Answer:
    """End the run."""
    return shown(asked, asked.review.cancel(request_at(asked).id, asked.said(Cancel).comment))


def claim(asked: Asked) -> Answer:
    """Take on."""
    return shown(asked, asked.review.claim(request_at(asked).id))


def release(asked: Asked) -> Answer:
    """Give back."""
    return shown(asked, asked.review.release(request_at(asked).id, force=asked.said(Release).force))


def extend(asked: Asked) -> Answer:
    """Let last longer."""
    request = request_at(asked)
    try:
        span = duration.parse(asked.said(Extend).span)
    except errors.ConfigError as error:
        raise Problem("invalid_input", f"{error}; nothing was changed") from None
    return shown(asked, asked.review.extend(request.id, span))


def resolve(asked: Asked) -> Answer:
    """Say what became of it."""
    request, said = request_at(asked), asked.said(Resolve)
    return shown(asked, asked.review.resolve(
        request.id, happened=said.happened, comment=said.comment, force=said.force
    ))  # fmt: skip


_ALWAYS = ("request_not_found", "own_request", "missing_role", "claimed", "already_decided", "request_expired")


def _verb(
    handler: Callable[[Asked], Answer], summary: str, body: type[Input], *more: str,
    kinds: tuple[TokenKind, ...] = ("review",), matches: bool = False,
) -> Operation:  # fmt: skip
    name = handler.__name__
    return Operation(
        "POST", f"/v1/requests/{{request_id}}/{name}", summary, handler, kinds=kinds, body=body, answer=wire.Request,
        problems=(*_ALWAYS, *more), headers=_MATCH if matches else {},
    )  # fmt: skip


_KEEPERS: tuple[TokenKind, ...] = ("admin", "review")

OPERATIONS = (
    _verb(
        approve, "Approve a call, as it stands or with changes", Approve, "seen_required", "stale_view", "wrong_kind",
        "invalid_changes", "already_voted", "reason_missing", "decision_refused", matches=True,
    ),
    _verb(reject, "Say no", Reject, "stale_view", "reason_missing", matches=True),
    _verb(
        feedback, "Send a call back with words to the program", Feedback, "stale_view", "wrong_kind", "reason_missing",
        matches=True,
    ),
    _verb(answer, "Answer a question", Reply, "wrong_kind", "invalid_answer"),
    _verb(cancel, "End the whole run at a request", Cancel),
    _verb(claim, "Take a request on: nobody else can decide it", Claim),
    _verb(release, "Give a claimed request back", Release, "not_claimed", kinds=_KEEPERS),
    _verb(extend, "Let a request, or an unused approval, last longer", Extend),
    _verb(resolve, "Say whether a call happened whose outcome is unknown", Resolve, "not_unknown", kinds=_KEEPERS),
)  # fmt: skip
