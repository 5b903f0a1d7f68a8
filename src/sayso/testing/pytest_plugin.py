"""Fixtures for tests of programs that use sayso; pytest finds them where sayso is installed.

pytest loads this module in every run, so it imports nothing of sayso before a fixture is used.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from sayso.stores.memory import MemoryStore
    from sayso.testing import Clock, ScriptedReviewer


@pytest.fixture
def sayso_store() -> Iterator[MemoryStore]:
    """An empty store in memory, the configured one during the test; who decides without a name is `reviewer`."""
    from sayso import config
    from sayso.stores.memory import MemoryStore

    store = MemoryStore()
    with config.use(store=store, reviewer="reviewer"):
        yield store
    store.close()


@pytest.fixture
def sayso_clock() -> Iterator[Clock]:
    """A clock of sayso that stands still during the test; `sayso_clock.tick("25h")` moves it."""
    from sayso.testing import frozen_clock

    with frozen_clock() as clock:
        yield clock


@pytest.fixture
def sayso_reviewer(sayso_store: MemoryStore) -> Iterator[ScriptedReviewer]:
    """A scripted reviewer of `sayso_store`; the test fails if a step of the script was not used."""
    from sayso.testing import ScriptedReviewer

    reviewer = ScriptedReviewer(sayso_store)
    yield reviewer
    reviewer.must_be_done()
