"""Errors as RFC 9457 problem details with stable codes.

The codes of errors (`already_decided`, `stale_view`, `not_found`) come from the class names in `sayso.errors`; those of
HTTP itself are defined here. An unknown id and an id that the client may not see get the same answer.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta
from functools import cache
from typing import Any, NamedTuple

from starlette.responses import Response

from sayso import clock, errors

_log = logging.getLogger("sayso.server")

_QUIET, _MOST_FAULTS = timedelta(minutes=10), 1_000
MEDIA_TYPE = "application/problem+json"
_TYPE = "https://sayso.invalid/problems/"


class ProblemKind(NamedTuple):
    """One kind of problem, with its code, status and title."""

    code: str
    status: int
    title: str


_OF_HTTP = (
    ProblemKind("invalid_json", 400, "The body is not valid JSON (RFC 8259)"),
    ProblemKind("not_signed_in", 401, "The token or session is missing or not valid"),
    ProblemKind("not_from_here", 403, "A change in a session needs its CSRF token and this server's Origin"),
    ProblemKind("wrong_token_kind", 403, "Tokens of this kind may not do this"),
    ProblemKind("not_found", 404, "Not found"),
    ProblemKind("method_not_allowed", 405, "Method not allowed"),
    ProblemKind("not_admitted", 403, "This person may not review here"),
    ProblemKind("body_too_slow", 408, "The body did not arrive in time"),
    ProblemKind("body_too_large", 413, "The body is too large"),
    ProblemKind("wrong_content_type", 415, "The Content-Type is not application/json"),
    ProblemKind("invalid_input", 422, "The input is not valid"),
    ProblemKind("seen_required", 428, "An approval must name what was seen"),
    ProblemKind("rate_limited", 429, "Too many requests"),
    ProblemKind("internal", 500, "Internal error"),
)

# The nearest class of an error decides; an error without one is 500.
_STATUSES: dict[int, tuple[type[errors.SaysoError], ...]] = {
    403: (errors.OwnRequestError, errors.MissingRoleError),
    404: (errors.RequestNotFoundError, errors.AmbiguousIdError, errors.RunNotFoundError, errors.GrantNotFoundError),
    409: (
        errors.DecisionRefusedError, errors.StartRefusedError, errors.RunBusyError, errors.RunChangedError,
        errors.ValueNotKeptError,
    ),
    412: (errors.StaleViewError,),
    422: (
        errors.InvalidChangesError, errors.InvalidAnswerError, errors.ReasonMissingError, errors.WrongKindError,
        errors.GrantRefusedError, errors.ArgumentError, errors.AskRefusedError, errors.ConfigError,
    ),
    429: (errors.TooManyOpenError, errors.TooManyOpenForTokenError),
    500: (errors.StoreCorruptError, errors.StoreSealedError),  # not 503: a retry does not help
    503: (errors.StoreError,),
}  # fmt: skip
_PLAIN = (str, int, datetime, tuple, type(None))
_DECIDED_BY = {"approved": "approve", "answered": "answer", "cancelled": "cancel", "feedback": "feedback"}


class Problem(Exception):
    """An error answer: what went wrong, and that nothing was done."""

    def __init__(self, code: str, detail: str, *, headers: Mapping[str, str] | None = None, **data: Any) -> None:
        super().__init__(detail)
        self.kind = kinds()[code]
        self.detail = detail
        self.headers = dict(headers or {})
        self.data = data


def kind_of(fault: type[errors.SaysoError]) -> ProblemKind:
    """Return the kind of problem for an error class of `sayso.errors`."""
    code = re.sub(r"(?<!^)(?=[A-Z])", "_", fault.__name__.removesuffix("Error")).lower()
    status = next((status for kind in fault.__mro__ for status, kinds in _STATUSES.items() if kind in kinds), 500)
    title = (fault.__doc__ or "").partition("\n")[0].partition(".")[0].replace("\u2060", "")
    return ProblemKind(code, status, title)


@cache
def kinds() -> dict[str, ProblemKind]:
    """Return all kinds of problems by code."""
    faults = [kind_of(getattr(errors, name)) for name in errors.__all__]
    return {kind.code: kind for kind in (*_OF_HTTP, *faults)}


class FaultLog:
    """Logs each error at most once in ten minutes, because retrying programs cause the same error again and again."""

    def __init__(self) -> None:
        self._logged: dict[str, datetime] = {}

    def error(self, method: str, path: str, fault: errors.SaysoError) -> None:
        """Log an error of a request, unless it was logged recently."""
        if self._is_new(f"{type(fault).__name__}: {fault}"):
            _log.error("%s %s: %s", method, path, fault)

    def warn(self, text: str) -> None:
        """Log why access was refused, unless the same was logged recently."""
        if self._is_new(text):
            _log.warning("%s", text)

    def _is_new(self, text: str) -> bool:
        now, last = clock.now(), self._logged.get(text)
        if last is not None and timedelta(0) <= now - last < _QUIET:
            return False
        if len(self._logged) >= _MOST_FAULTS:
            self._logged.clear()
        self._logged[text] = now
        return True


def problem_of(fault: errors.SaysoError | Problem) -> Problem:
    """Convert an error to a problem, without details of the server's files and settings."""
    if isinstance(fault, Problem):
        return fault
    kind = kind_of(type(fault))
    if kind.status == 404:
        return Problem(kind.code, "there is nothing with this id that you may see; nothing was done")
    if isinstance(fault, errors.StoreCorruptError):
        return Problem(
            kind.code,
            "the stored data does not match the journal, or is damaged; nothing was done and nothing ran."
            " See the server's log",
        )
    if kind.status >= 500:
        return Problem(
            kind.code if isinstance(fault, errors.StoreError) else "internal",
            "the server cannot do this now; nothing was done. See the server's log",
        )
    facts: dict[str, Any] = {
        name: clock.written(value) if isinstance(value, datetime) else [*value] if isinstance(value, tuple) else value
        for name, value in vars(fault).items() if isinstance(value, _PLAIN)
    }  # fmt: skip
    if isinstance(fault, errors.AlreadyDecidedError):
        facts |= {"decided_by": facts.pop("by"), "decided_at": facts.pop("at")}
        facts["verb"] = _DECIDED_BY.get(fault.state, "reject")
    return Problem(kind.code, str(fault), **facts)


@contextmanager
def refusing_input(undone: str = "; nothing was done") -> Generator[None]:
    """Raise `Problem` for an error of the block about input that is valid by its schema; `undone` ends its message."""
    try:
        yield
    except (ValueError, errors.ConfigError) as error:
        raise Problem("invalid_input", f"{error}{undone}") from None


def document_of(problem: Problem) -> dict[str, Any]:
    """Return a problem as RFC 9457 problem details."""
    code, status, title = problem.kind
    content = {"type": _TYPE + code, "title": title, "status": status, "detail": problem.detail, "code": code}
    return {**problem.data, **content}


def response(problem: Problem) -> Response:
    """Return the HTTP response for a problem."""
    text = json.dumps(document_of(problem))
    return Response(text, status_code=problem.kind.status, media_type=MEDIA_TYPE, headers=problem.headers)
