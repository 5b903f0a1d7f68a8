"""One program, two drivers: code that calls users' functions and stores is written once, as a generator of effects.

The generator says what is to be done (`UserCode`, `Verb`, or an effect of its own); `drive` does it in place, and
`adrive` awaits what is awaitable and runs blocking verbs in a small pool of threads. A verb that has begun is never
left half-way: when the awaiting task is cancelled, the driver waits for the verb's end before it passes that on.
"""

from __future__ import annotations

import inspect
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Mapping
from functools import cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

__all__ = ["Attempt", "Effect", "Effects", "Suspended", "Try", "UserCode", "Verb", "adrive", "drive", "offload"]

T = TypeVar("T")
_THREADS = 8


class Effect(ABC):
    """Something to be done on behalf of a generator; what it returns or raises goes back into the generator."""

    @abstractmethod
    def run(self) -> Any:
        """Do it here and now."""

    @abstractmethod
    async def arun(self) -> Any:
        """Do it without blocking the event loop."""


Effects = Generator[Effect, Any, T]


class UserCode(Effect):
    """A call of a user's function, which may be async where the caller is.

    Attributes:
        kwargs: What the function sees.
        has_moved: Whether what `look` sees changed while the function was awaited.
    """

    has_moved = False
    _look: Callable[[], object] | None = None

    def __init__(self, function: Callable[..., Any], kwargs: Mapping[str, Any]) -> None:
        self._function, self.kwargs = function, kwargs

    def watching(self, look: Callable[[], object]) -> UserCode:
        """Compare what `look` returns before and after an await, when other tasks run; return this effect."""
        self._look = look
        return self

    def run(self) -> Any:
        value = self._function(**self.kwargs)
        if value is not True and value is not False and inspect.isawaitable(value):  # rules mostly say True or False
            close = getattr(value, "close", None)
            if close is not None:
                close()  # a coroutine that is never awaited would warn somewhere else
            raise TypeError("is async, which needs an async function behind the gate")
        return value

    async def arun(self) -> Any:
        value = self._function(**self.kwargs)
        if not inspect.isawaitable(value):
            return value
        if self._look is None:
            return await value
        before = self._look()
        value = await value
        self.has_moved = self._look() != before
        return value


class Attempt(NamedTuple):
    """What became of a call: a value or what it raised. Kept apart from the generator, whose own errors are ours.

    Attributes:
        is_ambiguous: What it raised leaves it open whether it took effect; so judged where its outcome is recorded.
    """

    value: Any
    raised: BaseException | None
    is_ambiguous: bool = False

    def unwrap(self) -> Any:
        """Return the value, or raise what was raised."""
        if self.raised is not None:
            raise self.raised
        return self.value


class Suspended(BaseException):
    """A call stopped itself to wait for a person: it has not ended, and may be started again under its approval."""


class Try(Effect):
    """A call of the user's own gated function: its error is a result, too.

    Where the caller is async and the function is not, it runs in a thread.
    """

    def __init__(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        self._function, self._args, self._kwargs = function, args, kwargs

    def run(self) -> Attempt:
        try:
            return Attempt(self._function(*self._args, **self._kwargs), None)
        except BaseException as error:  # noqa: BLE001  user code; recorded by the gate, then raised again unchanged
            return Attempt(None, error)

    async def arun(self) -> Attempt:
        try:
            if inspect.iscoroutinefunction(self._function):
                return Attempt(await self._function(*self._args, **self._kwargs), None)
            import asyncio

            # The attempt and not the error comes back: a future takes no StopIteration, and would never be done.
            return await asyncio.to_thread(self.run)
        except BaseException as error:  # noqa: BLE001  user code, and a cancellation of the task that runs it
            return Attempt(None, error)


class Verb(Effect):
    """A verb of a store."""

    __slots__ = ("_args", "_blocks", "_verb")

    def __init__(self, blocks: bool, verb: Callable[..., Any], *args: Any) -> None:  # noqa: FBT001  built in one line
        self._blocks, self._verb, self._args = blocks, verb, args

    def run(self) -> Any:
        return self._verb(*self._args)

    async def arun(self) -> Any:
        return await offload(partial(self._verb, *self._args)) if self._blocks else self._verb(*self._args)


def drive(effects: Effects[T], value: Any = None) -> T:
    """Run a generator of effects to its end in this thread; `value` answers its effect, if it has begun."""
    try:
        effect = effects.send(value)
        while True:
            try:
                value = effect.run()
            except BaseException as error:  # noqa: BLE001  it belongs to the generator, which decides what to do about it
                effect = effects.throw(error)
            else:
                effect = effects.send(value)
    except StopIteration as end:
        return end.value


async def adrive(effects: Effects[T]) -> T:
    """Run a generator of effects to its end in this task."""
    try:
        effect = next(effects)
        while True:
            try:
                value = await effect.arun()
            except GeneratorExit as closed:
                if not isinstance(effect, Try):
                    raise
                # The coroutine is thrown away in mid-call, and nothing can be awaited any more: record it in place.
                return drive(effects, Attempt(None, closed))
            except BaseException as error:  # noqa: BLE001  it belongs to the generator, which decides what to do about it
                effect = effects.throw(error)
            else:
                effect = effects.send(value)
    except StopIteration as end:
        return end.value


@cache
def _pool() -> ThreadPoolExecutor:
    from concurrent.futures import ThreadPoolExecutor

    return ThreadPoolExecutor(_THREADS, thread_name_prefix="sayso")


if hasattr(os, "register_at_fork"):
    # A forked child has the pool and not its threads, and would wait for them for ever.
    os.register_at_fork(after_in_child=_pool.cache_clear)


async def offload(function: Callable[[], T]) -> T:
    """Run a blocking function in the pool; if the task is cancelled meanwhile, finish the function first."""
    import asyncio
    import contextvars

    # Not `run_in_executor` and `asyncio.wait`: two futures in a chain take longer than most verbs do.
    loop, said = asyncio.get_running_loop(), list[Attempt]()
    heard = loop.create_future()

    def hear(attempt: Attempt) -> None:
        said.append(attempt)
        if not heard.done():
            heard.set_result(None)

    def work() -> None:
        loop.call_soon_threadsafe(hear, Try(function, (), {}).run())

    _pool().submit(contextvars.copy_context().run, work)
    cancelled: asyncio.CancelledError | None = None
    while not said:
        try:
            await heard
        except asyncio.CancelledError as error:
            cancelled = error
            heard = loop.create_future()
    if cancelled is not None:
        raise cancelled
    return said[0].unwrap()
