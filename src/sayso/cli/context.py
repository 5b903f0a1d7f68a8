"""What commands share: the store, the reviewer, common options, and all output.

Results go to stdout, errors to stderr. Only our own words are coloured, and only on a terminal. Invariants: a command
never creates a store silently; a missing store, or a mistyped address or run, is an error. An error says what happened,
with short ids, and what to do next; only commands that decide say "nothing was decided". If the reader of stdout goes
away (`sayso ls | head`), the command still completes, without an error message. Shortened cells and rows with
misleading characters are marked.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import sys
from collections import deque
from collections.abc import Callable, Collection, Generator, Iterable, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from pathlib import Path
from types import FrameType
from typing import IO, Any, TypeVar

import click

from sayso import clock, config, errors
from sayso.model import cached_property, duration
from sayso.model.duration import text as span
from sayso.model.ids import is_random
from sayso.model.rendering import quote_if_needed
from sayso.model.request import Request, State
from sayso.model.reviewer import Reviewer, name_of
from sayso.model.text import escape
from sayso.reviews import Review
from sayso.stores.base import Filter, Store
from sayso.stores.grants import Stop
from sayso.stores.records import records_in
from sayso.stores.transaction import CHANNEL
from sayso.terminal import PROGRAM_GONE
from sayso.view import full_text
from sayso.view.summary import RUN_ROOM, SHORT, columns, in_short, padded, short, time_left

WRONG, DECIDED, EXPIRED = 1, 3, 4
_CODES: tuple[tuple[type[errors.SaysoError], int], ...] = (
    (errors.RequestExpiredError, EXPIRED),
    (errors.ApprovalExpiredError, EXPIRED),
    (errors.AlreadyDecidedError, DECIDED),
    (errors.NotUnknownError, DECIDED),
    (errors.StaleViewError, DECIDED),
)
_stdout_closed: list[bool] = []  # not empty once the reader of stdout is gone


def echo(*rows: str) -> None:
    """Print rows on stdout."""
    try:
        for row in rows:
            click.echo(row)
    except BrokenPipeError:
        discard_stdout()


def discard_stdout() -> None:
    """Discard all further output on stdout, because its reader is gone."""
    _stdout_closed.append(True)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def print_json(content: Any) -> None:
    """Print a JSON document in ASCII; other characters become JSON escapes."""
    echo(json.dumps(content, indent=2))


def echo_err(*rows: str) -> None:
    """Print rows on stderr, all but the first indented."""
    try:
        for number, row in enumerate(rows):
            click.echo(row if number == 0 else f"       {row}", err=True)
    except (OSError, ValueError):
        return  # stderr is gone; the exit code still reports the error


def confirm(question: str, **options: Any) -> bool:
    """Ask on stderr; Ctrl-C and the end of input mean no."""
    try:
        return click.confirm(question, err=True, **options)
    except click.Abort:
        echo_err("")
        return False


def paint(text: str, colour: str) -> str:
    """Colour one of our own texts, if stdout is a terminal that supports it."""
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb" or not sys.stdout.isatty():
        return text
    return click.style(text, fg=colour, bold=True)


def exit_code(fault: errors.SaysoError) -> int:
    """Return the exit code for an error."""
    return next((code for kind, code in _CODES if isinstance(fault, kind)), WRONG)


def plural(count: int, what: str) -> str:
    """Return a count and its noun: `1 row`, `2 rows`."""
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"


@contextmanager
def file_to_write(path: Path, *, may_replace: bool = True) -> Generator[IO[str]]:
    """Open a file for writing that only its owner can read; on exit it is complete, or does not exist.

    A path that is not a regular file, such as `/dev/null` or a pipe, is written in place.

    Raises:
        ConfigError: The file cannot be written.
    """
    path = path.expanduser()
    if path.exists() and not path.is_file() and not path.is_dir():
        with path.open("w", encoding="utf-8", newline="") as file:
            yield file
        return
    part = path.with_name(f"{path.name}.part")
    try:
        if not may_replace and path.exists():
            raise errors.ConfigError(f"{path} already exists; nothing was written")
        with suppress(FileNotFoundError):
            part.unlink()
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8", newline="") as file:
            yield file
        part.replace(path)
    except OSError as error:
        raise errors.ConfigError(f"{path} cannot be written ({error.strerror}); nothing was written") from error
    finally:
        with suppress(OSError):
            part.unlink()


def write_lines(lines: Iterable[str], output: Path | None, what: str, *, headers: int = 0) -> None:
    """Write lines, which include their line endings, to stdout or a file, and print how many of `what` they were."""
    if output is None:
        for line in lines:
            echo(line.removesuffix("\n").removesuffix("\r"))
            if _stdout_closed:
                break
        return
    count = -headers
    with file_to_write(output) as file:
        for line in lines:
            file.write(line)
            count += 1
    echo_err(f"{plural(count, what)} written to {escape(str(output))}")


# -- tables --------------------------------------------------------------------------------------------------------

_PIPED_WIDTH = 140
_NARROWEST_CALL, _WIDEST_CALL = 60, 120
_PROGRAM_ENDED = PROGRAM_GONE.partition(":")[0]
_FROM_ROOM, _RISK_ROOM, _SUMMARY_ROOM = 36, 12, 100
COLOURS = {State.UNKNOWN: "red", State.PENDING: "yellow"}
"""The colours of states that need attention."""


def text_table(rows: Sequence[Sequence[str]]) -> list[list[str]]:
    """Pad every cell but the last of each row to the width of its column."""
    pads = [max(columns(row[column]) for row in rows) for column in range(len(rows[0]) - 1)]
    return [[*(padded(cell, pad) for cell, pad in zip(row, pads, strict=False)), row[-1]] for row in rows]


def table(
    requests: Sequence[Request], *, cursor: str | None, pending: int = 0, oldest: Request | None = None,
    unknown: int = 0, gone: Collection[str] = (),
) -> list[str]:  # fmt: skip
    """Render a list of requests as rows.

    Args:
        requests: One page; not empty.
        cursor: The cursor of the next page.
        pending: The total number of pending requests.
        oldest: The request that has been pending longest.
        unknown: The total number of unknown outcomes.
        gone: The ids of requests whose program has ended, so that none will fetch the decision.
    """
    now = clock.now()
    has_states = any(request.state is not State.PENDING for request in requests)
    before = [_cells(request, now, has_states=has_states, is_gone=request.id in gone) for request in requests]
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else _PIPED_WIDTH
    taken = sum(max(columns(row[place]) for row in before) + 2 for place in range(4))
    room = min(max(width - taken - _FROM_ROOM, _NARROWEST_CALL), _WIDEST_CALL)
    cells = [("ID", "AGE", "STATE" if has_states else "EXPIRES", "RISK", "CALL", "FROM")]
    for row, one in zip(before, requests, strict=True):
        run = f"{one.run_id[:12]}…" if is_random(one.run_id) else quote_if_needed(one.run_id, RUN_ROOM)
        call = full_text.headline(one, room) + (" !" if full_text.cautions(one) else "")
        cells.append((*row, call, f"{quote_if_needed(one.requester.subject, _FROM_ROOM)}/{run}"))
    first, *others = text_table(cells)
    rows = ["  ".join(first)]
    for request, row in zip(requests, others, strict=True):
        if has_states and request.state in COLOURS:
            row[2] = paint(row[2], COLOURS[request.state])
        rows.append("  ".join(row).rstrip())
        words = full_text.program_words(request, _SUMMARY_ROOM)
        rows += [f"{'':{SHORT}}  the program says {words}"] if words else []
    if pending:
        rows.append(f"{pending:,} pending" + ("" if oldest is None else f" - oldest {_age(oldest, now)}"))
    if unknown:
        count = f"{plural(unknown, 'outcome')} unknown"
        rows.append(f"{paint(count, 'red')}: find out, then run `sayso resolve ID --happened` or `--did-not`")
    if gone:
        rows.append(f"{PROGRAM_GONE}; `sayso cancel ID` removes it from this list")
    if any(full_text.cautions(request) for request in requests):
        rows.append("! contains hidden or look-alike characters; `sayso show ID` names them")
    if cursor is not None:
        rows.append(f"{len(requests):,} shown; continue with --cursor {cursor}")
    return rows


def stop_row(stop: Stop) -> str:
    """Return who stopped all calls, and why."""
    why = "" if stop.reason is None else f": {escape(stop.reason)}"
    return f"all calls are stopped by {name_of(stop.by)}{why}"


def _cells(request: Request, now: datetime, *, has_states: bool, is_gone: bool) -> tuple[str, str, str, str]:
    match request.state:
        case State.PENDING:
            rest = _PROGRAM_ENDED if is_gone else time_left(request.expires_at, now)
            state_text = f"pending, {rest}" if has_states else rest
        case State.UNKNOWN:
            state_text = "UNKNOWN"
        case state:
            state_text = f"{state}, {_PROGRAM_ENDED}" if is_gone else str(state)
    risk = "-" if request.risk is None else quote_if_needed(request.risk, _RISK_ROOM)
    return short(request.id), _age(request, now), state_text, risk


def _age(request: Request, now: datetime) -> str:
    return span(timedelta(seconds=max(0, (now - request.created_at) // timedelta(seconds=1))))


F = TypeVar("F", bound=Callable[..., Any])


class NoStoreYetError(errors.StoreUnavailableError):
    """The store's file does not exist."""


