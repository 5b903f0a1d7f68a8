"""The report of what decisions teach: what people always approve, what they change, why they refuse, who hardly looks.

Decisions are counted while they are read, and no value that people may not see is kept. Every share says how sure one
can be of it, and few cases say nothing. A rule is proposed as text; no gate asks less because of it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import islice
from statistics import median_low

from sayso.errors import ConfigError
from sayso.learning.data import (
    HASTE,
    changed,
    decided,
    decision_of,
    decisions_by_person,
    proposed_and_approved,
    reason_of,
    span_of,
)
from sayso.learning.proposals import FEWEST, WRONG, Case, Proposal, Share, Values, case_of, propose
from sayso.model.grant import number_of
from sayso.model.request import Decision, Request
from sayso.model.reviewer import Identity
from sayso.mplp.confirm import round_facts
from sayso.stores.base import Store

MOST = 100_000
_FEWEST_EDITS = 3
_REASONS_SHOWN, _REASON_ROOM, _MOST_REASONS = 20, 500, 10_000
_MOST_CASES = 1_000  # of each function, the newest, from which rules are drawn


@dataclass
class _Tool:
    """The decisions about calls of one function; `is_gate` is false where some came from a plan, not from a gate."""

    is_gate: bool = True
    decided: int = 0
    approved: int = 0
    as_proposed: int = 0
    went_wrong: int = 0
    reviewers: set[str] = field(default_factory=set[str])
    risks: set[str] = field(default_factory=set[str])
    spans: list[timedelta] = field(default_factory=list[timedelta])
    arguments: dict[str, Values] = field(default_factory=dict[str, Values])
    changed: Counter[str] = field(default_factory=Counter[str])
    lowered: Counter[str] = field(default_factory=Counter[str])
    raised: Counter[str] = field(default_factory=Counter[str])
    cases: list[Case] = field(default_factory=list[Case], repr=False)

    def add(self, request: Request, decision: Decision) -> None:
        self.is_gate = self.is_gate and round_facts(request) is None
        self.decided += 1
        people = {each.by.folded for each in decisions_by_person(request)}
        self.reviewers |= people
        if len(self.cases) < _MOST_CASES:
            self.cases.append(case_of(request, people))
        self.risks |= {request.risk} if request.risk is not None else set()
        self.spans.append(span_of(request, decision))
        before, after = proposed_and_approved(request)
        for name, value in before.items():
            self.arguments.setdefault(name, Values()).add(value)
        if decision.verb != "approve":
            return
        self.approved += 1
        self.as_proposed += request.edited is None
        self.went_wrong += request.state in WRONG
        for name in changed(before, after):
            self.changed[name] += 1
            old, new = number_of(before.get(name)), number_of(after.get(name))
            if old is not None and new is not None:
                self.lowered[name] += new < old
                self.raised[name] += new > old


@dataclass
class _Reviewer:
    """The decisions and votes of one reviewer about requests of one risk."""

    who: Identity
    approved: int = 0
    spans: list[timedelta] = field(default_factory=list[timedelta])

    def stamp(self, risk: str) -> Stamp:
        half, count = median_low(self.spans), len(self.spans)
        hasty = sum(span < HASTE for span in self.spans)
        return Stamp(self.who, risk, half, Share(hasty, count), Share(self.approved, count), half < HASTE)


class _Counts:
    """Everything that is counted; it keeps no value that people may not see."""

    def __init__(self) -> None:
        self.decisions = 0
        self.tools: dict[str, _Tool] = {}
        self.reviewers: dict[tuple[str, str], _Reviewer] = {}  # by name and risk
        self.reasons: Counter[str] = Counter()  # by what two reasons have in common
        self.words: dict[str, str] = {}  # each reason as it was given first
        self.refused: defaultdict[str, Counter[str]] = defaultdict(Counter)  # functions by reason

    def add(self, request: Request) -> None:
        decision = decision_of(request)
        self.decisions += 1
        for each in decisions_by_person(request):
            reviewer = self.reviewers.setdefault((each.by.folded, request.risk or ""), _Reviewer(each.by))
            reviewer.approved += each.verb in {"approve", "answer"}
            reviewer.spans.append(span_of(request, each))
        name = request.call.tool if request.kind == "call" else "questions"
        if request.kind == "call":
            self.tools.setdefault(name, _Tool()).add(request, decision)
        if decision.verb in {"reject", "feedback", "cancel"}:
            words = reason_of(request)
            key = _normalized(words)
            if key in self.words or len(self.words) < _MOST_REASONS:
                self.words.setdefault(key, words)
                self.reasons[key] += 1
                self.refused[key][name] += 1


def _normalized(words: str) -> str:
    """Return what two reasons have in common that say the same of two cases: numbers and ids do not count."""
    parts = words[:_REASON_ROOM].casefold().strip(" .!").split()
    return " ".join("#" if any(letter.isdigit() for letter in part) else part for part in parts)


# -- the report ------------------------------------------------------------------------------------------------------


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
        fields: In words, what the values of each argument were.
    """

    tool: str
    risk: str
    approved: Share
    reviewers: int
    median: timedelta
    is_hasty: bool
    went_wrong: int
    fields: Mapping[str, str]


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
        proposals: Rules that these decisions suggest, each replayed on past calls; those that fit best come first.
        not_proposed: Why no rule could be checked, where that is so.
    """

    decisions: int
    is_cut: bool
    candidates: tuple[Candidate, ...]
    edits: tuple[Edit, ...]
    stamps: tuple[Stamp, ...]
    reasons: tuple[Reason, ...]
    more_reasons: int
    proposals: tuple[Proposal, ...] = ()
    not_proposed: str | None = None


def report(
    store: Store, *, since: datetime | None = None, until: datetime | None = None, tool: str | None = None,
    most: int = MOST,
) -> Report:  # fmt: skip
    """Return what the decisions about calls and questions teach.

    Args:
        store, since, until, tool: As for `decided`.
        most: At most so many decisions are read, those of the newest requests; and for the replay of proposed rules,
            which does not end at `since`, at most so many requests.
    """
    counts, requests = _Counts(), decided(store, since=since, until=until, tool=tool)
    for request in islice(requests, most):
        counts.add(request)
    candidates = [
        _candidate(name, one)
        for name, one in counts.tools.items()
        if one.is_gate and one.decided >= FEWEST and one.as_proposed == one.decided
    ]
    edits = [
        Edit(name, argument, Share(count, one.approved), one.lowered[argument], one.raised[argument])
        for name, one in counts.tools.items()
        for argument, count in one.changed.items()
        if count >= _FEWEST_EDITS
    ]
    stamps = [one.stamp(risk) for (_, risk), one in counts.reviewers.items() if len(one.spans) >= FEWEST]
    reasons = [
        Reason(counts.words[key], count, tuple(name for name, _ in _most_first(counts.refused[key])))
        for key, count in _most_first(counts.reasons)
    ]
    gates = {name: one.cases for name, one in counts.tools.items() if one.is_gate}
    proposals, not_proposed = tuple[Proposal, ...](), None
    try:
        proposals = propose(store, gates, most=most)
    except ConfigError as error:
        not_proposed = str(error)
    return Report(
        decisions=counts.decisions,
        is_cut=next(requests, None) is not None,
        candidates=tuple(sorted(candidates, key=lambda one: (-one.approved.low, one.tool))),
        edits=tuple(sorted(edits, key=lambda one: (-one.changed.low, one.tool, one.name))),
        stamps=tuple(sorted(stamps, key=lambda one: (not one.is_warning, -one.hasty.part))),
        reasons=tuple(reasons[:_REASONS_SHOWN]),
        more_reasons=max(0, len(reasons) - _REASONS_SHOWN),
        proposals=proposals,
        not_proposed=not_proposed,
    )


def _candidate(name: str, tool: _Tool) -> Candidate:
    approved, half = Share(tool.as_proposed, tool.decided), median_low(tool.spans)
    fields = {argument: known.described() for argument, known in tool.arguments.items()}
    return Candidate(
        name, ", ".join(sorted(tool.risks)), approved, len(tool.reviewers), half, half < HASTE, tool.went_wrong, fields
    )  # fmt: skip


def _most_first(counted: Counter[str]) -> list[tuple[str, int]]:
    return sorted(counted.items(), key=lambda one: (-one[1], one[0]))
