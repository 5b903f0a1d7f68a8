"""The gate's rule: what it may answer, what a hold of its own brings, and that nothing broken lets a call through.

Rules are users' code. The invariant: whatever a rule does but answer `True`, `False` or a verdict, the call is not run,
nothing is recorded, and the error names the rule.
"""

from __future__ import annotations

import asyncio
import functools
import json
import re
import traceback
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

import sayso
from sayso import errors
from sayso.model.reviewer import Quorum
from sayso.stores.base import Filter, Store
from tests.conftest import Clock
from tests.support.acting import aheld, approved, held
from tests.support.ids import stable


def payer(ran: list[int], **options: Any) -> Callable[..., Any]:
    @sayso.gate(wait="raise", **options)
    def pay(amount: int, to: str = "alice") -> str:
        ran.append(amount)
        return f"paid {amount}"

    return pay


def apayer(ran: list[int], **options: Any) -> Callable[..., Any]:
    @sayso.gate(wait="raise", **options)
    async def pay(amount: int, to: str = "alice") -> str:
        ran.append(amount)
        return f"paid {amount}"

    return pay


# -- what a rule may answer ------------------------------------------------------------------------------------------


def test_rule_lets_through_and_writes_nothing(store: Store) -> None:
    ran: list[int] = []
    pay = payer(ran, when=lambda amount: amount > 100)
    assert pay(100) == "paid 100"
    assert ran == [100]
    assert store.count(Filter()) == 0
    assert store.journal() == []
    held(pay, 101)
    assert ran == [100]


def test_call_that_is_let_through_runs_with_the_callers_own_objects(store: Store) -> None:
    seen: list[Any] = []

    @sayso.gate(when=lambda: False)
    def keep(thing: Any) -> None:
        seen.append(thing)

    thing = object()
    keep(thing)
    assert seen == [thing]


@pytest.mark.parametrize("when", [True, lambda: True, sayso.policy.hold, lambda **kwargs: kwargs["amount"] == 10])
def test_held_call_waits_for_a_person(store: Store, when: Any) -> None:
    ran: list[int] = []
    pay = payer(ran, when=when)
    approved(pay, 10)
    assert ran == []
    assert pay(10) == "paid 10"


@pytest.mark.parametrize("when", [False, lambda: False, sayso.allow])
def test_allowed_call_runs_at_once(store: Store, when: Any) -> None:
    assert payer([], when=when)(10) == "paid 10"
    assert asyncio.run(apayer([], when=when)(10)) == "paid 10"
    assert store.count(Filter()) == 0


def test_rule_gets_the_arguments_that_it_names(store: Store) -> None:
    got: list[dict[str, Any]] = []

    def every(**arguments: Any) -> bool:
        got.append(arguments)
        return False

    def some(to: str, other: str = "a default of its own") -> bool:
        got.append({"to": to, "other": other})
        return False

    payer([], when=every)(10)
    payer([], when=some)(10, "bob")
    assert got == [{"amount": 10, "to": "alice"}, {"to": "bob", "other": "a default of its own"}]


def test_rule_may_be_an_object_or_a_partial(store: Store) -> None:
    class Limit:
        def __init__(self, most: int) -> None:
            self.most = most

        def __call__(self, amount: int) -> bool:
            return amount > self.most

        def over(self, amount: int) -> bool:
            return amount > self.most

    def above(amount: int, most: int) -> bool:
        return amount > most

    for rule in (Limit(5), Limit(5).over, functools.partial(above, most=5)):
        pay = payer([], when=rule)
        assert pay(5) == "paid 5"
        sayso.clear_confirmation(held(pay, 6).confirmation_id)


def test_async_function_may_have_an_async_rule(store: Store) -> None:
    async def rule(amount: int) -> bool | sayso.Verdict:
        await asyncio.sleep(0)
        return amount > 5

    async def prompt(amount: int) -> str:
        await asyncio.sleep(0)
        return f"Pay {amount}?"

    async def main() -> None:
        pay = apayer([], when=rule, prompt=prompt)
        assert await pay(5) == "paid 5"
        assert (await aheld(pay, 6)).question == "Pay 6?"

    asyncio.run(main())


def test_hold_brings_its_own_needs(store: Store, clock: Clock) -> None:
    def rule(amount: int) -> sayso.Verdict:
        return sayso.policy.hold(
            "above the limit", prompt=f"Pay {amount}?", expires="30m", quorum=2, roles={"finance", "board"}, risk="high"
        )

    pay = payer([], when=rule, prompt="never seen", expires="24h", quorum=1, roles={"staff"}, risk="low")
    pause = held(pay, 1000)
    assert pause.question == "Pay 1000?"
    request = store.get(pause.confirmation_id)
    assert request.prompt == "Pay 1000?"
    assert request.expires_at - request.created_at == timedelta(minutes=30)
    assert request.quorum == Quorum(2, frozenset({"finance", "board"}))
    assert request.risk == "high"
    assert request.rule == "when=rule: above the limit"
    review = sayso.Review()
    with pytest.raises(errors.MissingRoleError):
        review.approve(request.id, by=sayso.Reviewer("ada", roles={"staff"}))
    review.approve(request.id, by=sayso.Reviewer("ada", roles={"finance"}))
    held(pay, 1000)
    review.approve(request.id, by=sayso.Reviewer("bob", roles={"board"}))
    assert pay(1000) == "paid 1000"


