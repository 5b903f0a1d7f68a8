"""Fixtures for browser tests: the installed wheel, a browser, and an inbox; each is created on first use."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import sayso
from sayso.model.request import State
from tests.support.surfing import Surf, launched, serving, shut, wheel_in


@pytest.fixture(scope="session")
def command(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `sayso` command of the installed wheel."""
    return wheel_in(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with launched() as browser:
        yield browser


@pytest.fixture(scope="module")
def site(chromium: Any, command: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Surf, str]]:
    """One server for all tests of a file, with a signed-in person, and the address of its store."""
    store = f"sqlite:///{tmp_path_factory.mktemp('inbox')}/inbox.db"
    with serving(command, store) as link:
        yield Surf(chromium, link), store


@pytest.fixture
def surf(chromium: Any, site: tuple[Surf, str]) -> Iterator[Surf]:
    """The inbox, without pending requests at the start of each test."""
    surfing, store = site
    sayso.configure(store=store)
    surfing.faults, surfing.expected = [], ""
    review = sayso.Review()
    for request in review.list(state=[State.PENDING, State.APPROVED], limit=1000).requests:
        if request.claimed_by is not None:
            review.release(request.id, by="nobody", force=True)
        review.cancel(request.id, by="nobody")
    sayso.clear_all_confirmations()
    yield surfing
    shut(chromium)
    assert surfing.found() == []
