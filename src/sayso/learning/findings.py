"""What past decisions say: exports as training data, and the report on what people approve, change and refuse.

Exports are the protocol's samples, preference pairs, and table rows. The report also names who decides too fast.
Decisions are counted as they are read, and no masked value is kept. Every share has a confidence bound, and too few
cases give no finding. A rule is proposed as text; no gate changes because of it.
"""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import islice
from statistics import median_low
from typing import Any, cast

from sayso import clock
from sayso.errors import ArgumentError, ConfigError
from sayso.learning import proposals
from sayso.learning.proposals import FEWEST, HASTE, Case, Proposal, Share, Values, proposed_and_approved, span_of
from sayso.model import redaction
from sayso.model.canonical import display
from sayso.model.canonical.json_tree import dumps
from sayso.model.grant import number_of
from sayso.model.request import Call, Decision, Request, State
from sayso.model.reviewer import Identity
from sayso.mplp import ConfirmRefusedError, NotConformantError
from sayso.mplp.confirm import round_facts
from sayso.mplp.history import answer_of, export_of, find_confirm, secrets_of
from sayso.stores.base import Filter, Store
from sayso.stores.review import requests_in

PAIR_COLUMNS = ("id", "tool", "prompt", "chosen", "rejected", "reason", "decided_at")
COLUMNS = (
    "id", "kind", "run", "tool", "risk", "requester", "asked_at", "decided_at", "seconds", "state", "verb", "label",
    "is_edited", "edited", "reviewer", "channel", "votes", "reason", "question", "proposed", "approved", "answer",
)  # fmt: skip

_DECIDED = frozenset(State) - {State.PENDING}
_REFUSED = frozenset({State.REJECTED, State.FEEDBACK})
_NO_SAMPLE = (ArgumentError, ConfirmRefusedError, NotConformantError, ValueError)

_log = logging.getLogger("sayso")


# -- the decisions ---------------------------------------------------------------------------------------------------


def decided(
    store: Store, *, since: datetime | None = None, until: datetime | None = None, tool: str | None = None
) -> Iterator[Request]:
    """Yield the requests that a person has decided, most recently asked first; purged ones are skipped.

    Args:
        since: Only requests asked at or after this time.
        until: Only requests asked before this time.
        tool: Only requests for this function, given as its name or `module:name`.
    """
    for request in requests_in(store, Filter(states=_DECIDED, name=tool), newest=True, since=since):
        if _is_decided(request) and (until is None or request.created_at < until):
            yield request


def _is_decided(request: Request) -> bool:
    return request.decision is not None and not request.decision.is_withdrawal and request.purged_at is None


def decisions_by_person(request: Request) -> Collection[Decision]:
    """Return each person's last decision or vote on a request, without the approvals that a grant or budget gave."""
    made = (*request.votes, *filter(None, (request.decision,)))
    return {one.by.folded: one for one in made if one.under is None and not one.is_withdrawal}.values()


def label_of(request: Request) -> str:
    """Return the label for the protocol's learning samples: `approved`, `rejected` or `not_reviewed`."""
    if request.state is State.CANCELLED or request.decision is None:
        return "not_reviewed"
    is_no = request.state in _REFUSED or (request.state is State.ANSWERED and request.answer is False)
    return "rejected" if is_no else "approved"


def decision_of(request: Request) -> Decision:
    """Return the decision of a request that `decided` yielded."""
    return cast("Decision", request.decision)  # always set on what `decided` yields


def reason_of(request: Request) -> str:
    """Return the reviewer's comment with the call's secrets masked; empty if there is none."""
    comment = decision_of(request).comment
    return "" if comment is None else redaction.fit(comment.strip(), secrets_of(request))


