"""Options of a gate that cannot be used, and functions that cannot be held, are refused at the decoration.

The invariant: what would fail at the first call fails before there is one.
"""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import inspect
from typing import Any, TypedDict

import pydantic
import pytest

import sayso
from sayso import errors
from sayso.stores.base import Store
from tests.support.acting import held, payer
from tests.support.ids import stable


@pytest.mark.parametrize("hook", ["when", "prompt", "verify"])
def test_async_hook_of_a_sync_function_is_refused_at_the_decoration(hook: str) -> None:
    async def later() -> bool:
        raise AssertionError

    with pytest.raises(errors.ConfigError, match=hook):
        payer(**{hook: later})


@pytest.mark.parametrize(
    "options",
    [
        {"when": None}, {"when": 1}, {"when": "no"}, {"expires": "soon"}, {"expires": 5}, {"approval_expires": "0s"},
        {"quorum": 0}, {"quorum": True}, {"roles": "finance"}, {"retries": -1}, {"retries": 1.5}, {"retries": True},
        {"idempotent": "no"}, {"idempotent": None}, {"redact": [""]}, {"redact": 5}, {"redact": "amount"}, {"risk": 5},
        {"prompt": 5},
        {"verify": True}, {"redactor": "x"}, {"description": 5}, {"wait": "never"}, {"on_expiry": "approve"},
        {"timeout": "x"}, {"name": ""}, {"name": " pay"}, {"name": "pay\x1b[2J"}, {"name": "p\u202eay"},
        {"name": "x" * 201}, {"name": 5},
    ],
    ids=stable,
)  # fmt: skip
def test_option_that_cannot_be_used_is_refused_at_the_decoration(options: dict[str, Any]) -> None:
    def pay(amount: int) -> None:
        raise AssertionError

    with pytest.raises(errors.ConfigError) as caught:
        sayso.gate(**options)(pay)
    (wrong,) = options
    assert wrong in str(caught.value) or "redact" in options or wrong in {"expires", "approval_expires", "timeout"}


def test_option_that_there_is_not_is_refused() -> None:
    with pytest.raises(TypeError, match="whem"):
        sayso.gate(whem=True)(lambda: None)  # type: ignore[call-overload]


def test_error_about_how_to_wait_names_only_what_is_wrong() -> None:
    def pay(amount: int) -> None:
        raise AssertionError

    with pytest.raises(errors.ConfigError, match="wait=") as caught:
        sayso.gate(wait="never")(pay)  # type: ignore[call-overload]
    assert "on_expiry" not in str(caught.value)
    with pytest.raises(errors.ConfigError, match="on_expiry=") as caught:
        sayso.gate(on_expiry="approve")(pay)  # type: ignore[call-overload]
    assert "wait" not in str(caught.value)


@pytest.mark.parametrize("on_expiry", ["reject", "ask"])
def test_what_to_do_at_an_expiry_is_no_option_of_a_call_that_does_not_wait(on_expiry: Any) -> None:
    with pytest.raises(errors.ConfigError, match="on_expiry= is for a call that waits"):
        sayso.gate(wait="raise", on_expiry=on_expiry)(payer())
    with pytest.raises(errors.ConfigError, match="on_expiry= is for a call that waits"):
        sayso.ask("Go on?", wait="raise", on_expiry=on_expiry)


@pytest.mark.parametrize("suspends", [Exception, BaseException, KeyboardInterrupt, SystemExit, asyncio.CancelledError])
def test_what_also_means_a_failure_or_an_interrupt_is_no_pause(suspends: type[BaseException]) -> None:
    def pay(amount: int) -> None:
        raise AssertionError

    for declare in (sayso.gate, sayso.confirm_first, sayso.tool):
        with pytest.raises(errors.ConfigError, match=rf"suspends= .* with {suspends.__name__} a call may also fail"):
            declare(pay, suspends=(LookupError, suspends))
    with pytest.raises(errors.ConfigError, match="a call may also fail"):
        sayso.hold("pay", {}, suspends=suspends)


def test_an_error_after_which_nobody_knows_is_no_pause() -> None:
    def pay(amount: int) -> None:
        raise AssertionError

    for declare in (sayso.gate, sayso.confirm_first, sayso.tool):
        with pytest.raises(errors.ConfigError, match="ambiguous= and suspends= contradict each other: after KeyError"):
            declare(pay, ambiguous=KeyError, suspends=LookupError)
        declare(pay, ambiguous=LookupError, suspends=KeyError)  # the pause is the more exact of them


