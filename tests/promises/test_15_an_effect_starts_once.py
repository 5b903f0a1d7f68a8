"""15. An effect starts once across all runs until it is known to have failed."""

from __future__ import annotations

import os
from datetime import timedelta
from decimal import Decimal
from typing import Any, NoReturn

import pytest

import sayso
from sayso import audit, clock, errors, policy
from sayso.model.lifecycle import Outcome
from sayso.model.request import Decision, Request, State
from sayso.model.reviewer import LOCAL, Identity
from sayso.policy import Policy
from sayso.stores import workers
from sayso.stores.base import Filter
from sayso.testing.doubles import sample_call
from sayso.view.full_text import status_line
from tests.promises.world import World
from tests.support.acting import approved as approved_call
from tests.support.acting import held, state_of

RACE = """
import os, sys, time
from sayso import config, errors

store = config.open_store(sys.argv[1])
open(f"{sys.argv[2]}.ready.{os.getpid()}", "w").close()
while not os.path.exists(f"{sys.argv[2]}.go"):
    time.sleep(0.001)
try:
    print(store.start(sys.argv[3], sys.argv[3]).state)
except errors.EffectTakenError as error:
    print("taken")
"""
_EFFECT = "refund:A-4721"


def approved(world: World, run_id: str, *, again: bool = False) -> Request:
    request = world.store.ask(sample_call(run_id, effect=_EFFECT))
    said = Decision("approve", Identity(LOCAL, "ada"), request.created_at, "test", "seen", "", again=again)
    return world.store.decide(request.id, said, roles=(), seen=None)


def test_15_an_effect_starts_once_across_runs_and_processes(world: World) -> None:
    requests = [approved(world, f"order-{n}") for n in range(10)]
    told = world.race(RACE, [(request.id,) for request in requests])
    assert (told.count("running"), told.count("taken")) == (1, 9)

    (first,) = [request for request in requests if world.store.get(request.id).state is State.RUNNING]
    world.store.finish(first.id, first.id, Outcome("unknown"))
    later = approved(world, "order-11")
    with pytest.raises(errors.EffectTakenError, match="unknown"):
        world.store.start(later.id, "t")
    world.store.resolve(
        first.id, Identity(LOCAL, "bob"), roles=(), happened=True, comment="on the statement", channel="test"
    )
    with pytest.raises(errors.EffectTakenError, match="done"):
        world.store.start(later.id, "t")
    assert world.store.start(approved(world, "order-12", again=True).id, "t").state is State.RUNNING


def test_15_an_effect_starts_anew_when_it_is_known_to_have_failed(world: World) -> None:
    first, second = approved(world, "order-1"), approved(world, "order-2")
    world.store.start(first.id, "t")
    world.store.finish(first.id, "t", Outcome("failed", error="declined"))
    assert world.store.start(second.id, "u").state is State.RUNNING


def test_15_a_request_whose_effect_was_altered_is_found_by_the_journal(world: World) -> None:
    first, second = approved(world, "order-1"), approved(world, "order-2")
    world.store.start(first.id, "t")
    world.by_hand("UPDATE request SET effect_digest = NULL WHERE id = ?", first.id)
    with pytest.raises(errors.AlteredRequestError, match=first.id):
        world.store.start(second.id, "u")


def test_15_a_request_that_was_altered_frees_no_effect(world: World) -> None:
    first, second = approved(world, "order-1"), approved(world, "order-2")
    world.store.start(first.id, "t")
    world.store.finish(first.id, "t", Outcome("done"))
    world.by_hand("UPDATE request SET state = 'failed' WHERE id = ?", first.id)
    with pytest.raises(errors.AlteredRequestError, match=first.id):
        world.store.start(second.id, "u")


def leave(status: int) -> NoReturn:
    """End a child, which must not go on with the tests."""
    os._exit(status)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("way", ["returns", "fails", "exits"])
