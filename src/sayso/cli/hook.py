"""`sayso hook`: answers the hooks of coding agents, and writes them into their settings.

`sayso hook HOST` is answered by `sayso.agenthooks.command` before this module is loaded, unless its options need it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import click

from sayso.agenthooks import command, settings
from sayso.agenthooks.hosts import HOSTS, Host
from sayso.cli.context import CliContext
from sayso.cli.output import complain, out
from sayso.model import duration

__all__ = ["hook"]


@click.group()
def hook() -> None:
    """Let the tool calls of a coding agent wait for a person."""


def _options(function: Callable[..., Any]) -> Callable[..., Any]:
    for option in (
        click.option("--policy", metavar="FILE", help="The policy file; without it the one that counts in the folder."),
        click.option("--hold", metavar="PATTERN", multiple=True, help="Calls that always wait, e.g. 'mcp__*'."),
        click.option("--allow", metavar="PATTERN", multiple=True, help="Calls that pass, e.g. 'Bash: git status'."),
    ):
        function = option(function)
    return function


def _answering(host: Host) -> None:
    """Add the command that answers the hooks of a host."""

    @hook.command(host.name, help=f"Answer {host.title}: JSON on stdin, the verdict on stdout.")
    @_options
    @click.option("--wait", default=command.WAIT, show_default=True, help="How long to wait for a person.")
    @click.pass_obj
    def answering(
        context: CliContext, allow: tuple[str, ...], hold: tuple[str, ...], policy: str | None, wait: str
    ) -> int:
        return command.run(host, command.Options(allow, hold, wait, policy, context.address))


for _host in HOSTS.values():
    _answering(_host)

_where = click.option(
    "--project/--user", "is_project", default=False, help="In this folder's settings, or (the default) in your own."
)
_yes = click.option("--yes", "-y", is_flag=True, help="Write without asking.")
_host_name = click.argument("host", type=click.Choice(list(HOSTS)))


@hook.command()
@_host_name
@_where
@_options
@click.option("--wait", default=settings.WAIT, show_default=True, help="How long each call waits for a person.")
@_yes
def install(
    host: str, allow: tuple[str, ...], hold: tuple[str, ...], policy: str | None, wait: str,
    *, is_project: bool, yes: bool,
) -> int:  # fmt: skip
    """Show the change of a host's settings, and write it."""
    duration.option("--wait", wait)
    words = [word for pattern in allow for word in ("--allow", pattern)]
    words += [word for pattern in hold for word in ("--hold", pattern)]
    words += [] if policy is None else ["--policy", policy]
    return _apply(settings.installed(host, words, wait, "project" if is_project else "user"), yes=yes)


@hook.command()
@_host_name
@_where
@_yes
def remove(host: str, *, is_project: bool, yes: bool) -> int:
    """Show the change of a host's settings, and take it back out."""
    return _apply(settings.removed(host, "project" if is_project else "user"), yes=yes)


def _apply(change: settings.Change, *, yes: bool) -> int:
    if not change.diff:
        out(f"{change.path}: nothing to change")
        return 0
    out(*change.diff.splitlines())
    if not yes:
        if not sys.stdin.isatty():
            complain("nothing was written: nobody is there to ask; --yes writes it")
            return 1
        if not click.confirm("Write this?"):
            complain("nothing was written")
            return 1
    change.write()
    out(f"{'removed' if change.after is None else 'written'}: {change.path}")
    return 0
