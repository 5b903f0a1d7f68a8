"""A program with a durable workflow, for the tests that kill it: `… FOLDER EXECUTOR WORKFLOW [DEATH]`.

It starts the workflow, or goes on with it, and prints what came of it. An effect is a line in the file `effects`.
`DEATH` says where it kills itself: `inside` the call, or `behind` it, before DBOS has recorded the step.
`EXECUTOR` may name the executor whose runs it takes over at once: `two<one`.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

from dbos import DBOS, SetWorkflowID

from sayso import config
from sayso.channels import deliver
from sayso.integrations.dbos import DBOSChannel, _HeldStep, held_step

folder, executor, workflow_id, death = [*sys.argv[1:], ""][:4]
own, _, taken = executor.partition("<")
database = f"sqlite:///{folder}/dbos.db"
config.configure(store=f"sqlite:///{folder}/sayso.db")
DBOS(
    config={
        "name": "shop", "system_database_url": database, "executor_id": own, "application_version": "1",
        "notification_listener_polling_interval_sec": 0.02, "log_level": "CRITICAL",
    }
)  # fmt: skip


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@DBOS.step()
def look_up(order_id: str) -> float:
    with Path(folder, "looked-up").open("a", encoding="utf-8") as file:
        file.write(f"{order_id}\n")
    return 320.0


@held_step(effect="refund:{order_id}")
def refund(order_id: str, amount: float) -> str:
    """Pay money back to a customer."""
    with Path(folder, "effects").open("a", encoding="utf-8") as file:
        file.write(f"{order_id} {amount:.2f}\n")
    if death == "inside":
        die()
    return f"refunded {amount:.2f} for {order_id}"


@DBOS.workflow()
def complaint(order_id: str) -> str:
    amount = look_up(order_id)
    return refund(order_id, amount)


if death == "behind":
    attempt = _HeldStep._attempt

    def doomed(self: Any, *args: Any) -> Any:
        result = attempt(self, *args)
        if "value" in result:
            die()
        return result

    _HeldStep._attempt = doomed  # type: ignore[method-assign]

DBOS.launch()
if taken:
    DBOS._recover_pending_workflows([taken])
with deliver(config.default_store(), [DBOSChannel(database)]), SetWorkflowID(workflow_id):
    handle = DBOS.start_workflow(complaint, "A-1") if not taken else DBOS.retrieve_workflow(workflow_id)
    print("launched", flush=True)
    try:
        print(handle.get_result(), flush=True)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
        raise
    except Exception as error:  # noqa: BLE001  the test reads which
        print(type(error).__name__, flush=True)
os._exit(0)
