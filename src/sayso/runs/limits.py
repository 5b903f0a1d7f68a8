"""How many calls of tools a worker makes at a time: of all tools together, and of each by its name."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from contextvars import ContextVar

from sayso import errors


class Limits:
    """Places for calls of tools, given out in the order in which they are asked for.

    Args:
        all_calls: How many calls at a time; None for any number.
        by_tool: How many calls at a time of each of these tools.

    Attributes:
        going: How many calls of each tool are under way.

    Raises:
        ConfigError: A limit is no whole number from 1.
    """

    def __init__(self, all_calls: int | None = None, by_tool: Mapping[str, int] | None = None) -> None:
        named = dict(by_tool or {})
        for most in (*named.values(), *(() if all_calls is None else (all_calls,))):
            if type(most) is not int or most < 1:
                raise errors.ConfigError(f"a limit is a whole number from 1, not {most!r}")
        self.all_calls, self.by_tool = all_calls, named
        self.going = Counter[str]()
        self._all = None if all_calls is None else asyncio.Semaphore(all_calls)
        self._tools = {name: asyncio.Semaphore(most) for name, most in named.items()}

    @asynccontextmanager
    async def place(self, tool: str) -> AsyncGenerator[None]:
        """Wait for a place for a call of a tool, and keep it while the block runs.

        A tool that another tool's handler calls counts with that one: waiting for a place while holding one could wait
        for itself.
        """
        if _has_place.get():
            yield
            return
        async with AsyncExitStack() as places:
            # That of the tool first: who waits for it keeps nobody else from a call.
            for semaphore in (self._tools.get(tool), self._all):
                if semaphore is not None:
                    await places.enter_async_context(semaphore)
            before = _has_place.set(True)
            self.going[tool] += 1
            try:
                yield
            finally:
                self.going[tool] -= 1
                _has_place.reset(before)


_has_place: ContextVar[bool] = ContextVar("sayso_has_place", default=False)
current_limits: ContextVar[Limits | None] = ContextVar("sayso_limits", default=None)
"""Those of the worker in whose hands a run is."""
