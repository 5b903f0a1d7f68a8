"""The report on decisions: what people always approve, what they change, why they refuse, and who decides too fast.

Decisions are counted as they are read, and no masked value is kept. Every share has a confidence bound, and too few
cases give no finding. A rule is proposed as text; no gate changes because of it.
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
_MOST_CASES = 1_000  # per function: the newest, from which rules are derived


@dataclass
class _Tool:
    """The decisions on calls of one function; `is_gate` is False if some came from a plan and not from a gate."""

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
    """One reviewer's decisions and votes on requests of one risk."""

    who: Identity
    approved: int = 0
    spans: list[timedelta] = field(default_factory=list[timedelta])

    def stamp(self, risk: str) -> Stamp:
        half, count = median_low(self.spans), len(self.spans)
        hasty = sum(span < HASTE for span in self.spans)
        return Stamp(self.who, risk, half, Share(hasty, count), Share(self.approved, count), half < HASTE)


class _Counts:
    """All counters of a report; they keep no masked value."""

    def __init__(self) -> None:
        self.decisions = 0
        self.tools: dict[str, _Tool] = {}
        self.reviewers: dict[tuple[str, str], _Reviewer] = {}  # by name and risk
        self.reasons: Counter[str] = Counter()  # by normalized reason, see `_gist`
        self.words: dict[str, str] = {}  # by normalized reason: its first original wording
        self.refused: defaultdict[str, Counter[str]] = defaultdict(Counter)  # by normalized reason: functions

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
    """Normalize a reason, without numbers and ids, so that the same reason for two cases compares equal."""
    parts = words[:_REASON_ROOM].casefold().strip(" .!").split()
    return " ".join("#" if any(letter.isdigit() for letter in part) else part for part in parts)


# -- the report ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Candidate:
    """A function whose calls people always approved unchanged.

    Attributes:
        tool: The function, `module:function`.
        risk: The risk labels from its gate.
        approved: The share of its decisions that were approvals without changes, which is all of them.
        reviewers: The number of people who decided.
        median: The median time to a decision.
        is_hasty: Half of the decisions took less than `HASTE`, which says more about reviewers than about calls.
        went_wrong: The number of these calls that failed or have an unknown outcome.
        fields: A description of each argument's values.
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
        changed: The share of the function's approvals that changed it.
        lowered, raised: How many of these changes lowered or raised a number.
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
        reviewer: The reviewer's name.
        risk: The gate's risk label; empty for none.
        median: The median time to a decision or vote.
        hasty: The share that took less than `HASTE`.
        approved: The share of approvals.
        is_warning: There are enough decisions, and half of them were too fast to have read the call.
    """

    reviewer: Identity
    risk: str
    median: timedelta
    hasty: Share
    approved: Share
    is_warning: bool


@dataclass(frozen=True)
class Reason:
    """A reason that people gave for refusals.

    Attributes:
        words: Its first wording; empty for refusals without a reason.
        count: How often it was given, ignoring case, whitespace, numbers and ids.
        tools: The refused functions, most refused first.
    """

    words: str
    count: int
    tools: tuple[str, ...]


@dataclass(frozen=True)
class Report:
    """The findings of a report.

    Attributes:
        decisions: The number of decisions that were read.
        is_cut: There were more decisions, and only those on the newest requests were read.
        candidates: Functions whose calls were always approved unchanged, most certain first.
        edits: Arguments that people change, most often changed first.
        stamps: Reviewers by risk, warnings first.
        reasons: Reasons for refusals, most frequent first.
        more_reasons: The number of further reasons.
        proposals: Rules that these decisions suggest, each replayed on past calls; best fit first.
        not_proposed: Why no rule could be checked; None if rules were checked.
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
    """Report on the decisions about calls and questions.

    Args:
        store, since, until, tool: As for `decided`.
        most: The maximum number of decisions to read, newest requests first. It also limits the requests that the
            replay of proposed rules reads, which is not limited by `since`.
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