def test_what_cannot_be_held_is_refused_at_the_decoration() -> None:
    class Thing:
        def method(self) -> None:
            raise AssertionError

    def numbers() -> Any:
        yield 1

    async def anumbers() -> Any:
        yield 1

    for thing in (functools.partial(print, 1), Thing().method, numbers, anumbers):
        with pytest.raises(TypeError):
            sayso.gate(wait="raise")(thing)
    assert inspect.isgeneratorfunction(numbers)


def test_class_is_refused_whatever_its_name() -> None:
    class Refund:
        pass

    for options in ({}, {"name": "refund"}):
        with pytest.raises(TypeError, match="Refund is a class"):
            sayso.gate(**options)(Refund)


# -- hooks that want what there is not -------------------------------------------------------------------------------


def names_another(amuont: int) -> bool:
    raise AssertionError


def takes_it_by_place(amount: int, /) -> bool:
    raise AssertionError


@pytest.mark.parametrize("option", ["when", "prompt", "verify"])
def test_hook_that_asks_for_an_argument_there_is_not_is_refused(option: str) -> None:
    with pytest.raises(errors.ConfigError, match=rf"{option}= .*'amuont'.* amount, to.*did you mean 'amount'"):
        payer(**{option: names_another})
    with pytest.raises(errors.ConfigError, match=f"{option}= .*positional-only"):
        payer(**{option: takes_it_by_place})


def none() -> bool:
    return True


def both(to: str, amount: int) -> bool:
    return amount == 10 and to == "alice"


def own_default(amount: int, limit: int = 5) -> bool:
    return amount > limit


def everything(**arguments: Any) -> bool:
    return arguments == {"amount": 10, "to": "alice"}


def some_and_everything(amuont: None = None, **rest: Any) -> bool:
    return amuont is None and "to" in rest


def no_more(*rest: Any) -> bool:
    return rest == ()


@pytest.mark.parametrize(
    "hook",
    [none, both, own_default, everything, some_and_everything, no_more, functools.partial(own_default, limit=9)],
    ids=lambda hook: getattr(hook, "__name__", "partial"),
)
def test_hook_that_can_be_called_is_taken(hook: Any, store: Store) -> None:
    held(payer(when=hook), 10)


# -- names of secrets ------------------------------------------------------------------------------------------------


@dataclasses.dataclass
class Card:
    number: str
    holder_pin: str


class Account(pydantic.BaseModel):
    iban: str
    cards: list[Card]


class Extra(pydantic.BaseModel, extra="allow"):
    iban: str


class Code(TypedDict):
    otp: str


def pay_from(account: Account | None, amount: int = 1) -> Code:
    raise AssertionError


def charge(card: tuple[Card, ...], *, apiKeys: str) -> str:  # noqa: N803  as programs write them
    raise AssertionError


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (pay_from, "amount"), (pay_from, "IBAN"), (pay_from, "pin"), (pay_from, "otp"), (pay_from, "account"),
        (charge, "number"), (charge, "api-key"), (charge, "holder_pin"),
    ],
    ids=stable,
)  # fmt: skip
def test_name_of_a_secret_that_can_be_met_is_taken(function: Any, name: str) -> None:
    sayso.gate(redact=[name])(function)


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (pay_from, "ibn"), (pay_from, "amounts_paid"), (pay_from, "holder"), (charge, "iban"), (charge, "nubmer"),
        (charge, "api_kye"),
    ],
    ids=stable,
)  # fmt: skip
def test_misspelt_name_of_a_secret_is_refused(function: Any, name: str) -> None:
    with pytest.raises(errors.ConfigError, match=f"redact= names '{name}'"):
        sayso.gate(redact=["number", name] if function is charge else [name])(function)


def test_refusal_of_a_secret_names_what_there_is() -> None:
    with pytest.raises(
        errors.ConfigError, match=r"there are card, apiKeys, number, holder_pin\); did you mean 'number'"
    ):
        sayso.gate(redact=["nubmer"])(charge)


def free_dict(notes: dict[str, int]) -> None: ...
def free_any(notes: Any) -> None: ...
def free_bare(notes) -> None: ...  # type: ignore[no-untyped-def]  # noqa: ANN001, RUF100
def free_inside(notes: list[tuple[int, dict[str, str]]]) -> None: ...
def free_keywords(**notes: int) -> None: ...
def free_extra(notes: Extra) -> None: ...
def free_result(notes: int) -> dict[str, str]: ...
def free_later(notes: "NotThereYet") -> None: ...  # type: ignore[name-defined]  # noqa: F821, UP037


@pytest.mark.parametrize(
    "function",
    [free_dict, free_any, free_bare, free_inside, free_keywords, free_extra, free_result, free_later],
    ids=lambda function: function.__name__,
)
def test_where_anything_can_stand_any_name_may_be_a_secret(function: Any) -> None:
    sayso.gate(redact=["whatever"])(function)