def test_hold_that_says_nothing_takes_the_gates_needs(store: Store, clock: Clock) -> None:
    pay = payer([], when=sayso.policy.hold, prompt="Sure?", expires="2h", quorum=2, roles={"staff"}, risk="low")
    request = store.get(held(pay, 10).confirmation_id)
    assert (request.prompt, request.risk, request.rule) == ("Sure?", "low", "when=hold")
    assert request.expires_at - request.created_at == timedelta(hours=2)
    assert request.quorum == Quorum(2, frozenset({"staff"}))


def test_hold_for_a_role_alone_needs_one_person(store: Store) -> None:
    pay = payer([], when=lambda: sayso.policy.hold(roles=["finance"]), quorum=3)
    assert store.get(held(pay, 10).confirmation_id).quorum == Quorum(1, frozenset({"finance"}))


def test_prompt_may_be_made_of_the_arguments(store: Store) -> None:
    assert held(payer([], prompt=lambda to, amount: f"{to} gets {amount}?"), 10).question == "alice gets 10?"


def test_denied_call_asks_nobody_and_leaves_its_row_in_the_journal(store: Store) -> None:
    ran: list[int] = []
    pay = payer(ran, when=lambda amount: sayso.deny(f"{amount} is never paid"))
    for _ in range(2):
        with pytest.raises(sayso.ConfirmationDenied, match="10 is never paid") as caught:
            pay(10)
    assert caught.value.confirmation_id is None
    assert isinstance(caught.value, sayso.ConfirmationRejected)
    with pytest.raises(sayso.ConfirmationDenied, match="20 is never paid"):
        asyncio.run(apayer(ran, when=lambda amount: sayso.deny(f"{amount} is never paid"))(20))
    assert ran == []
    assert store.count(Filter()) == 0
    rows = store.journal()
    assert [row.event for row in rows] == ["denied"] * 3
    assert sorted(json.loads(row.detail)["reason"][:2] for row in rows) == ["10", "10", "20"]


def test_denial_wins_over_an_approval_that_was_given_before(store: Store) -> None:
    ran: list[int] = []
    closed = False

    def rule() -> bool | sayso.Verdict:
        return sayso.deny("the books are closed") if closed else True

    pay = payer(ran, when=rule)
    approved(pay, 10)
    closed = True
    with pytest.raises(sayso.ConfirmationDenied, match="the books are closed"):
        pay(10)
    assert ran == []


def test_rule_is_asked_again_when_the_approved_call_comes(store: Store) -> None:
    asked: list[int] = []

    def rule(amount: int) -> bool:
        asked.append(amount)
        return True

    pay = payer([], when=rule)
    approved(pay, 10)
    pay(10)
    assert asked == [10, 10]


# -- broken rules ----------------------------------------------------------------------------------------------------


def raising(error: Any) -> Callable[[], Any]:
    def rule() -> Any:
        raise error

    return rule


def returning(value: Any) -> Callable[[], Any]:
    def rule() -> Any:
        return value

    return rule


class Truthy:
    def __bool__(self) -> bool:
        return False

    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = object.__hash__


class Untruthy:
    def __bool__(self) -> bool:
        raise RuntimeError("no truth in me")


class Silent(Exception):
    def __str__(self) -> str:
        raise RuntimeError("says nothing")


def rule_that_yields() -> Any:
    yield False


async def rule_that_is_async() -> bool:
    return False


def rule_that_is_deep() -> bool:
    return rule_that_is_deep()


BROKEN: dict[str, Any] = {
    **{f"returns {stable(value)}": returning(value) for value in (
        None, 0, 1, -1, 0.0, 1.0, "", "no", "yes", "true", "allow", "hold", b"", (), (False,), [], {}, {"allow": True},
        {"approved": False}, set(), frozenset(), object, NotImplemented, ..., False.__class__, lambda: False,
    )},
    "returns an object that says it is false": returning(Truthy()),
    "returns an object that cannot be asked": returning(Untruthy()),
    "returns a function that was not called": returning(sayso.allow),
    "returns an error": returning(ValueError("no")),
    "raises a value error": raising(ValueError("bad amount")),
    "raises a key error": raising(KeyError("limit")),
    "raises stop iteration": raising(StopIteration()),
    "raises a timeout": raising(TimeoutError()),
    "raises an assertion": raising(AssertionError()),
    "raises an error without words": raising(Silent()),
    "raises an error of sayso": raising(errors.StoreBusyError("locked")),
    "raises the signal itself": raising(sayso.ConfirmationRequired("may I?")),
    "raises a group": raising(ExceptionGroup("many", [ValueError("one")])),
    "raises what is no error": raising("a text"),
    "is a generator": rule_that_yields,
    "has no end": rule_that_is_deep,
    "makes a verdict of no kind": lambda: sayso.Verdict("maybe"),  # type: ignore[arg-type]
    "makes a verdict with a text for a duration": lambda: sayso.Verdict("hold", expires="24h"),  # type: ignore[arg-type]
    "makes a verdict with a negative duration": lambda: sayso.Verdict("hold", expires=timedelta(-1)),
    "makes a verdict with a number for a quorum": lambda: sayso.Verdict("hold", quorum=2),  # type: ignore[arg-type]
    "makes a verdict with a prompt that is none": lambda: sayso.Verdict("hold", prompt=5),  # type: ignore[arg-type]
    "holds for no reviewer": lambda: sayso.policy.hold(quorum=0),
    "holds for half a reviewer": lambda: sayso.policy.hold(quorum=1.5),  # type: ignore[arg-type]
    "holds for a truth": lambda: sayso.policy.hold(quorum=True),
    "holds with a text for its roles": lambda: sayso.policy.hold(roles="finance"),
    "holds for a time that is none": lambda: sayso.policy.hold(expires="soon"),
    "holds for no time": lambda: sayso.policy.hold(expires="0s"),
}  # fmt: skip


