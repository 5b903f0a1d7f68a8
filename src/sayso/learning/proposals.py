"""Rules for the policy file that decisions suggest, each replayed on what was asked before.

A rule is drawn from calls of one tool that people always approved unchanged, or always refused: of all of them, or of
those on one side of a number. It says of each call what was seen in these, is checked against the schema of the tool,
and is text: it counts when somebody puts it into the policy file.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from decimal import Decimal
from itertools import islice
from math import sqrt
from statistics import NormalDist, median_low
from typing import Any, Literal, NamedTuple, cast

from sayso import errors
from sayso.learning.data import HASTE, proposed_and_approved, span_of
from sayso.model.canonical import display
from sayso.model.canonical.tags import MASK, dumps
from sayso.model.escaping import escape
from sayso.model.grant import is_id, number_of
from sayso.model.request import Request, State
from sayso.model.schema import Schema
from sayso.model.words import ENGLISH, later, say, say_n, speaking
from sayso.policy import Policy
from sayso.policy.condition import Condition, ConditionError, library
from sayso.policy.replay import verdict_on
from sayso.stores.base import Filter, Store
from sayso.stores.review import requests_in

FEWEST = 20
"""So many decisions of a function, or of a reviewer, are enough to say something."""

WRONG = frozenset({State.FAILED, State.UNKNOWN})
_FEW, _LONG, _LONGEST_LITERAL = 5, 120, 500  # how many values are listed, and how long each and all of them may be
_MOST_VALUES = 1_000
_MASKED = dumps(MASK)
_MOST_TOOLS = 50
_NAMED = 20  # requests that a comment names


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
        return say(
            "%(part)s of %(whole)s (at least %(low)s %%)", part=f"{self.part:,}", whole=f"{self.whole:,}",
            low=int(self.low * 100),
        )  # fmt: skip


@dataclass
class Values:
    """The values of one argument, as canonical trees.

    Attributes:
        count: In how many calls it was given.
        found: The different values, by their JSON; at most a thousand.
        is_masked: Some value was masked; then nothing is said of it.
        low, high: The bounds, where all values are numbers.
    """

    count: int = 0
    found: dict[str, Any] = field(default_factory=dict[str, Any], repr=False)
    is_masked: bool = False
    low: Decimal | None = None
    high: Decimal | None = None
    _is_numeric: bool = True

    def add(self, value: Any) -> None:
        """Count the value of one more call."""
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
        """The values, where there are few and all are plain and short; else None."""
        found = list(self.found.values())
        is_plain = all(value is None or isinstance(value, str | int | float | bool) for value in found)
        is_long = any(isinstance(value, str) and len(value) > _LONG for value in found)
        return found if found and len(found) <= _FEW and is_plain and not is_long else None

    def described(self) -> str:
        """Return in words what the values were; in ASCII."""
        few, count = self.few, len(self.found)
        if self.is_masked:
            return "masked, and not compared"
        if count == 1:
            (text,) = self.found
            return f"always {text}" if few or len(text) <= _LONG else "always the same, which is long"
        if self.low is not None:
            return f"from {self.low} to {self.high}"
        if few is not None:
            return f"one of {', '.join(map(dumps, few))}"
        return f"{count:,}{'' if count < _MOST_VALUES else ' or more'} different values"


class Case(NamedTuple):
    """A decision about a call, as far as rules are drawn from it.

    Attributes:
        asked: When the call was asked for.
        arguments: As masked canonical trees.
        outcome: It was approved as it was, approved with changes, or refused, sent back or cancelled.
        seconds: How long the decision took.
        people: Who decided, by their folded names.
        schema: Of the arguments.
    """

    asked: datetime
    arguments: Mapping[str, Any]
    outcome: Literal["approved", "changed", "refused", "undecided"]
    seconds: float
    people: frozenset[str]
    schema: str


def case_of(request: Request, people: Iterable[str] = ()) -> Case:
    """Return what is known of a request about a call."""
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
    """A rule that decisions suggest, and what it would have decided of the calls in the store.

    Attributes:
        tool: The function, `module:function`.
        verdict: What the rule says: `allow` or `deny`.
        seen: From how many decisions of the tool it is drawn: all of those that fit it.
        people: How many people took these.
        begin, end: When the first and the last of these calls were asked for.
        not_compared: In words, the values of the arguments that the rule does not look at.
        rule: The rule, as a table of the policy file; in ASCII.
        replayed: On how many past calls of the tool the rule was replayed, also older ones.
        fits: How many of these it would have let through, or denied.
        against: The ids of those that people decided otherwise: refused or changed where it allows, approved where it
            denies.
        went_wrong: The ids of those that it allows and that failed or ended unknown.
        undecided: How many of those that it fits nobody decided.
        uncertain: Of how many past calls it cannot be told, as they had other arguments or masked ones.
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
        """What speaks for the rule and what the replay found, in sentences in the language of the context."""
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
            (len(self.went_wrong), later("%(count)s of these failed or ended unknown.")),
            (self.uncertain, later("It cannot be told of %(count)s past calls.")),
        ):
            lines += [say(message, count=f"{count:,}")] if count else []
        return lines

    @property
    def toml(self) -> str:
        """The rule with its findings as comments, to be put into a policy file; in English and in ASCII."""
        free = ", ".join(f"{escape(name)} ({why})" for name, why in self.not_compared.items())
        named = [f"It does not look at {free}."] if free else []
        for what, ids in (("otherwise", self.against), ("wrong", self.went_wrong)):
            more = f" and {len(ids) - _NAMED:,} more" if len(ids) > _NAMED else ""
            named += [f"{what}: {', '.join(ids[:_NAMED])}{more}"] if ids else []
        with speaking(ENGLISH):
            return "".join(f"# {line}\n" for line in [escape(self.tool), *self.findings, *named]) + self.rule


