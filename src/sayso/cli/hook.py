"""`sayso hook`: answers the hooks of coding agents, and writes them into their settings.

`sayso.integrations.agenthooks.command` answers `sayso hook HOST` before this module is loaded, unless its options need
it.
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from sayso import config, errors
from sayso.cli.context import CliContext
from sayso.cli.output import complain, out
from sayso.integrations.agenthooks import command, settings, trust
from sayso.integrations.agenthooks.hosts import HOSTS, Host
from sayso.integrations.agenthooks.options import WAIT, Options
from sayso.model import duration
from sayso.model.escaping import escape
from sayso.policy import Policy


@click.group()
def hook() -> None:
    """Let the tool calls of a coding agent wait for a person."""


def _options(function: Callable[..., Any]) -> Callable[..., Any]:
    for option in (
        click.option("--store", metavar="ADDRESS", help="Where the requests are; without it, as the settings say."),
        click.option("--policy", metavar="FILE", help="The policy file; without it the one of the settings."),
        click.option("--hold", metavar="PATTERN", multiple=True, help="Calls that always wait, e.g. 'mcp__*'."),
        click.option("--allow", metavar="PATTERN", multiple=True, help="Calls that pass, e.g. 'Bash: git status'."),
    ):
        function = option(function)
    return function


def _answering(host: Host) -> None:

    @hook.command(host.name, help=f"Answer {host.title}: JSON on stdin, the verdict on stdout.")
    @_options
    @click.option("--wait", default=WAIT, show_default=True, help="How long to wait for a person.")
    @click.option("--project", "is_project", is_flag=True, help="Follow the folder's own settings, trusted or not.")
    @click.pass_obj
    def answering(
        context: CliContext, allow: tuple[str, ...], hold: tuple[str, ...], policy: str | None, store: str | None,
        wait: str, *, is_project: bool,
    ) -> int:  # fmt: skip
        return command.run(host, Options(allow, hold, wait, policy, store or context.address, is_project))


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
@click.pass_obj
def install(
    context: CliContext, host: str, allow: tuple[str, ...], hold: tuple[str, ...], policy: str | None,
    store: str | None, wait: str, *, is_project: bool, yes: bool,
) -> int:  # fmt: skip
    """Show the change of a host's settings, and write it."""
    duration.option("--wait", wait)
    store = store or context.address
    config.check_store(store, "--store")
    if not is_project:  # a relative path would count from wherever the agent works
        policy = None if policy is None else str(Path(policy).absolute())
        store = None if store is None else config.absolute(store)
    words = [word for pattern in allow for word in ("--allow", pattern)]
    words += [word for pattern in hold for word in ("--hold", pattern)]
    words += [] if policy is None else ["--policy", policy]
    words += [] if store is None else ["--store", store]
    return _apply(settings.installed(host, words, wait, "project" if is_project else "user"), yes=yes)


@hook.command()
@_host_name
@_where
@_yes
def remove(host: str, *, is_project: bool, yes: bool) -> int:
    """Show the change of a host's settings, and take it back out."""
    return _apply(settings.removed(host, "project" if is_project else "user"), yes=yes)


@hook.command(name="trust")
@click.argument("folder", metavar="[DIR]", default=".", type=click.Path(path_type=Path))
@click.option("--revoke", is_flag=True, help="Trust it no more.")
@click.option("--list", "is_list", is_flag=True, help="Say what is trusted.")
@_yes
def trust_settings(folder: Path, *, revoke: bool, is_list: bool, yes: bool) -> int:
    """Let hooks follow the sayso.toml of a folder, as it is now.

    It is shown first. A hook in your own settings follows the settings of a folder only after this, and no more once
    they change.
    """
    if is_list:
        for path, is_same in trust.trusted():
            out(f"{escape(path)}{'' if is_same else ': changed since, every call there is denied'}")
        return 0
    path = folder.resolve() / "sayso.toml"
    if revoke:
        out(f"{'trusted no more' if trust.revoke(str(folder)) else 'was not trusted'}: {escape(str(path))}")
        return 0
    files = _texts_of(path)
    rules = Policy.of_file(path)
    for line, column, mistake in rules.problems():
        raise errors.ConfigError(
            f"nothing was trusted: every call would be denied by {rules.label}:{line}:{column}: {mistake}"
        )
    for name, text in files.items():
        out(f"{escape(name)}:", *(f"  {escape(line)}" for line in text.splitlines()))
    if "store" in tomllib.loads(files[str(path)]):
        out("It names a store: all grants in that store count, too, also those that come with a later pull.")
    if _is_agreed("Follow these settings?", "nothing was trusted", yes=yes):
        trust.trust(files)
        out(f"trusted: {escape(str(path))}")
        return 0
    return 1


def _texts_of(path: Path) -> dict[str, str]:
    """Return the text of a `sayso.toml`, and that of the policy file that it names, by path."""
    try:
        files = {str(path): config.trusted_text(path)}
        pointer = tomllib.loads(files[str(path)]).get("policy", {}).get("file")
        if pointer is not None:
            other = path.parent / Path(pointer).expanduser()
            files[str(other)] = config.trusted_text(other)
    except (OSError, ValueError, AttributeError, TypeError) as error:
        raise errors.ConfigError(f"nothing was trusted: {path} cannot be used: {error}") from None
    return files


def _is_agreed(question: str, otherwise: str, *, yes: bool) -> bool:
    if yes:
        return True
    if not sys.stdin.isatty():
        complain(f"{otherwise}: nobody is there to ask; --yes does it")
        return False
    if not click.confirm(question):
        complain(otherwise)
        return False
    return True


def _apply(change: settings.Change, *, yes: bool) -> int:
    if not change.diff:
        out(f"{change.path}: nothing to change")
        return 0
    out(*change.diff.splitlines())
    if not _is_agreed("Write this?", "nothing was written", yes=yes):
        return 1
    change.write()
    out(f"{'removed' if change.after is None else 'written'}: {change.path}", *filter(None, [change.note]))
    return 0