def test_15_a_child_that_the_call_forks_does_not_end_it(
    world: World, way: str, caplog: pytest.LogCaptureFixture
) -> None:
    parent, during, asked = os.getpid(), list[State](), list[str]()

    @sayso.gate(wait="raise", effect="pay:{order}")
    def pay(order: str, amount: int) -> str:
        child = os.fork()
        if child == 0:
            if way == "returns":
                return "in the child"
            raise FileNotFoundError("its helper") if way == "fails" else SystemExit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        during.append(state_of(asked[0]))
        with pytest.raises(errors.EffectTakenError, match="running"):
            pay(order, 2)
        return "paid"

    asked += [approved_call(pay, "A-4721", amount) for amount in (1, 2)]
    try:
        value = pay("A-4721", 1)
    except BaseException:
        if os.getpid() == parent:
            raise
        leave(1 if caplog.records or way == "returns" else 0)
    if os.getpid() != parent:
        leave(0 if value == "in the child" and not caplog.records else 1)
    ended = world.store.get(asked[0])
    assert (value, during, ended.state) == ("paid", [State.RUNNING], State.DONE)
    assert ended.execution is not None
    assert "paid" in str(ended.execution.result)
    assert [row.event for row in world.store.journal(request_id=asked[0])][-2:] == ["started", "done"]


@pytest.mark.parametrize("again", [False, True], ids=["once", "again"])
def test_15_a_request_that_was_deleted_frees_no_effect(world: World, *, again: bool) -> None:
    first, second = approved(world, "order-1"), approved(world, "order-2", again=again)
    world.store.start(first.id, "t")
    world.store.finish(first.id, "t", Outcome("done"))
    world.by_hand("DELETE FROM request WHERE id = ?", first.id)
    for request in (second, approved(world, "order-3", again=again)):
        with pytest.raises(errors.AlteredRequestError, match=f"{first.id} was altered: .* its row was deleted"):
            world.store.start(request.id, "u")
    (broken,) = audit.verify(world.store).broken
    assert f"{first.id} is missing" in broken.reason


