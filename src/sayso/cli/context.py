"""What commands share: the store, the reviewer, common options, and error messages.

Invariant: a command never creates a store silently. A missing store, or a mistyped address or run, is an error. An
error says what happened, with short ids, and what to do next; only a command that decides says "nothing was decided".
"""

from __future__ import annotations

import shlex
import signal
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

import click

from sayso import clock, config, errors
from sayso.cli.output import complain, exit_code, out, print_json
from sayso.model import duration
from sayso.model.cached import cached_property
from sayso.model.escaping import escape
from sayso.model.reviewer import Reviewer
from sayso.reviews import Review
from sayso.stores.base import Filter, Store
from sayso.stores.transaction import CHANNEL
from sayso.view.summary import in_short, short

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
        filters: The options of `filter_options` that were given; all but `mine`, what the reviewer has claimed, are
            keywords of `Review.list`.
    """

    address: str | None
    as_name: str | None = None
    as_roles: Sequence[str] = ()
    as_json: bool = False
    filters: dict[str, Any] = field(default_factory=dict[str, Any])

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

    def say_store(self) -> None:
        """Say on stderr which store a credential is for: made for another one, it opens nothing."""
        source = "from --store" if self.address is not None else config.store_source()
        complain(f"store {escape(config.open_store(self.address).public_url)} ({escape(source)})")

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

    def answer(self, content: Any, rows: Iterable[str], code: int = 0) -> int:
        """Print the result of a command, as JSON where `--json` was given, else as rows; return the exit code."""
        if self.as_json:
            print_json(content)
        else:
            out(*rows)
        return code

    def list_keywords(self) -> dict[str, Any]:
        """Return the keywords of `Review.list` that the filters are."""
        found = dict(self.filters)
        if found.pop("mine", False):
            if "claimed_by" in found:
                raise click.UsageError("give --mine or --claimed-by, not both")
            found["claimed_by"] = reviewer_of(self.as_name, ())
        elif "claimed_by" in found:
            found["claimed_by"] = reviewer_of(found["claimed_by"], (), option="--claimed-by")
        return found

    def check_run(self, run_id: str) -> None:
        """Raise `NoRunError` for a run of which nothing was ever recorded: it was mistyped or never used."""
        if not self.store.journal(run_id=run_id, limit=1):
            raise NoRunError(run_id)


# Records of which one that does not open would fail every request to a server. Not what says whose a run is: there are
# as many as runs, and who made them without the key made requests without it.
_READ_OFTEN = ("token", "session", "device", CHANNEL)


def check_key(store: Store) -> None:
    """Look whether what the store holds opens with `SAYSO_KEY`, or without one.

    Raises:
        StoreSealedError: Something was written without the key, or with another one.
    """
    for kind in _READ_OFTEN:
        after = ""
        with suppress(errors.StoreCorruptError):  # one row that was altered is no reason not to serve the others
            while page := store.records(kind, after=after):
                after = page[-1].key
    for is_newest in (False, True):
        with suppress(errors.StoreCorruptError):
            store.list(Filter(), limit=1, newest=is_newest)


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


@contextmanager
def needing_web(command: str) -> Generator[None]:
    """Say which extra a command needs where the block misses a module."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise errors.ConfigError(
            f"`sayso {command}` needs the extra `web` ({error.name} is missing): pip install 'sayso[web]'"
        ) from error


@contextmanager
def handling_signals(handler: Callable[[int, FrameType | None], None]) -> Generator[None]:
    """Have SIGTERM and Ctrl-C call a function inside the block."""
    before = [(number, signal.signal(number, handler)) for number in (signal.SIGTERM, signal.SIGINT)]
    try:
        yield
    finally:
        for number, old in before:
            signal.signal(number, old)


# -- errors -------------------------------------------------------------------------------------------------------

