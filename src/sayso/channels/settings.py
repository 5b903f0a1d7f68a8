"""Tables of `sayso.toml`, read strictly: known names, right types, secrets by variable; and who may review at all.

Channels, hooks and `[serve]` are read with it. A person stands there as a name, or as
`{ name = "ada", roles = ["finance"], issuer = "corp" }`. A fault names the setting and never quotes a secret.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from sayso import config, errors
from sayso.model.reviewer import LOCAL, Identity, Reviewer

T = TypeVar("T")

_PERSON = ("issuer", "name", "roles")


class Table:
    """One table of settings.

    Args:
        where: Its name in the file, e.g. `channels.ops`.
        settings: What stands in it.
        known: What may stand in it.

    Raises:
        ConfigError: It has a setting that is not known.
    """

    def __init__(self, where: str, settings: Mapping[str, Any], *, known: Collection[str]) -> None:
        self.where = where
        self._settings = settings
        unknown = sorted(set(settings) - set(known))
        if unknown:
            raise self.error(unknown[0], f"is not known; known are {', '.join(sorted(known))}")

    def error(self, name: str, what: str) -> errors.ConfigError:
        """Return the error for a wrong setting."""
        return errors.ConfigError(f"[{self.where}] {name} {what}")

    def get(self, name: str, kind: type[T], default: T) -> T:
        """Return a setting; raises `ConfigError` where it has another type."""
        value = self._settings.get(name)
        if value is None:
            return default
        if type(value) is not kind:
            raise self.error(name, f"must be {_WORDS[kind]}")
        return value

    def text(self, name: str) -> str:
        """Return a text that must be there."""
        value = self.get(name, str, "")
        if not value:
            raise self.error(name, "is missing")
        return value

    def texts(self, name: str) -> list[str]:
        """Return a list of texts; empty where it is not set."""
        value: list[Any] = self.get(name, list, [])
        if not all(isinstance(one, str) and one for one in value):
            raise self.error(name, "must be a list of texts")
        return value

    def file(self, name: str) -> str:
        """Return the path of a file that must be there; a relative one is meant from where the settings lie."""
        settings = config.settings_file()
        path = (Path() if settings is None else settings.parent) / Path(self.text(name)).expanduser()
        if not path.is_file():
            raise self.error(name, f"names {str(path)!a}, which is no file")
        return str(path)

    def person(self, name: str, given: Any, *, issuer: str, roles: Collection[str] = ()) -> Reviewer:
        """Return the reviewer whom a setting names.

        Args:
            name: The setting, for messages.
            given: A name, or a table with one, and perhaps roles and an issuer.
            issuer: The issuer where the table has none.
            roles: The roles where the table has none.

        Raises:
            ConfigError: It is neither, or cannot be used.
        """
        fields: dict[str, Any] = {"name": given} if isinstance(given, str) else given
        if not isinstance(fields, dict):  # pyright: ignore[reportUnnecessaryIsInstance]  it came from a file
            raise self.error(name, 'must be a name, or a table {name = "ada", roles = ["finance"]}')
        one = Table(f"{self.where}.{name}", fields, known=_PERSON)
        try:
            return Reviewer(
                one.text("name"), roles=one.texts("roles") if "roles" in fields else roles,
                issuer=one.get("issuer", str, issuer),
            )  # fmt: skip
        except ValueError as error:
            raise self.error(name, f"cannot be used: {error}") from None

    def people(self, name: str) -> tuple[Identity, ...]:
        """Return the people whom a setting lists, each as `person` takes one; a name is one of this machine."""
        given: list[Any] = self.get(name, list, [])
        return tuple(self.person(name, one, issuer=LOCAL).identity for one in given)

    def secret(self, name: str) -> str:
        """Return the secret in the environment variable that a setting names.

        Raises:
            ConfigError: The setting names none, or the variable is not set.
        """
        variable = self.text(name)
        value = os.environ.get(variable, "").strip()
        if not value:
            raise self.error(name, f"names the environment variable {variable!a}, which is not set")
        return value


_WORDS: dict[type[Any], str] = {
    str: "a text", bool: "true or false", list: "a list", dict: "a table", int: "a whole number",
}  # fmt: skip


@dataclass(frozen=True)
class ReviewerAllowlist:
    """Who may review at all: on pages, by the API, by hooks, and in channels in which people decide.

    A request may ask for more, which the store checks.

    Attributes:
        reviewers: As `name` or `issuer:name`, to the letter; None is every authenticated person. A name with a colon
            takes its issuer: else who is named `corp:ada` elsewhere would be `ada` of `corp`.
        role: The role that a reviewer must have; None is none.
    """

    reviewers: Collection[str] | None = None
    role: str | None = None

    def admits(self, reviewer: Reviewer) -> bool:
        """Say whether an authenticated person may review here."""
        if self.role is not None and self.role not in reviewer.roles:
            return False
        names = {reviewer.identity.qualified} | ({reviewer.subject} if ":" not in reviewer.subject else set[str]())
        return self.reviewers is None or not names.isdisjoint(self.reviewers)


def allowed_reviewers() -> ReviewerAllowlist:
    """Return `reviewers` and `required_role` of `[serve]` in the settings file.

    Raises:
        ConfigError: The file cannot be used, or one of the two has a wrong type.
    """
    found = config.table("serve")
    table = Table("serve", found, known=found)  # the others are checked where they are used
    return ReviewerAllowlist(table.texts("reviewers") or None, table.get("required_role", str, "") or None)
