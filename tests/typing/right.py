"""Right uses of the public names: pyright in strict mode and `mypy --strict` must find nothing here. Never run."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, assert_type

import sayso
import sayso.mplp
import sayso.testing
from sayso import aio, confirm_first, errors
from sayso.model.request import Request


@sayso.gate
def pay(amount: int, to: str) -> str:
    return f"paid {amount} to {to}"


@sayso.gate(wait="raise", quorum=2, roles={"finance"}, expires="1h", redact=["iban"])
async def wire(amount: float) -> bool:
    return amount > 0


def is_large(amount: int) -> bool:
    return amount > 100


@sayso.gate(when=is_large, prompt="A large refund.", risk="high", approval_expires=timedelta(1))
def refund(amount: int) -> None: ...


@confirm_first
def delete(path: str) -> int:
    return len(path)


def transfer(iban: str) -> str:
    return iban


@sayso.gate(on_reject="return", wait="raise")
def balance(account: str) -> int:
    return 5


@sayso.gate(on_reject="return")
async def abalance(account: str) -> int:
    return 5


gated = sayso.gate(transfer, name="transfer", wait="raise", timeout="5m")

assert_type(pay(1, to="alice"), str)
assert_type(delete("/tmp/x"), int)
assert_type(gated("DE1"), str)
assert_type(balance("A-1"), int | str)
assert_type(sayso.gate(len, name="len", on_reject="return")([]), int | str)


async def asynchronous() -> None:
    assert_type(await wire(2.5), bool)
    assert_type(await abalance("A-1"), int | str)
    assert_type(await aio.ask("How many?", type=int), int)
    review = aio.Review(by="ada")
    async for request in review.list(tool="pay", older_than="1h"):
        assert_type(request, Request)
    page = await review.list()
    assert_type(page.cursor, str | None)
    assert_type(await review.approve(page.requests[0].id, comment="fine"), Request)


assert_type(sayso.ask("Which warehouse?"), str)
assert_type(sayso.ask("Sure?", type=bool, timeout="10m"), bool)
assert_type(sayso.ask("Which?", choices=["a", "b"], roles=["ops"]), str)

with sayso.run("order-1", on_behalf_of="kim") as run_id:
    assert_type(run_id, str)

try:
    pay(1, "bob")
except sayso.ConfirmationRequired as held:
    assert_type(held.id, str)
    assert_type(held.question, str)
    assert_type(held.tool_call, sayso.ToolCall | None)
    assert_type(held.to_dict(), dict[str, Any])
    for request_id in (held.confirmation_id, held.approval_id, held.request_id):
        assert_type(request_id, str)
except sayso.ConfirmationDenied as no:
    assert_type(no.message, str)
except sayso.ConfirmationRejected as no:
    assert_type(no.id, str | None)
except errors.OutcomeUnknownError as unknown:
    assert_type(unknown.id, str)
except sayso.errors.PolicyError as fault:
    assert_type(fault.args, tuple[Any, ...])

review = sayso.Review(by=sayso.Reviewer("ada", roles={"finance"}))
for request in review.list(state=["pending", "approved"], run="order-1", agent="billing", limit=10):
    review.approve(request.id, by="bob", changes={"amount": 7}, seen=request.current_fingerprint)
    assert_type(request.id, str)
if review.list(kind="question"):
    assert_type(review.count(kind="question"), int)
review.reject("rq_1", "not now")
review.resolve("rq_1", happened=True)

sayso.configure(store="memory:", reviewer="ada")
reviewer = sayso.testing.ScriptedReviewer().approve().reject("no")
assert_type(sayso.mplp.submit_for_approval.__name__, str)


# -- tools and their runs ------------------------------------------------------------------------------------------


@sayso.tool
def repay(order_id: str, amount: float) -> str:
    return f"refunded {amount}"


@sayso.tool(require_confirmation=True)
async def remit(amount: int) -> int:
    return amount


@sayso.tool(default_params={"key": lambda: "k"})
def keyed(amount: int, key: str) -> str:
    return key


one = sayso.Tool(lambda: 1, name="one", requires_approval=True)
plain: sayso.Tool = one
sayso.Tool(transfer, requires_approval=is_large, quorum=2, ambiguous=(OSError,), expires="1h", roles={"finance"})
agent = sayso.Agent(model="test", tools=[repay], requires_approval=True, description="Refunds.", risk="high")
sayso.Workflow(name="flow", approval_prompt="Begin?", default_params={"region": "eu"}, quorum=2)
several: list[sayso.Tool] = [repay, remit, keyed, plain]
sayso.Workflow(name="flow").step(repay).step(remit)

assert_type(repay.call("A-1", amount=3.0), str)
assert_type(keyed.call(5), str)
ended = repay("A-1", 3.0).run()
assert_type(ended, sayso.OutputEvent)
assert_type(ended.pending_approvals, list[sayso.ApprovalEvent])
assert_type(ended.pending_interactions, list[sayso.InteractionEvent])
repay(parent_id=ended.run_id, resume={ended.pending_approvals[0].approval_id: True})
repay("A-1", 3.0, run_id="order-1")
repay("A-1", 3.0, approval_decisions={"rq_1": sayso.ApprovalResolution(approved=True)})
keyed(amount=5).run()
plain(anything="goes")
status = sayso.load_run("run_1").status
assert status is None or status.code == "success"


async def awaiting_tools() -> None:
    assert_type(await repay("A-1", 3.0), sayso.OutputEvent)
    assert_type(await repay("A-1", 3.0).collect(), sayso.OutputEvent)
    assert_type(await remit.acall(10), int)
    assert_type(await repay.acall("A-1", 3.0), str)
    async for event in remit(10):
        print(event.path)
