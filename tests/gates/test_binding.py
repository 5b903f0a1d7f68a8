"""What runs is what was shown and approved: against other arguments, altered rows, changed functions.

What a reviewer changes is in `test_edits`; the canonical form is tested beside the model. The invariant: an approval
runs the call whose fingerprint the reviewer decided on, or nothing.
"""

from __future__ import annotations

import copy
import dataclasses
import inspect
import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field

import sayso
from sayso import config, errors
from sayso.model import canonical
from sayso.model.ids import call_digest, fingerprint
from sayso.model.request import Call, State
from sayso.stores.base import Store
from sayso.stores.memory import MemoryStore
from tests.conftest import forget_settings
from tests.support.acting import approved, held
from tests.support.altering import rewrite

# -- the caller's arguments ------------------------------------------------------------------------------------------

ORDER = {
    "id": "A-4721", "lines": [{"sku": "x", "price": 320.0, "count": 2}, {"sku": "y", "price": 80.0, "count": 1}],
    "to": {"name": "Ada", "iban": "CH93 0076", "tags": ("a", "b")}, "note": None, "urgent": False,
}  # fmt: skip
OTHERS = [None, True, 0, 1, -1, 1.0, "", "1", "x ", (), [], {}, b"", 10**20, "\u200b"]


def leaves(tree: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if isinstance(tree, dict):
        for key, value in tree.items():
            yield from leaves(value, (*path, key))
    elif isinstance(tree, list):
        for index, value in enumerate(tree):
            yield from leaves(value, (*path, index))
    else:
        yield path


def changed(tree: Any, rng: random.Random) -> Any:
    """Return the tree with one leaf changed, removed, or added."""
    new = copy.deepcopy(tree)
    path = rng.choice(list(leaves(tree)))
    place = new
    for step in path[:-1]:
        place = place[step]
    old = place[path[-1]]
    match rng.randrange(4):
        case 0 if isinstance(place, dict):
            del place[path[-1]]
        case 1 if isinstance(place, dict):
            place["more"] = rng.choice(OTHERS)
        case _:
            others = [other for other in OTHERS if (type(other), other) != (type(old), old)]
            place[path[-1]] = rng.choice(others)
    return new


def test_no_other_arguments_run_on_an_approval() -> None:
    ran: list[Any] = []

    @sayso.gate(wait="raise", store="memory:")
    def ship(order: Any) -> None:
        ran.append(order)

    config.configure(store="memory:")
    approved(ship, ORDER)
    rng = random.Random(4721)
    for _ in range(1_000):
        held(ship, changed(ORDER, rng))
    assert ran == []
    ship(ORDER)
    assert ran == [ORDER]


def test_arguments_are_bound_as_they_were_when_asked(store: Store) -> None:
    ran: list[Any] = []

    @sayso.gate(wait="raise")
    def ship(lines: list[str]) -> None:
        ran.append(list(lines))

    lines = ["a"]
    approved(ship, lines)
    lines.append("b")
    held(ship, lines)
    lines.pop()
    ship(lines)
    assert ran == [["a"]]


def test_rule_and_prompt_that_change_what_they_look_at_change_nothing_that_was_shown(store: Store) -> None:
    ran: list[Any] = []

    def prompt(lines: list[str]) -> str:
        lines.append("smuggled")
        return "fine"

    @sayso.gate(wait="raise", prompt=prompt)
    def ship(lines: list[str]) -> None:
        ran.append(lines)

    pause = held(ship, ["a"])
    assert pause.tool_call is not None
    assert pause.tool_call.args == {"lines": ["a"]}
    sayso.Review().approve(pause.confirmation_id, by="ada")
    ship(["a"])
    assert ran == [["a"]]


# -- altered rows ----------------------------------------------------------------------------------------------------


class Shelf:
    """A store and the way into it behind its back."""

    def __init__(self, store: Store, path: Path) -> None:
        self.store, self.path = store, path

    def alter(self, request_id: str, **columns: Any) -> None:
        """Write columns of a request's row by hand; what was read before is forgotten."""
        if isinstance(self.store, MemoryStore):
            self._alter_in_memory(request_id, **columns)
            return
        forget_settings()
        rewrite(str(self.path), request_id, **columns)
        config.configure(store=f"sqlite:///{self.path}")
        self.store = config.default_store()

    def _alter_in_memory(self, request_id: str, **columns: Any) -> None:
        assert isinstance(self.store, MemoryStore)
        request = self.store._content.rows[request_id]
        call = {name: columns[name] for name in ("form", "digest", "masked") if name in columns}
        new: dict[str, Any] = {"subject": dataclasses.replace(request.call, **call)} if call else {}
        if "edited" in columns:
            form, masked, digest = columns["edited"]
            new["edited"] = dataclasses.replace(request.call, form=form, digest=digest, masked=masked)
        if "state" in columns:
            new["state"] = State(columns["state"])
        self.store._content.rows[request_id] = dataclasses.replace(request, **new)


@pytest.fixture
def shelf(store: Store, tmp_path: Path) -> Shelf:
    return Shelf(store, tmp_path / "sayso.db")


@pytest.fixture
def paid() -> list[Any]:
    return []


@pytest.fixture
def pay(paid: list[Any]) -> Callable[..., Any]:
    @sayso.gate(wait="raise")
    def pay(amount: int, to: str) -> None:
        paid.append((amount, to))

    return pay


def digest_of(call: Call, form: str) -> str:
    """What the digest of the altered form has to be: it takes no key to compute it."""
    return call_digest(call.tool, call.schema_digest, canonical.digest_input(form))


MORE = json.dumps({"amount": 5_000_000, "to": "mallory"}, separators=(",", ":"))


def assert_not_run(act: Callable[..., Any], request_id: str, paid: list[Any]) -> None:
    with pytest.raises(errors.AlteredRequestError, match="not run") as caught:
        act(5, "alice")
    assert caught.value.request_id == request_id
    assert paid == []
    assert sayso.Review().get(request_id).state is State.FAILED


def test_arguments_altered_in_the_store_are_not_run(shelf: Shelf, pay: Callable[..., Any], paid: list[Any]) -> None:
    with sayso.run("order-1"):
        request_id = approved(pay, 5, "alice")
        shelf.alter(request_id, form=MORE)
        assert_not_run(pay, request_id, paid)


def test_arguments_altered_with_a_matching_digest_are_not_run(
    shelf: Shelf, pay: Callable[..., Any], paid: list[Any]
) -> None:
    with sayso.run("order-1"):
        request_id = approved(pay, 5, "alice")
        digest = digest_of(shelf.store.get(request_id).call, MORE)
        shelf.alter(request_id, form=MORE, digest=digest)
        assert_not_run(pay, request_id, paid)


def test_edit_written_into_an_approved_request_is_not_run(
    shelf: Shelf, pay: Callable[..., Any], paid: list[Any]
) -> None:
    with sayso.run("order-1"):
        request_id = approved(pay, 5, "alice")
        digest = digest_of(shelf.store.get(request_id).call, MORE)
        shelf.alter(request_id, edited=(MORE, None, digest))
        assert_not_run(pay, request_id, paid)


def test_arguments_altered_before_the_decision_are_not_run(
    shelf: Shelf, pay: Callable[..., Any], paid: list[Any]
) -> None:
    with sayso.run("order-1"):
        request_id = held(pay, 5, "alice").confirmation_id
        shelf.alter(request_id, form=MORE)
        sayso.Review().approve(request_id, by="ada")
        assert_not_run(pay, request_id, paid)


def test_request_that_was_marked_approved_by_hand_is_not_run(
    shelf: Shelf, pay: Callable[..., Any], paid: list[Any]
) -> None:
    with sayso.run("order-1"):
        request_id = held(pay, 5, "alice").confirmation_id
        shelf.alter(request_id, state="approved")
        assert_not_run(pay, request_id, paid)


def test_no_altered_leaf_of_a_row_ever_runs(tmp_path: Path) -> None:
    ran: list[Any] = []

    @sayso.gate(wait="raise", store="memory:")
    def ship(order: Any) -> None:
        ran.append(order)

    config.configure(store="memory:")
    shelf, rng = Shelf(config.default_store(), tmp_path), random.Random(4721)
    for turn in range(500):
        with sayso.run(f"order-{turn}"):
            request_id = approved(ship, ORDER)
            form = canonical.encode({"order": changed(ORDER, rng)}).text
            call = shelf.store.get(request_id).call
            assert form != call.form
            shelf.alter(request_id, form=form, **({"digest": digest_of(call, form)} if turn % 2 else {}))
            with pytest.raises(errors.AlteredRequestError):
                ship(ORDER)
    assert ran == []


# -- other runs, other functions -------------------------------------------------------------------------------------


def test_no_approval_counts_in_another_run(store: Store) -> None:
    ran: list[str] = []

    @sayso.gate(wait="raise")
    def act(where: str) -> None:
        ran.append(where)

    names = [f"tenant-{tenant}/order-{order}" for tenant in range(4) for order in range(5)]
    names += ["order-1", "order-1 2", "Order-1", "order-\u0131", "order-1\u0301", "run_x", "rq_x"]
    ids: dict[str, str] = {}
    with sayso.run("granted"):
        granted = approved(act, "same")
    for name in names:
        with sayso.run(name):
            ids[name] = held(act, "same").confirmation_id
    assert granted not in ids.values()
    assert len(set(ids.values())) == len(names)
    assert ran == []


def test_fingerprint_frames_run_and_call_so_that_none_reads_as_another() -> None:
    digests = ["a" * 64, "b" * 64]
    prints = {fingerprint(run, digest) for run in ("x", "xa", "x:1", "x1:", "") for digest in digests}
    assert len(prints) == 10


class Limits(BaseModel):
    most: int = Field(default=5, le=10)


class WiderLimits(BaseModel):
    most: int = Field(default=5, le=1000)


WiderLimits.__qualname__ = "Limits"
LIMITS, WIDER = Limits(), WiderLimits()


# One function, as it was when its call was asked and as it may have become while the request waited.
def as_it_was(amount: int, to: str, limits: Limits = LIMITS) -> None: ...
def renamed_parameter(amount: int, target: str, limits: Limits = LIMITS) -> None: ...
def one_more(amount: int, to: str, limits: Limits = LIMITS, *, force: bool = False) -> None: ...
def one_less(amount: int, to: str) -> None: ...
def wider_type(amount: int | None, to: str, limits: Limits = LIMITS) -> None: ...
def other_type(amount: float, to: str, limits: Limits = LIMITS) -> None: ...
def narrower_type(amount: int, to: Literal["alice", "bob"], limits: Limits = LIMITS) -> None: ...
def new_limit(amount: Annotated[int, Field(le=10)], to: str, limits: Limits = LIMITS) -> None: ...
def other_kind(*, amount: int, to: str, limits: Limits = LIMITS) -> None: ...
def other_order(to: str, amount: int, limits: Limits = LIMITS) -> None: ...
def no_default(amount: int, to: str, limits: Limits) -> None: ...
def wider_class(amount: int, to: str, limits: WiderLimits = WIDER) -> None: ...
def other_module(amount: int, to: str, limits: Limits = LIMITS) -> None: ...


other_module.__module__ = "elsewhere"
BECAME: list[Callable[..., None]] = [
    renamed_parameter, one_more, one_less, wider_type, other_type, narrower_type, new_limit, other_kind, other_order,
    no_default, wider_class, other_module,
]  # fmt: skip
VALUES = {"amount": 5, "to": "alice", "target": "alice"}


def asked(function: Callable[..., None]) -> str:
    """Make the call to Alice, as far as the function knows it, and return the id of its request."""
    function.__qualname__ = "pay"
    names = inspect.signature(function).parameters
    call = {name: value for name, value in VALUES.items() if name in names}
    if "limits" in names:
        call["limits"] = WIDER if function is wider_class else LIMITS
    return held(sayso.gate(wait="raise")(function), **call).confirmation_id


@pytest.mark.parametrize("became", BECAME, ids=lambda became: became.__name__)
@pytest.mark.parametrize("when", ["before", "after"])
def test_changed_function_is_asked_anew(store: Store, became: Callable[..., None], when: str) -> None:
    waiting = asked(as_it_was)
    if when == "after":
        sayso.Review().approve(waiting, by="ada")
    assert asked(became) != waiting


def test_unchanged_function_finds_its_request_again(store: Store) -> None:
    assert asked(as_it_was) == asked(as_it_was)
