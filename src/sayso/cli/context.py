"""What commands share: the store, the reviewer, and common options.

Invariant: a command never creates a store silently. A missing store, or a mistyped address or run, is an error.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property, wraps
from pathlib import Path
from typing import Any, TypeVar, cast

import click

from sayso import clock, config, errors
from sayso.cli.output import complain
from sayso.model import duration
from sayso.model.reviewer import Reviewer
from sayso.reviews import Review
from sayso.stores.base import Store

__all__ = [
    "CliContext",
    "Filters",
    "NoRunError",
    "NoStoreYetError",
    "Number",
    "as_option",
    "date_option",
    "file_of",
    "filter_options",
    "json_option",
    "message_option",
    "output_option",
    "reviewer_of",
    "reviewer_options",
    "span_option",
]

F = TypeVar("F", bound=Callable[..., Any])


class NoStoreYetError(errors.StoreUnavailableError):
    """There is no file where the store should be."""


class NoRunError(errors.SaysoError):
    """Nothing was ever recorded of a run with this id."""

    def __init__(self, run_id: str) -> None:
        super().__init__(f"there is no run {run_id!r} in this store")


@dataclass
class CliContext:
    """The context of one command; options that commands share are stored here when they are parsed.

    Attributes:
        address: The value of `--store`; None for the configured store.
        as_name, as_roles: The values of `--as` and `--role`.
        as_json: Whether `--json` was given.
    """

    address: str | None
    as_name: str | None = None
    as_roles: Sequence[str] = ()
    as_json: bool = False

    @cached_property
    def store(self) -> Store:
        """The store, which exists.

        Raises:
            NoStoreYetError: It does not exist.
            ConfigError: The address names no store, or one that no other process can see.
        """
        store = config.open_store(self.address)
        if store.url.startswith("memory:"):
            raise errors.ConfigError(
                "a store in memory is seen by its own program only; decide there, with sayso.Review"
            )
        file = Path(store.url.removeprefix("jsonl:")) if store.url.startswith("jsonl:") else file_of(store.url)
        try:
            is_missing = file is not None and not file.exists()
        except OSError as error:
            raise errors.StoreUnavailableError(f"{file} cannot be reached ({error.strerror})") from error
        if is_missing:
            raise NoStoreYetError(f"there is no store at {file}: no program has asked anything there yet")
        return store

    @property
    def store_or_new(self) -> Store:
        """The store; a missing one is made at its first use, and a message says so."""
        try:
            return self.store
        except NoStoreYetError as fault:
            complain(f"{fault}; it is made now, and what programs ask there appears in the inbox")
            return config.open_store(self.address)

    @property
    def reader(self) -> Review:
        """The store's requests for looking only, in nobody's name."""
        return Review(self.store, channel="cli")

    @cached_property
    def review(self) -> Review:
        """The store's requests for deciding, in the name of `reviewer`."""
        return Review(self.store, reviewer=self.reviewer, channel="cli")

    @property
    def reviewer(self) -> Reviewer:
        """Who decides: `--as`, else the configured reviewer, with the roles of `--role` added."""
        return reviewer_of(self.as_name, self.as_roles)

    def check_run(self, run_id: str) -> None:
        """Raise `NoRunError` for a run of which nothing was ever recorded: it was mistyped or never used."""
        if not self.store.journal(run_id=run_id, limit=1):
            raise NoRunError(run_id)


def file_of(address: str) -> Path | None:
    """Return the SQLite file behind a store's address; None for another kind of store."""
    return Path(address.removeprefix("sqlite:///")) if address.startswith("sqlite:///") else None


def reviewer_of(name: str | None, roles: Sequence[str], *, option: str = "--as") -> Reviewer:
    """Return the reviewer of this name, else the configured one; `option` is the one that gave the name.

    Raises:
        BadParameter: The name or a role is not valid.
    """
    known = config.default_reviewer() if name is None else None
    try:
        if known is not None:
            return Reviewer(known.subject, roles={*known.roles, *roles}, issuer=known.issuer)
        return Reviewer(name or "", roles=roles)
    except ValueError as error:
        hint = "--role" if str(error).startswith("role ") else option
        raise click.BadParameter(str(error), param_hint=hint) from error


# -- options -------------------------------------------------------------------------------------------------------


