"""Grants: a reviewer's permission for the next calls like one that they looked at.

A grant is drawn from a call: its fields are kept as they are, its numbers are an upper bound. Invariant: whatever a
grant does not say does not fit it, so a call with one more field, or of another version of the tool, waits.
`sayso.stores.grants` finds, takes and ends grants inside a transaction.

Here are also budgets: how much the calls that a policy allows may use in a rolling span of time, before a person is
asked. `sum(args.amount) <= 1000 per 24h per agent` is one, `count() <= 20 per 1h per run` another.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from decimal import Decimal, InvalidOperation
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self, cast

from sayso import errors
from sayso.model import canonical, duration
from sayso.model.canonical.tags import dumps, dumps_sorted
from sayso.model.escaping import escape
from sayso.model.ids import new_grant_id
from sayso.model.rendering import value as shown_value
from sayso.model.request import Call, Decision, Request
from sayso.model.reviewer import Identity
from sayso.model.words import say

if TYPE_CHECKING:
    from pydantic import TypeAdapter

MOST_CALLS = 10_000
"""The most calls that one grant may allow."""

ABOUT_THIS_CALL = "this call"
"""The fact of a context that no grant compares: what is said of this one call, and not of where it comes from."""
_CONTEXT = "context:"

_ID_WORDS = "id|ids|no|nr|number|key|code|account|iban|zip|port|index|year|version|uid|pid|ref|user|order|customer"
_ID_NAME = re.compile(rf"(?:^|[^a-z])(?:{_ID_WORDS})$|(?:user|order|customer|account)(?:id|no|nr|number|key|code|ref)$")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


class Condition(NamedTuple):
    """What one field of a call must be.

    Attributes:
        kind: `equal`; `at_most` (a number from 0 to this one); `secret` (equal, and kept as a digest).
        value: The canonical form of the value; the number as a text; or the digest.
    """

    kind: Literal["equal", "at_most", "secret"]
    value: str


class Grantor(NamedTuple):
    """Somebody who agreed to a grant, with the roles that they had then."""

    by: Identity
    roles: tuple[str, ...]
    channel: str


@dataclass(frozen=True)
class Grant:
    """What the next calls of a tool may be that start without another decision.

    Attributes:
        id: Random, prefixed `gr_`; knowing it gives no right.
        request_id: The request that it was drawn from.
        origin: The run of that request, in whose chain the journal keeps what happens to the grant.
        tool, name, schema_digest: The function, in exactly this version.
        conditions: What each field must be, by its path (`amount`, `order.currency`), and each fact of the context
            (`context:folder`): a grant for one folder, server or tenant says nothing of another.
        without: Paths of the fields that may be anything, or missing.
        requester, acts_for: Who may ask, and for whom.
        run: The run in which it counts; None for every run of the requester.
        risk, retries, idempotent: Of the gate; a call whose gate says more does not fit.
        count, used: How many calls it allows, and how many have started by it.
        created_at, until: When it was made, and when it ends.
        grantors: Who agreed; a call needs as many of them as its gate needs reviewers.
        comment: Why, in the reviewer's words.
        ended: `revoked`, `used up` or `expired`; None while it counts.
        ended_by, ended_at: Who revoked it, and when it ended.
    """

    id: str
    request_id: str
    origin: str
    tool: str
    name: str
    schema_digest: str
    conditions: Mapping[str, Condition]
    without: tuple[str, ...]
    requester: Identity
    acts_for: tuple[Identity, ...]
    run: str | None
    risk: str | None
    retries: int
    idempotent: bool
    count: int
    created_at: datetime
    until: datetime
    used: int = 0
    grantors: tuple[Grantor, ...] = ()
    comment: str | None = None
    ended: Literal["revoked", "used up", "expired"] | None = None
    ended_by: Identity | None = None
    ended_at: datetime | None = None

    @property
    def left(self) -> int:
        """How many more calls may start by it."""
        return self.count - self.used if self.ended is None else 0

    def lacks(self, request: Request) -> str | None:
        """Return why a request does not fit; None where it does, as far as the grant itself says."""
        if request.always:
            return "its gate wants a person for every call"
        if not isinstance(request.subject, Call) or request.subject.tool != self.tool:
            return "it is another tool"
        if request.subject.schema_digest != self.schema_digest:
            return "the tool has changed since"
        if not request.requester.is_same(self.requester) or request.acts_for != self.acts_for:
            return "another program, or a program for somebody else, asks"
        if self.run is not None and request.run_id != self.run:
            return "it is another run"
        if request.risk != self.risk or request.retries > self.retries or request.idempotent is not self.idempotent:
            return "its gate has other terms"
        differing = self.differing(request)
        if not differing:
            return None
        return f"{differing[0]} {'differs' if differing[0] in self.conditions else 'is new'}"

    def differing(self, request: Request) -> list[str]:
        """Return the paths of the fields that keep a call of the same tool from fitting, first those that differ."""
        fields = _fields(request, request.call)
        found: list[str] = []
        for path, condition in self.conditions.items():
            if path not in fields or not _holds(condition, fields[path], self.id, path):
                found.append(path)
        return found + [path for path in fields if path not in self.conditions and not _is_below(path, self.without)]

    def agreed_by(self, grantor: Grantor) -> Grant:
        """Return the grant with one more person behind it."""
        return replace(self, grantors=(*self.grantors, grantor))

    def has_same_terms(self, other: Grant) -> bool:
        """Say whether two grants allow the same, whoever made them."""
        terms = ("request_id", "conditions", "without", "run", "count", "until")
        mine, theirs = ([getattr(one, name) for name in terms if name != "conditions"] for one in (self, other))
        return mine == theirs and _plain(self.conditions) == _plain(other.conditions)

    def lines(self) -> list[str]:
        """Return what a call must be, one line a field, as people are shown it; secrets are masked."""
        found = [_line(escape(path), condition) for path, condition in self.conditions.items()]
        return found + [say("%(path)s may be anything", path=escape(path)) for path in self.without]

    # -- drawing it from a call --------------------------------------------------------------------------------

    @classmethod
    def of(
        cls, request: Request, call: Call, *, count: int, until: datetime, now: datetime, here: bool = False,
        without: Collection[str] = (), at_most: Mapping[str, Any] | None = None, exactly: Collection[str] = (),
        comment: str | None = None,
    ) -> Self:  # fmt: skip
        """Return the grant that is drawn from a call.

        Args:
            request: The request that asked for it.
            call: The call as it is approved, with the reviewer's changes.
            count: How many more calls.
            until: When it ends.
            now: The store's instant.
            here: It counts in the run of this request only.
            without: Paths of fields that are taken out: they may be anything.
            at_most: Tighter bounds of numbers, by path.
            exactly: Paths of numbers that must be equal.
            comment: Why.

        Raises:
            GrantRefusedError: The terms cannot be used, or are wider than the call.
        """
        refuse = partial(errors.GrantRefusedError, request.id)
        if request.always:
            raise refuse("its gate wants a person for every call (always=True)")
        if type(count) is not int or not 1 <= count <= MOST_CALLS:
            raise refuse(f"a grant allows 1 to {MOST_CALLS:,} calls, not {count!r}")
        if until <= now:
            raise refuse("it would have ended already")
        grant_id = new_grant_id()
        fields, masked = _fields(request, call), dict(_leaves(call.shown))
        left_out = tuple(dict.fromkeys(without))
        for path in (*left_out, *(at_most or {}), *exactly):
            if not any(_is_below(known, (path,)) for known in fields):
                raise refuse(f"the call has no field {path!r}; it has {', '.join(fields) or 'none'}")
        conditions: dict[str, Condition] = {}
        for path, tree in fields.items():
            if not _is_below(path, left_out):
                is_fact = path.startswith(_CONTEXT)
                is_secret = not is_fact and (path not in masked or masked[path] != tree)
                is_exact = is_fact or path in exactly
                conditions[path] = _drawn(grant_id, path, tree, is_secret=is_secret, is_exact=is_exact)
        for path, bound in (at_most or {}).items():
            conditions[path] = _tightened(refuse, path, conditions.get(path), bound)
        return cls(
            id=grant_id, request_id=request.id, origin=request.run_id, tool=call.tool, name=call.name,
            schema_digest=call.schema_digest, conditions=conditions, without=left_out, requester=request.requester,
            acts_for=request.acts_for, run=request.run_id if here else None, risk=request.risk,
            retries=request.retries, idempotent=request.idempotent, count=count, created_at=now, until=until,
            comment=comment,
        )  # fmt: skip

    # -- as a record -------------------------------------------------------------------------------------------

    def body(self) -> dict[str, Any]:
        """Return it as JSON values, for a record."""
        return _codec().dump_python(self, mode="json", exclude={"id"})

    @classmethod
    def from_body(cls, grant_id: str, body: Mapping[str, Any]) -> Grant:
        """Return the grant of a record; raises `StoreCorruptError` where the record holds none."""
        try:
            return _codec().validate_python({**body, "id": grant_id})
        except (TypeError, ValueError) as error:
            raise errors.StoreCorruptError(
                f"the grant {grant_id} cannot be read: its record was altered; revoke it and grant anew"
            ) from error

    def vote(self, grantor: Grantor, now: datetime) -> Decision:
        """Return the approval that somebody behind this grant gives to a call that fits it."""
        return Decision("approve", grantor.by, now, "grant", None, "", under=self.id)


@cache
def _codec() -> TypeAdapter[Grant]:
    from pydantic import TypeAdapter  # loaded where there is a grant

    return TypeAdapter(Grant)


def number_of(tree: Any) -> Decimal | None:
    """Return the number that a value in canonical form is; None where it is none."""
    if isinstance(tree, dict):
        tagged = cast("dict[str, Any]", tree)
        tree = tagged["$decimal"] if set(tagged) == {"$decimal"} else None
    elif isinstance(tree, str):
        return None
    if isinstance(tree, bool) or not isinstance(tree, int | float | str):
        return None
    try:
        found = Decimal(str(tree))
    except InvalidOperation:
        return None
    return found if found.is_finite() else None


def _fields(request: Request, call: Call) -> dict[str, Any]:
    """Return the fields of a call by path, and the facts of its request's context, which say where it comes from."""
    facts = {name: fact for name, fact in (request.context or {}).items() if name != ABOUT_THIS_CALL}
    places = ((f"{_CONTEXT}{path}", tree) for path, tree in _leaves(facts))
    return dict(_leaves(canonical.load(call.form))) | dict(places)


