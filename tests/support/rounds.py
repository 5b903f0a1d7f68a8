"""How many random examples a test tries: a few for each change, and many with `make test-full`."""

from __future__ import annotations

import os

__all__ = ["IS_FULL", "rounds"]

IS_FULL = os.environ.get("SAYSO_FULL") == "1"  # read before a fixture clears our variables


def rounds(few: int, full: int) -> int:
    """Return `few`, or `full` if `SAYSO_FULL=1` is set."""
    return full if IS_FULL else few
