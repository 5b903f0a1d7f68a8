"""A Procrastinate job that pays money back once somebody has agreed; while nobody has decided, it is queued again.

pip install sayso procrastinate
python examples/frameworks/procrastinate_refund.py
"""

import asyncio
from typing import Any

import procrastinate
from procrastinate.testing import InMemoryConnector

import sayso

app = procrastinate.App(connector=InMemoryConnector())  # in yours: PsycopgConnector
until_decided = procrastinate.RetryStrategy(
    max_attempts=100_000,
    wait=1,  # in yours: a minute
    retry_exceptions={sayso.ConfirmationRequired},
)


@app.task(name="refund", retry=until_decided, pass_context=True)
async def refund(context: procrastinate.JobContext, order_id: str, amount: float) -> str:
    arguments = {"order_id": order_id, "amount": amount}
    held = await sayso.aio.hold("refund", arguments, run=f"procrastinate/{context.job.id}", key="refund")
    return await held.once(pay)


def pay(approved: dict[str, Any]) -> None:
    print(f"refunded {approved['amount']:.2f} for {approved['order_id']}")


async def main() -> None:
    async with app.open_async():
        await refund.defer_async(order_id="A-4721", amount=320.0)
        await app.run_worker_async(wait=False)  # asks, and puts the job back
        (request,) = (await sayso.aio.Review().list()).requests
        await sayso.aio.Review(by="ada").approve(request.id)
        await asyncio.sleep(1.1)
        await app.run_worker_async(wait=False)


asyncio.run(main())
