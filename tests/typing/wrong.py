"""Misspelt names and wrong uses: pyright and mypy must each find an error in every line with the mark `# wrong`.

In no other line, either. Never run.
"""

from __future__ import annotations

import sayso
import sayso.mplp
import sayso.testing
from sayso import aio, errors, gaet  # wrong
from sayso.mplp import submit_plan  # wrong


@sayso.gate
def pay(amount: int, to: str) -> str:
    return f"paid {amount} to {to}"


# -- names ---------------------------------------------------------------------------------------------------------

try:
    pay(1, "bob")
except sayso.ConfirmationRejceted:  # wrong
    pass
except sayso.AlreadyDecidedError:  # wrong
    pass
except errors.AlreadyDecided:  # wrong
    pass
except sayso.ConfirmationRequired as held:
    held.confirmaton_id  # wrong
    held.quesion  # wrong
    held.tool_cal  # wrong
except sayso.ConfirmationRejected as no:
    no.reason_  # wrong
except errors.OutcomeUnknownError as unknown:
    unknown.requestid  # wrong

sayso.gaet(pay)  # wrong
sayso.confrim_first(pay)  # wrong
sayso.aio.Reveiw()  # wrong
sayso.mplp.proces_decision()  # wrong
sayso.testing.ScriptedReveiwer()  # wrong

# -- gates ---------------------------------------------------------------------------------------------------------


@sayso.gate(qourum=2)  # wrong
def misspelt() -> None: ...


@sayso.gate(quorum="2")  # wrong
def text_for_a_number() -> None: ...


@sayso.gate(wait="rase")  # wrong
def misspelt_word() -> None: ...


@sayso.gate(expires=24)  # wrong
def hours_without_a_unit() -> None: ...


@sayso.gate(redact=5)  # wrong
def number_for_names() -> None: ...


@sayso.gate(retries=None)  # wrong
def nothing_for_a_number() -> None: ...


def transfer(iban: str) -> str:
    return iban


sayso.gate(transfer, qourum=2)  # wrong
sayso.gate(transfer, quorum="2")  # wrong
sayso.gate("transfer")  # wrong

pay("ten", to="alice")  # wrong
pay(1)  # wrong
pay(1, whom="alice")  # wrong
pay(1, "bob").amount  # wrong
sayso.gate(transfer)(5)  # wrong

# -- questions and runs --------------------------------------------------------------------------------------------

sayso.ask("Sure?", tipe=bool)  # wrong
sayso.ask("Sure?", type=bool, timeout=5)  # wrong
sayso.ask("Sure?", wait="later")  # wrong
sayso.ask("How many?", type=int).upper()  # wrong
sayso.run(nmae="order-1")  # wrong
sayso.configure(stor="memory:")  # wrong
sayso.Reviewer("ada", role={"finance"})  # wrong
sayso.Reviewer()  # wrong
sayso.policy.hold("large", qourum=2)  # wrong
sayso.hold("fs/write", {}, kye="call_1")  # wrong
sayso.hold("fs/write", {}).once()  # wrong
sayso.deny()  # wrong

# -- reviews -------------------------------------------------------------------------------------------------------

review = sayso.Review(revewer="ada")  # wrong
review = sayso.Review(by="ada")
review.lst()  # wrong
review.list(tol="pay")  # wrong
review.list(limit="10")  # wrong
review.list(kind="calls")  # wrong
review.list("pending")  # wrong
review.list()[0]  # wrong
len(review.list())  # wrong
review.list().request  # wrong
for request in review.list():
    request.idd  # wrong
    review.approve(request)  # wrong
review.approve()  # wrong
review.approve("rq_1", as_="ada")  # wrong
review.approve("rq_1", by=3)  # wrong
review.approve("rq_1", changes=[("amount", 7)])  # wrong
review.reject("rq_1", reason="no")  # wrong
review.feedback("rq_1")  # wrong
review.resolve("rq_1")  # wrong
review.resolve("rq_1", happened="no")  # wrong
review.extend("rq_1", 24)  # wrong


async def asynchronous() -> None:
    later = aio.Review(by="ada")
    for request in later.list():  # wrong
        print(request)
    async for request in later.list(tol="pay"):  # wrong
        print(request)
    for request in await later.list():  # wrong
        print(request)
    await later.approve("rq_1", as_="ada")  # wrong
    later.list().requests  # wrong
    (await aio.ask("How many?", type=int)).upper()  # wrong


# -- tools and their runs ------------------------------------------------------------------------------------------


@sayso.tool
def repay(order_id: str, amount: float) -> str:
    return f"refunded {amount}"


@sayso.tool(require_confirmation=True)
async def remit(amount: int) -> int:
    return amount


sayso.Tool(transfer, requires_aproval=True)  # wrong
sayso.Tool(transfer, requires_approval="yes")  # wrong
sayso.Tool(transfer, nmae="transfer")  # wrong
sayso.tool(requires_aproval=True)  # wrong
sayso.tool(transfer, quorum="2")  # wrong
sayso.Agent(model="test", tols=[])  # wrong
sayso.Agent(model="test", approval_propmt="Sure?")  # wrong
sayso.Workflow(nmae="flow")  # wrong
sayso.Workflow(requires_aproval=True)  # wrong

repay("A-1", amont=3.0)  # wrong
repay("A-1")  # wrong
repay(7, 3.0)  # wrong
repay("A-1", 3.0, parent="run_1")  # wrong
repay("A-1", 3.0, approval_decision={"rq_1": True})  # wrong
repay(resume=[("rq_1", True)])  # wrong
repay(run_id=5)  # wrong
repay.call("A-1", amount="3")  # wrong
repay.call("A-1", 3.0).amount  # wrong
repay.cal("A-1", 3.0)  # wrong
remit("10")  # wrong
repay("A-1", 3.0).rnu()  # wrong
repay("A-1", 3.0).run().outptu  # wrong
repay("A-1", 3.0).run().status.raeson  # wrong
repay("A-1", 3.0).run().pending_approval  # wrong
for held_call in repay("A-1", 3.0).run().pending_approvals:
    held_call.approvalid  # wrong
    held_call["approval_id"]  # wrong
for question in repay("A-1", 3.0).run().pending_interactions:
    question.answer  # wrong
stored = sayso.load_run("run_1")
stored.statsu  # wrong
stored.outputs  # wrong
stored.status.code  # wrong


async def awaiting_tools() -> None:
    (await repay("A-1", 3.0)).outptu  # wrong
    (await remit.acall(10)).upper()  # wrong
    await remit.acall("10")  # wrong
