"""Rules that decisions suggest: derived from past calls, and replayed on the calls of a store before they are shown."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from decimal import Decimal
from itertools import islice
from math import sqrt
from statistics import NormalDist, median_low
from typing import Any, Literal, NamedTuple, cast

from sayso import errors
from sayso.model.canonical import display
from sayso.model.canonical.json_tree import MASK, dumps
from sayso.model.grant import is_id, number_of
from sayso.model.request import Decision, Request, State
from sayso.model.schema import Schema
from sayso.model.text import ENGLISH, escape, later, say, say_n, speaking
from sayso.policy import Policy
from sayso.policy.condition import Condition, ConditionError, library
from sayso.policy.policy import verdict_on
from sayso.stores.base import Filter, Store
from sayso.stores.review import requests_in

HASTE = timedelta(seconds=3)
"""A decision that follows the request faster than this cannot be based on reading it."""


def span_of(request: Request, decision: Decision) -> timedelta:
    """Return the time from the request to the decision, at least zero."""
    return max(decision.at - request.created_at, timedelta(0))  # clocks of two machines can differ


def proposed_and_approved(request: Request) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a call's proposed and final arguments, as masked canonical trees."""
    before = request.call.shown
    return before, before if request.edited is None else request.edited.shown


FEWEST = 20
"""The minimum number of decisions on a function, or by a reviewer, for a finding."""

WRONG = frozenset({State.FAILED, State.UNKNOWN})
_FEW, _LONG, _LONGEST_LITERAL = 5, 120, 500  # how many values are listed; the maximum length of one, and of all
_MOST_VALUES = 1_000
_MASKED = dumps(MASK)
_MOST_TOOLS = 50
_NAMED = 20  # the maximum number of requests that a comment names


class Share(NamedTuple):
    """A share: `part` of `whole`.

    Attributes:
        part: The number of cases that count.
        whole: The number of all cases.
    """

    part: int
    whole: int

    @property
    def low(self) -> float:
        """The lower bound of the Wilson score interval at 95 %.

        Unlike the normal approximation, it holds for few cases and for shares of 0 or 1 (E. B. Wilson, 1927).
        """
        if self.whole == 0:
            return 0.0
        n, p, z = self.whole, self.part / self.whole, NormalDist().inv_cdf(0.975)
        centre = p + z * z / (2 * n)
        spread = z * sqrt(p * (1 - p) / n + z * z / (4 * n * n))
        return max(0.0, (centre - spread) / (1 + z * z / n))

    def __str__(self) -> str:
        return say(
            "%(part)s of %(whole)s (at least %(low)s %%)", part=f"{self.part:,}", whole=f"{self.whole:,}",
            low=int(self.low * 100),
        )  # fmt: skip


@dataclass
class Values:
    """The values of one argument, as canonical trees.

    Attributes:
        count: The number of calls that passed it.
        found: The distinct values by their JSON, at most a thousand.
        is_masked: Whether some value was masked; then nothing is derived from it.
        low, high: The bounds, if all values are numbers.
    """

    count: int = 0
    found: dict[str, Any] = field(default_factory=dict[str, Any], repr=False)
    is_masked: bool = False
    low: Decimal | None = None
    high: Decimal | None = None
    _is_numeric: bool = True

    def add(self, value: Any) -> None:
        """Add the value from another call."""
        self.count += 1
        text = dumps(value)
        if self.is_masked or _MASKED in text:
            self.is_masked, self.found, self.low, self.high = True, {}, None, None
            return
        if len(self.found) < _MOST_VALUES:
            self.found.setdefault(text, value)
        number = number_of(value)
        if number is None or not self._is_numeric:
            self._is_numeric, self.low, self.high = False, None, None
        else:
            self.low = number if self.low is None else min(self.low, number)
            self.high = number if self.high is None else max(self.high, number)

    @property
    def few(self) -> list[Any] | None:
        """The values if they are few, plain and short; else None."""
        found = list(self.found.values())
        is_plain = all(value is None or isinstance(value, str | int | float | bool) for value in found)
        is_long = any(isinstance(value, str) and len(value) > _LONG for value in found)
        return found if found and len(found) <= _FEW and is_plain and not is_long else None

    def describe(self) -> str:
        """Describe the values, in ASCII."""
        few, count = self.few, len(self.found)
        if self.is_masked:
            return "masked, and not compared"
        if count == 1:
            (text,) = self.found
            return f"always {text}" if few or len(text) <= _LONG else "always the same long value"
        if self.low is not None:
            return f"from {self.low} to {self.high}"
        if few is not None:
            return f"one of {', '.join(map(dumps, few))}"
        return f"{count:,}{'' if count < _MOST_VALUES else ' or more'} different values"


