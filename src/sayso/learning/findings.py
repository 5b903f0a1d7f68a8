"""The report of what decisions teach: what people always approve, what they change, why they refuse, who hardly looks.

Decisions are counted while they are read, and no value that people may not see is kept. Every share says how sure one
can be of it, and few cases say nothing. A rule is proposed as text; no gate asks less because of it.
"""

from __future__ import annotations

import keyword
import re
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import islice
from math import sqrt
from statistics import NormalDist, median_low
from typing import Any, NamedTuple, TypeGuard, cast

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
from sayso.model.canonical.decode import items_of, tag_in
from sayso.model.canonical.tags import MASK, dumps
from sayso.model.request import Decision, Request, State
from sayso.model.reviewer import Identity
from sayso.mplp.confirm import round_facts
from sayso.stores.base import Store

__all__ = ["FEWEST", "MOST", "Candidate", "Edit", "Reason", "Report", "Share", "Stamp", "report"]

MOST = 100_000
FEWEST = 20
"""So many decisions of a function, or of a reviewer, are enough to say something."""

_FEWEST_EDITS = 3
_REASONS_SHOWN = 20


Scalar = str | int | float | bool | None

_FEW, _LONG = 5, 120  # how many values are listed, and how long each may be
_MOST_VALUES, _MOST_REASONS = 1_000, 10_000
_WRONG = frozenset({State.FAILED, State.UNKNOWN})
_MASKED = dumps(MASK)
_REASON_ROOM = 500


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
        n, p, z = self.whole, self.part / self.whole, NormalDist().inv_cdf(0.975)
        centre = p + z * z / (2 * n)
        spread = z * sqrt(p * (1 - p) / n + z * z / (4 * n * n))
        return max(0.0, (centre - spread) / (1 + z * z / n))

    def __str__(self) -> str:
        return f"{self.part:,} of {self.whole:,} (at least {int(self.low * 100)} %)"


@dataclass
class _Argument:
    """The values of one argument, as canonical trees.

    Attributes:
        count: In how many calls it was given.
        values: The different values, by their JSON; at most a thousand.
        is_masked: Some value was masked; then nothing is said of it.
        low, high: The bounds, where all values are plain numbers.
    """

    count: int = 0
    values: dict[str, Any] = field(default_factory=dict[str, Any], repr=False)
    is_masked: bool = False
    low: float | None = None
    high: float | None = None
    _is_numeric: bool = True

    def add(self, value: Any) -> None:
        self.count += 1
        text = dumps(value)
        if self.is_masked or _MASKED in text:
            self.is_masked, self.values, self.low, self.high = True, {}, None, None
            return
        if len(self.values) < _MOST_VALUES:
            self.values.setdefault(text, value)
        self._is_numeric = self._is_numeric and _is_number(value)
        if self._is_numeric:
            self.low = value if self.low is None else min(self.low, value)
            self.high = value if self.high is None else max(self.high, value)
        else:
            self.low = self.high = None

    @property
    def few(self) -> list[Scalar] | None:
        """The values, where there are few and all are plain and short; else None."""
        found = list(self.values.values())
        is_plain = all(value is None or isinstance(value, str | int | float | bool) for value in found)
        is_long = any(isinstance(value, str) and len(value) > _LONG for value in found)
        return found if found and len(found) <= _FEW and is_plain and not is_long else None

    def described(self) -> str:
        """Return in words what the values were; in ASCII."""
        few, count = self.few, len(self.values)
        if self.is_masked:
            return "masked, and not compared"
        if count == 1:
            (text,) = self.values
            return f"always {text}" if few or len(text) <= _LONG else "always the same, which is long"
        if self.low is not None:
            return f"from {dumps(self.low)} to {dumps(self.high)}"
        if few is not None:
            return f"one of {', '.join(map(dumps, few))}"
        return f"{count:,}{'' if count < _MOST_VALUES else ' or more'} different values"


def _is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


@dataclass
class _Tool:
    """The decisions about calls of one function; `is_gate` is false where some came from a plan, not from a gate."""

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
    arguments: dict[str, _Argument] = field(default_factory=dict[str, _Argument])
    changed: Counter[str] = field(default_factory=Counter[str])
    lowered: Counter[str] = field(default_factory=Counter[str])
    raised: Counter[str] = field(default_factory=Counter[str])

    def add(self, request: Request, decision: Decision) -> None:
        self.first, self.last = min(self.first, request.created_at), max(self.last, request.created_at)
        self.is_gate = self.is_gate and round_facts(request) is None
        self.decided += 1
        self.reviewers |= {each.by.folded for each in decisions_by_person(request)}
        self.risks |= {request.risk} if request.risk is not None else set()
        self.spans.append(span_of(request, decision))
        before, after = proposed_and_approved(request)
        for name, value in before.items():
            self.arguments.setdefault(name, _Argument()).add(value)
        if decision.verb != "approve":
            return
        self.approved += 1
        self.as_proposed += request.edited is None
        self.went_wrong += request.state in _WRONG
        for name in changed(before, after):
            self.changed[name] += 1
            old, new = before.get(name), after.get(name)
            if _is_number(old) and _is_number(new):
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
            self.tools.setdefault(name, _Tool(request.created_at, request.created_at)).add(request, decision)
        if decision.verb in {"reject", "feedback", "cancel"}:
            words = reason_of(request)
            key = _gist(words)
            if key in self.words or len(self.words) < _MOST_REASONS:
                self.words.setdefault(key, words)
                self.reasons[key] += 1
                self.refused[key][name] += 1


