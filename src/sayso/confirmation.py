"""The confirmation API: `confirm_first`, a decorator that raises, and functions that record a person's response.

`confirm_first` is a gate that raises, and `respond_to_confirmation` decides through `sayso.reviews.Review`. The run of
the thread or task (`sayso.gates.scope`) remembers its requests; `get_confirmation_context` returns them. Only the store
decides whether a call may run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ParamSpec, TypeVar, Unpack, cast, overload

from sayso import config, errors
from sayso.gates import scope
from sayso.gates.exceptions import ConfirmationRejected, ConfirmationRequired, ToolCall, trimmed
from sayso.gates.gate import ConfirmOptions, gate
from sayso.gates.options import check_known
from sayso.model.rendering import brief
from sayso.model.request import Request, State
from sayso.model.text import escape
from sayso.reviews import Review

__all__ = [
    "ConfirmationRejected", "ConfirmationRequired", "ResumeState", "ToolCall", "clear_all_confirmations",
    "clear_confirmation", "confirm_first", "get_confirmation_context", "get_confirmation_status",
    "respond_to_confirmation",
]  # fmt: skip

P = ParamSpec("P")
R = TypeVar("R")
_WAITS = {"wait", "timeout", "on_expiry", "on_reject"}
_STATUSES = ("approved", "rejected", "edited", "feedback")


@overload
def confirm_first(func: Callable[P, R], **options: Unpack[ConfirmOptions]) -> Callable[P, R]: ...
@overload
def confirm_first(
    func: None = None, **options: Unpack[ConfirmOptions]
) -> Callable[[Callable[P, R]], Callable[P, R]]: ...
@trimmed
def confirm_first(func: Callable[..., Any] | None = None, **options: Any) -> Any:
    """Make a function require a person's approval before every execution: `gate(wait="raise")`.

    The first call raises `ConfirmationRequired`. After the approval, calling again with the same arguments in the same
    run executes it, once. Works on sync and async functions, with positional and keyword arguments.

    Args:
        func: The function; without it, `confirm_first(quorum=2)` is a decorator, as with `sayso.gate`.
        options: Those of `sayso.gate` but `wait`, `timeout`, `on_expiry` and `on_reject`.

    Raises:
        TypeError, ConfigError: An option does not exist or cannot be used.
        ConfirmationRequired: From the decorated function: a person must decide first.
        ConfirmationRejected: From the decorated function: the answer was no.
    """
    waits = sorted(_WAITS.intersection(options))
    if waits:
        raise TypeError(
            f"confirm_first() has no {waits[0]}=, because it always raises; use sayso.gate(…). Nothing was done"
        )
    check_known("confirm_first", options, ConfirmOptions.__optional_keys__)
    declare: Any = gate(wait="raise", **options)
    return declare if func is None else declare(func)


class ResumeState:
    """A saved pause and the person's response to it: what a module needs to resume.

    Args:
        exception: The `ConfirmationRequired` that was raised, or what its `to_dict` saved.
        user_response: `yes`, `no`, changed arguments as JSON, or words to the program.
    """

    def __init__(self, exception: ConfirmationRequired | Mapping[str, Any], user_response: str = "yes") -> None:
        saved = exception
        self.exception = saved if isinstance(saved, ConfirmationRequired) else ConfirmationRequired.from_dict(saved)
        self.user_response = user_response

    @property
    def confirmation_id(self) -> str:
        """Id of the request; also `id`, `approval_id` and `request_id`."""
        return self.exception.confirmation_id

    id = approval_id = request_id = confirmation_id

    @property
    def question(self) -> str:
        """What the person was asked."""
        return self.exception.question

    @property
    def tool_call(self) -> ToolCall | None:
        """The call that waits."""
        return self.exception.tool_call

    @property
    def context(self) -> dict[str, Any]:
        """What the raising module saved."""
        return self.exception.context

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for a session or a database; JSON if `context` is."""
        return {"exception": self.exception.to_dict(), "user_response": self.user_response}

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any]) -> ResumeState:
        """Return what `to_dict` saved."""
        return cls(saved["exception"], saved["user_response"])


