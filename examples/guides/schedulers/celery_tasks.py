"""A task of Celery that is retried until somebody has decided."""

from typing import Any

from celery import Celery

import sayso

app = Celery("shop", broker="memory://", backend="cache+memory://")  # in yours: your broker


@app.task(bind=True, max_retries=None, acks_late=True)
def refund(task: Any, order_id: str, amount: float) -> str:
    arguments = {"order_id": order_id, "amount": amount}
    held = sayso.hold("refund", arguments, run=f"celery/{task.request.id}", key="refund")
    try:
        return held.once(pay)
    except sayso.ConfirmationRequired:
        raise task.retry(countdown=1) from None  # in yours: a minute


def pay(approved: dict[str, Any]) -> str:
    return f"refunded {approved['amount']:.2f} for {approved['order_id']}"
