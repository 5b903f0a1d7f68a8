"""An agent whose run is interrupted while a refund waits, and goes on in the next process."""

import asyncio
from pathlib import Path

from agents import Agent, Runner, RunState
from shop import model, refund

import sayso
from sayso.integrations.openai_agents import gate, resume

agent = Agent(name="support", model=model, tools=[gate(refund, wait="pause")])
saved = Path("thread-18.json")


async def main(state: str | None) -> str | None:
    """Start the run, or continue the saved one; return the state of a run that waits."""
    with sayso.run("thread-18"):
        given = "Refund order A-4721, 320 euros."
        if state is not None:
            given = await resume(await RunState.from_string(agent, state))
        result = await Runner.run(agent, given)
    if result.interruptions:
        return result.to_state().to_string()
    print(result.final_output)
    return None


waiting = asyncio.run(main(saved.read_text() if saved.exists() else None))
if waiting is not None:
    saved.write_text(waiting)
    print("paused")
