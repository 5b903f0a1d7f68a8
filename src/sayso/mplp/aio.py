"""The functions of `sayso.mplp` for async programs, as coroutines; see there.

Store calls run in a small thread pool, and `start` takes an async `do`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from sayso import mplp
from sayso.effects import Operations, adrive
from sayso.mplp import flow
from sayso.mplp.confirm import Confirm
from sayso.mplp.document import Plan
from sayso.stores.base import Store

__all__ = [
    "add_decision", "capture_learning_sample", "create_confirm", "process_decision", "read_confirm", "read_plan",
    "refresh", "start", "submit_for_approval", "submit_plan_for_approval",
]  # fmt: skip

P = ParamSpec("P")
T = TypeVar("T")


def _run_async(function: Callable[P, Operations[T]]) -> Callable[P, Coroutine[Any, Any, T]]:
    @wraps(function)
    async def awaited(*args: P.args, **kwargs: P.kwargs) -> T:
        return await adrive(function(*args, **kwargs))

    return awaited


def _make_async(function: Callable[P, T]) -> Callable[P, Coroutine[Any, Any, T]]:
    @wraps(function)
    async def called(*args: P.args, **kwargs: P.kwargs) -> T:
        return function(*args, **kwargs)

    return called


create_confirm = _make_async(mplp.create_confirm)
capture_learning_sample = _make_async(mplp.capture_learning_sample)
submit_plan_for_approval = _run_async(flow.submit_plan_for_approval)
submit_for_approval = _run_async(flow.submit_for_approval)
add_decision = _run_async(flow.add_decision)
process_decision = _run_async(flow.process_decision)
read_confirm = _run_async(flow.read_confirm)
read_plan = _run_async(flow.read_plan)
refresh = _run_async(flow.refresh)


async def start(
    target: Plan | Confirm, do: Callable[[Any], Awaitable[T] | T], *, store: Store | str | None = None
) -> T:
    """Start an approved plan or target; see `sayso.mplp.start`. A sync `do` runs in a thread."""
    started: Any = await adrive(flow.start(target, do, store=store))
    return started
