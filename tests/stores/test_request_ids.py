"""Whatever is about one request has the request's id under all four names, so nobody has to know which is whose."""

from __future__ import annotations

import inspect
import pickle
from collections.abc import Callable
from typing import Any

import pytest

import sayso
from sayso import clock, errors
from sayso.gates import exceptions
from sayso.runs.events import parse_event
from sayso.testing import sample_call

NAMES = ("id", "approval_id", "confirmation_id", "request_id")
ID = "rq_" + "5" * 32


def _taken(kind: Any) -> list[str]:
    """Return what the constructor of an error has to be given."""
    if "_message" in vars(kind):
        return [name for name in kind.facts if not hasattr(kind, name)]
    wanted = inspect.signature(kind.__init__).parameters.values()
    return [
        one.name
        for one in wanted
        if one.default is one.empty
        and one.name != "self"
        and one.kind is not one.VAR_POSITIONAL
        and one.kind is not one.VAR_KEYWORD
    ]


SIGNALS = [getattr(exceptions, name) for name in sorted(vars(exceptions)) if name.startswith("Confirmation")]
FAULTS = [kind for kind in map(errors.__dict__.__getitem__, errors.__all__) if "request_id" in _taken(kind)]
_FACTS: dict[str, Any] = {
    "by": "ada", "at": clock.instant(10), "expired_at": clock.instant(10), "state": "approved", "channel": "cli",
    "age": "1 s ago", "message": "no", "roles": ["finance"], "missing": 1, "seen": "a", "current": "b", "kind": "call",
    "verb": "answer", "instead": "approve", "problems": ["x"], "hint": "x", "what": "x", "result": 1, "reason": "x",
    "error": "x", "effect": "refund:A-4721", "other": ID, "run_id": "order-4721", "key": "call_1",
    "until": clock.instant(10), "milliseconds": 5_000,
}  # fmt: skip


def fault(kind: Any) -> Exception:
    return kind(request_id=ID, **{name: _FACTS[name] for name in _taken(kind) if name != "request_id"})


def event(kind: str, /, **fields: Any) -> Any:
    about = {"runnable_path": "a", "runnable_name": "a", "runnable_type": "tool"}
    return parse_event({"type": kind, "run_id": "r", "path": "a", "t0": 1, **about, **fields})


THINGS: dict[str, Callable[[], Any]] = {
    "Request": lambda: sample_call(id=ID),
    "ResumeState": lambda: sayso.ResumeState(sayso.ConfirmationRequired("?", confirmation_id=ID)),
    "ApprovalEvent": lambda: event("APPROVAL", approval_id=ID, input={}, input_schema={}),
    "InteractionEvent": lambda: event("INTERACTION", interaction_id=ID, kind="confirm", payload={}),
    "ConfirmationRequired of a request": lambda: sayso.ConfirmationRequired.of(sample_call(id=ID)),
    **{kind.__name__: lambda kind=kind: kind("x", confirmation_id=ID) for kind in SIGNALS},
    **{kind.__name__: lambda kind=kind: fault(kind) for kind in FAULTS},
}


@pytest.mark.parametrize("name", THINGS)
def test_the_id_of_a_request_has_the_same_four_names_everywhere(name: str) -> None:
    thing = THINGS[name]()
    assert {one: getattr(thing, one) for one in NAMES} == dict.fromkeys(NAMES, ID)
    if isinstance(thing, Exception):
        again = pickle.loads(pickle.dumps(thing))
        assert [getattr(again, one) for one in NAMES] == [ID] * 4


def test_the_table_has_every_signal_and_every_fault_of_a_request() -> None:
    assert len(SIGNALS) == 6
    assert len(FAULTS) >= 22
    bases = (errors.DecisionRefusedError, errors.StartRefusedError)
    of_requests = {kind.__name__ for base in bases for kind in [base, *base.__subclasses__()] if _is_public(kind)}
    assert of_requests <= THINGS.keys()


def _is_public(kind: type) -> bool:
    return kind.__module__ == "sayso.errors"


def test_where_nobody_was_asked_there_is_no_id() -> None:
    denied = sayso.ConfirmationDenied("too large")
    assert [getattr(denied, name) for name in NAMES] == [None] * 4


def test_an_event_is_told_with_the_names_of_its_face_alone() -> None:
    told = THINGS["ApprovalEvent"]().model_dump()
    assert "approval_id" in told
    assert not {"id", "confirmation_id", "request_id"} & told.keys()
