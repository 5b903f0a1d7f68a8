"""What lists say of similar requests: no two different ones read alike, however little room there is."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

import sayso
from sayso.model.request import Request
from sayso.stores.memory import MemoryStore
from sayso.view.similar import arguments_apart, words_apart
from tests.support.surfing import held


def asked(*calls: Mapping[str, object], **options: object) -> list[Request]:
    """Return the requests of calls of one function."""
    store = MemoryStore()

    @sayso.gate(wait="raise", store=store, **options)  # type: ignore[call-overload]
    def act(a: object = None, b: object = None, c: object = None) -> None: ...

    with sayso.run("apart"):
        return [store.get(held(lambda call=call: act(**call))) for call in calls]


def test_what_differs_comes_first_and_what_is_the_same_last() -> None:
    found = arguments_apart(asked({"a": "the same", "b": 1}, {"a": "the same", "b": 2}), 30)
    assert found == ['b=1, a="the same", c=null', 'b=2, a="the same", c=null']
    calls = asked({"a": "the same", "b": 1}, {"a": "the same", "b": 2}, {"a": "the same", "b": 2})
    assert arguments_apart(calls, 30, equal=False) == ["b=1", "b=2", "b=2"]
    assert arguments_apart(calls[1:], 30, equal=False)[0] == 'a="the same", b=2, c=null'


def test_of_long_texts_the_places_stand_there_where_they_differ() -> None:
    same = "/backups/2024/of-the-shop/" + "x" * 60
    texts = [f"{same}/a/1", f"{same}/a/2", f"{same}/b/1", f"/home/{same}/b/1"]
    found = arguments_apart(asked(*({"a": text} for text in texts)), 60)
    assert len(set(found)) == len(texts)
    assert all(len(text) <= 70 for text in found)
    assert found[1] == 'a="/backups" … "a/2", b=null, c=null'
    assert "/home" in found[3]


def test_a_difference_behind_much_that_is_the_same_is_shown() -> None:
    body = "Dear Kim, " * 400
    found = arguments_apart(asked({"a": body + "yours, Ada"}, {"a": body + "see http://evil.example"}), 76)
    assert "yours, Ada" in found[0]
    assert "evil.example" in found[1]
    found = arguments_apart(asked({"a": "one" + "\n" * 400 + "end"}, {"a": "one" + "\n" * 401 + "end"}), 76)
    assert found[0] == 'a="one\\n(399 empty lines)\\nend", b=null, c=null'


def test_the_programs_words_stand_for_a_call_only_where_no_other_has_the_same() -> None:
    one, other = asked({"a": 1, "b": "x"}, {"a": 2, "b": "x"}, summary="Pay {b}")
    assert words_apart([one, other], 76) == ["", ""]
    assert words_apart([one], 76) == ['"Pay x"']
    long = "Pay for what was ordered in the shop by this customer last week, number "
    one, other = asked({"a": 1}, {"a": 2}, summary=f"{long * 2}{{a}}")
    found = words_apart([one, other], 76)
    assert [text[-3:] for text in found] == [' 1"', ' 2"']


def test_a_question_has_no_arguments() -> None:
    store = MemoryStore()
    with sayso.run("apart"), pytest.raises(sayso.ConfirmationRequired) as caught:
        sayso.ask("Which?", choices=["a", "b"], wait="raise", store=store)
    request = store.get(caught.value.confirmation_id)
    assert arguments_apart([request, request], 76) == ["", ""]


@given(st.lists(st.text("ab \n\u202e", max_size=200), min_size=2, max_size=6, unique=True))
def test_no_two_texts_read_alike(texts: list[str]) -> None:
    found = arguments_apart(asked(*({"a": text} for text in texts)), 76)
    assert len(set(found)) == len(texts)
    assert all(text.isprintable() for text in found)
