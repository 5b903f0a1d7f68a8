"""Strict parsing of `sayso.toml` tables (known names, types, secrets by variable), and who may review at all.

Channels, hooks and `[serve]` use it. A person is written as a name, or as
`{ name = "ada", roles = ["finance"], issuer = "corp" }`. Errors name the setting and never quote a secret.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from sayso import config, errors
from sayso.model.reviewer import LOCAL, Identity, Reviewer

T = TypeVar("T")

LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})


class Table:
    """One table of settings.

    Args:
        where: The table's name in the file, e.g. `channels.ops`.
        settings: The settings that it contains.
        known: The names that it may contain.

    Raises:
        ConfigError: The table contains an unknown setting.
    """

    def __init__(self, where: str, settings: Mapping[str, Any], *, known: Collection[str]) -> None:
        self.where = where
        self._settings = settings
        unknown = sorted(set(settings) - set(known))
        if unknown:
            raise self.error(unknown[0], f"is not known; known are {', '.join(sorted(known))}")

    def error(self, name: str, what: str) -> errors.ConfigError:
        """Return the error for an invalid setting."""
        return errors.ConfigError(f"[{self.where}] {name} {what}")

    def get(self, name: str, kind: type[T], default: T) -> T:
        """Return a setting or its default; raise `ConfigError` if its type is not `kind`."""
        value = self._settings.get(name)
        if value is None:
            return default
        if type(value) is not kind:
            raise self.error(name, f"must be {_TYPE_NAMES[kind]}")
        return value

    def text(self, name: str) -> str:
        """Return a required text; raise `ConfigError` if it is missing or empty."""
        value = self.get(name, str, "")
        if not value:
            raise self.error(name, "is missing")
        return value

    def texts(self, name: str) -> list[str]:
        """Return a list of non-empty texts; an empty list if it is not set."""
        value: list[Any] = self.get(name, list, [])
        if not all(isinstance(one, str) and one for one in value):
            raise self.error(name, "must be a list of strings")
        return value

    def file(self, name: str) -> str:
        """Return the path of a required file; a relative path starts at the directory of the settings file."""
        settings = config.settings_file()
        path = (Path() if settings is None else settings.parent) / Path(self.text(name)).expanduser()
        if not path.is_file():
            raise self.error(name, f"names {str(path)!a}, which is not a file")
        return str(path)

    def person(self, name: str, given: Any, *, issuer: str, roles: Collection[str] = ()) -> Reviewer:
        """Return the reviewer whom a setting names.

        Args:
            name: The setting's name, for errors.
            given: A name, or a table with a name and optionally roles and an issuer.
            issuer: The default issuer.
            roles: The default roles.

        Raises:
            ConfigError: It is neither a name nor a table, or has an invalid value.
        """
        fields: dict[str, Any] = {"name": given} if isinstance(given, str) else given
        if not isinstance(fields, dict):  # pyright: ignore[reportUnnecessaryIsInstance]  it came from a file
            raise self.error(name, 'must be a name, or a table {name = "ada", roles = ["finance"]}')
        one = Table(f"{self.where}.{name}", fields, known=("issuer", "name", "roles"))
        try:
            return Reviewer(
                one.text("name"), roles=one.texts("roles") if "roles" in fields else roles,
                issuer=one.get("issuer", str, issuer),
            )  # fmt: skip
        except ValueError as error:
            raise self.error(name, f"cannot be used: {error}") from None

    def people(self, name: str) -> tuple[Identity, ...]:
        """Return the people in a list, each written as for `person`; the default issuer is this machine."""
        given: list[Any] = self.get(name, list, [])
        return tuple(self.person(name, one, issuer=LOCAL).identity for one in given)

    def secret(self, name: str) -> str:
        """Return the value of the environment variable that a setting names.

        Raises:
            ConfigError: The setting is missing, or the variable is not set.
        """
        variable = self.text(name)
        if not variable.isidentifier() or variable.startswith("whsec_"):  # not quoted, because it may be the secret
            raise self.error(name, "must be the name of an environment variable, not what that contains")
        value = os.environ.get(variable, "").strip()
        if not value:
            raise self.error(name, f"names the environment variable {variable!a}, which is not set")
        return value


_TYPE_NAMES: dict[type[Any], str] = {
    str: "a string", bool: "true or false", list: "a list", dict: "a table", int: "a whole number",
}  # fmt: skip


def is_protected(address: object) -> bool:
    """Return whether traffic to a URL is protected: https, or http on this machine."""
    parts = urlsplit(address) if isinstance(address, str) else None
    if parts is None or not parts.hostname:
        return False
    return parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in LOOPBACK)


@dataclass(frozen=True)
class ReviewerAllowlist:
    """Who may review at all: on pages, in the API, in hooks, and in channels in which people decide.

    A request can require more of its reviewers; the store checks that.

    Attributes:
        reviewers: Exact names, as `name` or `issuer:name`; None allows every authenticated person. A name that contains
            a colon needs its issuer, because `corp:ada` of another issuer would otherwise match `ada` of `corp`.
        role: The role that a reviewer must have; None requires no role.
    """

    reviewers: Collection[str] | None = None
    role: str | None = None

    def admits(self, reviewer: Reviewer) -> bool:
        """Return whether an authenticated person may review."""
        if self.role is not None and self.role not in reviewer.roles:
            return False
        names = {reviewer.identity.qualified} | ({reviewer.subject} if ":" not in reviewer.subject else set[str]())
        return self.reviewers is None or not names.isdisjoint(self.reviewers)


def allowed_reviewers() -> ReviewerAllowlist:
    """Return `reviewers` and `required_role` from `[serve]` in the settings file.

    Raises:
        ConfigError: The file is invalid, or one of the two settings has the wrong type.
    """
    found = config.table("serve")
    table = Table("serve", found, known=found)  # other settings are checked where they are used
    return ReviewerAllowlist(table.texts("reviewers") or None, table.get("required_role", str, "") or None)
