"""A worker of held activities, for the tests that kill it: `python temporal_program.py FOLDER ADDRESS [DEATH]`.

An effect is a line in the file `effects`. `DEATH` says where it kills itself: `inside` the call.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from datetime import timedelta
from pathlib import Path

from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.worker import Worker

with workflow.unsafe.imports_passed_through():
    from sayso import config
    from sayso.integrations.temporal import execute_held_activity, held_activity

folder, address, death = [*sys.argv[1:], "", "", ""][:3]
SOON = timedelta(seconds=1)


@activity.defn
@held_activity(effect="refund:{order_id}")
def refund(order_id: str, amount: float) -> str:
    """Pay money back to a customer."""
    with Path(folder, "effects").open("a", encoding="utf-8") as file:
        file.write(f"{order_id} {amount:.2f}\n")
    if death == "inside":
        os.kill(os.getpid(), signal.SIGKILL)
    return f"refunded {amount:.2f} for {order_id}"


@workflow.defn
class Complaint:
    @workflow.run
    async def run(self, order_id: str) -> str:
        return await execute_held_activity(refund, args=[order_id, 50.0], start_to_close_timeout=timedelta(seconds=2))


async def main() -> None:
    config.configure(store=f"sqlite:///{folder}/sayso.db")
    client = await Client.connect(address)
    worker = Worker(
        client, task_queue="shop", workflows=[Complaint], activities=[refund],
        sticky_queue_schedule_to_start_timeout=SOON,
    )  # fmt: skip
    await worker.run()


if __name__ == "__main__":
    asyncio.run(main())
