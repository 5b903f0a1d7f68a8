"""Ten agents at once, each with a decision of its own: a yes to one is no yes to another, though they ask the same.

python examples/react_ten.py
"""

import asyncio
from typing import Any

import sayso

PUBLISHED: list[str] = []


@sayso.tool(require_confirmation=True)
async def publish(page: str) -> str:
    """Put a page on the web site."""
    await asyncio.sleep(0)
    PUBLISHED.append(page)
    return f"published {page}"


async def scripted(messages: list[dict[str, Any]], _tools: list[dict[str, Any]]) -> Any:
    """Stand in for a model: publish, and say what happened."""
    told = [message["content"] for message in messages if message["role"] == "tool"]
    return [("finish", {"answer": told[-1]})] if told else [("publish", {"page": "/news"})]


async def run_agent(number: int) -> str:
    """Run one agent; every third one is refused."""
    agent = sayso.ReAct("question -> answer", [publish], model=scripted)
    try:
        return (await agent.aforward(question=f"Task {number}")).answer
    except sayso.ConfirmationRequired as held:
        try:
            return (await agent.aresume("no" if number % 3 == 0 else "yes", held)).answer
        except sayso.ConfirmationRejected:
            return "refused"


async def main() -> None:
    results = await asyncio.gather(*[run_agent(number) for number in range(10)])
    for number, result in enumerate(results):
        print(f"{number}: {result}")
    print(f"published {len(PUBLISHED)} times")


if __name__ == "__main__":
    asyncio.run(main())
