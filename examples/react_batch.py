"""Many tasks for one agent: what is small is approved by a rule, the rest waits for a person.

    python examples/react_batch.py

Nothing stands still while a person thinks: what waits is listed at the end, and is decided later, here or elsewhere
(`sayso ls`, `sayso approve ID`); a second round then goes on with it.
"""

import asyncio
from typing import Any

import sayso

PAYMENTS = {"paper": 12.0, "server": 4_800.0, "coffee": 60.0, "lawyer": 9_500.0}


@sayso.tool(require_confirmation=True)
def pay(what: str, amount: float) -> str:
    """Pay a bill."""
    return f"paid {amount:.2f} for {what}"


async def scripted(messages: list[dict[str, Any]], _tools: list[dict[str, Any]]) -> Any:
    """Stand in for a model: pay what the task names, and say what happened."""
    told = [message["content"] for message in messages if message["role"] == "tool"]
    if told:
        return [("finish", {"answer": told[-1].splitlines()[-1]})]
    what = messages[1]["content"].removeprefix("Pay for ")
    return [("pay", {"what": what, "amount": PAYMENTS[what]})]


def is_small(held: sayso.ConfirmationRequired) -> bool:
    """Say whether a call may be approved without a look: a rule of the program, and as such in the record."""
    return held.tool_call is not None and held.tool_call.args["amount"] < 100


async def process(agent: sayso.ReAct, tasks: list[str]) -> dict[str, sayso.ConfirmationRequired]:
    """Work on every task, and return what waits for a person."""
    waiting: dict[str, sayso.ConfirmationRequired] = {}
    for task in tasks:
        state = None
        while True:
            try:
                result = await agent.aforward(question=task, resume_state=state)
            except sayso.ConfirmationRequired as held:
                if not is_small(held):
                    waiting[task] = held
                    break
                sayso.Review(reviewer="small-payments", channel="rule").approve(held.confirmation_id)
                state = held
            else:
                print(result.answer)
                break
    return waiting


async def main() -> None:
    agent = sayso.ReAct("question -> answer", [pay], model=scripted, on_rejection="continue")
    waiting = await process(agent, [f"Pay for {what}" for what in PAYMENTS])
    person = iter([("approve", {"changes": {"amount": 4_000.0}}), ("reject", {"comment": "ask for an invoice first"})])
    for task, held in waiting.items():
        print(f"waits: {held.question}")
        verb, options = next(person)  # a person, some hours later, in another program
        getattr(sayso.Review(reviewer="ada"), verb)(held.confirmation_id, **options)
        result = await agent.aresume(None, held.to_dict())
        print(f"  {task}: {result.answer}")


if __name__ == "__main__":
    asyncio.run(main())
