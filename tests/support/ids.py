"""Ids of parametrized tests that are the same in every process, so that any runner may split the tests."""

from __future__ import annotations

import re

_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


def stable(value: object) -> str:
    """Return a value's repr without the addresses of objects; pytest numbers those that are then equal."""
    return _ADDRESS.sub("", repr(value))
