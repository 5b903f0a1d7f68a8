"""What the command line of a hook says: whose settings count, and which calls pass or wait by a pattern.

It is read before every tool call, so this module imports little.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from typing import Any, NamedTuple, cast

from sayso.integrations.agenthooks.hosts import EXECUTED, HookEvent

WAIT = "50s"
"""How long a hook waits unless it is told otherwise: less than the shortest limit of a host (Gemini CLI, 60 s)."""

# In a command of one of these a pattern with a wildcard could let through what its author never saw.
_SHELL = frozenset(";&|<>$`(){}\\")
_BETWEEN = re.compile(r"[;&|<>$`(){}\\\n\r]+")


class Answer(NamedTuple):
    """What the hook says: its exit code, stdout and stderr."""

    code: int
    out: str
    err: str = ""


class Options(NamedTuple):
    """What the command line says.

    Attributes:
        allow, hold: Patterns of calls, `TOOL` or `TOOL: TEXT`, that pass or wait.
        wait: How long to wait for a person before the agent is told to make the call again.
        policy: The policy file; None for the one of the settings that count.
        store: Address of the store; None for that of the settings that count.
        is_project: The folder's own settings count without a person's trust: the hook itself is the folder's.
    """

    allow: tuple[str, ...] = ()
    hold: tuple[str, ...] = ()
    wait: str = WAIT
    policy: str | None = None
    store: str | None = None
    is_project: bool = False

    def allows(self, event: HookEvent) -> bool:
        """Say whether a pattern lets the call pass: it names all that the host would execute.

        A wildcard in it fits only a single plain command.
        """
        text, is_shell = _executed(event)
        is_plain = is_shell and text is not None and text.isprintable() and not _SHELL & set(text)
        for tool, rest in map(_parts, self.allow):
            if fnmatchcase(event.tool, tool) and (
                rest is None or rest in (text, _whole(event)) or (is_plain and fnmatchcase(str(text), rest))
            ):
                return True
        return False

    def holds(self, event: HookEvent) -> bool:
        """Say whether the call waits by a pattern: any text of it fits, and any part of a command."""
        return any(
            fnmatchcase(event.tool, tool)
            and (rest is None or any(fnmatchcase(text, rest) for text in (_whole(event), *_strings(event.arguments))))
            for tool, rest in map(_parts, self.hold)
        )


def _parts(pattern: str) -> tuple[str, str | None]:
    tool, colon, rest = pattern.partition(": ")
    return tool, rest if colon else None


def _executed(event: HookEvent) -> tuple[str | None, bool]:
    """Return what the host executes of a call, and whether it is a shell command; None where other arguments count."""
    name, beside = EXECUTED.get(event.tool, ("", frozenset[str]()))
    text = event.arguments.get(name)
    if not isinstance(text, str) or event.arguments.keys() - {name} - beside:
        return None, False
    return text, name == "command"


def _whole(event: HookEvent) -> str:
    return json.dumps(event.arguments, sort_keys=True, ensure_ascii=False)


def _strings(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
        yield from (" ".join(part.split()) for part in _BETWEEN.split(value))
    elif isinstance(value, dict):
        for item in cast("dict[str, object]", value).values():
            yield from _strings(item)
    elif isinstance(value, list):
        for item in cast("list[object]", value):
            yield from _strings(item)


def read_options(words: Sequence[str]) -> Options | None:
    """Return what these words of a command line say; None where the whole command line has to look at them."""
    found: dict[str, Any] = {}
    patterns: dict[str, list[str]] = {"allow": [], "hold": []}
    left = list(words)
    while left:
        name, equals, value = left.pop(0).partition("=")
        option = name.removeprefix("--")
        if name == "--project" and not equals:
            found["is_project"] = True
            continue
        if not name.startswith("--") or option not in {"allow", "hold", "wait", "policy", "store"}:
            return None
        if not equals:
            if not left:
                return None
            value = left.pop(0)
        if option in patterns:
            patterns[option].append(value)
        else:
            found[option] = value
    return Options(allow=tuple(patterns["allow"]), hold=tuple(patterns["hold"]), **found)
