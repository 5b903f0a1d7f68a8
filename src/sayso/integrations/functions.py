"""A function as the held tool of any framework that takes Python functions and has no adapter of its own.

`sayso.gate` would do where a no may be raised. Here a no, an edit and a note come back as the tool's result, which is
what a model reads in every framework; what it raises, many of them swallow or crash on.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, Unpack

from sayso.errors import ConfigError
from sayso.gates.hold import HoldOptions
from sayso.gates.signals import trimmed
from sayso.integrations.tool_calls import ToolFunction, acall_tool, call_tool, check_options, is_in_loop, options_of


@trimmed
def held_tool(function: Callable[..., Any], *, sync: bool = False, **options: Unpack[HoldOptions]) -> Any:
    """Return an async function like `function` whose calls wait for a person and return what a model is to read.

    It has the signature, name and docstring of `function`, from which frameworks make a tool. Waiting takes no thread,
    and a cancelled task withdraws its request. A sync `function` runs in a thread once it is approved.

    Args:
        function: The tool, with annotated parameters that have a JSON form.
        sync: Return a sync function that waits in its thread, for a framework that takes no async tools.
        options: `when`, `effect`, `title`, `description`, `quorum`, `roles`, `redact`, `expires`, `approval_expires`,
            `store`, `context` and `run`, as for `sayso.hold`.

    Raises:
        TypeError: There is no such option.
        ConfigError: An async function was to become a sync tool.

    The tool raises what `function` does, and beside it:
        ConfigError: A sync tool was called in an event loop, which it would block.
        StoreError: The store cannot be reached; nothing was run.
    """
    check_options(options, "run", "context")
    if sync and inspect.iscoroutinefunction(function):
        raise ConfigError(f"sync=True takes a sync function, and {function.__name__} is async")
    tool = ToolFunction(function)

    def asked(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[dict[str, Any], HoldOptions]:
        filled = options_of(options, key=None, run=None, schema=tool.schema, description=tool.description)
        return tool.bind(args, kwargs), filled

    @functools.wraps(function)
    async def held(*args: Any, **kwargs: Any) -> Any:
        given, filled = asked(args, kwargs)
        return (await acall_tool(tool.name, given, tool.acall, filled)).returned

    @functools.wraps(function)
    def held_sync(*args: Any, **kwargs: Any) -> Any:
        if is_in_loop():
            raise ConfigError(f"{tool.name} waits for a person and was called in an event loop; leave out sync=True")
        given, filled = asked(args, kwargs)
        return call_tool(tool.name, given, tool.call, filled).returned

    return held_sync if sync else held
