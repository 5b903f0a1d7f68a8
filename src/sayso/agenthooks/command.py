"""`sayso hook HOST`: answers one hook of a coding agent, from its input on stdin to its verdict on stdout.

It runs before every tool call, so a call that nobody is asked about imports neither the store nor the command line.
Invariant: whatever goes wrong before a call, the answer is a no in the host's own format.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from sayso.agenthooks.hosts import HOSTS, HookEvent, Host, describe

__all__ = ["Answer", "Options", "answer", "main", "read_options", "run"]

WAIT = "50s"
"""How long a hook waits unless it is told otherwise: less than the shortest limit of a host (Gemini CLI, 60 s)."""

# In a command of one of these a pattern with a wildcard could let through what its author never saw.
_SHELL = frozenset(";&|<>$`(){}\\\n\r")


class Options(NamedTuple):
    """What the command line says.

    Attributes:
        allow, hold: Patterns of calls, `TOOL` or `TOOL: COMMAND`, that pass or wait.
        wait: How long to wait for a person before the agent is told to make the call again.
        policy: The policy file; None for the one that counts in the working folder.
        store: Address of the store; None for the configured one.
    """

    allow: tuple[str, ...] = ()
    hold: tuple[str, ...] = ()
    wait: str = WAIT
    policy: str | None = None
    store: str | None = None


class Answer(NamedTuple):
    """What the hook says: its exit code, stdout and stderr."""

    code: int
    out: str
    err: str = ""


def answer(host: Host, text: str | bytes, options: Options) -> Answer:
    """Return the answer to one hook."""
    kind = "before"  # until it is known to be something else, it may be what a no has to keep from running
    try:
        event = host.read(text)
        kind = event.kind
        if kind == "other":
            return Answer(0, "{}")
        if kind != "before":
            return _after(host, event, options)
        return _before(host, event, options)
    except (SystemExit, KeyboardInterrupt):
        return Answer(2, "", "sayso: stopped before anybody decided; the call was not run")
    except Exception as error:  # noqa: BLE001  a process's edge: a hook that fails would let the call through
        if kind == "before":
            return Answer(0, host.deny(f"The call was not run: {_words(error)}. Do not work around it; tell the user."))
        return Answer(1, "", f"sayso: {_words(error)}")


def _words(error: Exception) -> str:
    return " ".join((str(error) or type(error).__name__).split()).rstrip(".")


def _before(host: Host, event: HookEvent, options: Options) -> Answer:
    if not _matches(event, options.hold, is_allowed=False):
        if options.policy is not None or _has_rules(event.folder):
            from sayso.agenthooks import handoff

            return handoff.by_policy(host, event, options)
        if event.tool in host.reading or _matches(event, options.allow, is_allowed=True):
            return Answer(0, host.allow)
    from sayso.agenthooks import handoff

    return handoff.hold_call(host, event, options)


def _after(host: Host, event: HookEvent, options: Options) -> Answer:
    from sayso.agenthooks.session import Session

    session = Session(host.name, event.session)
    if next(session.entries("running"), None) is None:
        if event.kind == "end":
            session.clear()
        return Answer(0, "{}")
    from sayso.agenthooks import handoff

    return handoff.report(host, event, options)


def _matches(event: HookEvent, patterns: Sequence[str], *, is_allowed: bool) -> bool:
    """Say whether a pattern fits the call; to allow it, a pattern with a wildcard fits only a single plain command."""
    whole = describe(event)
    command = event.arguments.get("command")
    if isinstance(command, str):
        whole = f"{event.tool}: {command}"  # as it is: not cut, and with its line ends
    is_plain = isinstance(command, str) and not _SHELL & set(command)
    for pattern in patterns:
        tool, colon, rest = pattern.partition(": ")
        if not colon:
            fits = fnmatchcase(event.tool, pattern)
        elif is_allowed:
            fits = whole == pattern or (is_plain and fnmatchcase(event.tool, tool) and fnmatchcase(str(command), rest))
        else:
            fits = fnmatchcase(whole, pattern)
        if fits:
            return True
    return False


def _has_rules(folder: str) -> bool:
    """Say whether the `sayso.toml` that counts here may have rules; reading it as TOML would take longer."""
    here = os.path.abspath(folder or os.getcwd())
    while True:
        try:
            with open(os.path.join(here, "sayso.toml"), "rb") as file:
                text = file.read()
        except (FileNotFoundError, NotADirectoryError):
            above = os.path.dirname(here)
            if above == here:
                return False
            here = above
            continue
        return b"rules" in text or b"policy" in text


def read_options(words: Sequence[str]) -> Options | None:
    """Return what these words of a command line say; None where the whole command line has to look at them."""
    single: dict[str, Any] = {}
    patterns: dict[str, list[str]] = {"allow": [], "hold": []}
    left = list(words)
    while left:
        name, _, value = left.pop(0).partition("=")
        option = name.removeprefix("--")
        if not name.startswith("--") or option not in {"allow", "hold", "wait", "policy", "store"}:
            return None
        if not _:
            if not left:
                return None
            value = left.pop(0)
        if option in patterns:
            patterns[option].append(value)
        else:
            single[option] = value
    return Options(allow=tuple(patterns["allow"]), hold=tuple(patterns["hold"]), **single)


def main(words: Sequence[str]) -> int | None:
    """Answer the hook of `HOST OPTIONS…`; None where the command line has to read these words."""
    if not words or words[0] not in HOSTS:
        return None
    options = read_options(words[1:])
    return None if options is None else run(HOSTS[words[0]], options)


def run(host: Host, options: Options) -> int:
    """Read stdin, answer on stdout, and return the exit code."""
    sys.argv[:1] = [host.name]  # who asks, in the record
    code, out, err = answer(host, sys.stdin.buffer.read(), options)
    if err:
        sys.stderr.write(f"{err}\n")
    sys.stdout.write(f"{out}\n" if out else "")
    sys.stdout.flush()
    return code