@dataclass
class CliContext:
    """The context of one command; options that commands share are stored here when they are parsed.

    Attributes:
        address: The value of `--store`; None for the configured store.
        as_name, as_roles: The values of `--as` and `--role`.
        as_json: Whether `--json` was given.
        filters: The given options of `filter_options`. All are keywords of `Review.list`, except `mine`, which selects
            what the reviewer has claimed.
    """

    address: str | None
    as_name: str | None = None
    as_roles: Sequence[str] = ()
    as_json: bool = False
    filters: dict[str, Any] = field(default_factory=dict[str, Any])

    @cached_property
    def store(self) -> Store:
        """The store, which must exist.

        Raises:
            NoStoreYetError: The store does not exist.
            ConfigError: The address does not name a store, or names one that other processes cannot see.
        """
        store = config.open_store(self.address)
        if store.url.startswith("memory:"):
            raise errors.ConfigError(
                "only its own program can see a store in memory; decide in that program, with sayso.Review"
            )
        file = Path(store.url.removeprefix("jsonl:")) if store.url.startswith("jsonl:") else file_of(store.url)
        try:
            is_missing = file is not None and not file.exists()
        except OSError as error:
            raise errors.StoreUnavailableError(f"cannot access {file} ({error.strerror})") from error
        if is_missing:
            raise NoStoreYetError(f"there is no store at {file}: no program has made a request there yet")
        return store

    @property
    def store_or_new(self) -> Store:
        """The store; a missing one is created on first use, and a message says so."""
        try:
            return self.store
        except NoStoreYetError as fault:
            echo_err(f"{fault}; a new one is created, and requests that programs make there will appear in the inbox")
            return config.open_store(self.address)

    def print_store(self) -> None:
        """Print on stderr the store for which a credential is valid, because it is useless for any other."""
        source = "from --store" if self.address is not None else config.store_source()
        echo_err(f"store {escape(config.open_store(self.address).public_url)} ({escape(source)})")

    @property
    def reader(self) -> Review:
        """Read-only access to the store's requests, without a reviewer."""
        return Review(self.store, channel="cli")

    @cached_property
    def review(self) -> Review:
        """Access to the store's requests for decisions by `reviewer`."""
        return Review(self.store, reviewer=self.reviewer, channel="cli")

    @property
    def reviewer(self) -> Reviewer:
        """The person who decides: `--as`, or else the configured reviewer, with the roles of `--role` added."""
        return reviewer_of(self.as_name, self.as_roles)

    def answer(self, content: Any, rows: Iterable[str], code: int = 0) -> int:
        """Print a command's result as JSON with `--json`, or else as rows; return the exit code."""
        if self.as_json:
            print_json(content)
        else:
            echo(*rows)
        return code

    def list_keywords(self) -> dict[str, Any]:
        """Return the filters as keywords of `Review.list`."""
        found = dict(self.filters)
        if found.pop("mine", False):
            if "claimed_by" in found:
                raise click.UsageError("give --mine or --claimed-by, not both")
            found["claimed_by"] = reviewer_of(self.as_name, ())
        elif "claimed_by" in found:
            found["claimed_by"] = reviewer_of(found["claimed_by"], (), option="--claimed-by")
        return found

    def check_run(self, run_id: str) -> None:
        """Raise `RunNotFoundError` if nothing was ever recorded for a run, which was then mistyped or never used."""
        if not self.store.journal(run_id=run_id, limit=1):
            raise errors.RunNotFoundError(run_id)


