"""What decisions teach: what people always approve, what they change, why they refuse, and who hardly looks.

It counts decisions of people only, says of every share how sure one can be of it (`sayso.learning.share`), and says
nothing of few cases. What is known of each function is gathered in `sayso.learning.gathered`. The invariant: it reads
and never writes; a rule is a text, and no gate asks less because of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import islice
from statistics import median_low

from sayso.insight import HASTE
from sayso.learning.gathered import Gathered, Tool, Watch
from sayso.learning.lesson import decided
from sayso.learning.rule import rule_text
from sayso.learning.share import Share
from sayso.model.reviewer import Identity
from sayso.stores.base import Store

__all__ = ["FEWEST", "MOST", "Candidate", "Edit", "Reason", "Report", "Stamp", "report"]

MOST = 100_000
FEWEST = 20
"""So many decisions of a function, or of a reviewer, say something."""

_FEWEST_EDITS = 3
_MOST_REASONS = 20


@dataclass(frozen=True)
class Candidate:
    """A function whose calls people always approved as they were.

    Attributes:
        tool: The function, `module:function`.
        risk: The risk words that its gate gave it.
        approved: How many of its decisions were approvals without changes: all of them.
        reviewers: How many people decided.
        median: Within which time half of them decided.
        is_hasty: Half of the decisions took less than `HASTE`: that says more of the reviewers than of the calls.
        went_wrong: How many of these calls failed, or ended unknown.
        fields: Of each argument what it was, in words.
        rule: A rule to consider, as Python; None where it could not tell these calls from others, and where the
            decisions were hasty.
    """

    tool: str
    risk: str
    approved: Share
    reviewers: int
    median: timedelta
    is_hasty: bool
    went_wrong: int
    fields: Mapping[str, str]
    rule: str | None = field(repr=False)


@dataclass(frozen=True)
class Edit:
    """An argument that people change before they approve.

    Attributes:
        tool: The function.
        name: The argument.
        changed: In how many of its approvals.
        lowered, raised: How many of these made a number smaller or greater.
    """

    tool: str
    name: str
    changed: Share
    lowered: int
    raised: int


@dataclass(frozen=True)
class Stamp:
    """How fast one reviewer decides calls of one risk.

    Attributes:
        reviewer: Who.
        risk: The gate's risk word; empty for none.
        median: Within which time half of the decisions and votes were given.
        hasty: How many took less than `HASTE`.
        approved: How many were approvals.
        is_warning: Half of enough decisions were hasty: nobody can have read what would run.
    """

    reviewer: Identity
    risk: str
    median: timedelta
    hasty: Share
    approved: Share
    is_warning: bool


@dataclass(frozen=True)
class Reason:
    """A reason for which people refused.

    Attributes:
        words: As it was said first; empty where nothing was said.
        count: How often, but for case, blanks, numbers and ids.
        tools: The functions that were refused, the most refused first.
    """

    words: str
    count: int
    tools: tuple[str, ...]


@dataclass(frozen=True)
class Report:
    """What was learned.

    Attributes:
        decisions: How many decisions were read.
        is_cut: There were more, and only those of the newest requests were read.
        candidates: Functions whose calls were always approved as they were, the surest first.
        edits: Arguments that are changed, the most changed first.
        stamps: Reviewers by risk, warnings first.
        reasons: Why people refused, the most frequent first.
        more_reasons: How many further reasons there are.
    """

    decisions: int
    is_cut: bool
    candidates: tuple[Candidate, ...]
    edits: tuple[Edit, ...]
    stamps: tuple[Stamp, ...]
    reasons: tuple[Reason, ...]
    more_reasons: int


def report(
    store: Store, *, since: datetime | None = None, until: datetime | None = None, tool: str | None = None,
    most: int = MOST,
) -> Report:  # fmt: skip
    """Return what the decisions about calls and questions teach.

    Args:
        store: Where the requests are.
        since: Only what was asked then or later.
        until: Only what was asked before.
        tool: Only of this function, by its name or `module:name`.
        most: At most so many decisions are read, those of the newest requests.
    """
    found = Gathered()
    requests = decided(store, since=since, until=until, tool=tool)
    for request in islice(requests, most):
        found.add(request)
    reasons = _reasons(found)
    return Report(
        decisions=found.decisions,
        is_cut=next(requests, None) is not None,
        candidates=tuple(sorted(_candidates(found.tools), key=lambda one: (-one.approved.low, one.tool))),
        edits=tuple(sorted(_edits(found.tools), key=lambda one: (-one.changed.low, one.tool, one.name))),
        stamps=tuple(sorted(_stamps(found.watches), key=lambda one: (not one.is_warning, -one.hasty.part))),
        reasons=tuple(reasons[:_MOST_REASONS]),
        more_reasons=max(0, len(reasons) - _MOST_REASONS),
    )


def _candidates(tools: Mapping[str, Tool]) -> Iterator[Candidate]:
    for name, tool in tools.items():
        if tool.is_gate and tool.decided >= FEWEST and tool.as_proposed == tool.decided:
            yield _candidate(name, tool)


def _candidate(name: str, tool: Tool) -> Candidate:
    approved, half = Share(tool.as_proposed, tool.decided), _median(tool.spans)
    people = f"{len(tool.reviewers)} {'person' if len(tool.reviewers) == 1 else 'people'}"
    span = f"{tool.first:%Y-%m-%d %H:%M}Z to {tool.last:%Y-%m-%d %H:%M}Z"
    evidence = f"{approved} were approved unchanged by {people}, {span}."
    return Candidate(
        tool=name,
        risk=", ".join(sorted(tool.risks)),
        approved=approved,
        reviewers=len(tool.reviewers),
        median=half,
        is_hasty=half < HASTE,
        went_wrong=tool.went_wrong,
        fields={argument: held.said() for argument, held in tool.fields.items()},
        rule=None if half < HASTE else rule_text(name.rpartition(":")[2], tool.fields, tool.decided, evidence),
    )


def _edits(tools: Mapping[str, Tool]) -> Iterator[Edit]:
    for name, tool in tools.items():
        for argument, count in tool.changed.items():
            if count >= _FEWEST_EDITS:
                share = Share(count, tool.approved)
                yield Edit(name, argument, share, tool.lowered[argument], tool.raised[argument])


def _stamps(watches: Mapping[tuple[str, str], Watch]) -> Iterator[Stamp]:
    for (_, risk), watch in watches.items():
        if len(watch.spans) >= FEWEST:
            hasty = sum(span < HASTE for span in watch.spans)
            half, count = _median(watch.spans), len(watch.spans)
            yield Stamp(watch.reviewer, risk, half, Share(hasty, count), Share(watch.approved, count), half < HASTE)


def _reasons(found: Gathered) -> list[Reason]:
    return [
        Reason(found.words[key], count, tuple(tool for tool, _ in _most(found.refused_tools[key])))
        for key, count in sorted(found.reasons.items(), key=lambda one: (-one[1], one[0]))
    ]


def _most(counted: Counter[str]) -> list[tuple[str, int]]:
    return sorted(counted.items(), key=lambda one: (-one[1], one[0]))


def _median(spans: Sequence[timedelta]) -> timedelta:
    return median_low(spans)
