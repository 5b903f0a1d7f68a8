"""Commands for coding agents: `mcp-gateway` (sayso before an MCP server), `mcp-server` (sayso as one) and `hook`.

`hook` answers the hooks of coding agents and installs them in their settings. To start fast,
`sayso.integrations.agenthooks` answers `sayso hook HOST` without this module, unless its options need it.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import re
import sys
import tomllib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click

from sayso import config, errors, policy
from sayso.cli.context import CliContext, Number, echo, echo_err
from sayso.integrations import agenthooks
from sayso.integrations.agenthooks import options, settings
from sayso.integrations.agenthooks.hosts import HOSTS, Host
from sayso.integrations.agenthooks.options import WAIT, NotTrusted, Options, find_settings
from sayso.model import duration
from sayso.model.text import escape
from sayso.policy import Policy

_RUNNERS = {"npx", "uvx", "node", "bunx", "deno", "docker", "pipx", "python", "python3", "uv", "run", "exec", "env"}
_HOSTS = {"127.0.0.1", "localhost", "::1", "[::1]"}


@click.command("mcp-gateway")
@click.option("--name", metavar="NAME", help="The server's name; requests show its tools as NAME/TOOL.")
@click.option(
    "--folder", metavar="DIR", type=click.Path(exists=True, file_okay=False),
    help="The folder whose sayso.toml applies; by default the current one, if you trust it.",
)  # fmt: skip
@click.option("--policy", "policy_file", metavar="FILE", help="The policy file; by default the one in sayso.toml.")
@click.option("--allow", metavar="PATTERN", multiple=True, help="Tools that need no approval, if there is no policy.")
@click.option("--hold", metavar="PATTERN", multiple=True, help="Tools that need approval, if there is no policy.")
@click.option(
    "--wait", type=click.Choice(["auto", "block", "ticket"]), default="auto", show_default=True,
    help="How a held call waits: block until the decision, or return a ticket and be called again.",
)  # fmt: skip
@click.option(
    "--patience", metavar="SECONDS", type=Number(0, 86_400), default=50, show_default=True,
    help="With auto, how long a call blocks before it returns a ticket.",
)  # fmt: skip
@click.option(
    "--timeout", metavar="SECONDS", type=Number(1, 86_400), default=600, show_default=True,
    help="How long an approved call may run before its outcome counts as unknown.",
)  # fmt: skip
@click.option("--run", metavar="RUN", help="The run of the calls, so that a later session finds their requests.")
@click.option("--elicit-as", metavar="NAME", help="Ask the client's own user; record the answers as NAME's.")
@click.option("--url", metavar="URL", help="A server over streamable HTTP, instead of a COMMAND.")
@click.option(
    "--header", metavar="NAME:VALUE", multiple=True, help="A header for --url; $NAME is read from the environment."
)
@click.option("--listen", metavar="HOST:PORT", help="Serve over HTTP at /mcp, instead of stdin and stdout.")
@click.option(
    "--print-config", "client", type=click.Choice(["claude", "cursor", "vscode", "zed"]),
    help="Print the entry for the client's settings and exit.",
)  # fmt: skip
@click.argument("command", nargs=-1, metavar="[-- COMMAND...]")
@click.pass_obj
def mcp_gateway(cli: CliContext, command: tuple[str, ...], **options: Any) -> int:
    """Require approval for the tools of an MCP server.

    Calls of held tools wait for a person; everything else passes through. Without a policy, every tool that is not
    marked as read-only is held.
    """
    if (options["url"] is None) == (not command):
        raise click.UsageError("give a server: `-- COMMAND ...` or --url URL")
    with config.only_settings(*_settings_to_use(options["folder"], is_here=options["client"] is not None)):
        name = options["name"] or _name_of(command, options["url"])
        if options["client"] is not None:
            address = config.store_address() if cli.address is None else cli.address
            echo(json.dumps(_client_entry(name, address, options, command), indent=2))
            return 0
        make = _upstream_factory(command, options["url"], options["header"])
        same = ("run", "allow", "hold", "wait", "patience", "timeout", "elicit_as")
        store = config.open_store(cli.address or config.store_address())
        from sayso.integrations.mcp_gateway import connection, gateway

        given = {option: options[option] for option in same}
        settings = gateway.Settings(name, policy=_policy_of(options), store=store, **given)
        open_session = partial(gateway.Gateway, settings, make)
        if options["listen"] is None:
            asyncio.run(connection.serve_stdio(open_session))
            return 0
        host, _, port = options["listen"].rpartition(":")
        if host not in _HOSTS or not port.isdigit() or int(port) > 65_535:
            raise click.UsageError(
                f"--listen takes a loopback address, such as 127.0.0.1:8700, not {options['listen']!r}, because anyone"
                " who reaches it can call the tools; to share it, put a proxy with a sign-in in front"
            )
        serve = _http().serve_http
        echo_err(f"sayso: serving at http://{options['listen']}/mcp")
        asyncio.run(serve(open_session, host.strip("[]"), int(port)))
        return 0


def _settings_to_use(folder: str | None, *, is_here: bool) -> tuple[Path | None, Mapping[str, str]]:
    """Return the settings to follow. A client may start the gateway in any folder, even in a cloned repository."""
    try:
        settings = find_settings(folder or str(Path.cwd()), is_project=is_here or folder is not None)
    except NotTrusted as error:
        raise errors.ConfigError(f"{error}; nothing was started") from error
    if settings.ignored is not None:
        here = Path(settings.ignored).parent
        echo_err(
            f"sayso: {settings.ignored} is ignored, because you have not trusted it. Read it and run `sayso hook trust"
            f" {here}`, or start with `--folder {here}`"
        )
    return None if settings.path is None else Path(settings.path), settings.digests


def _policy_of(options: Mapping[str, Any]) -> policy.Policy | None:
    """Return the policy that the options or the settings name, or None."""
    file = options["policy_file"]
    if file is None and policy.in_effect() is None:
        return None
    if options["allow"] or options["hold"]:
        raise click.UsageError(
            "--allow and --hold cannot be combined with a policy; write the rules into the policy file"
        )
    return policy.Policy.load(file)


def _http() -> Any:
    if any(importlib.util.find_spec(package) is None for package in ("mcp", "uvicorn", "starlette")):
        raise errors.ConfigError('MCP over HTTP needs more packages: pip install "sayso[mcp]"; nothing was started')
    from sayso.integrations.mcp_gateway import streamable_http

    return streamable_http


def _upstream_factory(command: Sequence[str], url: str | None, headers: Sequence[str]) -> Any:
    if url is None:
        from sayso.integrations.mcp_gateway.connection import StdioUpstream

        return partial(StdioUpstream, command)
    if not url.startswith(("http://", "https://")):
        raise click.UsageError("--url must begin with https:// or http://")
    pairs = dict[str, str]()
    for header in headers:
        word, colon, value = header.partition(":")
        if not colon:
            raise click.UsageError(f"--header takes NAME:VALUE, not {header!r}")
        try:
            pairs[word.strip()] = re.sub(r"\$(\w+)", lambda name: os.environ[name[1]], value.strip())
        except KeyError as missing:
            raise click.UsageError(
                f"--header names the environment variable {missing.args[0]}, which is not set"
            ) from None
    return partial(_http().HttpUpstream, url, pairs)


def _name_of(command: Sequence[str], url: str | None) -> str:
    """Return a server's default name: its package, program or host."""
    if url is not None:
        return re.sub(r"^https?://([^/:]+).*", r"\1", url)
    words = [Path(word).name for word in command if not word.startswith("-")]
    names = [word for word in words if word not in _RUNNERS] or words
    return re.sub(r"(?<=.)@.*|\.\w+$", "", names[0])


