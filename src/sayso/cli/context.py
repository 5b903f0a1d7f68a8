"""What a command works on, and the options that commands share: store, reviewer, filters, numbers.

Invariant: a command never makes a store silently; a store that is missing holds nothing to decide, and a mistyped
address or run is an error.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property, wraps
from pathlib import Path
from typing import Any, TypeVar, cast

import click

from sayso import config, errors
from sayso.cli.output import complain
from sayso.model import duration
from sayso.model.reviewer import Reviewer
from sayso.reviews import Review
from sayso.stores.base import Store

__all__ = [
    "Chosen",
    "Desk",
    "NoRunError",
    "NoStoreYetError",
    "Number",
    "as_json",
    "decides",
    "file_of",
    "filters",
    "read_span",
    "reviewer",
]

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


class Number(click.IntRange):
    """Takes a whole number between bounds, both of which count."""

    name = "whole number"


@dataclass(frozen=True)
class Chosen:
    """What the options said; None does not restrict.

    Attributes:
        mine: Only what the reviewer, whom another option names, has claimed.
    """

    run: str | None
    tool: str | None
    risk: str | None
    agent: str | None
    kind: str | None
    text: str | None
    claimed_by: str | None
    older_than: timedelta | None
    mine: bool

    def __bool__(self) -> bool:
        return self.mine or any(value is not None for value in self._plain().values())

    def as_keywords(self, name: str | None) -> dict[str, Any]:
        """Return the keywords of `Review.list`; `name` is what `--as` said."""
        if self.mine and self.claimed_by is not None:
            raise click.UsageError("give --mine or --claimed-by, not both")
        claimer = None if self.claimed_by is None else reviewer(self.claimed_by, (), option="--claimed-by")
        return {**self._plain(), "claimed_by": reviewer(name, ()) if self.mine else claimer}

    def _plain(self) -> dict[str, Any]:
        return {one: value for one, value in vars(self).items() if one != "mine"}


def read_span(ctx: click.Context, param: click.Parameter, value: str | None) -> timedelta | None:
    """Read a span of time: `90s`, `24h`, `7d`."""
    if value is None:
        return None
    try:
        return duration.parse(value)
    except errors.ConfigError as error:
        raise click.BadParameter(str(error), ctx, param) from error


_OPTIONS = (
    click.option("--run", metavar="ID", help="Only of this run."),
    click.option("--tool", metavar="NAME", help="Only calls of this function, by name or module:name."),
    click.option("--risk", metavar="WORD", help="Only with this risk."),
    click.option("--agent", metavar="NAME", help="Only what this program asked, by name or issuer:name."),
    click.option("--kind", type=click.Choice(["call", "question"]), help="Only calls, or only questions."),
    click.option(
        "--text", "--search", "text", metavar="TEXT", help="Only with this in id, run, function, prompt or question."
    ),
    click.option(
        "--older-than",
        metavar="SPAN",
        callback=read_span,
        help="Only what was asked so long ago or longer: 90s, 1h, 7d.",
    ),
    click.option("--claimed-by", metavar="NAME", help="Only what this reviewer has claimed."),
    click.option("--mine", is_flag=True, help="Only what you have claimed."),
)
_NAMES = tuple(Chosen.__dataclass_fields__)


def filters(command: F) -> F:
    """Add the filters to a command, as `chosen`."""

    @wraps(command)
    def gathered(*args: Any, **given: Any) -> Any:
        return command(*args, chosen=Chosen(**{name: given.pop(name) for name in _NAMES}), **given)

    for option in reversed(_OPTIONS):
        gathered = option(gathered)
    return cast("F", gathered)
