"""Where confirmation libraries of this shape were seen to fail, ours is shown to hold: one test for each weakness.

Each was found in a library that keeps confirmations by a computed id in a context variable, and each let a call run
that nobody had agreed to, twice, or with other arguments. The invariant: an effect is counted, never inferred.
"""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import json
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import Path, PurePosixPath
from typing import Any
from uuid import UUID

import pytest

import sayso
from sayso import confirmation, errors
from sayso.stores.base import Store
from tests.conftest import Clock
from tests.support.acting import Disk, aheld, approved, concurrently, forked, held, program, running
from tests.support.ids import stable

ASK = """
import sys, sayso
sayso.configure(store=sys.argv[1])

@sayso.confirm_first
def delete(path: str) -> None: ...

with sayso.run("tidy"):
    try:
        delete("/tmp/a")
        print("ran")
    except sayso.ConfirmationRequired as pause:
        print(pause.confirmation_id)
"""


def test_id_does_not_change_from_process_to_process(file_store: Store) -> None:
    ids = {running(program(ASK, file_store.url, PYTHONHASHSEED="random")) for _ in range(5)}
    assert len(ids) == 1
    assert ids.pop().startswith("rq_")


class Colour(Enum):
    RED = "red"


@dataclass
class Point:
    x: int


@dataclass
class Place:
    x: int


ALIKE = [
    ("1", 1), (1, 1.0), (1, True), (0.0, -0.0), (2**53, 2**53 + 1), (None, "None"), ((1,), [1]), (b"a", "b'a'"),
    (Path("/a"), "/a"), (date(2026, 1, 31), "2026-01-31"),
    (datetime(2026, 1, 1, tzinfo=UTC).replace(tzinfo=None), datetime(2026, 1, 1, tzinfo=UTC)),
    (Decimal("1.0"), Decimal("1.00")), (Decimal(1), 1), (timedelta(days=1), "1 day, 0:00:00"), (Colour.RED, "red"),
    (UUID(int=1), str(UUID(int=1))), (Point(1), Place(1)), (Point(1), {"x": 1}), ("e\u0301", "\u00e9"),
    ({"a": 1, "b": 2}, {"a": 2, "b": 1}), (1e-12, 2e-12), ([], {}), ("", None),
]  # fmt: skip


@pytest.mark.parametrize(("one", "other"), ALIKE, ids=stable)
def test_arguments_that_print_alike_are_not_one_call(store: Store, one: Any, other: Any) -> None:
    ran: list[Any] = []

    @sayso.confirm_first
    def act(value: str | float | Decimal | Colour | Point | Place | Any) -> None:
        ran.append(value)

    mine = approved(act, one)
    assert held(act, other).confirmation_id != mine
    assert ran == []
    act(one)
    assert len(ran) == 1
    assert type(ran[0]) is type(one)
    assert ran[0] == one


@pytest.mark.parametrize("odd", [{1: "x"}, {1, 2}, float("nan"), object(), PurePosixPath, "\udcff"], ids=stable)
def test_argument_without_an_exact_form_is_refused_by_name(store: Store, odd: Any) -> None:
    @sayso.confirm_first
    def act(thing: Any) -> None:
        raise AssertionError

    with pytest.raises(errors.ArgumentError, match="neither recorded nor run") as caught:
        act(odd)
    assert caught.value.argument.startswith("thing")
    assert sayso.Review().list(state="all").requests == ()


def test_functions_of_one_name_in_two_modules_are_two(disk: Disk) -> None:
    def deleter(module: str) -> Callable[[str], str]:
        def delete(path: str) -> str:
            return disk.delete(f"{module} {path}")

        delete.__module__, delete.__qualname__ = module, "delete"
        return sayso.confirm_first(delete)

    staging, prod = deleter("staging"), deleter("prod")
    approved(staging, "/x")
    held(prod, "/x")
    assert disk.deleted == []
    staging("/x")
    assert disk.deleted == ["staging /x"]


def derived_ids(name: str, arguments: dict[str, Any]) -> set[str]:
    text = json.dumps(arguments, sort_keys=True, default=str)
    parts = [text, f"{name}:{text}", f"{name}({text})", f"{__name__}:{name}:{text}", name]
    found: set[str] = set()
    for part in parts:
        found |= {f"{name}:{hash(part)}", f"{name}:{abs(hash(part))}", part}
        for kind in ("md5", "sha1", "sha256", "blake2b"):
            digest = hashlib.new(kind, part.encode()).hexdigest()
            found |= {digest, digest[:8], digest[:16], digest[:32], f"{name}:{digest}", f"{name}:{digest[:8]}"}
            found |= {f"rq_{digest}", f"rq_{digest[:26]}", f"rq_{digest[:32]}"}
    return found


