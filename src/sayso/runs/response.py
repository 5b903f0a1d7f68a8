"""What a person's response to a pause means, and its record in the store.

`yes`, `y`, `no`, `n` (any case, spaces around), a JSON object with changed arguments, or words to the program; for a
question the response is the answer. The invariant: what was decided through another channel in the meantime stands,
and a response that cannot be used decides nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, cast

from sayso import config, errors, scope
from sayso.confirmation import ConfirmationRequired, ResumeState, respond_to_confirmation
from sayso.model.request import Call, Request, State
from sayso.reviews import Review
from sayso.runs.models import read_arguments
from sayso.stores.base import Store

__all__ = ["Response", "check_shown", "record", "respond", "saved_of", "store_of"]

Response = str | Mapping[str, Any] | None
"""What the person said; None where nothing was said here, and what stands counts."""

_YES, _NO = frozenset({"yes", "y"}), frozenset({"no", "n"})


def saved_of(state: Any, response: Response = None) -> tuple[Any, Response]:
    """Return the pause and the response that a `resume_state` stands for.

    Args:
        state: A `ResumeState`, a `ConfirmationRequired`, or what the `to_dict` of either saved; anything else is
            returned as it is, for the module whose `asuspend` made it.
        response: Wins over the one in a `ResumeState`.
    """
    if isinstance(state, Mapping):
        saved = cast("Mapping[str, Any]", state)
        if "exception" in saved and "user_response" in saved:
            state = ResumeState.from_dict(saved)
        elif "confirmation_id" in saved and "question" in saved:
            state = ConfirmationRequired.from_dict(saved)
    if isinstance(state, ResumeState):
        return state.exception, state.user_response if response is None else response
    return cast("Any", state), response


def store_of(request_id: str) -> Store | None:
    """Return the store that has the request: the configured one, or another that this process opened."""
    for store in config.stores_at_hand():
        with suppress(errors.RequestNotFoundError):
            store.get(request_id)
            return store
    return None


def record(store: Store, request: Request, response: Response, *, seen: str | None = None) -> None:
    """Take a response for a decision. Durable on return; nothing happens where the request is decided already.

    Args:
        store: Where the request lives.
        request: As it stands.
        response: What the person said; None and white space say nothing.
        seen: Fingerprint of the call that the person looked at.

    Raises:
        InvalidChangesError: Changed arguments that do not fit, or JSON that is none; the request still waits.
        DecisionRefusedError: Another of its kinds; the request is as it was.
    """
    text = response.strip() if isinstance(response, str) else response
    if request.state is not State.PENDING or text is None or text == "":
        return
    # Somebody was faster, or it was too late: then that is what counts.
    with suppress(errors.AlreadyDecidedError, errors.RequestExpiredError):
        _decide(Review(store), request, text, seen)


def _decide(review: Review, request: Request, said: str | Mapping[str, Any], seen: str | None) -> None:
    if request.kind == "question":
        review.answer(request.id, said)
        return
    if isinstance(said, str) and said.startswith("{"):
        said = _object(request, said)
    match said:
        case str() if said.lower() in _YES:
            review.approve(request.id, seen=seen)
        case str() if said.lower() in _NO:
            review.reject(request.id, seen=seen)
        case str():
            review.feedback(request.id, said, seen=seen)
        case _ if not said:
            # `{}` takes everything away; merged over the call it would approve what the person wanted changed.
            review.approve(request.id, arguments={}, seen=seen)
        case _:
            review.approve(request.id, changes=said, seen=seen)


def _object(request: Request, text: str) -> dict[str, Any]:
    arguments, problem = read_arguments(text)
    if problem is not None:
        raise errors.InvalidChangesError(request.id, [problem])
    return arguments


def check_shown(signal: ConfirmationRequired, request: Request) -> None:
    """Refuse a response to something else than what waits: a pause may have been changed where it was saved.

    Raises:
        DecisionRefusedError: What the pause shows is not what would run; nothing was decided.
    """
    shown = None if signal.tool_call is None else signal.tool_call.args
    real = request.effective.arguments if isinstance(request.subject, Call) else None
    is_same = signal.confirmation_id == request.id and json.dumps(shown, sort_keys=True) == json.dumps(
        real, sort_keys=True
    )
    if not is_same:
        raise errors.DecisionRefusedError(
            request.id, f"the pause does not show what waits as {request.id}; look again, nothing was decided"
        )


def respond(saved: Any, response: Response) -> None:
    """Record a response from the thread or task that will make the same call again, and let it find the decision."""
    if not isinstance(saved, ConfirmationRequired):
        raise TypeError(f"cannot go on from {type(saved).__name__}: a pause is a ConfirmationRequired or a ResumeState")
    request_id = saved.confirmation_id
    store = store_of(request_id)
    if store is None:
        _note(request_id, response)
        return
    record(store, store.settle(request_id), response)
    request, here = store.get(request_id), scope.current()
    if isinstance(request.subject, Call):
        here.adopted[request.subject.digest] = request_id


def _note(request_id: str, response: Response) -> None:
    """Note the response to something that was never asked: the module that raised it may look it up."""
    if isinstance(response, str):
        said = response.strip().lower()
        is_plain = said in _YES | _NO
        respond_to_confirmation(
            request_id,
            approved=said in _YES,
            data=None if is_plain else response,
            status=None if is_plain else "feedback",
        )
    elif response is not None:
        respond_to_confirmation(request_id, approved=True, data=response)
