"""The reviewer's side for agents: what it shows, and that nothing is decided without a person."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import sayso
from sayso import errors
from sayso.integrations.mcp_server import ReviewTools, serve
from sayso.model.request import State
from sayso.stores.base import Filter, Store

SHAPE = {"type": "object", "properties": {"amount": {"type": "integer"}, "token": {"type": "string"}}}


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.chdir(tmp_path)
    sayso.configure(store="memory:")
    return sayso.config.open_store(None)


def asked(amount: int = 5) -> str:
    arguments = {"amount": amount, "token": "hunter2"}
    held = sayso.hold("pay", arguments, schema=SHAPE, run="r", key=str(amount), redact=["token"])
    assert held.id is not None
    return held.id


def proposal(store: Store) -> sayso.Request:
    [found] = [r for r in store.list(Filter(states=frozenset({State.PENDING}))).requests if r.run_id != "r"]
    return found


def test_it_is_off_unless_the_settings_turn_it_on(store: Store) -> None:
    with pytest.raises(errors.ConfigError, match="is off"):
        serve(store)


def test_what_waits_is_listed_and_shown_without_secrets(store: Store) -> None:
    async def work() -> None:
        number, desk = asked(), ReviewTools(store)
        for shown in (await desk.list_requests(), await desk.show_request(number)):
            assert number in shown
            assert "pay" in shown
            assert "hunter2" not in shown

    asyncio.run(work())


@pytest.mark.parametrize(
    ("verb", "details", "state"),
    [
        ("approve", {"changes": {"amount": 2}, "comment": "smaller"}, State.APPROVED),
        ("reject", {"reason": "no"}, State.REJECTED),
    ],
)
def test_a_proposal_decides_only_after_a_person_has_confirmed_it(
    store: Store, verb: str, details: dict[str, Any], state: State
) -> None:
    async def work() -> None:
        number, desk = asked(), ReviewTools(store)
        propose = getattr(desk, verb)
        assert "a person must confirm" in await propose(number, **details)
        assert store.get(number).state is State.PENDING
        held = proposal(store)
        assert held.subject.name == f"sayso/{verb}"
        assert "pay" in held.subject.arguments["call"]
        sayso.Review().approve(held.id, by="ada")
        assert "as ada confirmed" in await propose(number, **details)
        decided = store.get(number)
        assert decided.state is state
        assert decided.decision is not None
        assert decided.decision.by.subject == "ada"

    asyncio.run(work())


def test_a_proposal_that_was_refused_decides_nothing(store: Store) -> None:
    async def work() -> None:
        number, desk = asked(), ReviewTools(store)
        await desk.approve(number)
        sayso.Review().reject(proposal(store).id, "look again", by="ada")
        assert "look again" in await desk.approve(number)
        assert store.get(number).state is State.PENDING

    asyncio.run(work())


def test_a_proposal_cannot_be_confirmed_by_a_proposal(store: Store) -> None:
    async def work() -> None:
        desk = ReviewTools(store)
        await desk.approve(asked())
        held = proposal(store)
        assert "only a person can decide it" in await desk.approve(held.id)
        assert store.get(held.id).state is State.PENDING

    asyncio.run(work())


def test_no_rule_and_no_budget_confirms_a_proposal(store: Store) -> None:
    pytest.importorskip("cel_expr_python")
    number, desk = asked(), ReviewTools(store)
    rule = '[[rules]]\nname = "all"\ntool = "*"\nverdict = "allow"\nbudget = "count() <= 9 per 1h"\n'
    Path("sayso.toml").write_text(rule, encoding="utf-8")
    Path("sayso.toml").chmod(0o600)
    assert "Not decided yet" in asyncio.run(desk.approve(number))
    assert store.get(number).state is State.PENDING
    assert proposal(store).state is State.PENDING


def test_a_proposal_is_as_risky_as_what_it_would_decide(store: Store) -> None:
    held = sayso.hold("pay", {}, run="r", key="k", when=lambda: sayso.policy.hold(risk="high", channels=["ops"]))
    assert held.id is not None
    for propose in (ReviewTools(store).approve, ReviewTools(store).reject):
        asyncio.run(propose(held.id))
    found = [one for one in store.list(Filter()).requests if one.run_id != "r"]
    assert [(one.risk, one.channels) for one in found] == [("high", ("ops",))] * 2


def test_what_is_shown_and_proposed_is_the_call_as_people_changed_it(store: Store) -> None:
    held = sayso.hold("pay", {"amount": 5}, schema=SHAPE, run="r", key="k", quorum=2)
    assert held.id is not None
    sayso.Review().approve(held.id, by="ada", changes={"amount": 9999})
    desk = ReviewTools(store)
    assert '"amount": 9999' in asyncio.run(desk.show_request(held.id))
    assert "Not decided yet" in asyncio.run(desk.approve(held.id))
    assert "9999" in proposal(store).call.arguments["call"]