def _client_entry(
    name: str, address: str, options: Mapping[str, Any], command: Sequence[str]
) -> dict[str, Any]:  # fmt: skip
    """Return the entry for a client's settings, with the gateway's command line.

    Its paths are absolute, because it starts elsewhere, and GUI programs lack a shell's PATH.
    """
    if re.search(r"://[^/@]*:[^/]*@|[?&]password=", address):
        raise errors.ConfigError(
            "the store's address contains a password, which would be copied into the client's settings; nothing was"
            " printed. Keep the password in ~/.pgpass or a service file"
        )
    _policy_of(options)  # do not print a command line that the gateway would refuse
    folder = str(Path(options["folder"] or "").resolve())
    words = ["--store", config.absolute(address), "mcp-gateway", "--folder", folder]
    if options["policy_file"] is not None:
        words += ["--policy", str(Path(options["policy_file"]).resolve())]
    for option in ("name", "run", "elicit_as", "url", "listen"):
        if options[option] is not None:
            words += [f"--{option.replace('_', '-')}", options[option]]
    for option in ("allow", "hold", "header"):
        words += [word for value in options[option] for word in (f"--{option}", value)]
    for option, usual in (("wait", "auto"), ("patience", 50), ("timeout", 600)):
        words += [f"--{option}", str(options[option])] if options[option] != usual else []
    own, *before = settings.own_program()
    program = {"command": own, "args": [*before, *words, *(["--", *command] if command else [])]}
    forms: dict[str, dict[str, Any]] = {
        "vscode": {"servers": {name: {"type": "stdio", **program}}},
        "zed": {"context_servers": {name: {**program, "env": {}}}},
    }
    return forms.get(options["client"], {"mcpServers": {name: program}})


