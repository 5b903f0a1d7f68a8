"""An activity that waits for a person, and the workflow that calls it."""

from datetime import timedelta

from temporalio import activity, workflow

with workflow.unsafe.imports_passed_through():
    from sayso.integrations.temporal import execute_held_activity, held_activity


@activity.defn
@held_activity(effect="refund:{order_id}")
async def refund(order_id: str, amount: float) -> str:
    """Pay money back to a customer."""
    return f"refunded {amount:.2f} for {order_id}"


@workflow.defn
class Complaint:
    """Pays the money of a complaint back."""

    @workflow.run
    async def run(self, order_id: str) -> str:
        return await execute_held_activity(refund, args=[order_id, 320.0], start_to_close_timeout=timedelta(seconds=30))