def _leaves(tree: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the fields of a call by path. A dict whose keys could be taken for a path or a tag is one field."""
    if not isinstance(tree, dict) or not tree or any(map(_is_ambiguous, cast("dict[str, Any]", tree))):
        if path or tree:  # a whole call that cannot be told field by field is one field, which has no name
            yield path, tree
        return
    for key, item in cast("dict[str, Any]", tree).items():
        yield from _leaves(item, f"{path}.{key}" if path else key)


def _is_ambiguous(key: str) -> bool:
    return "." in key or ":" in key or key[:1] in {"", "$"}


def _is_below(path: str, roots: Collection[str]) -> bool:
    return any(path == root or path.startswith(f"{root}.") for root in roots)


def _drawn(grant_id: str, path: str, tree: Any, *, is_secret: bool, is_exact: bool) -> Condition:
    if is_secret:
        return Condition("secret", _digest(grant_id, path, tree))
    number = number_of(tree)
    # The number of an order or a customer is a name: a smaller one is another customer, and no smaller amount.
    if number is None or number < 0 or is_exact or is_id(path):
        return Condition("equal", dumps_sorted(tree))
    return Condition("at_most", str(number))


def is_id(path: str) -> bool:
    """Say whether a field has the name of an id: `order.id`, `accountNumber`, `userid`."""
    return _ID_NAME.search(_CAMEL.sub("_", path.rpartition(".")[2]).lower()) is not None


def _tightened(refuse: Callable[[str], Exception], path: str, drawn: Condition | None, bound: Any) -> Condition:
    try:
        number = number_of(canonical.form_of(bound))
    except errors.ArgumentError:  # NaN, infinity, or no value at all
        number = None
    if number is None or number < 0:
        raise refuse(f"the bound of {path!r} is a number from 0, not {bound!r}")
    if drawn is None or drawn.kind != "at_most":
        raise refuse(f"{path!r} is no number with an upper bound here, so it cannot be given one")
    if number > Decimal(drawn.value):
        raise refuse(f"{path!r} was {drawn.value} in this call, so a grant drawn from it allows no more than that")
    return Condition("at_most", str(number))


def _holds(condition: Condition, tree: Any, grant_id: str, path: str) -> bool:
    if path.startswith(_CONTEXT) and tree == canonical.MASK:  # nobody can say whether what it hides is the same
        return False
    match condition.kind:
        case "at_most":
            number = number_of(tree)
            return number is not None and 0 <= number <= Decimal(condition.value)
        case "secret":
            return _digest(grant_id, path, tree) == condition.value
        case "equal":
            return dumps_sorted(tree) == condition.value
        case _:  # whatever somebody wrote into the record
            return False


def _digest(grant_id: str, path: str, tree: Any) -> str:
    return hashlib.sha256(f"{grant_id}\0{path}\0{dumps_sorted(tree)}".encode()).hexdigest()


def _line(path: str, condition: Condition) -> str:
    match condition.kind:
        case "at_most":
            return say("%(path)s is at most %(value)s", path=path, value=condition.value)
        case "secret":
            return say("%(path)s is the same (secret)", path=path)
        case _:
            return say("%(path)s is %(value)s", path=path, value=shown_value(json.loads(condition.value)))


def _plain(conditions: Mapping[str, Condition]) -> dict[str, tuple[str, str]]:
    # The digest of a secret depends on the grant.
    return {path: (one.kind, "" if one.kind == "secret" else one.value) for path, one in conditions.items()}


# -- budgets -----------------------------------------------------------------------------------------------------------


_FORM = re.compile(
    r"(?:sum\(\s*args\.(?P<path>[^\s().]+(?:\.[^\s().]+)*)\s*\)|count\(\s*\))\s*<=\s*(?P<limit>\d+(?:_\d+)*(?:\.\d+)?)"
    r"\s+per\s+(?P<span>\d+\s*[a-z]+)(?:\s+per\s+(?P<per>agent|run))?"
)
_MOST_DIGITS = 40


class Taking(NamedTuple):
    """A start's part of a budget.

    Attributes:
        request_id: Which start.
        at: Microseconds since 1970, by the store's clock.
        amount: How much.
    """

    request_id: str
    at: int
    amount: Decimal


@dataclass(frozen=True)
class Budget:
    """A limit on what a policy allows without a person.

    Attributes:
        text: `sum(args.PATH) <= NUMBER per SPAN` or `count() <= NUMBER per SPAN`, and perhaps `per agent` or `per run`;
            else it is one budget for everybody.
        name: Budgets of one name, measure, span and scope share one account, also of several tools; without a name
            each tool has its own.

    Raises:
        ConfigError: The text says no budget.
    """

    text: str
    name: str | None = None
    limit: Decimal = field(init=False, repr=False)
    span: timedelta = field(init=False, repr=False)
    path: str | None = field(init=False, repr=False)
    per: Literal["agent", "run"] | None = field(init=False, repr=False)

    def __post_init__(self) -> None:
        found = _FORM.fullmatch(self.text.strip()) if isinstance(self.text, str) else None  # pyright: ignore[reportUnnecessaryIsInstance]
        if found is None:
            raise errors.ConfigError(
                f"{self.text!r} is no budget; write `sum(args.amount) <= 1000 per 24h per agent` or"
                " `count() <= 20 per 1h per run`"
            )
        if self.name is not None and (not isinstance(self.name, str) or not self.name.strip()):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise errors.ConfigError(f"the name of a budget is a text, not {self.name!r}")
        derived = {
            "limit": Decimal(found["limit"]), "span": duration.parse(found["span"].replace(" ", "")),
            "path": found["path"], "per": found["per"],
        }  # fmt: skip
        self.__dict__.update(derived)

    def __str__(self) -> str:
        return self.text

    def account(self, request: Request) -> str:
        """Return the key of the account that a request's call is taken from; the limit may change under it."""
        return self.account_of(request.call.tool, request.requester, request.run_id)

    def account_of(self, tool: str, agent: Identity | None, run_id: str | None) -> str:
        """Return the key of the account for calls of a tool; who asks and the run count as `per` says."""
        scope = {"agent": None if agent is None else agent.folded, "run": run_id, None: ""}[self.per]
        whose = [self.name, None if self.name else tool, self.path, str(self.span), self.per, scope]
        return hashlib.sha256(dumps(whose).encode("utf-8", "surrogatepass")).hexdigest()

    def amount(self, request: Request) -> Decimal | None:
        """Return what the call uses; None where its field is missing, no number, below zero, or endless."""
        if self.path is None:
            return Decimal(1)
        return self.amount_in(canonical.load(request.effective.form)) if isinstance(request.subject, Call) else None

    def amount_in(self, arguments: Any) -> Decimal | None:
        """Return what a call with these arguments, as canonical JSON, uses; None as `amount` does."""
        tree = arguments
        for name in () if self.path is None else self.path.split("."):
            if not isinstance(tree, dict) or name not in tree:
                return None
            tree = cast("dict[str, Any]", tree)[name]
        amount = Decimal(1) if self.path is None else number_of(tree)
        return None if amount is None or amount < 0 or amount.adjusted() > _MOST_DIGITS else amount


class BudgetUse(NamedTuple):
    """An account of a policy's budget.

    Attributes:
        budget: Its limit, as at the last time that something was taken.
        used: How much of it is used now; None where its record is not as the journal says, so that nothing passes.
        request: The newest request that took from it, which tells whose it is; None where none does any more, or it
            cannot be read.
    """

    budget: Budget
    used: Decimal | None
    request: Request | None

    @property
    def rule(self) -> str | None:
        """The name of the policy's rule."""
        budgets = () if self.request is None else self.request.budgets
        return next((name for text, name in budgets if text == str(self.budget) and name), None)