def respond_to_confirmation(
    confirmation_id: str,
    approved: bool = True,  # noqa: FBT001, FBT002  the published signature
    data: Any = None,
    status: str | None = None,
    *,
    seen: str | None = None,
) -> None:
    """Record a person's response. It is durable in the request's store on return.

    It counts for the next equal call in the run of the request and, unless that has a name or is a tool's, an agent's
    or a workflow's, also in the caller's run. The decision on a call with a key counts for this key only.

    An id that none of the open stores has is noted in this context only: neither this call nor a later one runs because
    of it. This raises nothing, as the API promises, but the logger `sayso` gets a warning, because usually the id is
    wrong or the request is in another store.

    Args:
        confirmation_id: Id of the request.
        approved: Whether the call may run.
        data: For a call: all arguments, in place of the requested ones, even if it is `{}`. With a rejection or
            feedback: words to the program. For a question: the answer.
        status: `approved`, `rejected`, `edited` or `feedback`; takes precedence over `approved`.
        seen: The `fingerprint` of the `ConfirmationRequired` that the person saw. Without it, an approval counts only
            for the call as it was asked: it is refused if another reviewer has changed the call.

    Raises:
        TypeError: `approved` is not a bool. (`"no"` would count as true.)
        ValueError: The status is none of these, or it is `edited` without `data`.
        InvalidChangesError: The arguments do not fit the function's types; nothing was decided.
        DecisionRefusedError: Or a subclass, e.g. the request was decided before; nothing changed.
    """
    if not isinstance(approved, bool):  # pyright: ignore[reportUnnecessaryIsInstance]  callers may be untyped
        raise TypeError(f"approved= takes True or False, not {approved!r}; nothing was decided")
    chosen = _status(approved=approved, data=data, status=status)
    here = scope.current()
    store = config.store_with(confirmation_id)
    if store is not None:
        request = _decide(Review(store), store.get(confirmation_id), chosen, data, seen)
        # The calls of another run that has a name, or that is saved, find its decisions themselves.
        is_ours = request.process is not None or any(request.run_id == run.run_id for run in here.lineage())
        if is_ours:
            here.adopt(request)
    else:
        import logging

        # Escaped and shortened: a web form may have sent any text as the id.
        logging.getLogger("sayso").warning(
            "respond_to_confirmation(%s): no request with this id in %s; the response approves nothing",
            brief(confirmation_id, 60), " or ".join(escape(one.public_url) for one in config.stores_at_hand()),
        )  # fmt: skip
    response = {"approved": chosen in {"approved", "edited"}, "data": data, "status": chosen}
    here.responses[confirmation_id] = response


def _status(*, approved: bool, data: Any, status: str | None) -> str:
    if status is None:
        if not approved:
            return "rejected"
        return "approved" if data is None else "edited"
    if status not in _STATUSES:
        raise ValueError(f"status= must be one of {', '.join(_STATUSES)}, not {status!r}; nothing was decided")
    if status == "edited" and data is None:
        raise ValueError("status='edited' needs the changed arguments in data=; nothing was decided")
    return "edited" if status == "approved" and data is not None else status


def _decide(review: Review, request: Request, chosen: str, data: Any, seen: str | None) -> Request:
    request_id, seen = request.id, request.fingerprint if seen is None else seen
    words = None if data is None else data if isinstance(data, str) else repr(data)
    if chosen == "rejected":
        return review.reject(request_id, words)
    if request.kind == "question":
        return review.answer(request_id, data)
    if chosen == "feedback":
        return review.feedback(request_id, words or "")
    if data is None:
        return review.approve(request_id, seen=seen)
    if not isinstance(data, Mapping):
        raise errors.InvalidChangesError(
            request_id, [f"data= takes the changed arguments as a dict, not {type(data).__name__}"]
        )
    return review.approve(request_id, arguments=cast("Mapping[str, Any]", data), seen=seen)


def get_confirmation_status(confirmation_id: str) -> str | None:
    """Return the status of the request `confirmation_id`, whichever channel decided it.

    Returns:
        `pending` (also for an id that was never asked), `approved`, `edited`, `rejected`, `feedback`, `answered`,
        `cancelled` or `expired`. For an id that only this context knows: the status that was recorded in it.
    """
    store = config.store_with(confirmation_id)
    if store is None:
        known = [s.responses[confirmation_id] for s in scope.current().lineage() if confirmation_id in s.responses]
        return known[0]["status"] if known else "pending"
    request = store.settle(confirmation_id)
    match request.state:
        case State.APPROVED | State.RUNNING | State.DONE | State.FAILED | State.UNKNOWN:
            return "approved" if request.edited is None else "edited"
        case state:
            return state.value


def get_confirmation_context() -> dict[str, dict[str, Any]]:
    """Return the requests of this thread or task by id: `approved`, `data` and `status` of each.

    The result is a copy. A request leaves the context when its call is executed or when it is cleared.
    """
    context: dict[str, dict[str, Any]] = {}
    for here in reversed(list(scope.current().lineage())):
        for request_id in here.raised:
            context[request_id] = {"approved": False, "data": None, "status": "pending"}
        context |= {request_id: dict(response) for request_id, response in here.responses.items()}
    for request_id, known in context.items():
        if known["status"] == "pending":
            known["status"] = get_confirmation_status(request_id)
            known["approved"] = known["status"] in {"approved", "edited"}
    return context


def clear_confirmation(confirmation_id: str) -> None:
    """Withdraw the request `confirmation_id`, or forget its rejection, so that the same call asks again.

    A running call is not affected.
    """
    scope.current().forget(confirmation_id)
    store = config.store_with(confirmation_id)
    if store is not None:
        store.withdraw(confirmation_id, config.requester())


def clear_all_confirmations() -> None:
    """Clear every request of this thread or task."""
    for request_id in list(get_confirmation_context()):
        clear_confirmation(request_id)
