"""`learn`: exports decisions as samples, pairs or a table for other programs, and reports on them.

Invariant: it changes no gate; a rule is only printed, and a person may paste it into the policy file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields, is_dataclass
from datetime import datetime, timedelta
from functools import partial
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from sayso import clock
from sayso.cli import context
from sayso.cli.context import CliContext, as_date, echo_err, json_option, paint, plural
from sayso.errors import ConfigError
from sayso.learning import Share
from sayso.model.canonical.json_tree import dumps
from sayso.model.duration import text as span_text
from sayso.model.rendering import quote_if_needed
from sayso.model.reviewer import Identity, name_of
from sayso.model.text import csv_row, escape, storable
from sayso.view.summary import short

if TYPE_CHECKING:
    from sayso.learning import Report


_FORMATS = ("jsonl", "csv", "parquet")
_BATCH = 5_000  # records for each write to Parquet
_DAYS_REPORTED = 90
_ROOM = 100
_NAMED = 5


@click.group()
def learn() -> None:
    """Export decisions, or report patterns in them."""


@learn.command(short_help="Export all decisions: samples, pairs or a table.")
@click.option("--since", metavar="DATE", type=as_date, help="Only requests made since this date: 2026-01-31, or 90d.")
@click.option("--until", metavar="DATE", type=as_date, help="Only requests made before this date.")
@click.option("--tool", metavar="NAME", help="Only calls of this function.")
@click.option("--format", "form", type=click.Choice(_FORMATS), default="jsonl", show_default=True, help="The format.")
@click.option(
    "--pairs", "as_pairs", is_flag=True, help="Write pairs: the proposed arguments, and what the reviewer approved."
)
@click.option(
    "--table", "as_table", is_flag=True, help="Write one flat row for each decision; always so for csv and parquet."
)
@context.output_option
@click.pass_obj
def export(
    cli: CliContext, since: datetime | None, until: datetime | None, tool: str | None, form: str, as_pairs: bool,
    as_table: bool, output: Path | None,
) -> int:  # fmt: skip
    """Export all decisions as learning samples of the Confirm protocol (jsonl), as pairs, or as rows of a table."""
    from sayso.learning import COLUMNS, PAIR_COLUMNS, pairs, rows, samples

    if as_pairs and as_table:
        raise click.UsageError("give --pairs or --table, not both; nothing was written")
    columns = PAIR_COLUMNS if as_pairs else COLUMNS
    unread: list[str] = []
    read = pairs if as_pairs else rows if as_table or form != "jsonl" else partial(samples, unread=unread)
    found = read(cli.store, since=since, until=until, tool=tool)
    if form == "parquet":
        return _as_parquet(found, columns, output)
    if form == "jsonl":
        lines: Iterable[str] = (dumps(record) + "\n" for record in found)
    else:
        lines = _csv_lines(found, columns)
    context.write_lines(lines, output, "record", headers=form == "csv")
    if unread:
        named = ", ".join(map(short, unread[:_NAMED]))
        echo_err(f"{plural(len(unread), 'request')} left out, because no sample can represent the content: {named}")
    return 0


def _csv_lines(records: Iterable[dict[str, Any]], columns: Sequence[str]) -> Iterator[str]:
    yield csv_row(columns)
    yield from (csv_row([record[name] for name in columns]) for record in records)


def _as_parquet(records: Iterable[dict[str, Any]], columns: Sequence[str], output: Path | None) -> int:
    if output is None:
        raise click.UsageError("--format parquet cannot be printed; add -o FILE")
    try:
        arrow: Any = import_module("pyarrow")
        parquet: Any = import_module("pyarrow.parquet")
    except ImportError as error:
        raise ConfigError("--format parquet needs `pip install pyarrow`; nothing was written") from error
    types = {"seconds": arrow.float64(), "votes": arrow.int64(), "is_edited": arrow.bool_()}
    schema = arrow.schema([(name, types.get(name, arrow.string())) for name in columns])
    pending, count = iter(records), 0
    with context.file_to_write(output) as file, parquet.ParquetWriter(cast("Any", file).buffer, schema) as writer:
        while batch := [storable(record) for record in islice(pending, _BATCH)]:
            writer.write_table(arrow.Table.from_pylist(batch, schema=schema))
            count += len(batch)
    echo_err(f"{plural(count, 'record')} written to {escape(str(output))}")
    return 0


@learn.command(short_help="Report patterns in decisions.")
@click.option("--since", metavar="DATE", type=as_date, help="Only requests made since this date.  [default: 90d]")
@click.option("--tool", metavar="NAME", help="Only calls of this function.")
@json_option
@click.pass_obj
def report(cli: CliContext, since: datetime | None, tool: str | None) -> int:
    """Report what people always approve, what they change, why they reject, and who decides too fast.

    Proposed rules are printed as text for the policy file, and tested on past calls; no gate changes.
    """
    from sayso.learning import report as reported

    begin = clock.now() - timedelta(days=_DAYS_REPORTED) if since is None else since
    found = reported(cli.store, since=begin, tool=tool)
    return cli.answer({"since": clock.written(begin), **_to_json(found)}, [*_patterns(found, begin), *_habits(found)])


def _patterns(found: Report, begin: datetime) -> Iterator[str]:
    yield f"{plural(found.decisions, 'decision')} about requests made since {begin:%Y-%m-%d %H:%M}Z"
    if found.is_cut:
        yield "there are more; only the newest requests were read"
    yield from _heading("Always approved as proposed", bool(found.candidates))
    for one in found.candidates:
        risk = f", risk {quote_if_needed(one.risk)}" if one.risk else ""
        people = plural(one.reviewers, "reviewer")
        yield f"  {quote_if_needed(one.tool)}{risk}: {one.approved}, by {people}, half within {_span(one.median)}"
        if one.is_hasty:
            warning = "no rule is proposed: half of these decisions took less than 3 s, so they prove little"
            yield paint(f"    {warning}", "yellow")
        if one.went_wrong:
            yield paint(f"    {one.went_wrong:,} of these calls failed or ended unknown", "yellow")
        yield from (f"    {quote_if_needed(name)}: {escape(values)}" for name, values in one.fields.items())
    yield from _heading("Rules to consider, for the policy file", bool(found.proposals))
    if found.not_proposed is not None:
        yield f"  {escape(found.not_proposed)}"
    for one in found.proposals:
        yield from (f"  {escape(line)}" for line in one.toml.splitlines())


def _habits(found: Report) -> Iterator[str]:
    yield from _heading("Changed before approving", bool(found.edits))
    for one in found.edits:
        directions = [f"{count:,} {way}" for count, way in ((one.lowered, "lowered"), (one.raised, "raised")) if count]
        more = f": {', '.join(directions)}" if directions else ""
        yield f"  {quote_if_needed(one.tool)} {quote_if_needed(one.name)}: {one.changed}{more}"
    yield from _heading("Time to decide, by reviewer and risk", bool(found.stamps))
    for one in found.stamps:
        risk = f"risk {quote_if_needed(one.risk)}" if one.risk else "no risk"
        yield (
            f"  {name_of(one.reviewer)}, {risk}: half within {_span(one.median)}; under 3 s {one.hasty};"
            f" approved {one.approved.part:,}"
        )
        if one.is_warning:
            yield paint("    WARNING: half of these took less than 3 s, too short to read what would run", "red")
    yield from _heading("Reasons for rejecting or sending back", bool(found.reasons))
    for one in found.reasons:
        shown = escape(one.words)
        words = f'"{shown if len(shown) <= _ROOM else shown[:_ROOM] + "…"}"' if one.words else "no reason given"
        yield f"  {one.count:,} x {words} ({', '.join(map(quote_if_needed, one.tools[:3]))})"
    if found.more_reasons:
        yield f"  and {plural(found.more_reasons, 'further reason')}"


def _heading(title: str, has_rows: bool) -> Iterator[str]:
    yield ""
    yield paint(title, "cyan")
    if not has_rows:
        yield "  nothing to report: too few decisions, or none of this kind"


def _span(span: timedelta) -> str:
    return span_text(timedelta(seconds=round(span.total_seconds())))


def _to_json(content: Any) -> Any:
    match content:
        case timedelta():
            return content.total_seconds()
        case Share():
            return {"part": content.part, "whole": content.whole, "low": round(content.low, 4)}
        case datetime():
            return clock.written(content)
        case Identity():
            return content.qualified
        case tuple():
            return [_to_json(held) for held in cast("tuple[Any, ...]", content)]
        case _ if is_dataclass(content):
            return {held.name: _to_json(getattr(content, held.name)) for held in fields(content)}
        case _:
            return content