def propose(store: Store, tools: Mapping[str, Sequence[Case]], *, most: int) -> tuple[Proposal, ...]:
    """Return the rules that decisions suggest, after a replay on the newest calls of the store.

    Args:
        most: At most so many requests are read for the replay, the newest.

    Raises:
        ConfigError: The CEL library is not installed, so no rule can be checked.
    """
    library()
    by_tool: dict[str, list[_Replayed]] = {}
    names = set[str]()
    for tool, cases in tools.items():
        if "*" in tool:
            continue  # whoever names a tool so would have a rule for the tools of others
        for draft in _drafts(tool, cases, names) if len(by_tool) < _MOST_TOOLS else ():
            try:
                by_tool.setdefault(tool, []).append(_Replayed(draft, Policy.of_text(draft.rule)))
            except errors.PolicyError:  # no pattern can name the tool
                continue
    if by_tool:
        calls = (one for one in requests_in(store, Filter(kind="call"), newest=True) if one.purged_at is None)
        for request in islice(calls, most):
            for one in by_tool.get(request.call.tool, ()):
                one.ask(request)
    found = [one.proposal() for some in by_tool.values() for one in some if one.counts["fits"] >= FEWEST]
    return tuple(sorted(found, key=lambda one: (len(one.against), -one.seen.low, one.tool, one.verdict)))


@dataclass
class _Replayed:
    """A rule, and what it would have decided so far."""

    draft: Proposal
    policy: Policy
    counts: dict[str, int] = field(
        default_factory=lambda: dict.fromkeys(("replayed", "fits", "undecided", "uncertain"), 0)
    )
    ids: dict[str, list[str]] = field(default_factory=lambda: {"against": [], "went_wrong": []})

    def ask(self, request: Request) -> None:
        outcome = verdict_on(self.policy, request).outcome
        self.counts["replayed"] += 1
        if outcome != self.draft.verdict:
            self.counts["uncertain"] += outcome in {"uncertain", "error"}
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


# -- drawing a rule from calls ---------------------------------------------------------------------------------------


def _drafts(tool: str, cases: Sequence[Case], names: set[str]) -> Iterator[Proposal]:
    """Yield the rules that the decisions about a tool suggest: for all of its calls, else beside a number."""
    outcomes = {case.outcome for case in cases}
    short = tool.rpartition(":")[2]
    short = re.sub(r"[^\w .,-]", "_", tool if short in names else short, flags=re.ASCII)[-40:].strip()
    names.add(tool.rpartition(":")[2])
    if outcomes == {"approved"}:
        yield from _allowing(tool, f"{short} as approved before", cases)
    elif outcomes == {"refused"}:
        yield from _denying(tool, f"{short} is refused", cases, None)
    else:
        low, high = (_beside_a_number(cases, outcome) for outcome in ("approved", "refused"))
        if low is not None:
            yield from _allowing(tool, f"{short}, {low.name} up to {low.bound}", low.cases)
        if high is not None:
            test = f"args.{high.name} >= {high.bound}"
            yield from _denying(tool, f"{short}, {high.name} from {high.bound}", high.cases, test)


