"""Random ids. Knowing one gives no right, and none can be computed from what it names."""

from __future__ import annotations

import os
from base64 import b32encode

__all__ = ["new_request_id", "new_run_id", "new_token"]


def _random() -> str:
    return b32encode(os.urandom(16)).decode("ascii")[:26].lower()


def new_request_id() -> str:
    """Return a new request id: `rq_` and 128 random bits."""
    return "rq_" + _random()


def new_run_id() -> str:
    """Return a new run id: `run_` and 128 random bits."""
    return "run_" + _random()


def new_token() -> str:
    """Return a new fencing token, 128 random bits."""
    return _random()
