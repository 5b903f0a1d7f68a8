"""LlamaIndex: a tool waits for the event of a person; the workflow's context is saved as JSON meanwhile.

It finds the context by a parameter's annotation, which must not be text: there is no `from __future__` here.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.base.llms.types import ChatMessage, TextBlock, ToolCallBlock
from llama_index.core.llms.mock import MockFunctionCallingLLM
from llama_index.core.memory import ChatMemoryBuffer
from llama_index.core.tools import FunctionTool
from llama_index.core.workflow import Context, HumanResponseEvent, InputRequiredEvent

from benchmarks.contrast.subject import Call, NotApplicable, Subject

REFUND = Call()


def scripted(call: Call, run: str) -> Any:
    """Return a model that makes the call, and answers once it has a result."""

    def respond(messages: list[ChatMessage], **_: Any) -> ChatMessage:
        made = ToolCallBlock(tool_call_id=f"{run}-c1", tool_name=call.tool, tool_kwargs=call.arguments)
        is_over = any(message.role == "tool" for message in messages)
        return ChatMessage(role="assistant", blocks=[TextBlock(text="done") if is_over else made])

    return MockFunctionCallingLLM(response_generator=respond)


class Alone(Subject):
    def agent(self, call: Call, run: str) -> Any:
        async def confirmed(context: Context, question: str) -> bool:
            answer = await context.wait_for_event(
                HumanResponseEvent, waiter_id=question, waiter_event=InputRequiredEvent(prefix=question)
            )
            return answer.response.strip().lower() == "yes"

        async def refund(ctx: Context, order_id: str, amount: float) -> str:
            """Refund an order."""
            return self.tools.refund(order_id, amount) if await confirmed(ctx, "Refund it?") else "Nobody agreed."

        async def payout(ctx: Context, order_id: str, amount: float) -> str:
            """Pay out an order."""
            return self.tools.payout(order_id, amount) if await confirmed(ctx, "Pay it out?") else "Nobody agreed."

        tools = [FunctionTool.from_defaults(async_fn=each) for each in (refund, payout)]
        return FunctionAgent(llm=scripted(call, run), tools=tools, streaming=False)

    def ask(self, call: Call, run: str) -> Any:
        async def main() -> Any:
            handler = self.agent(call, run).run("go")
            async for event in handler.stream_events():
                if isinstance(event, InputRequiredEvent):
                    saved = handler.ctx.to_dict()
                    await handler.cancel_run()
                    return {"run": run, "context": saved}
            raise RuntimeError("it did not wait")

        return asyncio.run(main())

    def decide(self, saved: Any, decision: str) -> Any:
        if decision == "edit":
            raise NotApplicable("it has no edits")
        return "yes" if decision == "approve" else decision

    def resume(self, saved: Any, answer: Any) -> None:
        async def main() -> None:
            agent = self.agent(REFUND, saved["run"])
            handler = agent.run(ctx=Context.from_dict(agent, saved["context"]))
            await handler.ctx.store.set("memory", ChatMemoryBuffer.from_defaults())  # a context does not save it
            handler.ctx.send_event(HumanResponseEvent(response=answer))
            await handler

        asyncio.run(main())

    async def chat(self, function: Callable[..., Any], call: Call, run: str) -> None:
        await FunctionAgent(
            llm=scripted(call, run), tools=[FunctionTool.from_defaults(fn=function)], streaming=False
        ).run("go")