# Kinds of records of which a single undecryptable one would fail every request to a server. Records of run owners are
# not listed: there are as many as runs, and whoever wrote them without the key also wrote requests without it.
_READ_OFTEN = ("token", "session", "device", CHANNEL)


def check_key(store: Store) -> None:
    """Check that the store's content can be decrypted with `SAYSO_KEY`, or read without a key.

    Raises:
        StoreSealedError: Some content was written without the key, or with another one.
    """
    for kind in _READ_OFTEN:
        with suppress(errors.StoreCorruptError):  # an altered row must not prevent serving the others
            deque(records_in(store, kind), maxlen=0)
    for is_newest in (False, True):
        with suppress(errors.StoreCorruptError):
            store.list(Filter(), limit=1, newest=is_newest)


def file_of(address: str) -> Path | None:
    """Return the SQLite file of a store's address; None for other kinds of stores."""
    return Path(address.removeprefix("sqlite:///")) if address.startswith("sqlite:///") else None


def reviewer_of(name: str | None, roles: Sequence[str], *, option: str = "--as") -> Reviewer:
    """Return the reviewer of this name, or by default the configured one; errors name `option`.

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
def require_web(command: str) -> Generator[None]:
    """Report the extra that a command needs if the block fails to import a module."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise errors.ConfigError(
            f"`sayso {command}` needs the extra `web` ({error.name} is missing): pip install 'sayso[web]'"
        ) from error