_HINTS: tuple[tuple[type[errors.SaysoError], str], ...] = (
    (errors.AlreadyDecidedError, "`{sayso} show {id}` shows what became of it"),
    (errors.RequestExpiredError, "nothing runs without a decision in time; `{sayso} ls` lists what waits now"),
    (errors.MissingRoleError, "if you have it, say so with --role {role}; sayso keeps no list of who else has it"),
    (errors.AlreadyVotedError, "nothing changed"),
    (errors.InvalidChangesError, "`{sayso} show {id}` shows what it takes; correct the values and try again"),
    (errors.InvalidAnswerError, "`{sayso} show {id}` shows what it takes"),
    (errors.ReasonMissingError, '`{sayso} reject {id} -m "what is wrong with it"`'),
    (errors.StaleViewError, "`{sayso} show {id}` shows its current state"),
    (errors.NotUnknownError, "`{sayso} show {id}` shows its state"),
    (errors.StoreError, "`sayso doctor` looks closer; --store ADDRESS or SAYSO_STORE names another store"),
)
_UNDECIDED = "nothing was decided"
# Errors that do not say so themselves, because commands that only read raise them, too.
_ALSO_OF_READERS = (
    errors.RequestNotFoundError, errors.AmbiguousIdError, errors.OwnRequestError, errors.ConfigError, NoRunError,
)  # fmt: skip


def report(fault: errors.SaysoError) -> int:
    """Print an error, with ids as `ls` shows them, and what to do next to stderr; return the exit code."""
    text = str(fault)
    hint = _hint(fault, text)
    if not isinstance(fault, errors.AmbiguousIdError):  # the beginnings of its ids are what does not tell them apart
        text = in_short(text)
    complain(f"error: {escape(text)}", *([hint] if hint else []))
    return exit_code(fault)


def _hint(fault: errors.SaysoError, text: str) -> str:
    context = click.get_current_context(silent=True)
    cli = None if context is None else context.find_object(CliContext)
    if isinstance(fault, errors.RequestNotFoundError):
        words = "" if cli is None else _similar_id(cli, fault.request_id)
        if cli is not None and not words:
            words = f"this is {escape(cli.store.public_url)}; if the program uses another store, add --store ADDRESS"
    else:
        words = next((hint for kind, hint in _HINTS if isinstance(fault, kind)), "")
    # The next command has to find the same store.
    sayso = "sayso" if cli is None or cli.address is None else f"sayso --store {escape(shlex.quote(cli.address))}"
    role = next(iter(getattr(fault, "roles", ())), "")
    hint = words.format(sayso=sayso, id=short(getattr(fault, "request_id", "")), role=escape(shlex.quote(role)))
    # The words of pydantic, and those of the validator of JSON Schemas.
    if isinstance(fault, errors.InvalidAnswerError) and any(one in text for one in ("valid list", 'type "array"')):
        hint += """; a list is written as JSON, '["a", "b"]'"""
    undecided = _UNDECIDED if isinstance(fault, _ALSO_OF_READERS) and _decides(context) else ""
    return "; ".join(filter(None, [undecided, hint]))


def _decides(context: click.Context | None) -> bool:
    """Say whether this command decides; such a command takes roles."""
    if context is None:
        return False
    command: click.Command | None = context.command
    if isinstance(command, click.Group):
        command = command.get_command(context, context.invoked_subcommand or "")
    return command is not None and any(param.name == "as_roles" for param in command.params)


def _similar_id(cli: CliContext, request_id: str) -> str:
    try:
        known = [short(request.id) for request in cli.reader.list(limit=200).requests]
    except errors.SaysoError:
        return ""  # the first error is enough
    wanted = request_id if request_id.startswith("rq_") else f"rq_{request_id}"
    return did_you_mean(short(wanted), known)


def did_you_mean(word: str, known: list[str]) -> str:
    """Return which of the known words was probably meant, as a question; empty where none comes near."""
    found = get_close_matches(word, known, n=1, cutoff=0.7)
    return f"did you mean {found[0]}?" if found else ""


# -- options -------------------------------------------------------------------------------------------------------


