"""Typed questions to a person: what may be asked, what may be answered, and that an answer is found again.

The way an answer wakes the one who waits is that of a held call (`test_block`). The invariant: what `ask` returns has
the type that was asked for.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from datetime import date
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Literal

import pytest
from pydantic import AfterValidator, BaseModel, Field

import sayso
from sayso import errors
from sayso.gates import dialog, stderr
from sayso.model.request import State
from sayso.stores.base import Filter, Store
from tests.conftest import Clock
from tests.support.acting import forked, held, running
from tests.support.ids import stable


class Size(Enum):
    SMALL = "s"
    LARGE = "l"


class Trip(BaseModel):
    to: str
    days: int = Field(ge=1, le=30)


ANSWERS: list[tuple[dict[str, Any], Any, Any]] = [
    ({"type": bool}, True, True),
    ({"type": bool}, False, False),
    ({"type": bool}, "no", False),
    ({}, "as you like", "as you like"),
    ({}, "", ""),
    ({"type": str}, "\u202etext", "\u202etext"),
    ({"type": int}, 7, 7),
    ({"type": int}, "7", 7),
    ({"type": int}, 0, 0),
    ({"type": float}, 1.5, 1.5),
    ({"type": float}, 2, 2.0),
    ({"type": Decimal}, "1.50", Decimal("1.50")),
    ({"type": date}, "2026-01-31", date(2026, 1, 31)),
    ({"type": Size}, "l", Size.LARGE),
    ({"type": Size}, "SMALL", Size.SMALL),
    ({"type": Size}, Size.SMALL, Size.SMALL),
    ({"type": Literal["air", "sea"]}, "sea", "sea"),
    ({"choices": ["air", "sea"]}, "air", "air"),
    ({"choices": [1, 2, 3]}, 2, 2),
    ({"choices": ("yes",)}, "yes", "yes"),
    ({"choices": [[1], [2]]}, [2], [2]),
    ({"type": Trip}, {"to": "Bern", "days": "3"}, Trip(to="Bern", days=3)),
    ({"type": Trip}, Trip(to="Bern", days=3), Trip(to="Bern", days=3)),
    ({"type": list[int]}, ["1", 2], [1, 2]),
    ({"type": int | None}, None, None),
]

MISFITS: list[tuple[dict[str, Any], Any]] = [
    ({"type": bool}, "perhaps"),
    ({"type": bool}, None),
    ({"type": bool}, 2),
    ({"type": str}, 5),
    ({}, None),
    ({"type": int}, "seven"),
    ({"type": int}, 7.5),
    ({"type": float}, "nan"),
    ({"type": float}, float("inf")),
    ({"type": Size}, "medium"),
    ({"type": Literal["air", "sea"]}, "AIR"),
    ({"choices": ["air", "sea"]}, "road"),
    ({"choices": [1, 2, 3]}, "2 or 3"),
    ({"choices": [1, 2, 3]}, True),
    ({"type": Trip}, {"to": "Bern"}),
    ({"type": Trip}, {"to": "Bern", "days": 31}),
    ({"type": Trip}, {"to": "Bern", "days": 3, "class": "first"}),
    ({"type": list[int]}, "1"),
    ({"type": str}, object()),
]


@pytest.mark.parametrize(("options", "answer", "value"), ANSWERS, ids=stable)
def test_answer_comes_back_as_a_value_of_the_type(
    store: Store, options: dict[str, Any], answer: Any, value: Any
) -> None:
    pause = held(sayso.ask, "Which?", wait="raise", **options)
    assert (pause.question, pause.tool_call) == ("Which?", None)
    request = sayso.Review().answer(pause.confirmation_id, answer, by="ada")
    assert request.state is State.ANSWERED
    given = sayso.ask("Which?", wait="raise", **options)
    assert type(given) is type(value)
    assert given == value


@pytest.mark.parametrize(("options", "answer"), MISFITS, ids=stable)
def test_answer_of_another_type_is_refused_and_the_question_waits(
    store: Store, options: dict[str, Any], answer: Any
) -> None:
    pause = held(sayso.ask, "Which?", wait="raise", **options)
    with pytest.raises(errors.InvalidAnswerError, match="still waits") as caught:
        sayso.Review().answer(pause.confirmation_id, answer, by="ada")
    assert caught.value.problems
    assert store.get(pause.confirmation_id).state is State.PENDING
    assert held(sayso.ask, "Which?", wait="raise", **options).confirmation_id == pause.confirmation_id


UNASKABLE: list[dict[str, Any]] = [
    {"type": int, "choices": [1]},
    {"choices": []},
    {"choices": "air"},
    {"choices": [1.5, object()]},
    {"type": set[int]},
    {"type": complex},
    {"type": object()},
    {"type": Callable[[], int]},
    {"type": bool, "wait": "rase"},
    {"type": bool, "on_expiry": "approve"},
    {"type": bool, "timeout": "soon"},
    {"type": bool, "expires": "0s"},
]


@pytest.mark.parametrize("options", UNASKABLE, ids=stable)
def test_question_that_cannot_be_answered_is_not_asked(store: Store, options: dict[str, Any]) -> None:
    with pytest.raises((TypeError, errors.SaysoError)):
        sayso.ask("Which?", **{"wait": "raise", **options})
    assert store.count(Filter()) == 0


def test_waiting_question_stands_in_the_context_until_it_is_answered(store: Store) -> None:
    pause = held(sayso.ask, "Go on?", type=bool, wait="raise")
    assert sayso.get_confirmation_context() == {
        pause.confirmation_id: {"approved": False, "data": None, "status": "pending"}
    }
    sayso.Review().answer(pause.confirmation_id, False, by="ada")
    assert sayso.get_confirmation_context()[pause.confirmation_id]["status"] == "answered"
    assert sayso.ask("Go on?", type=bool, wait="raise") is False
    assert sayso.get_confirmation_context() == {}


def even(value: int) -> int:
    if value % 2:
        raise ValueError("odd")
    return value


def test_types_own_validator_has_the_last_word_where_the_program_is(file_store: Store) -> None:
    even_number = Annotated[int, AfterValidator(even)]
    pause = held(sayso.ask, "How many?", type=even_number, wait="raise")
    with pytest.raises(errors.InvalidAnswerError, match="still waits"):
        sayso.Review().answer(pause.confirmation_id, 3, by="ada")
    answer = "import sys, sayso; sayso.Review(sys.argv[1]).answer(sys.argv[2], int(sys.argv[3]), by='ada')"
    running(forked(answer, file_store.url, pause.confirmation_id, "3"))
    with pytest.raises(errors.InvalidAnswerError, match="ask again"):
        sayso.ask("How many?", type=even_number, wait="raise")
    again = held(sayso.ask, "How many?", type=even_number, wait="raise")
    running(forked(answer, file_store.url, again.confirmation_id, "4"))
    assert sayso.ask("How many?", type=even_number, wait="raise") == 4


def test_same_question_after_its_answer_is_a_new_one(store: Store) -> None:
    first = held(sayso.ask, "Go on?", type=bool, wait="raise")
    sayso.Review().answer(first.confirmation_id, True, by="ada")
    assert sayso.ask("Go on?", type=bool, wait="raise") is True
    assert held(sayso.ask, "Go on?", type=bool, wait="raise").confirmation_id != first.confirmation_id


def test_same_words_with_another_type_are_another_question(store: Store) -> None:
    as_bool = held(sayso.ask, "How many?", type=bool, wait="raise")
    as_int = held(sayso.ask, "How many?", type=int, wait="raise")
    assert as_bool.confirmation_id != as_int.confirmation_id


def test_question_is_answered_by_the_confirmation_face_too(store: Store) -> None:
    pause = held(sayso.ask, "Which year?", type=int, wait="raise")
    sayso.respond_to_confirmation(pause.confirmation_id, data="2026")
    assert sayso.get_confirmation_status(pause.confirmation_id) == "answered"
    assert sayso.ask("Which year?", type=int, wait="raise") == 2026


def test_refused_question_stays_refused_in_its_run(store: Store) -> None:
    pause = held(sayso.ask, "Your password?", wait="raise")
    sayso.Review().reject(pause.confirmation_id, "none of your business", by="ada")
    for _ in range(2):
        with pytest.raises(sayso.ConfirmationRejected, match="none of your business"):
            sayso.ask("Your password?", wait="raise")


def test_question_takes_no_approval_and_no_feedback(store: Store) -> None:
    pause = held(sayso.ask, "Go on?", type=bool, wait="raise")
    review = sayso.Review()
    for decide in (
        lambda: review.approve(pause.confirmation_id, by="ada"),
        lambda: review.feedback(pause.confirmation_id, "hm", by="ada"),
        lambda: review.approve(pause.confirmation_id, by="ada", changes={"answer": True}),
    ):
        with pytest.raises(errors.WrongKindError, match="answer, reject or cancel"):
            decide()
    assert store.get(pause.confirmation_id).state is State.PENDING


def test_only_a_role_may_answer_where_one_is_asked_for(store: Store) -> None:
    pause = held(sayso.ask, "Go on?", type=bool, wait="raise", roles=["finance"])
    with pytest.raises(errors.MissingRoleError):
        sayso.Review().answer(pause.confirmation_id, True, by="ada")
    sayso.Review().answer(pause.confirmation_id, True, by=sayso.Reviewer("ada", roles={"finance"}))
    assert sayso.ask("Go on?", type=bool, wait="raise", roles=["finance"]) is True


def test_unanswered_question_expires_into_a_no(store: Store, clock: Clock) -> None:
    pause = held(sayso.ask, "Go on?", type=bool, wait="raise", expires="1h")
    clock.tick(hours=1)
    with pytest.raises(errors.RequestExpiredError):
        sayso.Review().answer(pause.confirmation_id, True, by="ada")
    assert store.get(pause.confirmation_id).state is State.EXPIRED
    assert held(sayso.ask, "Go on?", type=bool, wait="raise").confirmation_id != pause.confirmation_id


def test_question_with_lone_surrogates_is_asked_with_them_written_out(store: Store) -> None:
    pause = held(sayso.ask, "Delete 'a\udcff'?", type=bool, wait="raise")
    assert pause.question == "Delete 'a\\udcff'?"
    assert store.get(pause.confirmation_id).question.text == pause.question


def answering(answer: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Let somebody in another thread answer each question as soon as it waits."""

    def announce(store: Store, request: Any) -> None:
        threading.Thread(target=lambda: sayso.Review(store).answer(request.id, answer, by="ada")).start()

    monkeypatch.setattr(dialog, "person_is_at_terminal", lambda: False)
    monkeypatch.setattr(stderr, "announce", announce)


