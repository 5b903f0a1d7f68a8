"""The workflow that `benchmarks.peers.crowds` runs on Temporal; its sandbox loads this module anew for each worker."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from temporalio import activity, workflow

woken: Callable[[float], Any] = print
"""What is called with the time at which the approval began."""


@activity.defn
async def pay(since: float) -> None:
    """Run as the approved call."""
    woken(since)


@workflow.defn
class Paid:
    """Waits for a decision, then pays."""

    since: float | None = None

    @workflow.run
    async def run(self) -> None:
        await workflow.wait_condition(lambda: self.since is not None)
        await workflow.execute_local_activity(pay, self.since, start_to_close_timeout=timedelta(seconds=60))

    @workflow.signal
    def decide(self, since: float) -> None:
        self.since = since