def _store_option(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    setattr(ctx.obj, str(param.name), value)


as_option = click.option(
    "--as", "--by", "as_name", metavar="NAME", help="Who you are; else SAYSO_REVIEWER, else user@host.",
    expose_value=False, callback=_store_option,
)  # fmt: skip
_role_option = click.option(
    "--role", "as_roles", multiple=True, metavar="ROLE", help="A role you have; repeatable.",
    expose_value=False, callback=_store_option,
)  # fmt: skip
json_option = click.option(
    "--json", "as_json", is_flag=True, help="Print JSON.", expose_value=False, callback=_store_option
)
output_option = click.option(
    "-o", "--output", metavar="FILE", type=click.Path(path_type=Path), help="Write it to this file."
)


def reviewer_options(command: F) -> F:
    """Add `--as` and `--role`, which `CliContext.reviewer` uses."""
    return as_option(_role_option(command))


def message_option(text: str, *, required: bool = False) -> Callable[[F], F]:
    """Add `-m`, with this help text, as `message`."""
    return click.option("-m", "--message", "--comment", "message", metavar="TEXT", required=required, help=text)


class Number(click.IntRange):
    """A whole number between inclusive bounds."""

    name = "whole number"


def span_option(ctx: click.Context, param: click.Parameter, value: str | None) -> timedelta | None:
    """Parse a span of time: `90s`, `24h`, `7d`."""
    if value is None:
        return None
    try:
        return duration.parse(value)
    except errors.ConfigError as error:
        raise click.BadParameter(str(error), ctx, param) from error


def date_option(ctx: click.Context, param: click.Parameter, value: str | None) -> datetime | None:
    """Parse a day, an instant (in UTC without a zone), or a span before now (`90d`)."""
    if value is None:
        return None
    try:
        try:
            found = datetime.fromisoformat(value)
        except ValueError:
            return clock.now() - duration.parse(value)
        return found.replace(tzinfo=found.tzinfo or UTC).astimezone(UTC)
    except (OverflowError, errors.ConfigError) as error:
        message = f"{value!r} is no day, no instant and no span, as 2026-01-31 and 90d are"
        raise click.BadParameter(message, ctx, param) from error


@dataclass(frozen=True)
class Filters:
    """The options by which `ls`, `approve` and `reject` select requests; None does not restrict.

    All but `mine`, what the reviewer has claimed, are keywords of `Review.list`.
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
        return any(value not in {None, False} for value in vars(self).values())

    def keywords(self, name: str | None) -> dict[str, Any]:
        """Return the keywords of `Review.list`; `name` is the value of `--as`."""
        if self.mine and self.claimed_by is not None:
            raise click.UsageError("give --mine or --claimed-by, not both")
        claimer = None if self.claimed_by is None else reviewer_of(self.claimed_by, (), option="--claimed-by")
        found: dict[str, Any] = {**vars(self), "claimed_by": reviewer_of(name, ()) if self.mine else claimer}
        del found["mine"]
        return found


_FILTERS = (
    click.option("--run", metavar="ID", help="Only of this run."),
    click.option("--tool", metavar="NAME", help="Only calls of this function, by name or module:name."),
    click.option("--risk", metavar="WORD", help="Only with this risk."),
    click.option("--agent", metavar="NAME", help="Only what this program asked, by name or issuer:name."),
    click.option("--kind", type=click.Choice(["call", "question"]), help="Only calls, or only questions."),
    click.option(
        "--text", "--search", "text", metavar="TEXT", help="Only with this in id, run, function, prompt or question."
    ),
    click.option(
        "--older-than", metavar="SPAN", callback=span_option, help="Only what was asked this long ago: 90s, 1h, 7d."
    ),
    click.option("--claimed-by", metavar="NAME", help="Only what this reviewer has claimed."),
    click.option("--mine", is_flag=True, help="Only what you have claimed."),
)


def filter_options(command: F) -> F:
    """Add the filters to a command, as `filters`."""

    @wraps(command)
    def with_filters(*args: Any, **given: Any) -> Any:
        names = Filters.__dataclass_fields__
        return command(*args, filters=Filters(**{name: given.pop(name) for name in names}), **given)

    for option in reversed(_FILTERS):
        with_filters = option(with_filters)
    return cast("F", with_filters)
