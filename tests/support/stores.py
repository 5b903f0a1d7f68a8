"""Shared fixtures: a thread without a run, and each store in turn.

Shared steps are in `acting`. Invariant: a test starts in the state of a new thread of a new program.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import sayso
from sayso import config, confirm_first
from sayso.gates import scope
from sayso.stores.base import Store
from tests.conftest import Clock
from tests.support.acting import Disk, Pay, payer
from tests.support.canaries import Program


@pytest.fixture(autouse=True)
def fresh_thread() -> Iterator[None]:
    """Give each test its own run, because all tests share one thread and a thread keeps its run."""
    scope._scope.set(None)
    yield
    scope._scope.set(None)


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """The configured store, once in memory and once in a file."""
    config.configure(store="memory:" if request.param == "memory" else f"sqlite:///{tmp_path / 'sayso.db'}")
    return config.default_store()


@pytest.fixture(params=["memory:", "sqlite:///{}.db", "jsonl:{}.jsonl"], ids=["memory", "sqlite", "jsonl"])
def each_store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """The configured store, of every kind that needs no server."""
    config.configure(store=request.param.format(tmp_path / "sayso"))
    return config.default_store()


@pytest.fixture
def memory() -> Store:
    """The configured store, in memory, for tests that are not about stores."""
    config.configure(store="memory:")
    return config.default_store()


@pytest.fixture
def ran() -> list[Any]:
    """The recorded actions of handlers."""
    return []


@pytest.fixture
def file_store(tmp_path: Path) -> Store:
    """The configured store, in a file that other processes can open."""
    config.configure(store=f"sqlite:///{tmp_path / 'sayso.db'}")
    return config.default_store()


@pytest.fixture
def disk(store: Store) -> Disk:
    """A disk, together with a configured store."""
    return Disk()


@pytest.fixture
def delete(disk: Disk) -> Callable[..., str]:
    """A function of the confirmation API that deletes from the disk."""

    @confirm_first
    def delete_file(path: str = "/tmp/scratch", *, force: bool = False) -> str:
        """Remove a file."""
        return disk.delete(path)

    return delete_file


@pytest.fixture
def adelete(disk: Disk) -> Callable[..., Any]:
    """The async version of `delete`."""

    @confirm_first
    async def async_delete(path: str) -> str:
        await asyncio.sleep(0)
        return disk.delete(path)

    return async_delete


@pytest.fixture
def pay(store: Store) -> Pay:
    """A gated call that returns what it paid."""
    return payer()


@pytest.fixture
def review(store: Store, clock: Clock) -> sayso.Review:
    """Ada's review of the configured store, with a frozen clock."""
    return sayso.Review(reviewer="ada", channel="test")


@pytest.fixture
def program() -> Program:
    """A program full of secrets."""
    return Program()
