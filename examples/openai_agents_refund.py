"""An agent of the OpenAI Agents SDK whose refunds wait for a person; it pauses and goes on as a new process would.

    pip install "sayso[openai-agents]"
    python examples/openai_agents_refund.py

No model is reached: a script plays it. It asks for a refund and looks the order up in one turn. The free call runs at
once, the refund waits. A person approves half of it, and whoever resumes the saved state again gets the same result.
"""

import asyncio

from agents import Agent, Runner, RunState, function_tool, set_tracing_disabled
from agents.testing import ScriptedModel, assistant_message, function_call

import sayso
from sayso.integrations.openai_agents import gate, resume

sayso.configure(store="memory:")
set_tracing_disabled(disabled=True)


@function_tool
def refund(order_id: str, amount: float) -> str:
    """Pay money back to a customer."""
    print(f"paid {amount:.2f}")
    return f"refunded {amount:.2f} for {order_id}"


@function_tool
def lookup(order_id: str) -> str:
    """Look an order up."""
    return f"{order_id} was paid twice"


def support(*script: list) -> Agent:
    """Return the agent; put a real model in place of the script."""
    return Agent(name="support", model=ScriptedModel(script), tools=[gate(refund, wait="pause"), lookup])


async def main() -> None:
    """Run until the agent pauses, decide, and go on from the saved state, twice."""
    calls = [
        function_call("lookup", {"order_id": "A-4721"}, call_id="call_1"),
        function_call("refund", {"order_id": "A-4721", "amount": 320.0}, call_id="call_2"),
    ]
    with sayso.run("thread-17"):
        paused = await Runner.run(support(calls), "Refund order A-4721.")
        saved = paused.to_state().to_string()
    for request in sayso.Review().list(state="pending"):
        print(f"waits: {request.call.name} {dict(request.call.arguments)}")
        sayso.Review().approve(request.id, by="ada", changes={"amount": 160.0}, comment="half, as goodwill")

    for _ in range(2):
        agent = support([assistant_message("Half of it is refunded.")])
        with sayso.run("thread-17"):
            state = await resume(await RunState.from_string(agent, saved))
            result = await Runner.run(agent, state)
        told = next(item for item in result.to_input_list() if item.get("call_id") == "call_2" and "output" in item)
        print(f"the model is told: {told['output']}")
        print(result.final_output)


if __name__ == "__main__":
    asyncio.run(main())