@contextmanager
def handle_signals(handler: Callable[[int, FrameType | None], None]) -> Generator[None]:
    """Call a function on SIGTERM and Ctrl-C inside the block."""
    before = [(number, signal.signal(number, handler)) for number in (signal.SIGTERM, signal.SIGINT)]
    try:
        yield
    finally:
        for number, old in before:
            signal.signal(number, old)


# -- errors -------------------------------------------------------------------------------------------------------

_HINTS: tuple[tuple[type[errors.SaysoError], str], ...] = (
    (errors.AlreadyDecidedError, "`{sayso} show {id}` shows the decision and its outcome"),
    (
        errors.RequestExpiredError,
        "a call that is not decided in time does not run; `{sayso} ls` lists the open requests",
    ),
    (errors.MissingRoleError, "if you have this role, add --role {role}; sayso does not know who else has it"),
    (errors.AlreadyVotedError, "nothing changed"),
    (
        errors.InvalidChangesError,
        "`{sayso} show {id}` shows the arguments and their types; correct the values and try again",
    ),
    (errors.InvalidAnswerError, "`{sayso} show {id}` shows which answers are valid"),
    (errors.ReasonMissingError, 'use `{sayso} reject {id} -m "what is wrong with it"`'),
    (errors.StaleViewError, "`{sayso} show {id}` shows its current state"),
    (errors.NotUnknownError, "`{sayso} show {id}` shows its state"),
    (errors.StoreError, "`sayso doctor` checks the store; to use another store, set --store ADDRESS or SAYSO_STORE"),
)
# Errors whose messages do not say so, because commands that only read raise them, too.
_ALSO_OF_READERS = (
    errors.RequestNotFoundError, errors.AmbiguousIdError, errors.OwnRequestError, errors.ConfigError,
    errors.RunNotFoundError,
)  # fmt: skip


def report(fault: errors.SaysoError) -> int:
    """Print an error to stderr, with ids as `ls` shows them and what to do next; return the exit code."""
    text = str(fault)
    context = click.get_current_context(silent=True)
    cli = None if context is None else context.find_object(CliContext)
    if isinstance(fault, errors.RequestNotFoundError):
        words = "" if cli is None else _similar_id(cli, fault.request_id)
        if cli is not None and not words:
            words = f"this is {escape(cli.store.public_url)}; if the program uses another store, add --store ADDRESS"
    else:
        words = next((hint for kind, hint in _HINTS if isinstance(fault, kind)), "")
    # The suggested command must use the same store.
    sayso = "sayso" if cli is None or cli.address is None else f"sayso --store {escape(shlex.quote(cli.address))}"
    role = next(iter(getattr(fault, "roles", ())), "")
    hint = words.format(sayso=sayso, id=short(getattr(fault, "request_id", "")), role=escape(shlex.quote(role)))
    # These are wordings of pydantic and of the JSON Schema validator.
    if isinstance(fault, errors.InvalidAnswerError) and any(one in text for one in ("valid list", 'type "array"')):
        hint += """; a list is written as JSON, '["a", "b"]'"""
    undecided = "nothing was decided" if isinstance(fault, _ALSO_OF_READERS) and _is_decision_command(context) else ""
    advice = "; ".join(filter(None, [undecided, hint]))
    if not isinstance(fault, errors.AmbiguousIdError):  # its ids are ambiguous when shortened
        text = in_short(text)
    echo_err(f"error: {escape(text)}", *([advice] if advice else []))
    return exit_code(fault)


def _is_decision_command(context: click.Context | None) -> bool:
    """Return whether this command decides; such commands take roles."""
    if context is None:
        return False
    command: click.Command | None = context.command
    if isinstance(command, click.Group):
        command = command.get_command(context, context.invoked_subcommand or "")
    return command is not None and command.name != "serve" and any(one.name == "as_roles" for one in command.params)