@pytest.mark.parametrize("end", ["expire", "cancel", "withdraw", "clock"])
def test_15_a_call_that_stopped_half_way_frees_no_effect(
    world: World, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    now = clock.now()
    first, second = approved(world, "order-1"), approved(world, "order-2")
    if end == "clock":  # a later one starts because the earlier one is due, and the clock goes back
        first, second = second, first
        monkeypatch.setattr(clock, "now", lambda: now + timedelta(days=2))
        first = approved(world, "order-3")
    world.store.start(first.id, "t")
    world.store.finish(first.id, "t", Outcome("suspended"))
    if end == "clock":
        monkeypatch.setattr(clock, "now", lambda: now)
    elif end == "expire":
        monkeypatch.setattr(clock, "now", lambda: now + timedelta(days=2))
        second = approved(world, "order-3")
        assert world.store.settle(first.id).state is State.EXPIRED
    elif end == "cancel":
        said = Decision("cancel", Identity(LOCAL, "ada"), now, "test", None, "")
        world.store.decide(first.id, said, roles=(), seen=None)
    else:
        world.store.withdraw(first.id, Identity(LOCAL, "ada"))
    with pytest.raises(errors.EffectTakenError, match=first.id) as refused:
        world.store.start(second.id, "u")
    assert ("stopped half-way" in str(refused.value)) is (end != "clock")
    (other,) = [one for one in sayso.Review(world.store).same_effect(second) if one.id == first.id]
    assert "started once, and stopped to ask something else" in status_line(other, clock.now())
    assert world.store.start(approved(world, "order-4", again=True).id, "u").state is State.RUNNING


def test_15_a_call_that_stopped_half_way_and_then_failed_frees_the_effect(world: World) -> None:
    first, second = approved(world, "order-1"), approved(world, "order-2")
    for token, outcome in (("t", Outcome("suspended")), ("u", Outcome("failed"))):
        world.store.start(first.id, token)
        world.store.finish(first.id, token, outcome)
    assert world.store.start(second.id, "v").state is State.RUNNING


@pytest.mark.parametrize("options", [{"retries": 1}, {"idempotent": True}], ids=["retries", "idempotent"])
def test_15_a_failed_call_that_may_be_tried_again_frees_the_effect_until_it_is(
    world: World, options: dict[str, Any]
) -> None:
    first = world.store.ask(sample_call("order-1", effect=_EFFECT, **options))
    said = Decision("approve", Identity(LOCAL, "ada"), first.created_at, "test", None, "")
    world.store.decide(first.id, said, roles=(), seen=None)
    second, third = approved(world, "order-2"), approved(world, "order-3")
    world.store.start(first.id, "t")
    world.store.finish(first.id, "t", Outcome("failed", error="ValueError: closed"))
    assert world.store.start(second.id, "u").state is State.RUNNING
    for step in (
        lambda: world.store.settle(second.id, gone=workers.current()),
        lambda: world.store.finish(second.id, "u", Outcome("failed")),
    ):
        with pytest.raises(errors.EffectTakenError, match=f"{second.id}, which is (running|unknown)"):
            world.store.start(first.id, "v")
        step()
    assert world.store.start(first.id, "w").state is State.RUNNING
    with pytest.raises(errors.EffectTakenError, match=first.id):
        world.store.start(third.id, "x")


def test_15_a_call_that_stopped_half_way_frees_no_effect_where_its_next_start_runs_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran, start = list[int](), world.store.start

    @sayso.gate(wait="raise", effect=_EFFECT, suspends=LookupError)
    def refund() -> NoReturn:
        ran.append(1)
        raise LookupError

    def stops() -> None:
        with pytest.raises(LookupError):
            refund()

    def interrupted(request_id: str, *args: Any, **options: Any) -> NoReturn:
        during.undo()
        start(request_id, *args, **options)
        raise KeyboardInterrupt

    first = approved_call(refund)
    stops()
    with monkeypatch.context() as during:
        during.setattr(world.store, "start", interrupted)
        with pytest.raises(KeyboardInterrupt):
            refund()
    assert ran == [1]
    second = approved(world, "order-2")
    with pytest.raises(errors.EffectTakenError, match=first):
        world.store.start(second.id, "u")
    stops()
    assert ran == [1, 1]


@pytest.mark.parametrize(
    ("kind", "equal", "other"),
    [
        (float, [100, 100.0, 1e2], 100.5),
        (float, [0, -0.0], 1),
        (Decimal, [Decimal(100), Decimal("100.00"), Decimal("1E+2")], Decimal("100.01")),
        (Decimal, [Decimal("0.50"), Decimal("0.5")], Decimal("0.05")),
        (Decimal, [Decimal("12345678901234567890123456789.00")], Decimal(12345678901234567890123456788)),
        (float | Decimal, [2.0**-20, Decimal(2) ** -20], Decimal(2) ** -19),
        (float | Decimal, [0.00005, Decimal("0.00005")], 0.00004),
        (int | Decimal, [10**60, Decimal(10**60), Decimal("1E+60")], 10**59),
        (str, ["caf\u00e9", "cafe\u0301"], "cafe"),
    ],
    ids=[
        "floats",
        "zeros",
        "decimals",
        "fractions",
        "long decimals",
        "small numbers",
        "small digits",
        "large numbers",
        "composed characters",
    ],
)
def test_15_equal_values_have_the_same_effect_however_they_are_written(
    world: World, kind: Any, equal: list[Any], other: Any
) -> None:
    ran = list[Any]()

    def pay(value: Any) -> None:
        ran.append(value)

    pay.__annotations__["value"] = kind
    gated = sayso.gate(pay, name="pay", wait="raise", effect="pay:{value}", store=world.store)
    for number, value in enumerate([*equal, other]):
        with sayso.run(f"order-{number}"):
            request_id = approved_call(gated, value)
            if 0 < number < len(equal):
                with pytest.raises(errors.EffectTakenError):
                    gated(value)
                world.store.withdraw(request_id, Identity(LOCAL, "ada"))
            else:
                gated(value)
    assert ran == [equal[0], other]


@pytest.mark.parametrize(
    ("template", "values", "effects"),
    [
        ("{value:.2f}", [Decimal("12345678901234567890.00"), Decimal(12345678901234567891)], ["0.00", "1.00"]),
        ("{value:.3}", [100, 100.0, Decimal(100), 100.5], [":100", ":100", ":100", ":100"]),
        ("{value:03x}", [10, 10.0], [":00a", ":00a"]),
        ("{value:x}", [2**255, 2.0**255, Decimal(2**255)], [f":8{'0' * 63}"] * 3),
    ],
    ids=["large amounts", "significant digits", "hexadecimal", "digest"],
)
def test_15_a_format_in_a_template_takes_whole_numbers_exactly(
    world: World, template: str, values: list[Any], effects: list[str]
) -> None:
    def pay(value: Any) -> None: ...

    gated = sayso.gate(pay, name="pay", wait="raise", effect=f"pay:{template}", store=world.store)
    for value, effect in zip(values, effects, strict=True):
        assert (world.store.get(approved_call(gated, value)).effect or "").endswith(effect)


def _ruled(rule: Any, ran: list[str], **options: Any) -> Any:
    def refund(order: str, kind: str = "refund") -> None:
        ran.append(f"{kind}:{order}")

    return sayso.gate(refund, name="refund", wait="raise", when=rule, **options)


@pytest.mark.parametrize(
    ("rule", "edit", "effect"),
    [
        (lambda order: policy.hold(effect=f"refund:{order}"), {"order": "B-2"}, "refund:B-2"),
        (
            lambda kind: policy.hold(effect="refund:{order}" if kind == "refund" else "ship:{order}"),
            {"kind": "ship"},
            "ship:A-1",
        ),
        (
            lambda kind: policy.hold(effect="ship:{order}") if kind == "ship" else policy.hold(),
            {"kind": "ship"},
            "ship:A-1",
        ),
        (
            Policy.of_text(
                """
                [[rules]]
                tool = "refund"
                when = "args.kind == 'ship'"
                verdict = "hold"
                effect = "ship:{order}"

                [[rules]]
                tool = "refund"
                verdict = "hold"
                effect = "refund:{order}"
                """
            ),
            {"kind": "ship"},
            "ship:A-1",
        ),
    ],
    ids=["a text of the rule", "a template of the rule", "none before", "another rule"],
)
def test_15_an_edit_to_arguments_with_another_effect_by_the_rule_goes_back(
    world: World, rule: Any, edit: dict[str, str], effect: str
) -> None:
    ran = list[str]()
    refund = _ruled(rule, ran)
    with sayso.run("order-1"):
        request_id = held(refund, "A-1").id
        sayso.Review().approve(request_id, by="ada", changes=edit)
        assert held(refund, "A-1").id == request_id
    returned = world.store.get(request_id)
    assert (returned.state, returned.edited, ran) == (State.PENDING, None, [])
    assert f"have the effect {effect!r}" in str(returned.returned)


def test_15_an_edit_to_arguments_for_which_the_rule_names_no_effect_has_that_of_its_hold(world: World) -> None:
    ran = list[str]()
    refund = _ruled(lambda kind: kind == "ship" or policy.hold(effect="refund:{order}"), ran)
    with sayso.run("order-1"):
        for changes in ({"kind": "ship", "order": "B-2"}, {"kind": "ship"}):
            sayso.Review().approve(held(refund, "A-1").id, by="ada", changes=changes)
        refund("A-1")
    assert (ran, world.store.count(Filter())) == (["ship:A-1"], 1)


def test_15_an_edit_of_a_call_whose_effect_nobody_names_any_more_is_not_run(world: World) -> None:
    ran = list[str]()
    with sayso.run("order-1"):
        request_id = held(_ruled(True, ran, effect="refund:{order}"), "A-1").id
        sayso.Review().approve(request_id, by="ada", changes={"order": "B-2"})
        with pytest.raises(errors.PolicyError, match="no rule says which effect they have now"):
            _ruled(True, ran)("A-1")
    assert (state_of(request_id), ran) == (State.APPROVED, [])
    assert world.store.count(Filter()) == 1
