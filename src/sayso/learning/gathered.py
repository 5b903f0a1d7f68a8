"""What is counted of decisions while they are read, one after another, without keeping them.

The invariant: nothing that people may not see is kept, and what is kept does not grow with the number of calls beyond
their times.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from sayso.learning.field import Field, changed, is_number
from sayso.learning.lesson import decision_of, proposed_and_approved, reason_of, seconds_of
from sayso.model.request import Decision, Request, State
from sayso.model.reviewer import Identity
from sayso.mplp.view import facts_of

__all__ = ["Gathered", "Tool", "Watch"]

_WRONG = frozenset({State.FAILED, State.UNKNOWN})
_MOST_REASONS, _ROOM = 10_000, 500


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
        if key not in self.words and len(self.words) >= _MOST_REASONS:
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