@click.command("mcp-server")
@click.pass_obj
def mcp_server(cli: CliContext) -> int:
    """Let an agent read requests and propose decisions, as an MCP server on stdio.

    It is off unless sayso.toml sets `enabled = true` under [mcp_server]. Each proposal waits for a person, too.
    """
    from sayso.integrations import mcp_server as server

    server.serve(cli.store_or_new)
    return 0


@click.group()
def hook() -> None:
    """Require approval for the tool calls of a coding agent."""


def _options(function: Callable[..., Any]) -> Callable[..., Any]:
    for option in (
        click.option("--store", metavar="ADDRESS", help="The store; by default the one in the settings."),
        click.option("--policy", metavar="FILE", help="The policy file; by default the one in the settings."),
        click.option("--hold", metavar="PATTERN", multiple=True, help="Calls that are always held, e.g. 'mcp__*'."),
        click.option(
            "--allow", metavar="PATTERN", multiple=True, help="Calls that are never held, e.g. 'Bash: git status'."
        ),
    ):
        function = option(function)
    return function


def _add_host_command(host: Host) -> None:

    @hook.command(host.name, help=f"The hook for {host.title}: JSON on stdin, verdict on stdout.")
    @_options
    @click.option("--wait", metavar="SPAN", default=WAIT, show_default=True, help="How long to wait for a person.")
    @click.option("--project", "is_project", is_flag=True, help="Follow the folder's settings, trusted or not.")
    @click.pass_obj
    def answering(
        context: CliContext, allow: tuple[str, ...], hold: tuple[str, ...], policy: str | None, store: str | None,
        wait: str, *, is_project: bool,
    ) -> int:  # fmt: skip
        return agenthooks.run(host, Options(allow, hold, wait, policy, store or context.address, is_project))


for _host in HOSTS.values():
    _add_host_command(_host)

_where = click.option(
    "--project/--user", "is_project", default=False, help="Change this folder's settings, or (the default) your own."
)
_yes = click.option("--yes", "-y", is_flag=True, help="Write without asking.")
_host_name = click.argument("host", type=click.Choice(list(HOSTS)))


