"""Turns a function into a held tool for frameworks that take Python functions and have no adapter here.

`sayso.gate` would raise a refusal, which many frameworks swallow or crash on. Here a refusal, an edit and a note become
the tool's result, which the model reads in every framework.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, Unpack

from sayso.errors import ConfigError
from sayso.gates.exceptions import trimmed
from sayso.gates.gate import HoldOptions
from sayso.integrations.tool_calls import ToolFunction, acall_tool, call_tool, check_options, must_not_block, options_of


@trimmed
def held_tool(function: Callable[..., Any], *, sync: bool = False, **options: Unpack[HoldOptions]) -> Any:
    """Return an async function like `function` whose calls wait for a person and return a result for the model.

    It has the signature, name and docstring of `function`, from which frameworks derive a tool. Waiting occupies no
    thread, and cancelling the task withdraws the request. A sync `function` runs in a thread once it is approved.

    Args:
        function: The tool, with annotated parameters that have a JSON form.
        sync: Return a sync function that waits in its thread, for frameworks without async tools.
        options: `when`, `effect`, `title`, `description`, `quorum`, `roles`, `redact`, `expires`, `approval_expires`,
            `store`, `context` and `run`, as for `sayso.hold`.

    Raises:
        TypeError: There is no such option.
        ConfigError: `sync` is set for an async function.

    In addition to the exceptions of `function`, the tool raises:
        ConfigError: A sync tool was called in an event loop, which it would block.
        StoreError: The store cannot be reached; nothing was run.
    """
    check_options(options, "run", "context")
    if sync and inspect.iscoroutinefunction(function):
        raise ConfigError(f"sync=True takes a sync function, and {function.__name__} is async")
    tool = ToolFunction(function)

    def prepare(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[dict[str, Any], HoldOptions]:
        filled = options_of(options, key=None, run=None, schema=tool.schema, description=tool.description)
        return tool.bind(args, kwargs), filled

    @functools.wraps(function)
    async def held(*args: Any, **kwargs: Any) -> Any:
        given, filled = prepare(args, kwargs)
        return (await acall_tool(tool.name, given, tool.acall, filled)).returned

    @functools.wraps(function)
    def held_sync(*args: Any, **kwargs: Any) -> Any:
        must_not_block(tool.name, "leave out sync=True")
        given, filled = prepare(args, kwargs)
        return call_tool(tool.name, given, tool.call, filled).returned

    return held_sync if sync else held
