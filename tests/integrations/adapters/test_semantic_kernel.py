"""Semantic Kernel through the common suite."""

from __future__ import annotations

import asyncio
import json
from typing import Any, ClassVar

import sayso
from sayso.stores.base import Store
from tests.integrations.adapters.installed import framework
from tests.integrations.adapters.suite import ANSWER, HELD, WORDS, AdapterSuite, BlockingDriver, Outcome, Scene, approve
from tests.support.acting import waiting_in

framework("semantic_kernel", "semantic_kernel")
from semantic_kernel import Kernel  # noqa: E402
from semantic_kernel.agents import ChatCompletionAgent, ChatHistoryAgentThread  # noqa: E402
from semantic_kernel.connectors.ai.chat_completion_client_base import ChatCompletionClientBase  # noqa: E402
from semantic_kernel.contents import ChatMessageContent, FunctionCallContent, TextContent  # noqa: E402
from semantic_kernel.functions import kernel_function  # noqa: E402

from sayso.integrations.semantic_kernel import hold_functions  # noqa: E402


class ScriptedModel(ChatCompletionClientBase):
    """A model that emits the turns of a scene, by what the messages say is done."""

    SUPPORTS_FUNCTION_CALLING: ClassVar[bool] = True
    scene: Any
    is_nested: bool = False

    async def _inner_get_chat_message_contents(self, chat_history: Any, *_: Any) -> Any:
        turn = sum(message.role == "assistant" for message in chat_history.messages)
        calls = self.scene.turn(turn, nested=self.is_nested)
        items: list[Any] = [TextContent(text=WORDS if calls else ANSWER)]
        items += [FunctionCallContent(id=c.id, name=c.tool, arguments=json.dumps(c.arguments)) for c in calls]
        return [ChatMessageContent(role="assistant", items=items)]


def agent_of(scene: Scene, *, nested: bool = False) -> Any:
    kernel = Kernel()
    for function in (scene.refund, scene.fail, scene.lookup):
        method = getattr(type(scene), function.__name__)
        if not hasattr(method, "__kernel_function__"):
            kernel_function(method)
        kernel.add_function("shop", function)
    if scene.nested and not nested:
        inner = agent_of(scene, nested=True)

        @kernel_function(name="delegate")
        async def delegate(task: str) -> str:
            return str((await inner.get_response(messages=task)).message.content)

        kernel.add_function("shop", delegate)
    hold_functions(kernel, [f"shop-{name}" for name in HELD[:2]], **scene.options)
    service = ScriptedModel(ai_model_id="scripted", scene=scene, is_nested=nested)
    return ChatCompletionAgent(service=service, kernel=kernel, name="shop")


class SemanticKernelDriver(BlockingDriver):
    """An agent with a kernel of its own, run in a named run."""

    prefix: ClassVar = "shop-"

    async def start(self, scene: Scene) -> Outcome:
        thread = ChatHistoryAgentThread()
        with sayso.run(scene.thread):
            response = await agent_of(scene).get_response(messages="go", thread=thread)
        told = {}
        async for message in thread.get_messages():
            told |= {item.id: str(item.result) for item in message.items if item.content_type == "function_result"}
        return Outcome(None, told, str(response.message.content))


class TestSemanticKernel(AdapterSuite):
    driver: ClassVar = SemanticKernelDriver()

    def test_argument_that_a_person_removed_is_not_passed(self, memory: Store) -> None:
        kernel, got = Kernel(), list[tuple[str, str]]()

        @kernel_function(name="send")
        def send(to: str, cc: str = "nobody") -> str:
            got.append((to, cc))
            return "sent"

        kernel.add_function("shop", send)
        hold_functions(kernel)

        async def main() -> None:
            task = asyncio.ensure_future(kernel.invoke(plugin_name="shop", function_name="send", to="bob", cc="eve"))
            (request,) = await asyncio.to_thread(waiting_in, memory)
            approve(arguments={"to": "bob"})(request)
            await task

        asyncio.run(main())
        assert got == [("bob", "nobody")]