def changed(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Return the names of the arguments that differ. Masked values can differ without being detected."""
    missing = object()
    return [name for name in {**before, **after} if before.get(name, missing) != after.get(name, missing)]


def _json(tree: Mapping[str, Any]) -> str:
    return dumps(display(dict(tree)))


# -- samples, pairs and rows -----------------------------------------------------------------------------------------


def samples(
    store: Store, *, since: datetime | None = None, until: datetime | None = None, tool: str | None = None,
    unread: list[str] | None = None,
) -> Iterator[dict[str, Any]]:  # fmt: skip
    """Yield one of the protocol's learning samples, as JSON values, for each decision of a person; see `decided`.

    Args:
        store, since, until, tool: As for `decided`.
        unread: Receives the ids of skipped requests whose plan is invalid, so that no sample can be made. Without it,
            each one is logged.
    """
    for request in decided(store, since=since, until=until, tool=tool):
        try:
            rounds = [request]
            if round_facts(request) is not None:  # one sample covers all decided rounds of a Confirm
                rounds = list(find_confirm(store, request.id).rounds)
                while rounds and not _is_decided(rounds[-1]):
                    rounds.pop()
                if not rounds or rounds[-1].id != request.id:
                    continue
            made = export_of(*(one for one in rounds if one.purged_at is None))
        except _NO_SAMPLE as error:  # one invalid request must not end the whole export
            if unread is None:
                _log.warning("no learning sample can be made from request %s: %s", request.id, error)
            else:
                unread.append(request.id)
            continue
        yield made


def pairs(
    store: Store, *, since: datetime | None = None, until: datetime | None = None, tool: str | None = None
) -> Iterator[dict[str, str]]:
    """Yield a preference pair for each approval with changes, as texts by the names in `PAIR_COLUMNS`; see `decided`.

    `chosen` and `rejected` are JSON objects of the masked arguments. `prompt` is the program's prompt for the reviewer,
    or else the function's description.
    """
    for request in decided(store, since=since, until=until, tool=tool):
        decision = decision_of(request)
        if request.edited is None or decision.verb != "approve" or not isinstance(request.subject, Call):
            continue
        rejected, chosen = map(_json, proposed_and_approved(request))
        if chosen != rejected:
            prompt = request.prompt or request.description or request.call.name
            at = clock.written(decision.at)
            values = (request.id, request.call.tool, prompt, chosen, rejected, reason_of(request), at)
            yield dict(zip(PAIR_COLUMNS, values, strict=True))


def table(
    store: Store, *, since: datetime | None = None, until: datetime | None = None, tool: str | None = None
) -> list[dict[str, Any]]:
    """Return `rows` as a list, for `pandas.DataFrame(...)` and `polars.DataFrame(...)`."""
    return list(rows(store, since=since, until=until, tool=tool))


def rows(
    store: Store, *, since: datetime | None = None, until: datetime | None = None, tool: str | None = None
) -> Iterator[dict[str, Any]]:
    """Yield one flat row with the columns `COLUMNS` for each decision of a person; see `decided`."""
    for request in decided(store, since=since, until=until, tool=tool):
        decision = decision_of(request)
        row: dict[str, Any] = dict.fromkeys(COLUMNS, "") | {
            "id": request.id, "kind": request.kind, "run": request.run_id, "risk": request.risk or "",
            "requester": request.requester.qualified, "asked_at": clock.written(request.created_at),
            "decided_at": clock.written(decision.at), "seconds": span_of(request, decision).total_seconds(),
            "state": str(request.state), "verb": decision.verb, "label": label_of(request),
            "is_edited": request.edited is not None, "reviewer": decision.by.qualified, "channel": decision.channel,
            "votes": max(1, len(request.votes)), "reason": reason_of(request),
        }  # fmt: skip
        if isinstance(request.subject, Call):
            before, after = proposed_and_approved(request)
            row |= {"tool": request.call.tool, "edited": " ".join(changed(before, after)), "proposed": _json(before)}
            if decision.verb == "approve":
                row["approved"] = row["proposed"] if request.edited is None else _json(after)
        else:
            answer = answer_of(request)
            row |= {"question": request.question.text, "answer": "" if answer is None else dumps(answer)}
        yield row


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
            self.cases.append(proposals.case_of(request, people))
        self.risks |= {request.risk} if request.risk is not None else set()
        self.spans.append(span_of(request, decision))
        before, after = proposed_and_approved(request)
        for name, value in before.items():
            self.arguments.setdefault(name, Values()).add(value)
        if decision.verb != "approve":
            return
        self.approved += 1
        self.as_proposed += request.edited is None
        self.went_wrong += request.state in proposals.WRONG
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
        self.reasons: Counter[str] = Counter()  # by normalized reason, see `add`
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
            # Without numbers and ids, so that the same reason for two cases compares equal.
            parts = words[:_REASON_ROOM].casefold().strip(" .!").split()
            key = " ".join("#" if any(letter.isdigit() for letter in part) else part for part in parts)
            if key in self.words or len(self.words) < _MOST_REASONS:
                self.words.setdefault(key, words)
                self.reasons[key] += 1
                self.refused[key][name] += 1


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
    candidates: list[Candidate] = []
    for name, one in counts.tools.items():
        if one.is_gate and one.decided >= FEWEST and one.as_proposed == one.decided:
            approved, half = Share(one.as_proposed, one.decided), median_low(one.spans)
            fields = {argument: known.describe() for argument, known in one.arguments.items()}
            risk, people = ", ".join(sorted(one.risks)), len(one.reviewers)
            candidates.append(Candidate(name, risk, approved, people, half, half < HASTE, one.went_wrong, fields))
    edits = [
        Edit(name, argument, Share(count, one.approved), one.lowered[argument], one.raised[argument])
        for name, one in counts.tools.items()
        for argument, count in one.changed.items()
        if count >= _FEWEST_EDITS
    ]
    stamps = [one.stamp(risk) for (_, risk), one in counts.reviewers.items() if len(one.spans) >= FEWEST]
    reasons = [
        Reason(counts.words[key], count, tuple(name for name, _ in _by_count(counts.refused[key])))
        for key, count in _by_count(counts.reasons)
    ]
    gates = {name: one.cases for name, one in counts.tools.items() if one.is_gate}
    rules, not_proposed = tuple[Proposal, ...](), None
    try:
        rules = proposals.propose(store, gates, most=most)
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
        proposals=rules,
        not_proposed=not_proposed,
    )


def _by_count(counted: Counter[str]) -> list[tuple[str, int]]:
    return sorted(counted.items(), key=lambda one: (-one[1], one[0]))
