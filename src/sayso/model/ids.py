"""Random ids. Knowing an id grants no right, and an id cannot be computed from what it identifies."""

from __future__ import annotations

import os

ID_LENGTH = len("rq_") + 32


def _random() -> str:
    return os.urandom(16).hex()


def new_request_id() -> str:
    """Return a new request id: `rq_` and 128 random bits."""
    return "rq_" + _random()


def new_grant_id() -> str:
    """Return a new grant id: `gr_` and 128 random bits."""
    return "gr_" + _random()


def new_run_id() -> str:
    """Return a new run id: `run_` and 128 random bits."""
    return "run_" + _random()


def new_token() -> str:
    """Return a new fencing token, 128 random bits."""
    return _random()
