"""An agent of LangChain whose refunds wait for a person; its graph pauses in a file and goes on as a new process would.

    pip install "sayso[langgraph]" langgraph-checkpoint-sqlite
    python examples/langgraph_refund.py

No model is reached: a script plays it. It asks for a refund and looks the order up in one turn. The free call runs at
once, the refund waits. A person approves half of it, and whoever resumes the thread again gets the same result.
"""

import tempfile
from pathlib import Path
from typing import Any

from langchain.agents import create_agent
from langchain.tools import tool
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langgraph.checkpoint.sqlite import SqliteSaver

import sayso
from sayso.integrations.langgraph import ApprovalMiddleware

sayso.configure(store="memory:")
CALLS = [
    {"name": "lookup", "args": {"order_id": "A-4721"}, "id": "call_1"},
    {"name": "refund", "args": {"order_id": "A-4721", "amount": 320.0}, "id": "call_2"},
]
THREAD = {"configurable": {"thread_id": "refund-17"}}


class Script(BaseChatModel):
    """Plays the model: asks for both tools at first, then answers."""

    @property
    def _llm_type(self) -> str:
        return "script"

    def bind_tools(self, *_: Any, **__: Any) -> "Script":
        return self

    def _generate(self, messages: list[Any], *_: Any, **__: Any) -> ChatResult:
        calls = CALLS if messages[-1].type == "human" else []
        answer = AIMessage("It was charged twice." if calls else "Half of it is refunded.", tool_calls=calls)
        return ChatResult(generations=[ChatGeneration(message=answer)])


@tool
def refund(order_id: str, amount: float) -> str:
    """Pay money back to a customer."""
    print(f"paid {amount:.2f}")
    return f"refunded {amount:.2f} for {order_id}"


@tool
def lookup(order_id: str) -> str:
    """Look an order up."""
    return f"{order_id} was paid twice"


def support(checkpointer: Any) -> Any:
    """Return the agent; put a real model in place of the script."""
    held = ApprovalMiddleware(["refund"], wait="interrupt")
    return create_agent(Script(), tools=[refund, lookup], middleware=[held], checkpointer=checkpointer)


def main(file: str) -> None:
    """Run until the graph pauses, decide, and go on from the file: from its thread, and from the pause once more."""
    with SqliteSaver.from_conn_string(file) as checkpointer:
        agent = support(checkpointer)
        agent.invoke({"messages": [("user", "Refund order A-4721.")]}, THREAD)
        paused = agent.get_state(THREAD).config
    for request in sayso.Review().list(state="pending"):
        print(f"waits: {request.call.name} {dict(request.call.arguments)}")
        sayso.Review().approve(request.id, by="ada", changes={"amount": 160.0}, comment="half, as goodwill")

    for config in (THREAD, paused):
        with SqliteSaver.from_conn_string(file) as checkpointer:
            messages = support(checkpointer).invoke(None, config)["messages"]
        told = next(message for message in messages if message.type == "tool" and message.name == "refund")
        print(f"the model is told: {told.text}")
        print(messages[-1].text)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(str(Path(folder) / "graph.db"))
