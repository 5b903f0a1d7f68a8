"""A share of what was counted, and how sure one can be of it.

The invariant: few cases never look like certainty.

What is counted of decisions while they are read, one after another, without keeping them.

The invariant: nothing that people may not see is kept, and what is kept does not grow with the number of calls beyond
their times.

What decisions teach: what people always approve, what they change, why they refuse, and who hardly looks.

It counts decisions of people only, says of every share how sure one can be of it (`sayso.learning.findings`), and says
nothing of few cases. What is known of each function is gathered in `sayso.learning.findings`. The invariant: it reads
and never writes; a rule is a text, and no gate asks less because of it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import islice
from math import sqrt
from statistics import median_low
from typing import NamedTuple

from sayso.insight import HASTE
from sayso.learning.dataset import decided, decision_of, proposed_and_approved, reason_of, seconds_of
from sayso.learning.rules import Field, changed, is_number, rule_text
from sayso.model.request import Decision, Request, State
from sayso.model.reviewer import Identity
from sayso.mplp.view import facts_of
from sayso.stores.base import Store

__all__ = [
    "FEWEST",
    "MOST",
    "Candidate",
    "Edit",
    "Gathered",
    "Reason",
    "Report",
    "Share",
    "Stamp",
    "Tool",
    "Watch",
    "report",
]

_Z = 1.959963984540054  # of the normal distribution, for 95 %


class Share(NamedTuple):
    """So many of so many.

    Attributes:
        part: How many.
        whole: Of how many.
    """

    part: int
    whole: int

    @property
    def low(self) -> float:
        """The lower bound of Wilson's score interval at 95 %: what the share is at least, as far as the cases tell.

        It stays honest where the share is 0 or 1 and where cases are few (E. B. Wilson, 1927).
        """
        if self.whole == 0:
            return 0.0
        n, p, square = self.whole, self.part / self.whole, _Z * _Z
        centre = p + square / (2 * n)
        spread = _Z * sqrt(p * (1 - p) / n + square / (4 * n * n))
        return max(0.0, (centre - spread) / (1 + square / n))

    def __str__(self) -> str:
        return f"{self.part:,} of {self.whole:,} (at least {int(self.low * 100)} %)"


_WRONG = frozenset({State.FAILED, State.UNKNOWN})
_MOST_REASONS_KEPT, _ROOM = 10_000, 500


@dataclass
class Tool:
    """What was decided about calls of one function.

    Attributes:
        first, last: When the first and the last of them was asked.
        is_gate: Its calls come from a gate, which a rule could be given to; a submitted plan's do not.
        decided: How many were decided.
        approved: How many were approved.
        as_proposed: How many of these as they were proposed.
        went_wrong: How many of these failed, or ended unknown.
        reviewers: Who decided, or voted.
        risks: The risk words that its gate gave it.
        spans: How long each decision took.
        fields: What each argument was, as proposed.
        changed, lowered, raised: How often each argument was changed, and in which direction.
    """

    first: datetime
    last: datetime
    is_gate: bool = True
    decided: int = 0
    approved: int = 0
    as_proposed: int = 0
    went_wrong: int = 0
    reviewers: set[str] = field(default_factory=set[str])
    risks: set[str] = field(default_factory=set[str])
    spans: list[timedelta] = field(default_factory=list[timedelta])
    fields: dict[str, Field] = field(default_factory=dict[str, Field])
    changed: Counter[str] = field(default_factory=Counter[str])
    lowered: Counter[str] = field(default_factory=Counter[str])
    raised: Counter[str] = field(default_factory=Counter[str])

    def add(self, request: Request, decision: Decision) -> None:
        """Count one decided call."""
        self.first, self.last = min(self.first, request.created_at), max(self.last, request.created_at)
        self.is_gate = self.is_gate and facts_of(request) is None
        self.decided += 1
        self.reviewers |= {said.by.folded for said in _said(request)}
        self.risks |= {request.risk} if request.risk is not None else set()
        self.spans.append(timedelta(seconds=seconds_of(request, decision)))
        before, after = proposed_and_approved(request)
        for name, value in before.items():
            self.fields.setdefault(name, Field()).add(value)
        if decision.verb != "approve":
            return
        self.approved += 1
        self.as_proposed += request.edited is None
        self.went_wrong += request.state in _WRONG
        for name in changed(before, after):
            self.changed[name] += 1
            old, new = before.get(name), after.get(name)
            if is_number(old) and is_number(new):
                self.lowered[name] += new < old
                self.raised[name] += new > old


@dataclass
class Watch:
    """How one reviewer decided calls of one risk."""

    reviewer: Identity
    approved: int = 0
    spans: list[timedelta] = field(default_factory=list[timedelta])


@dataclass
class Gathered:
    """Everything that was counted.

    Attributes:
        decisions: How many requests.
        tools: By function.
        watches: By folded reviewer and risk word.
        reasons: How often each reason was given, by what `words` knows it by.
        words: Each reason as it was said.
        refused_tools: By reason, what was refused.
    """

    decisions: int = 0
    tools: dict[str, Tool] = field(default_factory=dict[str, Tool])
    watches: dict[tuple[str, str], Watch] = field(default_factory=dict[tuple[str, str], Watch])
    reasons: Counter[str] = field(default_factory=Counter[str])
    words: dict[str, str] = field(default_factory=dict[str, str])
    refused_tools: defaultdict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter[str]))

    def add(self, request: Request) -> None:
        """Count one request that was decided."""
        decision = decision_of(request)
        self.decisions += 1
        for said in _said(request):
            watch = self.watches.setdefault((said.by.folded, request.risk or ""), Watch(said.by))
            watch.approved += said.verb in {"approve", "answer"}
            watch.spans.append(timedelta(seconds=seconds_of(request, said)))
        if request.kind == "call":
            name = request.call.tool
            tool = self.tools.setdefault(name, Tool(request.created_at, request.created_at))
            tool.add(request, decision)
        if decision.verb in {"reject", "feedback", "cancel"}:
            self._refused(request)

    def _refused(self, request: Request) -> None:
        words = reason_of(request)
        key = _gist(words)
        if key not in self.words and len(self.words) >= _MOST_REASONS_KEPT:
            return
        self.words.setdefault(key, words)
        self.reasons[key] += 1
        self.refused_tools[key][request.call.tool if request.kind == "call" else "questions"] += 1


def _gist(words: str) -> str:
    """Return what two reasons have in common that say the same of two cases: numbers and ids do not count."""
    parts = words[:_ROOM].casefold().strip(" .!").split()
    return " ".join("#" if any(letter.isdigit() for letter in part) else part for part in parts)


def _said(request: Request) -> Iterable[Decision]:
    """Return what each person said of a request, votes included, each once."""
    said = {vote.by.folded: vote for vote in request.votes}
    decision = decision_of(request)
    said[decision.by.folded] = decision
    return said.values()


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
