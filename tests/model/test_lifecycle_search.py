"""No sequence of steps parts the record of a request from the facts: who agreed, what ran, and what anybody knows.

The suite goes as deep as it has time for; `python -m tests.model.lifecycle_search` goes to every end.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sayso.model import lifecycle, teamwork
from sayso.model.request import Execution, Request
from sayso.stores import grants, program, workers
from tests.model.lifecycle_search import MORE, ONE, PAIRS, TWO, Found, Options, Search

MOST = 3_000
"""After so many steps the search of a case goes no deeper."""


def _name(options: Options) -> str:
    words = ("retries", "idempotent", "grant")
    return " ".join([f"quorum {options.quorum}", *(word for word in words if getattr(options, word))])


def _apart(cases: list[Options]) -> list[Options]:
    """Leave out those that differ from another one in nothing: an idempotent call has retries without end."""
    return [one for one in cases if not (one.retries and one.idempotent)]


@pytest.mark.parametrize("options", _apart(ONE), ids=_name)
def test_no_sequence_of_steps_parts_a_request_from_the_facts(options: Options) -> None:
    search = Search(options)
    search.run(most=MOST)
    assert len(search.parents) > 100


@pytest.mark.parametrize("options", _apart(TWO), ids=_name)
def test_no_sequence_of_steps_gives_two_requests_one_effect(options: Options) -> None:
    search = Search(options, 2)
    search.run(4)
    assert len(search.parents) > 300


@pytest.mark.parametrize("case", MORE)
def test_no_lease_key_claim_role_stop_or_budget_parts_a_request_from_the_facts(case: str) -> None:
    search = Search(MORE[case])
    search.run(most=MOST)
    assert not search.level or search.taken > MOST  # it has seen every state, or as many as it has time for
    assert len(search.parents) > 15


@pytest.mark.parametrize("case", PAIRS)
def test_no_sequence_of_steps_of_two_requests_parts_them_from_the_facts(case: str) -> None:
    search = Search(PAIRS[case], 2)
    search.run(most=MOST // 2)
    assert len(search.parents) > 100


def _may_always(request: Request, execution: Execution, _: Any) -> bool:
    return request.idempotent or execution.attempt <= request.retries


def _without_claim(request: Request, *about: Any, **more: Any) -> None:
    _MUST_BE_ALLOWED(replace(request, claimed_by=None), *about, **more)


_MUST_BE_ALLOWED = lifecycle.must_be_allowed


@pytest.mark.parametrize(
    ("where", "name", "without", "options", "count", "steps"),
    [
        (lifecycle, "_unknown_at_end", lambda _, end: end, Options(idempotent=True), 1, 6),
        (lifecycle, "_may_try_again", _may_always, Options(retries=1), 1, 5),
        (lifecycle, "_stopped_half_way", lambda _: False, TWO[0], 2, 5),
        (lifecycle, "must_have_free_effect", lambda *_: None, TWO[0], 2, 2),
        (workers, "lease_of", lambda _: None, MORE["lease"], 1, 6),
        (lifecycle, "must_be_same", lambda *_: None, MORE["key"], 1, 1),
        (lifecycle, "must_be_allowed", _without_claim, MORE["claims"], 1, 2),
        (teamwork, "must_be_allowed", _without_claim, MORE["claims"], 1, 2),
        (lifecycle, "escalate", lambda *_: None, MORE["roles"], 1, 2),
        (Request, "admits", lambda *_: True, MORE["roles"], 1, 1),
        (program, "stop_in", lambda _: None, MORE["stop"], 1, 3),
        (grants, "_no_room", lambda *_: None, PAIRS["budget"], 2, 2),
        (program, "give_back", lambda *_: None, MORE["budget"], 1, 2),
    ],
    ids=[
        "an unknown start", "the end of a right to try again", "half of an effect", "an effect", "the end of a lease",
        "the arguments of a key", "a claim", "a claim of a claimed request", "the time of an escalation", "a role",
        "the stop", "the limit of a budget", "what a budget gets back",
    ],
)  # fmt: skip
def test_a_guard_that_is_missing_is_found(
    monkeypatch: pytest.MonkeyPatch, where: Any, name: str, without: Any, options: Options, count: int, steps: int
) -> None:
    monkeypatch.setattr(where, name, without)
    with pytest.raises(Found) as found:
        Search(options, count).run(steps)
    assert str(found.value).count("; ") <= steps + 1