class Case(NamedTuple):
    """The parts of a decision on a call from which rules are derived.

    Attributes:
        asked: When the call was asked for.
        arguments: The arguments, as masked canonical trees.
        outcome: Approved unchanged, approved with changes, or refused (which includes feedback and cancellation).
        seconds: The time to the decision.
        people: The case-folded names of those who decided.
        schema: The schema of the arguments.
    """

    asked: datetime
    arguments: Mapping[str, Any]
    outcome: Literal["approved", "changed", "refused", "undecided"]
    seconds: float
    people: frozenset[str]
    schema: str


def case_of(request: Request, people: Iterable[str] = ()) -> Case:
    """Return the case of a request for a call."""
    decision, seconds = request.decision, 0.0
    outcome: Literal["approved", "changed", "refused", "undecided"] = "undecided"
    if decision is not None and not decision.is_withdrawal and decision.under is None:
        seconds = span_of(request, decision).total_seconds()
        outcome = "refused"
        if decision.verb == "approve":
            outcome = "approved" if request.edited is None else "changed"
    proposed, _ = proposed_and_approved(request)
    return Case(request.created_at, proposed, outcome, seconds, frozenset(people), request.call.schema)


@dataclass(frozen=True)
class Proposal:
    """A suggested rule, and what it would have decided about the calls in the store.

    Attributes:
        tool: The function, `module:function`.
        verdict: The rule's verdict: `allow` or `deny`.
        seen: The share of the tool's decisions from which it is derived: all that match it.
        people: The number of people who made these decisions.
        begin, end: When the first and the last of these calls were asked for.
        not_compared: A description of the values of arguments that the rule ignores.
        rule: The rule, as a table of the policy file, in ASCII.
        replayed: The number of past calls of the tool on which it was replayed, including older ones.
        fits: How many of these it matches, and so would have allowed or denied.
        against: The ids of those that people decided differently: refused or changed although it allows them, or
            approved although it denies them.
        went_wrong: The ids of those that it allows and that failed or have an unknown outcome.
        undecided: How many of those that it matches were never decided.
        uncertain: For how many past calls the result is unknown, because they had other arguments or masked ones.
    """

    tool: str
    verdict: Literal["allow", "deny"]
    seen: Share
    people: int
    begin: datetime
    end: datetime
    not_compared: Mapping[str, str]
    rule: str
    replayed: int = 0
    fits: int = 0
    against: tuple[str, ...] = ()
    went_wrong: tuple[str, ...] = ()
    undecided: int = 0
    uncertain: int = 0

    @property
    def findings(self) -> list[str]:
        """The evidence for the rule and the results of the replay, as sentences in the context's language."""
        span = {"begin": f"{self.begin:%Y-%m-%d %H:%M}Z", "end": f"{self.end:%Y-%m-%d %H:%M}Z"}
        facts = {"past": f"{self.replayed:,}", "fits": f"{self.fits:,}", "others": f"{len(self.against):,}"}
        seen, people = str(self.seen), self.people
        if self.verdict == "allow":
            lines = [
                say_n("%(seen)s were approved unchanged, by %(num)s person, %(begin)s to %(end)s.",
                      "%(seen)s were approved unchanged, by %(num)s people, %(begin)s to %(end)s.",
                      people, seen=seen, **span),
                say("Replayed on %(past)s past calls of it, it would have let through %(fits)s, of which people refused"
                    " or changed %(others)s.", **facts),
            ]  # fmt: skip
        else:
            lines = [
                say_n("%(seen)s were refused, by %(num)s person, %(begin)s to %(end)s.",
                      "%(seen)s were refused, by %(num)s people, %(begin)s to %(end)s.", people, seen=seen, **span),
                say("Replayed on %(past)s past calls of it, it would have denied %(fits)s, of which people approved"
                    " %(others)s.", **facts),
            ]  # fmt: skip
        for count, message in (
            (self.undecided, later("Nobody decided %(count)s of these.")),
            (len(self.went_wrong), later("%(count)s of these failed, or their outcome is unknown.")),
            (self.uncertain, later("It is unclear for %(count)s past calls.")),
        ):
            lines += [say(message, count=f"{count:,}")] if count else []
        return lines

    @property
    def toml(self) -> str:
        """The rule with its findings as comments, for a policy file, in English and in ASCII."""
        free = ", ".join(f"{escape(name)} ({why})" for name, why in self.not_compared.items())
        named = [f"It does not look at {free}."] if free else []
        for what, ids in (("otherwise", self.against), ("wrong", self.went_wrong)):
            more = f" and {len(ids) - _NAMED:,} more" if len(ids) > _NAMED else ""
            named += [f"{what}: {', '.join(ids[:_NAMED])}{more}"] if ids else []
        with speaking(ENGLISH):
            return "".join(f"# {line}\n" for line in [escape(self.tool), *self.findings, *named]) + self.rule


