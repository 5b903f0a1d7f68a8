"""Looking after the channels: what `sayso doctor` and the inbox's settings say of each.

It brings together what the settings file says and what the store knows. Invariant: a channel that can send nothing, or
does not, is told as a problem, and looking sends nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from sayso import config
from sayso.channels import outlet
from sayso.channels.roll import ChannelHealth
from sayso.errors import ConfigError, SaysoError

__all__ = ["ChannelCheck", "check"]


class ChannelCheck(NamedTuple):
    """One channel that was looked at.

    Attributes:
        name: The channel.
        kind: Its type, as the settings file says it, or after the class of what a program brings along.
        is_configured: Whether it stands in the settings file.
        health: How it is, as far as the store knows; None where nobody has delivered to it, or the store is not known.
        problem: What is wrong with it, in a sentence; None where nothing is.
    """

    name: str
    kind: str
    is_configured: bool
    health: ChannelHealth | None
    problem: str | None


def check(known: Sequence[ChannelHealth]) -> tuple[list[ChannelCheck], str | None]:
    """Return the channels that are announced to, those of the settings file first, and what is wrong with that file.

    Args:
        known: Those of the store; none where it does not open.
    """
    fault, tables = None, dict[str, dict[str, Any]]()
    try:
        tables = config.channel_tables()
    except SaysoError as error:
        fault = str(error)
    by_name = {one.name: one for one in known}
    found = [_configured(name, table, by_name.pop(name, None)) for name, table in tables.items()]
    return [*found, *map(_brought, by_name.values())], fault


def _configured(name: str, table: Mapping[str, Any], health: ChannelHealth | None) -> ChannelCheck:
    problem = _unmakable(name, table) or (None if health is None else health.problem)
    return ChannelCheck(name, str(table.get("type", "no type")), True, health, problem)


def _brought(health: ChannelHealth) -> ChannelCheck:
    # It has no table, and is entered by its class.
    return ChannelCheck(health.name, health.kind.removesuffix("Outlet").lower(), False, health, health.problem)


def _unmakable(name: str, table: Mapping[str, Any]) -> str | None:
    """Return why a channel of the settings file can send nothing; None where it can be made."""
    try:
        outlet.make(name, table)
    except ConfigError as fault:
        return f"{fault}; no message leaves by it"
    return None
