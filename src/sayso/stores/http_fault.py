"""What a sayso server answered instead of a yes, as the fault that a store on this machine would have raised.

The server names faults by their classes in `sayso.errors` (`already_started` is `AlreadyStartedError`) and sends their
facts along. The invariant: whatever it answers, what is raised is a `SaysoError`, which runs nothing.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import Any, cast

from sayso import errors

__all__ = ["beginning", "fault_of"]

_NOT_KNOWN, _NOT_LET_IN = 401, 403
_INSTANTS = ("at", "expired_at")
_OF_DOCUMENT = ("type", "title", "status", "detail", "code")


def fault_of(status: int, problem: Any, about: str) -> errors.SaysoError:
    """Return the fault that an answer tells of.

    Args:
        status: Of the answer.
        problem: Its content, which should be problem details (RFC 9457).
        about: The id of the request or run that was spoken of; the server does not repeat one that it does not show.
    """
    said = cast("Mapping[str, Any]", problem if isinstance(problem, dict) else {})
    code, detail = str(said.get("code", "")), str(said.get("detail", f"HTTP status {status}"))
    match code:
        case "request_not_found":
            return errors.RequestNotFoundError(about)
        case "run_not_found":
            return errors.RunNotFoundError(about)
        case "rate_limited":
            return errors.StoreBusyError(f"the sayso server has heard enough of this token for now: {detail}")
        case _:
            kind = _kind(code)
    if kind is not None:
        return _rebuilt(kind, detail, said)
    if status == _NOT_KNOWN:
        return errors.StoreForbiddenError(
            "the server does not know SAYSO_TOKEN: revoked, ended or mistyped; nothing runs, make another one with"
            " `sayso token new` on the server"
        )
    if status == _NOT_LET_IN:
        return errors.StoreForbiddenError(f"the sayso server does not let this token do that: {detail}")
    if status >= 500:
        return errors.StoreUnavailableError(f"the sayso server failed ({detail}); nothing runs that it did not allow")
    if not code:
        return errors.StoreError(f"this address does not answer as a sayso server ({detail}); look at SAYSO_STORE")
    return errors.StoreError(f"the sayso server did not take what was sent ({code}: {detail})")


@contextmanager
def beginning(run_id: str) -> Generator[None]:
    """Say inside the block, where a run may be begun, that its name is another's instead of that it is not there.

    The server answers the same for both; a name that nobody has used is never refused to who begins a run.
    """
    try:
        yield
    except errors.RunNotFoundError as refusal:
        said = (
            f"the run name {run_id!r} cannot be used with this token, and nothing was asked; choose another name (a run"
            " belongs to the program that began it)"
        )
        refusal.args = (said,)
        raise


def _kind(code: str) -> type[errors.SaysoError] | None:
    name = "".join(part.capitalize() for part in code.split("_")) + "Error"
    return getattr(errors, name) if name in errors.__all__ else None


def _rebuilt(kind: type[errors.SaysoError], detail: str, said: Mapping[str, Any]) -> errors.SaysoError:
    # The message was made over there, of facts that all come along: the class's own way to make it is not wanted.
    fault = kind.__new__(kind, detail)
    fault.args = (detail,)
    for name, value in said.items():
        if name not in _OF_DOCUMENT:
            setattr(fault, name, _instant(value) if name in _INSTANTS else value)
    return fault


def _instant(value: Any) -> Any:
    try:
        return datetime.fromisoformat(value)
    except (TypeError, ValueError):
        return value