def _gist(words: str) -> str:
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
        store, since, until, tool: As for `decided`.
        most: At most so many decisions are read, those of the newest requests.
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
    return Report(
        decisions=counts.decisions,
        is_cut=next(requests, None) is not None,
        candidates=tuple(sorted(candidates, key=lambda one: (-one.approved.low, one.tool))),
        edits=tuple(sorted(edits, key=lambda one: (-one.changed.low, one.tool, one.name))),
        stamps=tuple(sorted(stamps, key=lambda one: (not one.is_warning, -one.hasty.part))),
        reasons=tuple(reasons[:_REASONS_SHOWN]),
        more_reasons=max(0, len(reasons) - _REASONS_SHOWN),
    )


def _candidate(name: str, tool: _Tool) -> Candidate:
    approved, half = Share(tool.as_proposed, tool.decided), median_low(tool.spans)
    people = f"{len(tool.reviewers)} {'person' if len(tool.reviewers) == 1 else 'people'}"
    span = f"{tool.first:%Y-%m-%d %H:%M}Z to {tool.last:%Y-%m-%d %H:%M}Z"
    evidence = f"{approved} were approved unchanged by {people}, {span}."
    fields = {argument: known.described() for argument, known in tool.arguments.items()}
    rule = None if half < HASTE else _rule(name.rpartition(":")[2], tool.arguments, tool.decided, evidence)
    return Candidate(
        name, ", ".join(sorted(tool.risks)), approved, len(tool.reviewers), half, half < HASTE, tool.went_wrong, fields,
        rule,
    )  # fmt: skip


def _most_first(counted: Counter[str]) -> list[tuple[str, int]]:
    return sorted(counted.items(), key=lambda one: (-one[1], one[0]))


# -- the rule that is proposed ---------------------------------------------------------------------------------------

_RESERVED = frozenset({"sayso", "__debug__"})
_LONGEST_LITERAL = 500


def _rule(name: str, arguments: Mapping[str, _Argument], calls: int, evidence: str) -> str | None:
    """Return a rule for `when=`; None where it would let through what is unlike these calls.

    `calls` says in how many calls the arguments were seen, and `evidence`, a line of ours, what speaks for the rule.
    """
    tests: dict[str, str] = {}
    for argument, known in arguments.items():
        if known.count < calls:
            continue  # a rule cannot ask for what may be missing
        if not known.is_masked and len(known.values) == 1 and _literal(known) is None:
            return None  # a rule that looked away would let through what nobody has seen
        test = _test(argument, known)
        if test is not None:
            tests[argument] = test
    if not tests:
        return None
    free = [f"{_quoted(one)} ({known.described()})" for one, known in arguments.items() if one not in tests]
    function = f"rule_for_{re.sub(r'[^A-Za-z0-9_]+', '_', name).strip('_') or 'calls'}"
    lines = [f"def {function}({', '.join(tests)}):", f"    # {evidence}"]
    lines += [f"    # It does not look at {', '.join(free)}."] if free else []
    lines.append(f"    if {' and '.join(tests.values())}:")
    return "\n".join([*lines, "        return sayso.allow()", "    return sayso.policy.hold()", ""])


def _test(argument: str, known: _Argument) -> str | None:
    """Return a condition that holds for the values of an argument; None where there is none."""
    if argument in _RESERVED or not argument.isidentifier() or not argument.isascii() or keyword.iskeyword(argument):
        return None
    if len(known.values) == 1:
        literal = _literal(known)
        is_single = literal in {"None", "True", "False"}
        return None if literal is None else f"{argument} {'is' if is_single else '=='} {literal}"
    if known.low is not None:
        return f"{known.low!r} <= {argument} <= {known.high!r}"
    return None if known.few is None else f"{argument} in ({', '.join(map(ascii, known.few))})"


def _literal(known: _Argument) -> str | None:
    """Return the one value of an argument as Python; None where it is too long, or of a type that is no literal."""
    (tree,) = known.values.values()
    try:
        literal = ascii(_value(tree))
    except ValueError:
        return None
    return literal if len(literal) <= _LONGEST_LITERAL else None


def _value(tree: Any) -> Scalar | list[Any] | tuple[Any, ...] | dict[str, Any]:
    """Return what a canonical tree stands for; raises `ValueError` where that is no text, number, list or dict."""
    items = items_of(tree)
    if items is not None:
        values = [_value(item) for item in items]
        return tuple(values) if isinstance(tree, dict) else values
    if not isinstance(tree, dict):
        return tree
    named = cast("dict[str, Any]", tree)
    if tag_in(named) is not None:
        raise ValueError("no literal")
    return {name: _value(held) for name, held in named.items()}


def _quoted(name: str) -> str:
    return name if name.isidentifier() and name.isascii() else ascii(name)
