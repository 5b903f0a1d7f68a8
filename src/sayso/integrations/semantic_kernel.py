"""Sayso in Semantic Kernel (extra `semantic-kernel`): a kernel's filters hold its functions.

The function invocation filter sees every call, even those that the program makes itself. The automatic function
invocation filter gives it the model's id of a call.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from contextvars import ContextVar
from typing import Any, Unpack

from sayso.gates.gate import HoldOptions
from sayso.integrations.tool_calls import Call, ToolHook, framework, plain

_by_model = ContextVar[Any]("sayso_by_model", default=None)
Next = Callable[[Any], Awaitable[None]]


def hold_functions(kernel: Any, functions: Collection[str] | None = None, **options: Unpack[HoldOptions]) -> None:
    """Hold the functions of a kernel until a person has decided; call this after adding your own filters.

    Args:
        kernel: The `Kernel` of an agent or a chat completion.
        functions: Names as the model sees them (`shop-refund`), or patterns; by default all.
        options: As for `sayso.hold`.

    Raises:
        ConfigError: Semantic Kernel is not installed.
    """
    results: Any = framework("semantic_kernel.functions", "semantic-kernel", "Semantic Kernel")
    hook = ToolHook(functions, options)

    async def remember_call(context: Any, next: Next) -> None:  # noqa: A002  the kernel passes it by this name
        token = _by_model.set(context)
        try:
            await next(context)
        finally:
            _by_model.reset(token)

    async def hold_call(context: Any, next: Next) -> None:  # noqa: A002  as above
        function = context.function
        known = [each.fully_qualified_name for each in context.kernel.get_full_list_of_function_metadata()]
        if not hook.holds(function.fully_qualified_name, known):
            return await next(context)

        async def execute(approved: dict[str, Any]) -> Any:
            for name in given.keys() - approved.keys():  # removed by a person
                del context.arguments[name]
            context.arguments.update(approved)
            await next(context)
            return None if context.result is None else plain(context.result.value)

        given = {p.name: context.arguments[p.name] for p in function.parameters if p.name in context.arguments}
        result = await hook.acall(_call_of(function, given), execute)
        ran = context.result  # None if it ran earlier or elsewhere
        if not result.has_run or result.words or ran is None:
            value = result.text if not result.has_run or result.words else result.value
            context.result = results.FunctionResult(function=function.metadata, value=value)
        return None

    kernel.add_filter("function_invocation", hold_call)  # the one added last is called last
    kernel.add_filter("auto_function_invocation", remember_call)


def _call_of(function: Any, arguments: dict[str, Any]) -> Call:
    properties: dict[str, Any] = {p.name: p.schema_data or {} for p in function.parameters}
    required: list[str] = [p.name for p in function.parameters if p.is_required]
    schema: dict[str, Any] = {
        "type": "object", "properties": properties, "required": required, "additionalProperties": False,
    }  # fmt: skip
    context, call_id, words = _by_model.get(), None, ""
    if context is not None and context.function.fully_qualified_name == function.fully_qualified_name:
        call_id = context.function_call_content.id
        asking = [m for m in context.chat_history.messages if any(getattr(i, "id", None) == call_id for i in m.items)]
        words = "".join(message.content for message in asking[-1:])
    return Call(
        function.fully_qualified_name, arguments, id=call_id, schema=schema, description=function.description,
        words=words.strip(),
    )  # fmt: skip