def test_id_cannot_be_computed_and_approved_before_the_call_is_asked(store: Store, disk: Disk) -> None:
    @sayso.confirm_first
    def delete(path: str) -> str:
        return disk.delete(path)

    guesses = derived_ids("delete", {"path": "/"}) | derived_ids(delete.__qualname__, {"path": "/"})
    assert len(guesses) > 200
    for guess in guesses:
        sayso.respond_to_confirmation(guess, approved=True)
    pause = held(delete, "/")
    assert pause.confirmation_id not in guesses
    request = store.get(pause.confirmation_id)
    for guess in (request.fingerprint, f"rq_{request.fingerprint}", request.call.digest, f"rq_{request.call.digest}"):
        sayso.respond_to_confirmation(guess, approved=True)
    held(delete, "/")
    assert disk.deleted == []


def test_two_requests_have_unrelated_ids(store: Store, delete: Callable[..., str]) -> None:
    ids = set()
    for _ in range(100):
        pause = held(delete, "/a")
        ids.add(pause.confirmation_id)
        sayso.clear_confirmation(pause.confirmation_id)
    assert len(ids) == 100
    bodies = [request_id.removeprefix("rq_") for request_id in ids]
    assert len({body[:6] for body in bodies}) > 90
    assert len({body[-6:] for body in bodies}) > 90
    assert min(map(len, bodies)) >= 26


def test_exception_spends_the_approval(disk: Disk) -> None:
    @sayso.confirm_first
    def delete(path: str) -> None:
        disk.delete(path)
        raise OSError("disk on fire")

    approved(delete, "/a")
    with pytest.raises(OSError, match="on fire"):
        delete("/a")
    for _ in range(2):
        held(delete, "/a")
    assert disk.deleted == ["/a"]


def test_twenty_threads_run_one_approval_once(delete: Callable[..., str], disk: Disk) -> None:
    def go() -> str:
        with sayso.run("order-1"):
            return delete("/a")

    with sayso.run("order-1"):
        approved(delete, "/a")
    assert concurrently(20, go).count("Deleted /a") == 1
    assert disk.deleted == ["/a"]


def test_twenty_child_tasks_run_their_parents_approval_once(adelete: Callable[..., Any], disk: Disk) -> None:
    async def main() -> list[Any]:
        pause = await aheld(adelete, "/a")
        sayso.respond_to_confirmation(pause.confirmation_id)
        return await asyncio.gather(*(asyncio.create_task(adelete("/a")) for _ in range(20)), return_exceptions=True)

    outcomes = asyncio.run(main())
    assert disk.deleted == ["/a"]
    assert outcomes.count("Deleted /a") == 1


def test_approval_given_in_another_thread_is_not_lost(delete: Callable[..., str], disk: Disk) -> None:
    request_id = held(delete, "/a").confirmation_id
    thread = threading.Thread(target=lambda: sayso.Review().approve(request_id, by="ada"))
    thread.start()
    thread.join()
    assert delete("/a") == "Deleted /a"


def test_approval_given_in_another_process_is_not_lost(file_store: Store) -> None:
    request_id = running(forked(ASK, file_store.url))
    approve = "import sys, sayso; sayso.Review(sys.argv[1]).approve(sys.argv[2], by='ada')"
    running(forked(approve, file_store.url, request_id))
    assert running(forked(ASK, file_store.url)) == "ran"


def test_edit_to_nothing_never_runs_the_original(disk: Disk) -> None:
    @sayso.confirm_first
    def remove(path: str = "/tmp/nothing") -> str:
        return disk.delete(path)

    pause = held(remove, "/prod")
    sayso.respond_to_confirmation(pause.confirmation_id, approved=True, data={})
    remove("/prod")
    assert disk.deleted == ["/tmp/nothing"]


BAD_EDITS = [
    {"path": ["/a"], "days": 1}, {"path": "/a", "days": "DROP TABLE"}, {"path": "/a", "days": 1.5},
    {"path": None, "days": 1}, {"path": "/a"}, {"path": "/a", "days": 1, "sudo": True}, {"path": "/a", "days": [1]},
    {"path": b"\xff", "days": 1},
]  # fmt: skip