def propose(store: Store, tools: Mapping[str, Sequence[Case]], *, most: int) -> tuple[Proposal, ...]:
    """Derive rules from decisions, and replay them on the newest calls of the store.

    Args:
        most: The maximum number of requests to read for the replay, newest first.

    Raises:
        ConfigError: The CEL library is not installed, so rules cannot be checked.
    """
    library()
    by_tool: dict[str, list[_Replay]] = {}
    names = set[str]()
    for tool, cases in tools.items():
        if "*" in tool:
            continue  # a rule for such a name would be a pattern that also matches other tools
        for draft in _draft_rules(tool, cases, names) if len(by_tool) < _MOST_TOOLS else ():
            try:
                by_tool.setdefault(tool, []).append(_Replay(draft, Policy.of_text(draft.rule)))
            except errors.PolicyError:  # the tool's name is not a valid pattern
                continue
    if by_tool:
        calls = (one for one in requests_in(store, Filter(kind="call"), newest=True) if one.purged_at is None)
        for request in islice(calls, most):
            for one in by_tool.get(request.call.tool, ()):
                one.ask(request)
    found = [one.proposal() for some in by_tool.values() for one in some if one.counts["fits"] >= FEWEST]
    return tuple(sorted(found, key=lambda one: (len(one.against), -one.seen.low, one.tool, one.verdict)))


@dataclass
class _Replay:
    """A rule, and its results on the calls replayed so far."""

    draft: Proposal
    policy: Policy
    counts: Counter[str] = field(default_factory=Counter[str])
    ids: defaultdict[str, list[str]] = field(default_factory=lambda: defaultdict[str, list[str]](list))

    def ask(self, request: Request) -> None:
        verdict, _ = verdict_on(self.policy, request)
        self.counts["replayed"] += 1
        if verdict != self.draft.verdict:
            self.counts["uncertain"] += verdict in {"uncertain", "error"}
            return
        self.counts["fits"] += 1
        outcome = case_of(request).outcome
        self.counts["undecided"] += outcome == "undecided"
        allows = self.draft.verdict == "allow"
        if outcome in ({"changed", "refused"} if allows else {"approved", "changed"}):
            self.ids["against"].append(request.id)
        if allows and request.state in WRONG:
            self.ids["went_wrong"].append(request.id)

    def proposal(self) -> Proposal:
        return replace(self.draft, **self.counts, **{name: tuple(ids) for name, ids in self.ids.items()})


# -- deriving a rule from calls --------------------------------------------------------------------------------------


def _draft_rules(tool: str, cases: Sequence[Case], names: set[str]) -> Iterator[Proposal]:
    """Yield the rules for a tool: for all of its calls, or else for those on one side of a number."""
    outcomes = {case.outcome for case in cases}
    short = tool.rpartition(":")[2]
    short = re.sub(r"[^\w .,-]", "_", tool if short in names else short, flags=re.ASCII)[-40:].strip()
    names.add(tool.rpartition(":")[2])
    if outcomes == {"approved"}:
        yield from _allow_rules(tool, f"{short} as approved before", cases)
    elif outcomes == {"refused"}:
        yield from _deny_rules(tool, f"{short} is refused", cases, None)
    else:
        low, high = (_split_by_number(cases, outcome) for outcome in ("approved", "refused"))
        if low is not None:
            yield from _allow_rules(tool, f"{short}, {low.name} up to {low.bound}", low.cases)
        if high is not None:
            test = f"args.{high.name} >= {high.bound}"
            yield from _deny_rules(tool, f"{short}, {high.name} from {high.bound}", high.cases, test)


class _Side(NamedTuple):
    """The calls on one side of a number, all decided in the same way."""

    name: str
    bound: Decimal
    cases: Sequence[Case]


