"""What every test stands on: a place of its own, settings from nowhere else, and a clock that only the test moves.

No test reads the developer's own store, settings or editor, and none sleeps to let time pass. Helpers that one part
needs live beside its tests. The one invariant: what a test finds is what it made.
"""

from __future__ import annotations

import gc
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Generator, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from sayso import clock as sayso_clock
from tests.support import tables
from tests.support.rounds import IS_FULL

ROOT = Path(__file__).resolve().parent.parent
pytest_plugins = ["tests.support.stores", "tests.support.browser", "tests.support.postgres"]
_MEMORY, _ENOUGH = Path("/dev/shm"), 4 << 30
FOREIGN = ("EDITOR", "VISUAL", "PAGER", "XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME")

# No deadline: how fast an example runs is the benchmark's business. In CI the same examples are drawn on every run;
# `make test-full` looks further.
settings.register_profile("sayso", deadline=None, print_blob=True)
settings.register_profile("full", parent=settings.get_profile("sayso"), max_examples=1_000)
settings.load_profile("full" if IS_FULL else "ci" if os.environ.get("CI") else "sayso")


def in_memory() -> bool:
    """Say whether files can be kept in memory here, as many as the tests make, and be run from there."""
    if not os.access(_MEMORY, os.W_OK) or shutil.disk_usage(_MEMORY).free < _ENOUGH:
        return False
    return not os.statvfs(_MEMORY).f_flag & os.ST_NOEXEC


# The tests wait for a disk longer than they work, since every change is on it before a verb returns. No
# test cuts the power, so files in memory tell the same. TMPDIR is for the programs that the tests start.
if "TMPDIR" not in os.environ and in_memory():
    os.environ["TMPDIR"] = tempfile.tempdir = str(_MEMORY)

# Hundreds of programs are started, and each would compile the package anew where this came from outside; pytest would
# rewrite the asserts of every test anew, which is half of the time that it takes to collect them.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# From 3.13 on a traceback at a terminal has colours.
os.environ["PYTHON_COLORS"] = "0"

# A shell starts what runs in its background deaf to Ctrl-C, and every program that a test starts would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let somebody who looks for a fault see each row of a table by itself."""
    parser.addoption("--rows", action="store_true", help="report each row of a table as a test")


@pytest.hookimpl(wrapper=True)
def pytest_pycollect_makeitem(collector: pytest.Module | pytest.Class) -> Generator[None, Any, Any]:
    """Make one test of the rows of a table."""
    made = yield
    is_apart = collector.config.getoption("--rows") or any("[" in word for word in collector.config.args)
    return tables.gathered(made) if isinstance(made, list) and not is_apart else made


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Run a table row by row; everything else is run as ever."""
    if not isinstance(item, tables.Table):
        return None
    tables.run(item, nextitem)
    return True


def pytest_collection_finish() -> None:
    """Leave the tests themselves out of every later garbage collection: of all objects they are the most."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty home and working folder, no settings from outside, and none left for the next test."""
    for name in [*FOREIGN, *(name for name in os.environ if name.startswith("SAYSO"))]:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SAYSO_UNDO", "0")  # what a page approves starts at once, unless a test says otherwise
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    forget_settings()


def forget_settings() -> None:
    """Close what the default settings opened, and let the next test begin without them."""
    worker = sys.modules.get("sayso.stores.workers")
    if worker is not None:
        worker.stop_all()  # calls that a test has left running
    config = sys.modules.get("sayso.config")
    if config is None:
        return  # this test had no need of it
    for store in config._open.values():
        store.close()
    config._open.clear()
    config._tokens.clear()
    config._chosen_store = config._chosen_reviewer = config._chosen_program = config._default = None
    config._reviewer_nearby.cache_clear()


class Clock:
    """A clock that stands still until the test moves it."""

    def __init__(self, at: datetime) -> None:
        self.at = at

    def __call__(self) -> datetime:
        return self.at

    def tick(self, **span: float) -> datetime:
        """Move on by `timedelta(**span)`, or back by a negative one, and return the new instant."""
        self.at += timedelta(**span)
        return self.at


@pytest.fixture
def clock() -> Iterator[Clock]:
    """Freeze the package's clock; `clock.tick(seconds=1)` moves it."""
    frozen = Clock(datetime(2026, 1, 1, 12, 0, tzinfo=UTC))
    with sayso_clock.use(frozen):
        yield frozen


@pytest.fixture(scope="session")
def root() -> Path:
    """The repository."""
    return ROOT