@pytest.mark.parametrize("edit", BAD_EDITS, ids=stable)
def test_edit_is_validated_before_it_counts(store: Store, edit: dict[str, Any]) -> None:
    ran: list[Any] = []

    @sayso.confirm_first
    def purge(path: str, days: int) -> None:
        ran.append((path, days))

    pause = held(purge, "/a", 30)
    with pytest.raises(errors.InvalidChangesError):
        sayso.respond_to_confirmation(pause.confirmation_id, approved=True, data=edit)
    held(purge, "/a", 30)
    assert ran == []
    assert store.get(pause.confirmation_id).edited is None


@pytest.mark.parametrize("status", ["rejected", "feedback", "pending"])
def test_approved_does_not_win_over_the_status(delete: Callable[..., str], disk: Disk, status: str) -> None:
    pause = held(delete, "/a")
    if status == "pending":
        with pytest.raises(ValueError, match="pending"):
            sayso.respond_to_confirmation(pause.confirmation_id, approved=True, status=status)
    else:
        sayso.respond_to_confirmation(pause.confirmation_id, approved=True, status=status, data="wait")
    with pytest.raises((sayso.ConfirmationRequired, sayso.ConfirmationRejected)):
        delete("/a")
    assert disk.deleted == []


def test_question_about_dates_and_paths_is_asked(store: Store) -> None:
    @sayso.confirm_first
    def file(when: date, path: Path, price: Decimal, raw: bytes, colour: Colour, point: Point) -> None: ...

    pause = held(file, date(2026, 1, 31), Path("/a"), Decimal("1.50"), b"\x00", Colour.RED, Point(3))
    assert "2026-01-31" in pause.question
    assert "1.50" in pause.question
    assert json.loads(json.dumps(pause.to_dict()))["tool_call"]["args"]["colour"] == "RED"


def test_every_described_name_is_there_with_its_parameters() -> None:
    described = {
        "ConfirmationRequired": "question, *, confirmation_id, tool_call, context, fingerprint",
        "ConfirmationRejected": "message, *, confirmation_id, tool_call",
        "ToolCall": "name, args, call_id",
        "ResumeState": "exception, user_response",
        "confirm_first": "func, options",
        "respond_to_confirmation": "confirmation_id, approved, data, status, seen",
        "get_confirmation_status": "confirmation_id",
        "get_confirmation_context": "",
        "clear_confirmation": "confirmation_id",
        "clear_all_confirmations": "",
    }
    assert sorted(described) == sorted(confirmation.__all__)
    for name, wanted in described.items():
        assert getattr(sayso, name) is getattr(confirmation, name)
        parameters = inspect.signature(getattr(confirmation, name)).parameters.values()
        names = [
            ("*, " if p.kind is p.KEYWORD_ONLY and p.name == "confirmation_id" else "") + p.name for p in parameters
        ]
        assert ", ".join(names) == wanted
    defaults = inspect.signature(confirmation.respond_to_confirmation).parameters
    assert [defaults[name].default for name in ("approved", "data", "status")] == [True, None, None]


def test_record_says_who_when_where_and_until_when(store: Store, clock: Clock) -> None:
    @sayso.gate(wait="raise", expires="2h", approval_expires="10m", quorum=2)
    def pay(amount: int) -> str:
        return "paid"

    request_id = held(pay, 5).confirmation_id
    sayso.Review(channel="test").approve(request_id, by="ada")
    with pytest.raises(errors.AlreadyVotedError):
        sayso.Review().approve(request_id, by="Ada")
    held(pay, 5)
    clock.tick(hours=1)
    request = sayso.Review(channel="test").approve(request_id, by="bob", comment="fine")
    decision = request.decision
    assert decision is not None
    assert (decision.by.subject, decision.at, decision.channel, decision.comment) == ("bob", clock.at, "test", "fine")
    assert [vote.by.subject for vote in request.votes] == ["ada", "bob"]
    assert [(entry.event, entry.by) for entry in store.journal(request_id=request_id)][1:] == [
        ("voted", "local:ada"),
        ("approved", "local:bob"),
    ]
    clock.tick(minutes=10)
    assert held(pay, 5).confirmation_id != request_id
    assert store.get(request_id).state == "expired"


def test_approval_that_was_given_here_and_ended_is_asked_for_anew(store: Store, clock: Clock) -> None:
    @sayso.gate(wait="raise", approval_expires="10m")
    def pay(amount: int) -> str:
        return "paid"

    request_id = held(pay, 5).confirmation_id
    sayso.respond_to_confirmation(request_id)
    clock.tick(minutes=10)
    assert held(pay, 5).confirmation_id != request_id
    assert store.get(request_id).state == "expired"
