"""Checkpoints from time to time, in a thread of their own, as long as a server runs.

What the last one knew is remembered meanwhile: so it is also found that an older copy of the store was put back under
the server, though that copy agrees with itself. Invariant: a checkpoint that cannot be written stops nothing else, and
is told about each time.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Generator
from contextlib import contextmanager
from datetime import timedelta

from sayso import errors
from sayso.audit.checkpoint import History, checkpoint
from sayso.audit.key import Signer
from sayso.stores.base import Store

__all__ = ["Schedule", "checkpointing"]


class Schedule:
    """The checkpoints that are written from time to time.

    Attributes:
        problem: Why the last one was not written; None where nothing stood in its way.
    """

    def __init__(self) -> None:
        self.problem: str | None = None


@contextmanager
def checkpointing(store: Store, *, every: timedelta, signer: Signer | None = None) -> Generator[Schedule]:
    """Write checkpoints from time to time inside the block, in a thread of their own.

    One that cannot be written is logged, and tried again the next time.

    Args:
        store: Where.
        every: How long to wait between two.
        signer: Who signs them.
    """
    ended, log, schedule = threading.Event(), logging.getLogger("sayso"), Schedule()

    def work() -> None:
        known: History | None = None
        while not ended.wait(every.total_seconds()):
            try:
                known = checkpoint(store, signer, since=known)
                schedule.problem = None
            except errors.EvidenceError as error:
                schedule.problem = str(error)
                log.error("%s", error)  # noqa: TRY400  the words say all, and where we noticed is of no use
            except Exception as error:  # noqa: BLE001  the edge of a thread: whatever it is, the next one may succeed
                schedule.problem = f"no checkpoint was written: {type(error).__name__}: {error}"
                log.warning("%s", schedule.problem)

    thread = threading.Thread(target=work, name="sayso-checkpoints", daemon=True)
    thread.start()
    try:
        yield schedule
    finally:
        ended.set()
        thread.join()