def _similar_id(cli: CliContext, request_id: str) -> str:
    try:
        known = [short(request.id) for request in cli.reader.list(limit=200).requests]
    except errors.SaysoError:
        return ""  # the original error is enough
    wanted = request_id if request_id.startswith("rq_") else f"rq_{request_id}"
    return did_you_mean(short(wanted), known)


def did_you_mean(word: str, known: list[str]) -> str:
    """Suggest the most similar known word as a question; empty if none is similar."""
    found = get_close_matches(word, known, n=1, cutoff=0.7)
    return f"did you mean {found[0]}?" if found else ""


# -- options -------------------------------------------------------------------------------------------------------


def _shared(*names: str, selects: bool = False, **settings: Any) -> Callable[[F], F]:
    """Return an option whose value is stored in the command's context, or in its filters if it selects requests."""

    def keep(ctx: click.Context, param: click.Parameter, value: Any) -> None:
        if not selects:
            setattr(ctx.obj, str(param.name), value)
        elif value not in {None, False}:
            ctx.obj.filters[param.name] = value

    return click.option(*names, **settings, expose_value=False, callback=keep)


class Number(click.IntRange):
    """An integer between inclusive bounds."""

    name = "whole number"


def as_span(value: str) -> timedelta:
    """Parse the value of an option that takes a duration: `90s`, `24h`, `7d`."""
    try:
        return duration.parse(value)
    except errors.ConfigError as error:
        raise click.BadParameter(str(error)) from error


def as_date(value: str) -> datetime:
    """Parse the value of an option that takes a day, a time (by default in UTC), or a duration before now (`90d`)."""
    try:
        try:
            found = datetime.fromisoformat(value)
        except ValueError:
            return clock.now() - duration.parse(value)
        return found.replace(tzinfo=found.tzinfo or UTC).astimezone(UTC)
    except (OverflowError, errors.ConfigError) as error:
        raise click.BadParameter(f"{value!r} is not a date, a time or a duration, such as 2026-01-31 or 90d") from error


as_option = _shared(
    "--as", "--by", "as_name", metavar="NAME", help="Your name; by default SAYSO_REVIEWER or user@host."
)
_role_option = _shared("--role", "as_roles", multiple=True, metavar="ROLE", help="A role that you have; repeatable.")
json_option = _shared("--json", "as_json", is_flag=True, help="Print JSON.")
output_option = click.option(
    "-o", "--output", metavar="FILE", type=click.Path(path_type=Path), help="Write to this file instead of stdout."
)


def reviewer_options(command: F) -> F:
    """Add `--as` and `--role`, which `CliContext.reviewer` uses."""
    return as_option(_role_option(command))


def decision(*params: Callable[[Any], Any], group: click.Group | None = None, name: str | None = None) -> Any:
    """Return a decorator that makes a command with these parameters, `--json`, and the reviewer's options."""
    make = click.command if group is None else group.command

    def command(function: Callable[..., int]) -> click.Command:
        found: Any = click.pass_obj(function)
        for param in reversed([*params, reviewer_options, json_option]):
            found = param(found)
        return make(name)(found)

    return command


def message_option(text: str, *, required: bool = False) -> Callable[[F], F]:
    """Add the option `-m` with this help text; its parameter is `message`."""
    return click.option("-m", "--message", "--comment", "message", metavar="TEXT", required=required, help=text)


_FILTERS: tuple[tuple[Sequence[str], dict[str, Any]], ...] = (
    (["--run"], {"metavar": "ID", "help": "Only in this run."}),
    (["--tool"], {"metavar": "NAME", "help": "Only calls of this function, by name or module:name."}),
    (["--risk"], {"metavar": "WORD", "help": "Only requests with this risk."}),
    (["--agent"], {"metavar": "NAME", "help": "Only requests of this program, by name or issuer:name."}),
    (["--kind"], {"type": click.Choice(["call", "question"]), "help": "Only calls, or only questions."}),
    (
        ["--text", "--search", "text"],
        {"metavar": "TEXT", "help": "Only with these words in id, run, function, arguments, prompt or question."},
    ),
    (["--older-than"], {"metavar": "SPAN", "type": as_span, "help": "Only requests at least this old: 90s, 1h, 7d."}),
    (["--claimed-by"], {"metavar": "NAME", "help": "Only requests that this reviewer has claimed."}),
    (["--mine"], {"is_flag": True, "help": "Only requests that you have claimed."}),
)


def filter_options(command: F) -> F:
    """Add the options with which `ls`, `approve` and `reject` select requests; see `CliContext.filters`."""
    for names, settings in reversed(_FILTERS):
        command = _shared(*names, selects=True, **settings)(command)
    return command
