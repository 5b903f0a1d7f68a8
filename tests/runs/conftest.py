"""What several files of this folder share; helpers for other folders too are in `tests.support.running`."""

from __future__ import annotations

from typing import Any

import pytest

from sayso import Tool
from tests.support.running import paying


@pytest.fixture
def pay(ran: list[Any]) -> Tool:
    """A tool that waits."""
    return paying(ran)
