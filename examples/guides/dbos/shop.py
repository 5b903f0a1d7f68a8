"""A workflow of DBOS whose refund waits for a person, and whose process dies meanwhile."""

import os
import time

from dbos import DBOS, SetWorkflowID

import sayso
from sayso.channels import deliver
from sayso.integrations.dbos import DBOSChannel, held_step

DATABASE = "sqlite:///shop.db"
DBOS(
    config={
        "name": "shop",
        "system_database_url": DATABASE,
        "executor_id": "shop-1",
        "application_version": "1",
        "log_level": "ERROR",
    }
)


@held_step(effect="refund:{order_id}")
def refund(order_id: str, amount: float) -> str:
    """Pay money back to a customer."""
    return f"refunded {amount:.2f} for {order_id}"


@DBOS.workflow()
def complaint(order_id: str) -> str:
    return refund(order_id, 320.0)


DBOS.launch()
with deliver(sayso.config.default_store(), [DBOSChannel(DATABASE)]), SetWorkflowID("complaint-A-4721"):
    run = DBOS.start_workflow(complaint, "A-4721")
    while run.get_status().status == "PENDING":
        for request in sayso.Review().list():
            print("waits:", request.id, flush=True)
            os._exit(1)  # the power fails
        time.sleep(0.05)
    print(run.get_result())
