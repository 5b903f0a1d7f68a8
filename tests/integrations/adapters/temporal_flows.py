"""The workflows and activities that the tests of Temporal run in this process; the sandbox reads this module alone."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from temporalio import activity, workflow

with workflow.unsafe.imports_passed_through():
    from sayso.integrations.temporal import execute_held_activity, held_activity

    REFUNDS: list[float] = []

SPAN = timedelta(seconds=20)


@activity.defn
@held_activity
async def refund(order_id: str, amount: float) -> str:
    """Pay money back."""
    REFUNDS.append(amount)
    return f"refunded {amount:.2f} for {order_id}"


@activity.defn
@held_activity
def fail(order_id: str) -> str:
    """Ask a bank that is closed."""
    REFUNDS.append(0.0)
    raise ValueError(f"the bank is closed to {order_id}")


@activity.defn
@held_activity(expires="1s")
async def hurry(order_id: str) -> str:
    """Pay money back."""
    REFUNDS.append(0.0)
    return order_id


@activity.defn
@held_activity(when=lambda amount: amount > 100)
async def small(amount: float) -> str:
    """Pay a little back."""
    REFUNDS.append(amount)
    return "paid"


@workflow.defn
class Complaint:
    @workflow.run
    async def run(self, name: str, args: list[Any]) -> str:
        return await execute_held_activity(name, args=args, start_to_close_timeout=SPAN)


@workflow.defn
class Impatient:
    """Looks by itself each second."""

    @workflow.run
    async def run(self) -> str:
        soon = timedelta(seconds=1)
        return await execute_held_activity(refund, args=["A-1", 50.0], recheck=soon, start_to_close_timeout=SPAN)


@workflow.defn
class Plain:
    """Knows nothing of sayso."""

    @workflow.run
    async def run(self) -> str:
        return await workflow.execute_activity(refund, args=["A-1", 50.0], start_to_close_timeout=SPAN)


ALL: dict[str, Any] = {"workflows": [Complaint, Impatient, Plain], "activities": [refund, fail, hurry, small]}