def _split_by_number(cases: Sequence[Case], outcome: str) -> _Side | None:
    """Return the approved calls below all others, or the refused calls above all others, by one numeric argument.

    Among several arguments it chooses the one that separates the most calls. Ids do not count as numbers.
    """
    # A program may send a number of any size, for which `*` and `-` would raise `Overflow`.
    signed = Decimal if outcome == "approved" else Decimal.copy_negate
    found: list[_Side] = []
    for name in sorted({name for case in cases for name in case.arguments}):
        numbers = [number_of(case.arguments.get(name)) for case in cases]
        if not _is_name(name) or is_id(name) or any(number is None for number in numbers):
            continue
        pairs = [(signed(cast("Decimal", number)), case) for number, case in zip(numbers, cases, strict=True)]
        others = min(number for number, case in pairs if case.outcome != outcome)
        side = [(number, case) for number, case in pairs if number < others]
        if side:
            found.append(_Side(name, signed(max(number for number, _ in side)), [case for _, case in side]))
    return max(found, key=lambda side: len(side.cases), default=None)


def _allow_rules(tool: str, name: str, cases: Sequence[Case]) -> Iterator[Proposal]:
    if len(cases) < FEWEST or median_low(case.seconds for case in cases) < HASTE.total_seconds():
        return  # decisions this fast prove little
    values: dict[str, Values] = {}
    for case in cases:
        for argument, value in case.arguments.items():
            values.setdefault(argument, Values()).add(value)
    tests: dict[str, str] = {}
    for argument, known in values.items():
        if known.count < len(cases):
            continue  # a rule cannot test an argument that may be missing
        test = next((one for one in _tests(argument, known) if _is_valid_condition(one, cases[0].schema)), None)
        if test is not None:
            tests[argument] = test
        elif len(known.found) == 1:
            return  # a rule that ignored this argument would allow values that nobody has seen
    if tests:
        free = {one: known.describe() for one, known in values.items() if one not in tests}
        yield _draft(tool, name, "allow", " && ".join(tests.values()), ["log = true"], cases, free)


def _deny_rules(tool: str, name: str, cases: Sequence[Case], test: str | None) -> Iterator[Proposal]:
    if len(cases) >= FEWEST:
        reason = 'reason = "people have always rejected these calls"'
        yield _draft(tool, name, "deny", test, [reason], cases, {})


def _draft(
    tool: str, name: str, verdict: Literal["allow", "deny"], when: str | None, more: Sequence[str],
    cases: Sequence[Case], free: Mapping[str, str],
) -> Proposal:  # fmt: skip
    lines = ["[[rules]]", f"name = {_quote(name[:80].strip())}", f"tool = {_quote(tool)}"]
    lines += [] if when is None else [f"when = '{when}'"]  # it contains no ', see `_quote`
    text = "\n".join([*lines, f'verdict = "{verdict}"', *more, ""])
    people = frozenset[str]().union(*(case.people for case in cases))
    asked = [case.asked for case in cases]
    return Proposal(tool, verdict, Share(len(cases), len(cases)), len(people), min(asked), max(asked), free, text)


def _tests(argument: str, known: Values) -> Iterator[str]:
    """Yield conditions that hold for all values of an argument; the first that fits the schema is used."""
    if not _is_name(argument):
        return
    here = f"args.{argument}"
    if len(known.found) == 1:
        (tree,) = known.found.values()
        number = number_of(tree)  # a decimal is a number if the schema says so, otherwise a text
        literals = [_cel_literal(display(tree)), *([] if number is None else [str(number)])]
        yield from (f"{here} == {one}" for one in literals if tree is not None and len(one) <= _LONGEST_LITERAL)
        if tree is None:
            yield f"!has({here})"
    elif known.low is not None:
        if not is_id(argument):
            yield f"{here} >= {known.low} && {here} <= {known.high}"
    elif known.few is not None and None not in known.few:
        yield f"{here} in [{', '.join(map(_cel_literal, known.few))}]"


def _is_valid_condition(test: str, schema: str) -> bool:
    try:
        Condition(test, Schema.from_text(schema))
    except ConditionError:
        return False
    return True


def _is_name(argument: str) -> bool:
    return re.fullmatch(r"[A-Za-z_]\w*", argument, re.ASCII) is not None


def _cel_literal(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case str():
            return _quote(value)
        case dict():
            named = cast("dict[str, Any]", value)
            return f"{{{', '.join(f'{_quote(name)}: {_cel_literal(held)}' for name, held in named.items())}}}"
        case list():
            return f"[{', '.join(map(_cel_literal, cast('list[Any]', value)))}]"
        case _:
            return str(value)


def _quote(text: str) -> str:
    """Quote a text in ASCII and without ', so that both TOML and CEL can parse it."""
    found = ""
    for char in text:
        is_plain = char.isascii() and char.isprintable() and char not in "\"'\\"
        code = f"\\u{ord(char):04x}" if ord(char) < 1 << 16 else f"\\U{ord(char):08x}"
        found += char if is_plain else code
    return f'"{found}"'
