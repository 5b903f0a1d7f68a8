"""How often a test plays what it draws: a few times for each change, and many times with `make test-full`."""

from __future__ import annotations

import os

__all__ = ["IS_FULL", "rounds"]

IS_FULL = os.environ.get("SAYSO_FULL") == "1"  # before a fixture takes all of ours out of the environment


def rounds(few: int, full: int) -> int:
    """Return the first number, or with `SAYSO_FULL=1` the second."""
    return full if IS_FULL else few
