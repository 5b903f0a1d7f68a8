"""Sayso in LangGraph and LangChain (extra `langgraph`): an agent's tool calls wait for a person.

`ApprovalMiddleware` is for `create_agent` and `ToolNode`, and `approve` and `aapprove` are for your own nodes. Both
wait in place (`wait="block"`) or pause the graph (`wait="interrupt"`). Invariant: only the store decides. The value
with which a graph is resumed is ignored, so an early, late or repeated resume finds its call's decision and result.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Generator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Literal, Unpack, cast

from sayso import errors
from sayso.gates.gate import HoldOptions
from sayso.integrations import tool_calls
from sayso.integrations.shown import is_shown
from sayso.integrations.tool_calls import HeldTools, ToolResult, check_options, check_wait, framework

_lc: Any = framework("langchain_core.messages", "langgraph", "LangChain")
_lg: Any = framework("langgraph.types", "langgraph", "LangGraph")
_interrupted: Any = framework("langgraph.errors", "langgraph", "LangGraph").GraphInterrupt
_get_config: Any = framework("langgraph.config", "langgraph", "LangGraph").get_config
_Middleware: Any = framework("langchain.agents.middleware", "langgraph", "LangChain").AgentMiddleware

Wait = Literal["block", "interrupt"]


class ApprovalMiddleware(_Middleware):
    """Holds the tool calls of an agent until a person has decided.

    Use it in `create_agent(middleware=[…])`, in the last position, or in
    `ToolNode(tools, wrap_tool_call=m.wrap_tool_call, awrap_tool_call=m.awrap_tool_call)`.

    Args:
        tools: The tools to hold, or their names or patterns; by default all.
        wait: `block` waits in place, in async code without a thread. `interrupt` pauses the graph, which needs a
            checkpointer; resume it by invoking it with None or any `Command(resume=…)`.
        options: As for `sayso.hold`, except those that this adapter sets for each call.
    """

    name = "ApprovalMiddleware"

    def __init__(
        self, tools: Collection[Any] | None = None, *, wait: Wait = "block", **options: Unpack[HoldOptions]
    ) -> None:
        if tools is not None and not isinstance(tools, str):
            tools = [getattr(tool, "name", None) or getattr(tool, "__name__", tool) for tool in tools]
        self._tools = HeldTools(tools)
        self._how = _checked_options(wait, options)
        if self._tools.names is not None:  # an agent may have several, each for other tools
            self.name = f"{self.name}[{','.join(sorted(self._tools.names))}]"

    def wrap_tool_call(self, request: Any, handler: Callable[[Any], Any]) -> Any:
        """Hold a call, and run it with `handler` once it is approved."""
        return self._call(request, handler).run() if self._holds(request) else handler(request)

    async def awrap_tool_call(self, request: Any, handler: Callable[[Any], Any]) -> Any:
        """Hold a call without blocking the event loop, and run it with `handler` once it is approved."""
        return await (self._call(request, handler).arun() if self._holds(request) else handler(request))

    def _holds(self, request: Any) -> bool:
        known = {tool.name for tool in getattr(request.runtime, "tools", None) or ()}
        name = request.tool_call["name"]
        return self._tools.holds(name, known or {name}, or_more=not known)  # middleware may add all tools of an agent

    def _call(self, request: Any, handler: Any) -> _Call:
        return _Call(request.tool_call, request.tool, request.state, self._how, handler, request)


def approve(
    tool_call: Mapping[str, Any], function: Any, *, tool: Any = None, state: Any = None, wait: Wait = "interrupt",
    **options: Unpack[HoldOptions],
) -> Any:  # fmt: skip
    """Hold one of `AIMessage.tool_calls` in a node, run it once it is approved, and return its `ToolMessage`.

    Args:
        tool_call: The call: a dict with `name`, `args` and `id`.
        function, tool: The tool; or a function that takes the dict of approved arguments, and the tool for its schema.
        state: The node's state, which contains the model's text before the call for the reviewer.
        wait: `interrupt` pauses the graph, and the node runs again from its top; `block` waits in place.
        options: As for `ApprovalMiddleware`.
    """
    run = getattr(function, "invoke", function)
    return _Call(tool_call, tool or function, state, _checked_options(wait, options), run).run()


async def aapprove(
    tool_call: Mapping[str, Any], function: Any, *, tool: Any = None, state: Any = None, wait: Wait = "interrupt",
    **options: Unpack[HoldOptions],
) -> Any:  # fmt: skip
    """Do the same as `approve` without blocking the event loop; `function` is the tool or an async function."""
    run = getattr(function, "ainvoke", function)
    return await _Call(tool_call, tool or function, state, _checked_options(wait, options), run).arun()


def _checked_options(wait: Wait, options: HoldOptions) -> tuple[Wait, HoldOptions]:
    check_wait(wait, "block", "interrupt")
    check_options(options)
    return wait, options


class _Call:
    """A model's call: how it is held, how it runs, and the message that the model gets."""

    def __init__(self, call: Any, tool: Any, state: Any, how: Any, handler: Any, request: Any = None) -> None:
        self.name, self.id, self.arguments = str(call["name"]), call.get("id"), dict(call["args"])
        (wait, options), self._handler, self._request = how, handler, request
        self._made, self._failure, self._has_begun = cast("Any", None), cast("Exception | None", None), False
        thread = _get_config().get("configurable", {}).get("thread_id")
        if not self.id:
            raise errors.ConfigError(
                f"the call of {self.name} has no tool_call_id to distinguish it from equal calls; it was not run"
            )
        if thread is None and wait == "interrupt":
            raise errors.ConfigError(f'wait="interrupt" needs a checkpointer and a thread_id; {self.name} was not run')
        shape: Any = getattr(tool, "tool_call_schema", None)  # excludes arguments that the graph injects
        schema: Any = shape.model_json_schema() if hasattr(shape, "model_json_schema") else shape
        run, words = None if thread is None else str(thread), _model_text(state, self.id)
        about = getattr(tool, "description", None)
        filled = tool_calls.options_of(options, key=self.id, run=run, schema=schema, description=about, words=words)
        self._options: HoldOptions = {**filled, "suspends": _interrupted}
        self._waits = self._pause if wait == "interrupt" else None

    def run(self) -> Any:
        try:
            return self._result_message(
                tool_calls.call_tool(self.name, self.arguments, self._run, self._options, waits=self._waits)
            )
        except Exception as error:  # noqa: BLE001  re-raised unless it becomes a message
            return self._failure_message(error)

    async def arun(self) -> Any:
        call = tool_calls.acall_tool(self.name, self.arguments, self._arun, self._options, waits=self._waits)
        try:
            return self._result_message(await call)
        except Exception as error:  # noqa: BLE001  as above
            return self._failure_message(error)

    def _pause(self, request_id: str) -> None:
        _lg.interrupt({"sayso": request_id, "tool": self.name, "tool_call_id": self.id})

    def _result_message(self, result: ToolResult) -> Any:
        if not result.has_run:
            return self._message(result.words, status="error")
        if self._made is None:  # it ran elsewhere or earlier
            value: Any = result.value
            is_text = isinstance(value, str | list)
            self._made = self._message(value) if is_text else json.loads(value["langgraph"], object_hook=_from_json)
        return self._with_words(self._made, result.words)

    def _failure_message(self, error: Exception) -> Any:
        if error is not self._failure or self._made is None:
            raise error
        return self._made  # the framework's own message for a failed tool

    def _run(self, arguments: dict[str, Any]) -> Any:
        return self._to_record(self._handler(self._request_for(arguments)))

    async def _arun(self, arguments: dict[str, Any]) -> Any:
        return self._to_record(await self._handler(self._request_for(arguments)))

    def _request_for(self, arguments: dict[str, Any]) -> Any:
        self.arguments, request = arguments, self._request
        if request is None:
            return arguments
        tool = None if request.tool is None else _Once(request.tool, self)
        return request.override(tool_call={**request.tool_call, "args": arguments}, tool=tool)

    def _to_record(self, made: Any) -> Any:
        """Return the stored form of a result; raise if it is the framework's message for an exception of the tool."""
        is_bare = self._request is None and not isinstance(made, _lc.ToolMessage | _lg.Command)
        self._made = made = self._message(tool_calls.text_of(made)) if is_bare else made
        if getattr(made, "status", None) == "error":
            self._failure = self._failure or RuntimeError(str(made.content))
            raise self._failure
        if isinstance(made, _lc.ToolMessage) and made.artifact is None:
            return made.content
        try:
            return {"langgraph": json.dumps(made, default=_to_json)}
        except Exception:  # noqa: BLE001  a state can have any value; an unserializable result is lost for a replay
            return made

    @contextmanager
    def once(self, arguments: Mapping[str, Any]) -> Generator[None]:
        # The graph adds arguments that the tool's schema does not have; people saw those that it has.
        schema = cast("dict[str, Any]", self._options.get("schema") or {})
        given = {n: v for n, v in arguments.items() if n in self.arguments or n in schema.get("properties", {})}
        if self._has_begun or not is_shown(given, self.arguments):
            raise errors.SaysoError(f"{self.name} was called again, or with other arguments; it was not run")
        self._has_begun = True
        try:
            yield
        except Exception as error:
            self._failure = error
            raise

    def _message(self, content: Any, status: str = "success") -> Any:
        return _lc.ToolMessage(content, tool_call_id=self.id, name=self.name, status=status)

    def _with_words(self, result: Any, words: str) -> Any:
        if isinstance(result, list):
            return [self._with_words(item, words) for item in cast("list[Any]", result)]
        update: Any = getattr(result, "update", None)
        if isinstance(result, _lg.Command) and isinstance(update, dict) and "messages" in update:
            update = {**cast("Any", update), "messages": self._with_words(update["messages"], words)}
            return replace(result, update=update)
        if not words or getattr(result, "tool_call_id", None) != self.id:
            return result
        content = result.content
        combined = f"{words}\n\n{content}" if isinstance(content, str) else [{"type": "text", "text": words}, *content]
        return result.model_copy(update={"content": combined})