def _shared(*names: str, selects: bool = False, **settings: Any) -> Callable[[F], F]:
    """Return an option whose value is kept in the context of the command, or in its filters if it selects requests."""

    def keep(ctx: click.Context, param: click.Parameter, value: Any) -> None:
        if not selects:
            setattr(ctx.obj, str(param.name), value)
        elif value not in {None, False}:
            ctx.obj.filters[param.name] = value

    return click.option(*names, **settings, expose_value=False, callback=keep)


class Number(click.IntRange):
    """A whole number between inclusive bounds."""

    name = "whole number"


def as_span(value: str) -> timedelta:
    """Parse a span of time, as the type of an option: `90s`, `24h`, `7d`."""
    try:
        return duration.parse(value)
    except errors.ConfigError as error:
        raise click.BadParameter(str(error)) from error


def as_date(value: str) -> datetime:
    """Parse a day, an instant (in UTC without a zone), or a span before now (`90d`), as the type of an option."""
    try:
        try:
            found = datetime.fromisoformat(value)
        except ValueError:
            return clock.now() - duration.parse(value)
        return found.replace(tzinfo=found.tzinfo or UTC).astimezone(UTC)
    except (OverflowError, errors.ConfigError) as error:
        raise click.BadParameter(f"{value!r} is no day, no instant and no span, as 2026-01-31 and 90d are") from error


as_option = _shared("--as", "--by", "as_name", metavar="NAME", help="Who you are; else SAYSO_REVIEWER, else user@host.")
_role_option = _shared("--role", "as_roles", multiple=True, metavar="ROLE", help="A role you have; repeatable.")
json_option = _shared("--json", "as_json", is_flag=True, help="Print JSON.")
output_option = click.option(
    "-o", "--output", metavar="FILE", type=click.Path(path_type=Path), help="Write it to this file."
)


def reviewer_options(command: F) -> F:
    """Add `--as` and `--role`, which `CliContext.reviewer` uses."""
    return as_option(_role_option(command))


def deciding(*params: Callable[[Any], Any], group: click.Group | None = None, name: str | None = None) -> Any:
    """Return a decorator that makes a command of a function: with these parameters, `--json`, and who decides."""
    make = click.command if group is None else group.command

    def command(function: Callable[..., int]) -> click.Command:
        found: Any = click.pass_obj(function)
        for param in reversed([*params, reviewer_options, json_option]):
            found = param(found)
        return make(name)(found)

    return command


def message_option(text: str, *, required: bool = False) -> Callable[[F], F]:
    """Add `-m`, with this help text, as `message`."""
    return click.option("-m", "--message", "--comment", "message", metavar="TEXT", required=required, help=text)


_FILTERS: tuple[tuple[Sequence[str], dict[str, Any]], ...] = (
    (["--run"], {"metavar": "ID", "help": "Only of this run."}),
    (["--tool"], {"metavar": "NAME", "help": "Only calls of this function, by name or module:name."}),
    (["--risk"], {"metavar": "WORD", "help": "Only with this risk."}),
    (["--agent"], {"metavar": "NAME", "help": "Only what this program asked, by name or issuer:name."}),
    (["--kind"], {"type": click.Choice(["call", "question"]), "help": "Only calls, or only questions."}),
    (
        ["--text", "--search", "text"],
        {"metavar": "TEXT", "help": "Only with this in id, run, function, arguments, prompt or question."},
    ),
    (["--older-than"], {"metavar": "SPAN", "type": as_span, "help": "Only what was asked this long ago: 90s, 1h, 7d."}),
    (["--claimed-by"], {"metavar": "NAME", "help": "Only what this reviewer has claimed."}),
    (["--mine"], {"is_flag": True, "help": "Only what you have claimed."}),
)


def filter_options(command: F) -> F:
    """Add the options by which `ls`, `approve` and `reject` select requests; see `CliContext.filters`."""
    for names, settings in reversed(_FILTERS):
        command = _shared(*names, selects=True, **settings)(command)
    return command
