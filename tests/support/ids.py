"""Ids for parametrized tests that are the same in every process, so that any runner can split the tests."""

from __future__ import annotations

import re

_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


def stable(value: object) -> str:
    """Return a value's `repr` without object addresses; pytest numbers ids that are then equal."""
    return _ADDRESS.sub("", repr(value))
