"""Options of a gate that cannot be used, and functions that cannot be held, are refused at the decoration.

The invariant: what would fail at the first call fails before there is one.
"""

from __future__ import annotations

import functools
import inspect
from typing import Any

import pytest

import sayso
from sayso import errors
from tests.integration.acting import payer


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
        {"idempotent": "no"}, {"idempotent": None}, {"redact": [""]}, {"redact": 5}, {"risk": 5}, {"prompt": 5},
        {"verify": True}, {"redactor": "x"}, {"description": 5}, {"wait": "never"}, {"on_expiry": "approve"},
        {"timeout": "x"},
    ],
    ids=repr,
)  # fmt: skip
def test_option_that_cannot_be_used_is_refused_at_the_decoration(options: dict[str, Any]) -> None:
    def pay(amount: int) -> None:
        raise AssertionError

    with pytest.raises((errors.ConfigError, TypeError)) as caught:
        sayso.gate(**options)(pay)
    assert isinstance(caught.value, errors.ConfigError) or "redact" in options


def test_option_that_there_is_not_is_refused() -> None:
    with pytest.raises(TypeError, match="whem"):
        sayso.gate(whem=True)(lambda: None)  # type: ignore[call-overload]


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
