"""The command line, `sayso [--store ADDRESS] COMMAND`: one module for each group of commands, loaded when called.

A command parses its arguments, calls the reviewer's API (`sayso.reviews`) and prints. Exit codes: 0 done, 1 error,
2 usage, 3 no longer pending, 4 expired. Invariant: an error becomes a line or two on stderr and an exit code, never a
traceback, and text from a program or a person is always escaped.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from functools import cache
from importlib.util import module_from_spec, spec_from_file_location
from io import TextIOWrapper
from pathlib import Path
from typing import Any

import click

from sayso import __version__
from sayso.errors import SaysoError

__all__ = ["main"]

# For each command: its module, and its summary in the help. The demo is a program of the examples, see `_demo`.
_COMMANDS = {
    "ls": ("requests", "List open requests: pending first, oldest first."),
    "show": ("requests", "Show a request and its outcome."),
    "next": ("decisions", "Decide pending requests one by one."),
    "approve": ("decisions", "Approve calls, as they are or with changes."),
    "reject": ("decisions", "Reject calls or questions."),
    "feedback": ("decisions", "Send a call back to the program with a message."),
    "answer": ("decisions", "Answer a question."),
    "cancel": ("decisions", "Cancel a request and end its run."),
    "claim": ("decisions", "Claim a request, so that nobody else decides it."),
    "release": ("decisions", "Release a claimed request."),
    "extend": ("decisions", "Postpone the expiry of a request or an approval."),
    "resolve": ("decisions", "Record whether a call with an unknown outcome happened."),
    "grants": ("policy", "List or revoke grants, which approve similar calls in advance."),
    "stop": ("policy", "Block all calls from starting, even approved ones."),
    "go": ("policy", "Let calls start again after `sayso stop`."),
    "log": ("audit", "Print the journal, verify it, or export it."),
    "receipt": ("audit", "Write or verify the receipt of a call."),
    "confirm": ("requests", "Export, import and validate documents of the Confirm protocol."),
    "learn": ("learn", "Export decisions to learn from, or print a report."),
    "purge": ("audit", "Delete the content of old requests for good."),
    "key": ("tokens", "Create the key that signs evidence."),
    "serve": ("serve", "Serve the inbox for browsers."),
    "login": ("tokens", "Print a link that signs somebody in to the inbox."),
    "token": ("tokens", "Create, list and revoke tokens of programs."),
    "notify": ("notify", "Notify people through channels."),
    "worker": ("worker", "Resume runs after a person has decided."),
    "mcp-server": ("agents", "Let an agent read requests and propose decisions (MCP)."),
    "mcp-gateway": ("agents", "Require approval for the tools of an MCP server."),
    "hook": ("agents", "Require approval for the tool calls of a coding agent."),
    "scan": ("scan", "Find calls in code that look irreversible and have no gate."),
    "doctor": ("doctor", "Check the store, the clock and the settings."),
    "policy": ("policy", "Check, explain, test and replay the rules of a policy file."),
    "demo": ("", "Run a demo: a deletion waits for a person and happens once."),
}

# What people who know other tools may type.
_OTHER_WORDS = {
    "list": "ls", "pending": "ls", "status": "ls", "get": "show", "view": "show", "yes": "approve", "accept": "approve",
    "edit": "approve", "no": "reject", "deny": "reject", "decline": "reject", "history": "log", "verify": "log",
}  # fmt: skip


class _Commands(click.Group):
    """Loads a command's module only when the command is called; listing the commands loads none."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  click passes it
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002  the same
        if cmd_name not in _COMMANDS:
            return None
        if cmd_name == "demo":
            return _demo()
        module = importlib.import_module(f"sayso.cli.{_COMMANDS[cmd_name][0]}")
        return getattr(module, cmd_name.replace("-", "_"))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            from sayso.cli.context import did_you_mean

            hint = did_you_mean(_OTHER_WORDS.get(args[0], args[0]), list(_COMMANDS))
            if not hint or hint in error.message:
                raise
            raise click.UsageError(f"No such command {args[0]!r}; {hint}", ctx) from None

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except SaysoError as error:
            from sayso.cli.context import report

            return report(error)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002  the same
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary) for name, (_, summary) in _COMMANDS.items()])


@cache
def _demo() -> click.Command:
    """Load `examples/demo/demo.py`, which a wheel ships in the package."""
    package, path = Path(__file__).parents[1], Path("examples", "demo", "demo.py")
    program = package / path if (package / path).is_file() else package.parents[1] / path  # in a checkout
    spec = spec_from_file_location("sayso_demo", program)
    if spec is None or spec.loader is None:
        raise FileNotFoundError(program)
    module = sys.modules["sayso_demo"] = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.demo


@click.command(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option("--store", metavar="ADDRESS", help="The store of the requests, e.g. sqlite:///path/to/file.db.")
@click.version_option(__version__, prog_name="sayso")
@click.pass_context
def _sayso(ctx: click.Context, store: str | None) -> None:
    """No irreversible action without your say-so.

    See what programs want to do, and decide. An ID may be shortened as long as it stays unique.
    Exit codes: 0 done, 1 error, 2 usage, 3 no longer pending, 4 expired.
    """
    from sayso.cli.context import CliContext

    ctx.obj = CliContext(store)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code. It is the entry point of `python -m sayso` and of `sayso`."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # an unsupported character must not lose the output
    try:
        try:
            "".join(given).encode()
        except UnicodeEncodeError:  # bytes that are not UTF-8 arrive as lone surrogates
            raise click.UsageError("an argument is not valid UTF-8") from None
        code = _sayso.main(given, prog_name="sayso", standalone_mode=False)
    except click.exceptions.Abort:
        from sayso.cli.context import echo_err

        echo_err("interrupted; only the requests reported above as decided were decided")
        code = 130
    except click.ClickException as error:
        code = _usage(error)
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        from sayso.cli.context import discard_stdout

        discard_stdout()
    return code if isinstance(code, int) else 0


def _usage(error: click.ClickException) -> int:
    from sayso.cli.context import echo_err
    from sayso.model.text import escape

    context = getattr(error, "ctx", None)
    hint = f"{'sayso' if context is None else context.command_path} --help"
    message = error.format_message()
    param = error.param if isinstance(error, click.MissingParameter) else None
    if param is not None and isinstance(param.type, click.Choice):  # click lists the choices on several lines
        *others, last = map(str, param.type.choices)
        message = f"Missing {param.param_type_name} '{param.opts[0]}': {', '.join(others)} or {last}"
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        echo_err(message)
    else:
        echo_err(f"error: {escape(message)}", f"`{hint}` shows its arguments and options")
    return error.exit_code
