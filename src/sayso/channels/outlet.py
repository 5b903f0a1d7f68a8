"""Which outlets there are: a table of `sayso.toml` made into the channel that messages leave by.

Each type is a module with a function `make(name, settings)`, which is loaded when a channel of this type is configured,
because most need an extra. Invariant: a channel that cannot be made is a `ConfigError` that names it, and no message is
lost for it: what is due to it waits in the outbox.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from sayso import config, errors
from sayso.channels.notice import Outlet

__all__ = ["check_name", "configured", "kind_of", "make"]

_EXTRAS = {"apprise": "notify", "slack": "slack", "terminal": None, "webhook": None}
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,39}")


def make(name: str, settings: Mapping[str, Any]) -> Outlet:
    """Return the channel that a table of `sayso.toml` describes.

    Args:
        name: The channel's name, `ops` for `[channels.ops]`.
        settings: What stands in the table; `type` says which kind of channel it is.

    Raises:
        ConfigError: There is no such type, its extra is missing, or a setting cannot be used.
    """
    check_name(name)
    kind = kind_of(name, settings)
    try:
        return _maker(kind)(name, settings)
    except ModuleNotFoundError as error:
        extra = _EXTRAS[kind]
        if extra is None:
            raise
        raise errors.ConfigError(
            f"channel {name} needs the extra `{extra}` ({error.name} is missing): pip install 'sayso[{extra}]'"
        ) from error


def _maker(kind: str) -> Callable[[str, Mapping[str, Any]], Outlet]:
    match kind:
        case "apprise":
            from sayso.channels.apprise import make as made
        case "slack":
            from sayso.channels.slack import make as made
        case "webhook":
            from sayso.channels.webhook import make as made
        case _:
            from sayso.channels.plain import make as made
    return made


def kind_of(name: str, settings: Mapping[str, Any]) -> str:
    """Return the type of a channel; raises `ConfigError` where there is no such type."""
    kind: object = settings.get("type")
    if kind == "queue":
        raise errors.ConfigError(
            f"[channels.{name}] a queue lives in a program: use sayso.channels.queue_outlet there, and take this out"
        )
    if not isinstance(kind, str) or kind not in _EXTRAS:
        raise errors.ConfigError(f"[channels.{name}] type is one of {', '.join(_EXTRAS)}, not {kind!r}")
    return kind


def check_name(name: str) -> None:
    """Refuse a name that could not stand in keys and addresses; raises `ConfigError`."""
    if _NAME.fullmatch(name) is None:
        raise errors.ConfigError(f"a channel's name is up to 40 of a-z, 0-9, - and _, not {name!a}")


def configured() -> dict[str, Outlet]:
    """Return the channels of the settings file, by name; raises `ConfigError` where one cannot be made."""
    return {name: make(name, settings) for name, settings in config.channel_tables().items()}
