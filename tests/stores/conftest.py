"""What the tests of several stores share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.postgres import server


@pytest.fixture
def url() -> Iterator[str]:
    """The address of a new database on Postgres."""
    here = server()
    found = here.new()
    yield found
    here.drop(found)
