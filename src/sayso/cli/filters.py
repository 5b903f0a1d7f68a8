"""The options by which `ls`, `approve` and `reject` choose requests; those of `sayso.Review.list`, with its names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from functools import wraps
from typing import Any, TypeVar, cast

import click

from sayso import errors
from sayso.cli.desk import reviewer
from sayso.model import duration

__all__ = ["Chosen", "filters", "read_span"]

F = TypeVar("F", bound=Callable[..., Any])


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
