"""Fixtures for tests of programs that use sayso; pytest finds them if sayso is installed.

pytest loads this module in every run, so it does not import other modules of sayso until a fixture is used.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from sayso.model.request import Request
    from sayso.stores.memory import MemoryStore
    from sayso.testing import Clock, ScriptedReviewer

_SOON = 60.0  # seconds; a wait that ends within them is not treated as a hanging test
_NO_DECIDERS = ("sayso-", "sayso_", "pytest")  # name prefixes of threads that never decide
_REVIEWER = "sayso-scripted-reviewer"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the setting with which a project gives each of its tests a store in memory."""
    parser.addini("sayso_memory_store", "use the fixture sayso_store in every test", type="bool", default=False)


def pytest_configure(config: pytest.Config) -> None:
    """Apply the setting if the project has turned it on."""
    if config.getini("sayso_memory_store"):
        config.addinivalue_line("usefixtures", "sayso_store")


@pytest.fixture
def sayso_store() -> Iterator[MemoryStore]:
    """An empty store in memory, configured during the test; the default reviewer is named `reviewer`."""
    from sayso import config
    from sayso.stores.memory import MemoryStore

    store = MemoryStore()
    store.before_wait = partial(_must_be_decidable, store, frozenset(threading.enumerate()))
    with config.use(store=store, reviewer="reviewer"):
        yield store
    store.close()


@pytest.fixture
def sayso_clock() -> Iterator[Clock]:
    """Sayso's clock, frozen during the test; `sayso_clock.tick("25h")` advances it."""
    from sayso.testing import frozen_clock

    with frozen_clock() as clock:
        yield clock


@pytest.fixture
def sayso_reviewer(sayso_store: MemoryStore) -> Iterator[ScriptedReviewer]:
    """A scripted reviewer for `sayso_store`; the test fails if a step of the script was not used."""
    from sayso.testing import ScriptedReviewer

    reviewer = ScriptedReviewer(sayso_store)
    yield reviewer
    reviewer.must_be_done()


def _must_be_decidable(
    store: MemoryStore, earlier: frozenset[threading.Thread], request: Request, deadline: float | None
) -> None:
    """Fail a test whose call would wait forever because no other thread or task exists that could decide.

    Args:
        store: The store with the request.
        earlier: The threads that existed before the test.
        request: The request for which the call is about to wait.
        deadline: The end of the wait, as a value of `time.monotonic`.
    """
    from sayso import clock

    here = threading.current_thread()
    # List the threads before reading the request: a thread that decides and ends in between has decided by then.
    others = [one.name for one in threading.enumerate() if one is not here and one not in earlier]
    if here is not threading.main_thread() or any(
        name.startswith(_REVIEWER) or not name.startswith(_NO_DECIDERS) for name in others
    ):
        return
    if deadline is not None and deadline - time.monotonic() < _SOON:
        return
    if not clock.is_replaced() and (request.expires_at - clock.now()).total_seconds() < _SOON:
        return
    if "asyncio" in sys.modules:
        import asyncio

        loop: Any = asyncio._get_running_loop()  # noqa: SLF001  `get_running_loop` would raise
        if loop is not None and (len(asyncio.all_tasks(loop)) > 1 or getattr(loop, "_scheduled", None)):
            return
    if store.get(request.id).decision is not None:  # decided by a thread that has since ended
        return
    pytest.fail(
        f"{request.id} waits for a person, and nobody in this test decides: use the fixture sayso_reviewer and make"
        " the call inside `with sayso_reviewer.approve():`, or decide in a thread or task that begins earlier"
    )