def test_asking_blocks_until_somebody_answers(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    answering("2026", monkeypatch)
    assert sayso.ask("Which year?", type=int) == 2026


def test_async_twin_asks_the_same_way(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    answering("l", monkeypatch)
    assert asyncio.run(sayso.aio.ask("Which size?", type=Size)) is Size.LARGE


def test_question_still_waits_after_the_timeout(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dialog, "person_is_at_terminal", lambda: False)
    pause = held(sayso.ask, "Go on?", type=bool, timeout="1ms")
    assert store.get(pause.confirmation_id).state is State.PENDING


@pytest.mark.parametrize(
    ("on_expiry", "outcome"), [("reject", sayso.ConfirmationExpired), ("ask", sayso.ConfirmationRequired)]
)
def test_question_that_expires_while_somebody_waits(
    store: Store, clock: Clock, monkeypatch: pytest.MonkeyPatch, on_expiry: Any, outcome: type[Exception]
) -> None:
    asked: list[str] = []

    def announce(store: Store, request: Any) -> None:
        asked.append(request.id)
        if len(asked) == 1:
            clock.tick(hours=1)

    monkeypatch.setattr(dialog, "person_is_at_terminal", lambda: False)
    monkeypatch.setattr(stderr, "announce", announce)
    with pytest.raises(outcome) as caught:
        sayso.ask("Go on?", type=bool, expires="1h", timeout="100ms", on_expiry=on_expiry)
    assert caught.value.confirmation_id == asked[-1]
    assert len(set(asked)) == (1 if on_expiry == "reject" else 2)


ASK = """
import sys, sayso
from enum import Enum

class Size(Enum):
    SMALL = "s"
    LARGE = "l"

sayso.configure(store=sys.argv[1])
with sayso.run("order-4721"):
    try:
        print([sayso.ask("Which size?", type=Size, wait="raise").name for _ in range(2)])
    except sayso.ConfirmationRequired as pause:
        print(pause.confirmation_id)
"""


def test_next_process_of_the_run_finds_the_answers_in_their_order(file_store: Store) -> None:
    first = running(forked(ASK, file_store.url))
    assert running(forked(ASK, file_store.url)) == first
    # This process does not have the class; the name of a member is enough.
    sayso.Review().answer(first, "LARGE", by="ada")
    second = running(forked(ASK, file_store.url))
    assert second != first
    sayso.Review().answer(second, "s", by="ada")
    for _ in range(2):
        assert running(forked(ASK, file_store.url)) == "['LARGE', 'SMALL']"
