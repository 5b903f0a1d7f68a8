"""No sequence of steps parts the record of a request from the facts: who agreed, what ran, and what anybody knows.

The suite goes as deep as it has time for, and to the end where that is near; `python -m tests.model.lifecycle_search`
goes to every end.
"""

from __future__ import annotations

from typing import Any

import pytest

from sayso.model import lifecycle
from sayso.model.request import Execution, Request
from tests.model.lifecycle_search import ONE, TWO, Found, Options, Search


def _name(options: Options) -> str:
    words = ("retries", "idempotent", "grant")
    return " ".join([f"quorum {options.quorum}", *(word for word in words if getattr(options, word))])


@pytest.mark.parametrize("options", ONE, ids=_name)
def test_no_sequence_of_steps_parts_a_request_from_the_facts(options: Options) -> None:
    search = Search(options)
    search.run(1_000 if options.quorum == 1 else 7)
    assert not search.level or options.quorum == 2  # it has seen every state
    assert len(search.parents) > 150


@pytest.mark.parametrize("options", TWO, ids=_name)
def test_no_sequence_of_steps_gives_two_requests_one_effect(options: Options) -> None:
    search = Search(options, 2)
    search.run(5)
    assert len(search.parents) > 500


def _may_always(request: Request, execution: Execution, _: Any) -> bool:
    return request.idempotent or execution.attempt <= request.retries


@pytest.mark.parametrize(
    ("name", "without", "options", "steps"),
    [
        ("_unknown_at_end", lambda _, end: end, Options(idempotent=True), 6),
        ("_may_try_again", _may_always, Options(retries=1), 5),
        ("_stopped_half_way", lambda _: False, TWO[0], 5),
        ("_must_have_free_effect", lambda *_: None, TWO[0], 2),
    ],
    ids=["an unknown start", "the end of a right to try again", "half of an effect", "an effect"],
)
def test_a_guard_that_is_missing_is_found(
    monkeypatch: pytest.MonkeyPatch, name: str, without: Any, options: Options, steps: int
) -> None:
    monkeypatch.setattr(lifecycle, name, without)
    with pytest.raises(Found) as found:
        Search(options, 2 if options.effect else 1).run(steps)
    assert str(found.value).count("; ") <= steps + 1
