"""`purge`: let go of what requests and runs were about that ended before a day.

Invariant: it says how much goes before it goes, and nothing goes without a yes.
"""

from __future__ import annotations

import sys
from datetime import datetime

import click

from sayso import clock
from sayso.audit.purge import Purged
from sayso.audit.purge import purge as let_go
from sayso.cli.desk import Desk, as_json, reviewer
from sayso.cli.evidence import counted, instant
from sayso.cli.say import WRONG, complain, document, out

__all__ = ["purge"]

_KEPT = "the journal keeps its rows, with names, times, fingerprints and people's words"


@click.command()
@click.option(
    "--before", required=True, metavar="DATE", callback=instant, help="What ended before: 2026-01-31, or 90d."
)
@click.option("--dry-run", is_flag=True, help="Only say how much that is.")
@click.option("--yes", "is_sure", is_flag=True, help="Do not ask.")
@click.option("--as", "name", metavar="NAME", help="Who you are; else SAYSO_REVIEWER, else user@host.")
@as_json
@click.pass_obj
def purge(desk: Desk, before: datetime, dry_run: bool, is_sure: bool, name: str | None, as_json: bool) -> int:
    """Remove arguments, results and words of requests that ended before DATE, for good; the journal still verifies."""
    if before > clock.now():
        raise click.BadParameter(f"{before:%Y-%m-%d} lies in the future; nothing was removed", param_hint="--before")
    who, store = reviewer(name, ()), desk.store
    if not dry_run and not is_sure:
        store.sweep()  # so that what ran out by then is counted before anybody is asked
        would = let_go(store, before=before, by=who.identity, channel="cli", is_dry=True)
        if not _is_sure(would, before):
            complain("nothing was removed")
            return WRONG
    done = let_go(store, before=before, by=who.identity, channel="cli", is_dry=dry_run)
    if as_json:
        document({**done._asdict(), "before": clock.written(before), "dry_run": dry_run})
    else:
        out(*_rows(done, before, is_dry=dry_run))
    return 0 if done.is_scrubbed else WRONG


def _is_sure(would: Purged, before: datetime) -> bool:
    if not sys.stdin.isatty():
        raise click.UsageError("say --yes, or --dry-run to see how much would go; nothing was removed")
    if not would.requests and not would.runs:
        return True
    what = f"remove what {counted(would.requests, 'request')} and {counted(would.runs, 'run')} were about"
    try:
        return click.confirm(f"{what}, ended before {before:%Y-%m-%d %H:%M}Z, for good?", err=True)
    except click.Abort:  # Ctrl-C, or no more input
        complain("")
        return False


def _rows(done: Purged, before: datetime, *, is_dry: bool) -> list[str]:
    what = f"{counted(done.requests, 'request')} and {counted(done.runs, 'run')} that ended before"
    rows = [f"{'would purge' if is_dry else 'purged'} {what} {before:%Y-%m-%d %H:%M}Z; {_KEPT}"]
    if done.words:
        keep = "keeps" if done.words == 1 else "keep"
        rows.append(f"{counted(done.words, 'row')} of the journal {keep} people's words about them")
    if done.live:
        rows.append(f"{counted(done.live, 'request')} left alone: something can still happen")
    if done.needed:
        rows.append(f"{counted(done.needed, 'request')} left alone: of runs that have not ended")
    if not done.is_scrubbed:
        complain("others were reading, and the files may still hold what was removed: say the same again")
    return rows
