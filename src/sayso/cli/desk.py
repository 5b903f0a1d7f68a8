"""What a command works on: the store it was pointed at, and the reviewer in whose name it decides.

Invariant: a command never makes a store unseen; one that is not there has nothing to decide, and a mistyped address
or run says so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import click

from sayso import config, errors
from sayso.cli.say import complain
from sayso.model.reviewer import Reviewer
from sayso.reviews import Review
from sayso.stores.base import Store

__all__ = ["Desk", "NoRunError", "NoStoreYetError", "as_json", "decides", "file_of", "reviewer"]

F = TypeVar("F", bound=Callable[..., Any])


class NoStoreYetError(errors.StoreUnavailableError):
    """There is no file where the store should be."""


class NoRunError(errors.SaysoError):
    """Nothing was ever written of a run with this id."""

    def __init__(self, run_id: str) -> None:
        super().__init__(f"there is no run {run_id!r} in this store")


def file_of(address: str) -> Path | None:
    """Return the SQLite file behind a store's address; None where it is another store."""
    return Path(address.removeprefix("sqlite:///")) if address.startswith("sqlite:///") else None


@dataclass
class Desk:
    """Where a command works.

    Attributes:
        address: What `--store` said; None for the configured store.
    """

    address: str | None

    @cached_property
    def store(self) -> Store:
        """The store, which is there.

        Raises:
            NoStoreYetError: It is not there.
            ConfigError: The address names no store, or one that no other process can see.
        """
        store = config.open_store(self.address)
        if store.url.startswith("memory:"):
            raise errors.ConfigError(
                "a store in memory is seen by its own program only; decide there, with sayso.Review"
            )
        file = _place_of(store.url)
        try:
            is_missing = file is not None and not file.exists()
        except OSError as error:
            raise errors.StoreUnavailableError(f"{file} cannot be reached ({error.strerror})") from error
        if is_missing:
            raise NoStoreYetError(f"there is no store at {file}: no program has asked anything there yet")
        return store

    @property
    def store_or_new(self) -> Store:
        """The store; one that is not there is made at its first use, which is said.

        Raises:
            ConfigError: The address names no store, or one that no other process can see.
        """
        try:
            return self.store
        except NoStoreYetError as fault:
            complain(f"{fault}; it is made now, and what programs ask there appears in the inbox")
            return config.open_store(self.address)

    def must_know(self, run_id: str) -> None:
        """Raise `NoRunError` where nothing was ever written of a run, because its name was mistyped or never used."""
        if not self.store.journal(run_id=run_id, limit=1):
            raise NoRunError(run_id)

    @property
    def look(self) -> Review:
        """The person's door for looking only, in nobody's name."""
        return Review(self.store, channel="cli")

    def review(self, name: str | None = None, roles: Sequence[str] = ()) -> Review:
        """Return the person's door in the name of `--as`, else of the configured reviewer, with `--role` added."""
        return Review(self.store, reviewer=reviewer(name, roles), channel="cli")


def _place_of(address: str) -> Path | None:
    """Return the file of a store; None where it is kept in none."""
    return Path(address.removeprefix("jsonl:")) if address.startswith("jsonl:") else file_of(address)


def reviewer(name: str | None, roles: Sequence[str], *, option: str = "--as") -> Reviewer:
    """Return who decides; `option` is the one that gave the name.

    Raises:
        BadParameter: The name, or a role, cannot be one.
    """
    known = config.default_reviewer() if name is None else None
    try:
        if known is not None:
            return Reviewer(known.subject, roles={*known.roles, *roles}, issuer=known.issuer)
        return Reviewer(name or "", roles=roles)
    except ValueError as error:
        # A role is named as one in the message, else it is the name.
        raise click.BadParameter(
            str(error), param_hint="--role" if str(error).startswith("role ") else option
        ) from error


def decides(command: F) -> F:
    """Add `--as` and `--role` to a command, as `name` and `roles`."""
    command = click.option("--role", "roles", multiple=True, metavar="ROLE", help="A role you have; repeatable.")(
        command
    )
    return click.option(
        "--as", "--by", "name", metavar="NAME", help="Who you are; else SAYSO_REVIEWER, else user@host."
    )(command)


def as_json(command: F) -> F:
    """Add `--json` to a command, as `as_json`."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(command)
