"""An Airflow task that a person lets through: a deferrable operator, and the trigger that waits for the decision.

While it waits, the triggerer has it, and no worker slot is taken. Then `execute` runs again from its top, and `hold`
looks at the request; the event decides nothing.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from airflow.sdk import BaseOperator
from airflow.triggers.base import BaseTrigger, TriggerEvent

import sayso


class Decided(BaseTrigger):
    """Fires when a request does not wait any more."""

    def __init__(self, request_id: str, poll: float = 5.0) -> None:
        super().__init__()
        self.request_id, self.poll = request_id, poll

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return f"{__name__}.Decided", {"request_id": self.request_id, "poll": self.poll}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        review = sayso.aio.Review()
        while (await review.get(self.request_id)).state == "pending":  # noqa: ASYNC110  another process decides
            await asyncio.sleep(self.poll)
        yield TriggerEvent({"request_id": self.request_id})


class Refund(BaseOperator):
    """Pays money back, once somebody has agreed."""

    def __init__(self, *, order_id: str, amount: float, **options: Any) -> None:
        super().__init__(**options)
        self.order_id, self.amount = order_id, amount

    def execute(self, context: Any, event: Any = None) -> str:  # noqa: ARG002  what it says is not believed
        arguments = {"order_id": self.order_id, "amount": self.amount}
        held = sayso.hold("refund", arguments, run=f"airflow/{context['run_id']}", key=self.task_id)
        try:
            return held.once(self.pay)
        except sayso.ConfirmationRequired as waits:
            self.defer(trigger=Decided(waits.id), method_name="execute")

    def pay(self, approved: dict[str, Any]) -> str:
        return f"refunded {approved['amount']:.2f} for {approved['order_id']}"