def rule_named(when: Any) -> str:
    return f"when={getattr(when, '__name__', type(when).__name__)}"


def test_there_are_enough_broken_rules() -> None:
    assert len(BROKEN) >= 40


@pytest.mark.parametrize("broken", BROKEN)
def test_broken_rule_never_runs_the_call_and_is_named(store: Store, broken: str) -> None:
    ran: list[int] = []
    when = BROKEN[broken]
    with pytest.raises(errors.PolicyError, match="the call was not run") as caught:
        payer(ran, when=when)(10)
    assert rule_named(when) in str(caught.value)
    assert caught.value.rule.startswith(rule_named(when))
    with pytest.raises(errors.PolicyError, match=re.escape(rule_named(when))):
        asyncio.run(apayer(ran, when=when)(10))
    assert ran == []
    assert store.count(Filter()) == 0
    assert store.journal() == []


def test_coroutine_that_a_sync_rule_hands_back_never_runs_the_call(store: Store) -> None:
    ran: list[int] = []

    def rule() -> Any:
        return rule_that_is_async()

    with pytest.raises(errors.PolicyError, match="when=rule"):
        payer(ran, when=rule)(10)
    assert ran == []


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, asyncio.CancelledError, GeneratorExit])
def test_rule_that_ends_the_program_does_not_run_the_call(store: Store, error: type[BaseException]) -> None:
    ran: list[int] = []
    with pytest.raises(error):
        payer(ran, when=raising(error()))(10)
    assert ran == []
    assert store.count(Filter()) == 0


@pytest.mark.parametrize(
    "prompt",
    [raising(ValueError("no words")), returning(None), returning(5), returning(b"x")],
)
def test_broken_prompt_never_runs_the_call_and_is_named(store: Store, prompt: Any) -> None:
    ran: list[int] = []
    with pytest.raises(errors.PolicyError, match="prompt= of pay"):
        payer(ran, prompt=prompt)(10)
    assert ran == []
    assert store.count(Filter()) == 0


def test_policy_error_leads_back_to_the_users_own_error(store: Store) -> None:
    def rule(amount: int) -> bool:
        return {}[amount]

    with pytest.raises(errors.PolicyError, match="raised KeyError: 10") as caught:
        payer([], when=rule)(10)
    assert isinstance(caught.value.__cause__, KeyError)


def chain(error: BaseException | None) -> list[BaseException]:
    """Everything that a tracker of errors can reach from one."""
    found: list[BaseException] = []
    waiting = [error]
    while waiting:
        one = waiting.pop()
        if one is not None and one not in found:
            found.append(one)
            waiting += [one.__cause__, one.__context__]
    return found


@pytest.mark.parametrize("option", ["when", "prompt"])
def test_policy_error_does_not_hold_an_error_that_quotes_a_secret(store: Store, option: str) -> None:
    def hook(password: str) -> Any:
        try:
            return {}[password]
        except KeyError as first:
            raise ValueError("nothing to see") from first

    @sayso.gate(wait="raise", **{option: hook})
    def login(password: str) -> None: ...

    @sayso.gate(wait="raise", **{option: hook})
    async def alogin(password: str) -> None: ...

    secret = "hunter2-" + "secret"  # a traceback quotes the lines of this file, too
    for attempt in (lambda: login(secret), lambda: asyncio.run(alogin(secret))):
        with pytest.raises(errors.PolicyError, match="ValueError") as caught:
            attempt()
        assert [type(one) for one in chain(caught.value)] == [errors.PolicyError]
        assert secret not in "".join(traceback.format_exception(caught.value))


def test_policy_error_does_not_hold_an_error_where_nobody_can_say_what_is_secret(store: Store) -> None:
    def rule(thing: object) -> bool:
        raise ValueError(thing)

    @sayso.gate(wait="raise", when=rule)
    def use(thing: object) -> None: ...

    with pytest.raises(errors.PolicyError, match="raised ValueError") as caught:
        use(object())
    assert chain(caught.value) == [caught.value]