class _Once:
    """Guards a tool against a handler that calls it twice or with other arguments, or swallows its exceptions."""

    def __init__(self, tool: Any, call: _Call) -> None:
        self._tool, self._call = tool, call

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tool, name)

    def invoke(self, given: Any, config: Any = None, **more: Any) -> Any:
        with self._call.once(given["args"]):
            return self._tool.invoke(given, config, **more)

    async def ainvoke(self, given: Any, config: Any = None, **more: Any) -> Any:
        with self._call.once(given["args"]):
            return await self._tool.ainvoke(given, config, **more)


def _model_text(state: Any, call_id: str) -> str:
    messages = cast("Any", state).get("messages") if isinstance(state, dict) else getattr(state, "messages", state)
    own = (m for m in messages or () if any(call["id"] == call_id for call in getattr(m, "tool_calls", None) or ()))
    return "".join(str(message.text).strip() for message in list(own)[-1:])


def _to_json(value: Any) -> Any:
    if isinstance(value, _lg.Command):
        return {"langgraph:command": {name: getattr(value, name) for name in ("graph", "update", "goto")}}
    return {"langgraph:message": _lc.message_to_dict(value)}


def _from_json(found: dict[str, Any]) -> Any:
    if "langgraph:message" in found:
        return _lc.messages_from_dict([found["langgraph:message"]])[0]
    return _lg.Command(**found["langgraph:command"]) if "langgraph:command" in found else found