@hook.command()
@_host_name
@_where
@_options
@click.option(
    "--wait", metavar="SPAN", default=settings.WAIT, show_default=True, help="How long each call waits for a person."
)
@_yes
@click.pass_obj
def install(
    context: CliContext, host: str, allow: tuple[str, ...], hold: tuple[str, ...], policy: str | None,
    store: str | None, wait: str, *, is_project: bool, yes: bool,
) -> int:  # fmt: skip
    """Add the hook to a coding agent's settings. The change is shown first."""
    duration.option("--wait", wait)
    store = store or context.address
    config.check_store(store, "--store")
    if not is_project:  # a relative path would depend on the agent's working directory
        policy = None if policy is None else str(Path(policy).absolute())
        store = None if store is None else config.absolute(store)
    words = [word for pattern in allow for word in ("--allow", pattern)]
    words += [word for pattern in hold for word in ("--hold", pattern)]
    words += [] if policy is None else ["--policy", policy]
    words += [] if store is None else ["--store", store]
    return _apply_change(settings.plan_install(host, words, wait, "project" if is_project else "user"), yes=yes)


@hook.command()
@_host_name
@_where
@_yes
def remove(host: str, *, is_project: bool, yes: bool) -> int:
    """Remove the hook from a coding agent's settings. The change is shown first."""
    return _apply_change(settings.plan_removal(host, "project" if is_project else "user"), yes=yes)


@hook.command(name="trust")
@click.argument("folder", metavar="[DIR]", default=".", type=click.Path(path_type=Path))
@click.option("--revoke", is_flag=True, help="Stop trusting the folder.")
@click.option("--list", "is_list", is_flag=True, help="List the trusted folders.")
@_yes
def trust_settings(folder: Path, *, revoke: bool, is_list: bool, yes: bool) -> int:
    """Let hooks follow the sayso.toml of a folder until it changes.

    The file is shown first. A hook in your own settings ignores the settings of folders that you have not trusted.
    """
    if is_list:
        for path, is_same in options.list_trusted():
            echo(f"{escape(path)}{'' if is_same else ': changed since it was trusted, so every call there is denied'}")
        return 0
    path = folder.resolve() / "sayso.toml"
    if revoke:
        echo(f"{'no longer trusted' if options.revoke(str(folder)) else 'was not trusted'}: {escape(str(path))}")
        return 0
    files = _read_settings(path)
    rules = Policy.of_file(path)
    for line, column, mistake in rules.problems():
        raise errors.ConfigError(
            f"nothing was trusted, because every call would be denied: {rules.label}:{line}:{column}: {mistake}"
        )
    for name, text in files.items():
        echo(f"{escape(name)}:", *(f"  {escape(line)}" for line in text.splitlines()))
    if "store" in tomllib.loads(files[str(path)]):
        echo("It names a store, so all grants in that store apply, including those that a later pull brings.")
    if _is_confirmed("Follow these settings?", "nothing was trusted", yes=yes):
        options.trust(files)
        echo(f"trusted: {escape(str(path))}")
        return 0
    return 1


def _read_settings(path: Path) -> dict[str, str]:
    """Return the text of a `sayso.toml` and of the policy file that it names, by path."""
    try:
        files = {str(path): config.trusted_text(path)}
        pointer = tomllib.loads(files[str(path)]).get("policy", {}).get("file")
        if pointer is not None:
            other = path.parent / Path(pointer).expanduser()
            files[str(other)] = config.trusted_text(other)
    except (OSError, ValueError, AttributeError, TypeError) as error:
        raise errors.ConfigError(f"nothing was trusted: cannot read {path}: {error}") from None
    return files


def _is_confirmed(question: str, otherwise: str, *, yes: bool) -> bool:
    if yes:
        return True
    if not sys.stdin.isatty():
        echo_err(f"{otherwise}: there is no terminal to ask at; use --yes")
        return False
    if not click.confirm(question):
        echo_err(otherwise)
        return False
    return True


def _apply_change(change: settings.Change, *, yes: bool) -> int:
    if not change.diff:
        echo(f"{change.path}: nothing to change")
        return 0
    echo(*change.diff.splitlines())
    if not _is_confirmed("Write this?", "nothing was written", yes=yes):
        return 1
    change.write()
    echo(f"{'removed' if change.after is None else 'written'}: {change.path}", *filter(None, [change.note]))
    return 0
