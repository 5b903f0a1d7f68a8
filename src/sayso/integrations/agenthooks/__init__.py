"""Hooks of coding agents: `sayso hook HOST`, which Claude Code, Codex, Gemini CLI or Cursor runs before each tool call.

`answer` turns a hook's input on stdin into its verdict on stdout. It runs before every tool call, so a call that nobody
is asked about imports neither the store nor the command line. Invariant: whatever goes wrong before a call, the answer
is a no in the host's own format. `options` parses a hook's options and decides whose settings are trusted; `hosts` has
each host's format, `handoff` asks a person and hands the approved call over to the host, and `settings` writes and
removes the entries in a host's settings.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from sayso.integrations.agenthooks.hosts import HOSTS, HookEvent, Host, host_of, parse
from sayso.integrations.agenthooks.options import Answer, Options, Session, find_settings, read_options


def answer(host: Host, text: str | bytes, options: Options) -> Answer:
    """Answer one hook."""
    kind = "before"  # until it is parsed, assume the kind for which an error must block a call
    try:
        given = parse(text)
        host = host_of(host, given)
        event = host.event(given)
        kind = event.kind
        if kind == "other":
            return Answer(0, "{}")
        if kind != "before":
            session = Session(host.name, event.session)
            if next(session.entries("running"), None) is None:
                if kind == "end":
                    session.clear()
                return Answer(0, "{}")
            from sayso.integrations.agenthooks import handoff

            return handoff.report(host, event)
        return _before(host, event, options)
    except (SystemExit, KeyboardInterrupt):
        return Answer(2, "", "sayso: interrupted before a decision; the call was not run")
    except Exception as error:  # noqa: BLE001  hosts allow a call if its hook crashes
        if kind == "before":
            return Answer(
                0, host.deny(f"The call was not run: {_reason(error)}. Do not work around it; tell the user.")
            )
        return Answer(1, "", f"sayso: {_reason(error)}")


def _reason(error: Exception) -> str:
    return " ".join((str(error) or type(error).__name__).split()).rstrip(".")


def _before(host: Host, event: HookEvent, options: Options) -> Answer:
    settings = find_settings(event.folder, is_project=options.is_project)
    if not options.holds(event):
        if options.policy is not None or settings.may_have_rules:
            from sayso.integrations.agenthooks import handoff

            return handoff.by_policy(host, event, options, settings)
        if event.tool in host.reading or options.allows(event):
            return Answer(0, host.allow)
    from sayso.integrations.agenthooks import handoff

    return handoff.hold_call(host, event, options, settings)


def main(words: Sequence[str]) -> int | None:
    """Answer the hook of `HOST OPTIONS…`; return None if only the full command line can parse these words."""
    if not words or words[0] not in HOSTS:
        return None
    options = read_options(words[1:])
    return None if options is None else run(HOSTS[words[0]], options)


def run(host: Host, options: Options) -> int:
    """Read stdin, answer on stdout, and return the exit code."""
    sys.argv[:1] = [host.name]  # the record names the program as requester
    code, out, err = answer(host, sys.stdin.buffer.read(), options)
    if err:
        sys.stderr.write(f"{err}\n")
    sys.stdout.write(f"{out}\n" if out else "")
    sys.stdout.flush()
    return code
