"""Each promise has its own test file, on a real store file; tests count effects and never trust the record alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import sayso
from sayso import config
from tests.promises.world import World


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    path = tmp_path / "sayso.db"
    config.configure(store=f"sqlite:///{path}")
    monkeypatch.setenv("SAYSO_STORE", f"sqlite:///{path}")
    return World(config.default_store(), path, tmp_path / "effects")


@pytest.fixture(autouse=True)
def run_of_its_own() -> Iterator[None]:
    with sayso.run():
        yield