class _Side(NamedTuple):
    """The calls on one side of a number, which people always decided in one way."""

    name: str
    bound: Decimal
    cases: Sequence[Case]


def _beside_a_number(cases: Sequence[Case], outcome: str) -> _Side | None:
    """Return the calls below every other decision that were approved, or above every other that were refused.

    Of several arguments the one that tells most calls apart; ids are no amounts.
    """
    # A program may send a number of any size; `*` and `-` would raise `Overflow`.
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


def _allowing(tool: str, name: str, cases: Sequence[Case]) -> Iterator[Proposal]:
    if len(cases) < FEWEST or median_low(case.seconds for case in cases) < HASTE.total_seconds():
        return  # who decides so fast proves little
    values = _values(cases)
    tests: dict[str, str] = {}
    for argument, known in values.items():
        if known.count < len(cases):
            continue  # a rule cannot ask for what may be missing
        test = next((one for one in _tests(argument, known) if _fits(one, cases[0].schema)), None)
        if test is not None:
            tests[argument] = test
        elif len(known.found) == 1:
            return  # a rule that looked away would let through what nobody has seen
    if tests:
        free = {one: known.described() for one, known in values.items() if one not in tests}
        yield _draft(tool, name, "allow", " && ".join(tests.values()), ["log = true"], cases, free)


def _denying(tool: str, name: str, cases: Sequence[Case], test: str | None) -> Iterator[Proposal]:
    if len(cases) >= FEWEST:
        reason = 'reason = "people have always refused such calls"'
        yield _draft(tool, name, "deny", test, [reason], cases, {})


def _draft(
    tool: str, name: str, verdict: Literal["allow", "deny"], when: str | None, more: Sequence[str],
    cases: Sequence[Case], free: Mapping[str, str],
) -> Proposal:  # fmt: skip
    lines = ["[[rules]]", f"name = {_quoted(name[:80].strip())}", f"tool = {_quoted(tool)}"]
    lines += [] if when is None else [f"when = '{when}'"]  # it has no ' in it, see `_quoted`
    text = "\n".join([*lines, f'verdict = "{verdict}"', *more, ""])
    people = frozenset[str]().union(*(case.people for case in cases))
    asked = [case.asked for case in cases]
    return Proposal(tool, verdict, Share(len(cases), len(cases)), len(people), min(asked), max(asked), free, text)


def _values(cases: Sequence[Case]) -> dict[str, Values]:
    found: dict[str, Values] = {}
    for case in cases:
        for name, value in case.arguments.items():
            found.setdefault(name, Values()).add(value)
    return found


def _tests(argument: str, known: Values) -> Iterator[str]:
    """Yield conditions that hold for the values of an argument; the first that fits the schema counts."""
    if not _is_name(argument):
        return
    here = f"args.{argument}"
    if len(known.found) == 1:
        (tree,) = known.found.values()
        number = number_of(tree)  # a decimal is a number where the schema says so, else a text
        literals = [_cel(display(tree)), *([] if number is None else [str(number)])]
        yield from (f"{here} == {one}" for one in literals if tree is not None and len(one) <= _LONGEST_LITERAL)
        if tree is None:
            yield f"!has({here})"
    elif known.low is not None:
        if not is_id(argument):
            yield f"{here} >= {known.low} && {here} <= {known.high}"
    elif known.few is not None and None not in known.few:
        yield f"{here} in [{', '.join(map(_cel, known.few))}]"


def _fits(test: str, schema: str) -> bool:
    try:
        Condition(test, Schema.from_text(schema))
    except ConditionError:
        return False
    return True


def _is_name(argument: str) -> bool:
    return re.fullmatch(r"[A-Za-z_]\w*", argument, re.ASCII) is not None


def _cel(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case str():
            return _quoted(value)
        case dict():
            named = cast("dict[str, Any]", value)
            return f"{{{', '.join(f'{_quoted(name)}: {_cel(held)}' for name, held in named.items())}}}"
        case list():
            return f"[{', '.join(map(_cel, cast('list[Any]', value)))}]"
        case _:
            return str(value)


def _quoted(text: str) -> str:
    """Return a text in quotes, in ASCII and without ' inside, as both TOML and CEL read it."""
    found = ""
    for char in text:
        is_plain = char.isascii() and char.isprintable() and char not in "\"'\\"
        code = f"\\u{ord(char):04x}" if ord(char) < 1 << 16 else f"\\U{ord(char):08x}"
        found += char if is_plain else code
    return f'"{found}"'
