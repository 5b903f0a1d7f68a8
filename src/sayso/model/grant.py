"""Grants: a reviewer's permission for the next calls like one that they saw.

A grant is derived from a call: its fields must be equal, its numbers are upper bounds. Invariant: anything that a grant
does not mention does not fit it, so a call with an extra field, or of another version of the tool, waits for a person.
`sayso.stores.grants` finds, uses and ends grants inside a transaction.

Budgets are here too: how much the calls that a policy allows may use in a rolling time span before a person is asked.
`sum(args.amount) <= 1000 per 24h per agent` is one, `count() <= 20 per 1h per run` another.
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
from sayso.model.canonical.json_tree import dumps, dumps_sorted
from sayso.model.ids import new_grant_id
from sayso.model.redaction import words_of
from sayso.model.rendering import value as shown_value
from sayso.model.request import Call, Decision, Request
from sayso.model.reviewer import Identity
from sayso.model.text import escape, say

if TYPE_CHECKING:
    from pydantic import TypeAdapter

MOST_CALLS = 10_000
"""The largest number of calls that one grant may allow."""

ABOUT_THIS_CALL = "this call"
"""The context fact that no grant compares: it describes this one call, not where it comes from."""
_CONTEXT = "context:"

_ID_WORDS = "id|ids|no|nr|number|key|code|account|iban|zip|port|index|year|version|uid|pid|ref|user|order|customer"
_ID_NAME = re.compile(rf"(?:^|[^a-z])(?:{_ID_WORDS})$|(?:user|order|customer|account)(?:id|no|nr|number|key|code|ref)$")


class Condition(NamedTuple):
    """What a grant requires of one field of a call.

    Attributes:
        kind: `equal`; `at_most` (a number from 0 to this one); `secret` (equal, and stored as a digest).
        value: The canonical form of the value, the number as text, or the digest.
    """

    kind: Literal["equal", "at_most", "secret"]
    value: str


class Grantor(NamedTuple):
    """A person who agreed to a grant, with the roles that they had at that time."""

    by: Identity
    roles: tuple[str, ...]
    channel: str


@dataclass(frozen=True)
class Grant:
    """The terms under which the next calls of a tool start without another decision.

    Attributes:
        id: Random, prefixed `gr_`; knowing it gives no right.
        request_id: The request that it was derived from.
        origin: The run of that request; the grant's events are in that run's chain of the journal.
        tool, name, schema_digest: The function, in exactly this version.
        conditions: What each field must be, by path (`amount`, `order.currency`), and each fact of the context
            (`context:folder`): a grant for one folder, server or tenant does not cover another.
        without: Paths of fields that may have any value or be missing.
        requester, acts_for: Who may ask, and on whose behalf.
        run: The run in which it applies; None for every run of the requester.
        risk, retries, idempotent: Those of the gate. A call whose gate differs in risk or allows more does not fit.
        count, used: How many calls it allows, and how many have started by it.
        created_at, until: When it was made, and when it ends.
        grantors: Who agreed. A call needs as many of them as its gate needs reviewers.
        comment: Why, in the reviewer's words.
        ended: `revoked`, `used up` or `expired`; None while it is in force.
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
        """How many more calls it allows."""
        return self.count - self.used if self.ended is None else 0

    def lacks(self, request: Request) -> str | None:
        """Return why a request does not fit the grant's own terms; None if it fits."""
        if request.always:
            return "its gate requires a person for every call"
        if not isinstance(request.subject, Call) or request.subject.tool != self.tool:
            return "it is another tool"
        if request.subject.schema_digest != self.schema_digest:
            return "the tool has changed since"
        if not request.requester.is_same(self.requester) or request.acts_for != self.acts_for:
            return "another program asks, or on behalf of somebody else"
        if self.run is not None and request.run_id != self.run:
            return "it is another run"
        if request.risk != self.risk or request.retries > self.retries or request.idempotent is not self.idempotent:
            return "its gate has another risk, or allows more starts"
        differing = self.differing(request)
        if not differing:
            return None
        return f"{differing[0]} {'differs' if differing[0] in self.conditions else 'is new'}"

    def differing(self, request: Request) -> list[str]:
        """Return the paths that keep a call of the same tool from fitting: fields that differ, then new ones."""
        fields = _fields(request, request.call)
        found: list[str] = []
        for path, condition in self.conditions.items():
            if path not in fields or not _holds(condition, fields[path], self.id, path):
                found.append(path)
        return found + [path for path in fields if path not in self.conditions and not _is_below(path, self.without)]

    def agreed_by(self, grantor: Grantor) -> Grant:
        """Return the grant with one more grantor."""
        return replace(self, grantors=(*self.grantors, grantor))

    def is_by(self, person: Identity) -> bool:
        """Return whether a person is one of the grantors."""
        return any(person.is_same(one.by) for one in self.grantors)

    def has_same_terms(self, other: Grant, request: Request) -> bool:
        """Return whether this grant allows the same calls for the same time as one drawn now from a request's call.

        Who made them does not matter, nor when.
        """
        mine, theirs = (
            (one.request_id, one.without, one.run, one.count, one.until - one.created_at, _plain(one.conditions))
            for one in (self, other)
        )
        if mine != theirs:
            return False
        fields = _fields(request, request.effective)  # a reviewer may have typed another secret
        secrets = ((path, one) for path, one in self.conditions.items() if one.kind == "secret")
        return all(_holds(one, fields[path], self.id, path) for path, one in secrets)

    def lines(self) -> list[str]:
        """Return the terms as people see them, one line per field; secrets are masked."""
        found: list[str] = []
        for path, condition in self.conditions.items():
            match condition.kind:
                case "at_most":
                    found.append(say("%(path)s is at most %(value)s", path=escape(path), value=condition.value))
                case "secret":
                    found.append(say("%(path)s is the same (secret)", path=escape(path)))
                case _:
                    shown = shown_value(json.loads(condition.value))
                    found.append(say("%(path)s is %(value)s", path=escape(path), value=shown))
        return found + [say("%(path)s may be anything", path=escape(path)) for path in self.without]

    # -- drawing it from a call --------------------------------------------------------------------------------

    @classmethod
    def of(
        cls, request: Request, call: Call, *, count: int, until: datetime, now: datetime, here: bool = False,
        without: Collection[str] = (), at_most: Mapping[str, Any] | None = None, exactly: Collection[str] = (),
        comment: str | None = None,
    ) -> Self:  # fmt: skip
        """Derive a grant from a call.

        Args:
            request: The call's request.
            call: The call as approved, with the reviewer's changes.
            count: How many more calls it allows.
            until: When it ends.
            now: The store's time.
            here: Whether it applies in this request's run only.
            without: Paths of fields that may have any value.
            at_most: Lower upper bounds for numbers, by path.
            exactly: Paths of numbers that must be equal.
            comment: The reviewer's reason.

        Raises:
            GrantRefusedError: The terms are invalid, or wider than the call.
        """
        refuse = partial(errors.GrantRefusedError, request.id)
        if request.always:
            raise refuse("its gate requires a person for every call (always=True)")
        if type(count) is not int or not 1 <= count <= MOST_CALLS:
            raise refuse(f"a grant allows 1 to {MOST_CALLS:,} calls, not {count!r}")
        if until <= now:
            raise refuse("it would end in the past")
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
        """Return the grant as JSON values, for its record."""
        return _codec().dump_python(self, mode="json", exclude={"id"})

    @classmethod
    def from_body(cls, grant_id: str, body: Mapping[str, Any]) -> Grant:
        """Return the grant of a record; raises `StoreCorruptError` if the record is not valid."""
        try:
            return _codec().validate_python({**body, "id": grant_id})
        except (TypeError, ValueError) as error:
            raise errors.StoreCorruptError(
                f"the grant {grant_id} cannot be read: its record was altered; revoke it and make a new one"
            ) from error

    def vote(self, grantor: Grantor, now: datetime) -> Decision:
        """Return the approval that one of the grantors gives to a call that fits."""
        return Decision("approve", grantor.by, now, "grant", None, "", under=self.id)


@cache
def _codec() -> TypeAdapter[Grant]:
    from pydantic import TypeAdapter  # slow to import, so only where there is a grant

    return TypeAdapter(Grant)


def number_of(tree: Any) -> Decimal | None:
    """Return a value in canonical form as a number; None if it is not a finite number."""
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
    """Return the fields of a call by path, with the facts of its request's context, which say where it comes from."""
    facts = {name: fact for name, fact in (request.context or {}).items() if name != ABOUT_THIS_CALL}
    places = ((f"{_CONTEXT}{path}", tree) for path, tree in _leaves(facts))
    return dict(_leaves(canonical.load(call.form))) | dict(places)


def _leaves(tree: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the fields of a call by path. A dict with a key that looks like a path or a tag is a single field."""
    keys = list(cast("dict[str, Any]", tree)) if isinstance(tree, dict) else []
    if not keys or any("." in key or ":" in key or key[:1] in {"", "$"} for key in keys):
        if path or tree:  # a whole call that cannot be split into fields is one field without a name
            yield path, tree
        return
    for key, item in cast("dict[str, Any]", tree).items():
        yield from _leaves(item, f"{path}.{key}" if path else key)


def _is_below(path: str, roots: Collection[str]) -> bool:
    return any(path == root or path.startswith(f"{root}.") for root in roots)


def _drawn(grant_id: str, path: str, tree: Any, *, is_secret: bool, is_exact: bool) -> Condition:
    if is_secret:
        return Condition("secret", _digest(grant_id, path, tree))
    number = number_of(tree)
    # The number of an order or a customer is a name: a smaller one is another customer, not a smaller amount.
    if number is None or number < 0 or is_exact or is_id(path):
        return Condition("equal", dumps_sorted(tree))
    return Condition("at_most", str(number))


def is_id(path: str) -> bool:
    """Return whether a field is named like an id: `order.id`, `accountNumber`, `userid`."""
    return _ID_NAME.search("_".join(words_of(path.rpartition(".")[2]))) is not None


def _tightened(refuse: Callable[[str], Exception], path: str, drawn: Condition | None, bound: Any) -> Condition:
    try:
        number = number_of(canonical.form_of(bound))
    except errors.ArgumentError:  # NaN, infinity, or not a JSON value
        number = None
    if number is None or number < 0:
        raise refuse(f"the bound of {path!r} must be a number from 0, not {bound!r}")
    if drawn is None or drawn.kind != "at_most":
        raise refuse(f"{path!r} is not a number that the grant limits, so it takes no bound")
    if number > Decimal(drawn.value):
        raise refuse(f"{path!r} was {drawn.value} in this call, so a grant made from it cannot allow more")
    return Condition("at_most", str(number))


def _holds(condition: Condition, tree: Any, grant_id: str, path: str) -> bool:
    if path.startswith(_CONTEXT) and tree == canonical.MASK:  # the hidden values may differ
        return False
    match condition.kind:
        case "at_most":
            number = number_of(tree)
            return number is not None and 0 <= number <= Decimal(condition.value)
        case "secret":
            return _digest(grant_id, path, tree) == condition.value
        case "equal":
            return dumps_sorted(tree) == condition.value
        case _:  # the record was altered
            return False


def _digest(grant_id: str, path: str, tree: Any) -> str:
    return hashlib.sha256(f"{grant_id}\0{path}\0{dumps_sorted(tree)}".encode()).hexdigest()


def _plain(conditions: Mapping[str, Condition]) -> dict[str, tuple[str, str]]:
    # The digest of a secret depends on the grant's id, so it cannot be compared.
    return {path: (one.kind, "" if one.kind == "secret" else one.value) for path, one in conditions.items()}


# -- budgets -----------------------------------------------------------------------------------------------------------


_FORM = re.compile(
    r"(?:sum\(\s*args\.(?P<path>[^\s().]+(?:\.[^\s().]+)*)\s*\)|count\(\s*\))\s*<=\s*(?P<limit>\d+(?:_\d+)*(?:\.\d+)?)"
    r"\s+per\s+(?P<span>\d+\s*[a-z]+)(?:\s+per\s+(?P<per>agent|run))?"
)
_MOST_DIGITS = 40


class Taking(NamedTuple):
    """What one start took from a budget.

    Attributes:
        request_id: The request that started.
        at: Microseconds since 1970, by the store's clock.
        amount: The amount taken.
    """

    request_id: str
    at: int
    amount: Decimal


@dataclass(frozen=True)
class Budget:
    """A limit on what a policy allows without a person.

    Attributes:
        text: `sum(args.PATH) <= NUMBER per SPAN` or `count() <= NUMBER per SPAN`, optionally with `per agent` or
            `per run`; without either, all programs share it.
        name: Budgets with the same name, measure, span and scope share one account, even across tools; without a name,
            each tool has its own.

    Raises:
        ConfigError: The text is not a budget.
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
                f"{self.text!r} is not a budget; write `sum(args.amount) <= 1000 per 24h per agent` or"
                " `count() <= 20 per 1h per run`"
            )
        if self.name is not None and (not isinstance(self.name, str) or not self.name.strip()):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise errors.ConfigError(f"the name of a budget must be a string, not {self.name!r}")
        derived = {
            "limit": Decimal(found["limit"]), "span": duration.parse(found["span"].replace(" ", "")),
            "path": found["path"], "per": found["per"],
        }  # fmt: skip
        self.__dict__.update(derived)

    def __str__(self) -> str:
        return self.text

    def account(self, request: Request) -> str:
        """Return the key of the account for a request's call. It does not depend on the limit."""
        return self.account_of(request.call.tool, request.requester, request.run_id)

    def account_of(self, tool: str, agent: Identity | None, run_id: str | None) -> str:
        """Return the key of the account for calls of a tool; `per` says whether the agent or the run is part of it."""
        scope = {"agent": None if agent is None else agent.folded, "run": run_id, None: ""}[self.per]
        whose = [self.name, None if self.name else tool, self.path, str(self.span), self.per, scope]
        return hashlib.sha256(dumps(whose).encode("utf-8", "surrogatepass")).hexdigest()

    def amount(self, request: Request) -> Decimal | None:
        """Return what the call uses; None if its field is missing, not a number, negative, or not finite."""
        if self.path is None:
            return Decimal(1)
        return self.amount_in(canonical.load(request.effective.form)) if isinstance(request.subject, Call) else None

    def amount_in(self, arguments: Any) -> Decimal | None:
        """Return what a call with these arguments (canonical JSON) uses; None as for `amount`."""
        tree = arguments
        for name in () if self.path is None else self.path.split("."):
            if not isinstance(tree, dict) or name not in tree:
                return None
            tree = cast("dict[str, Any]", tree)[name]
        amount = Decimal(1) if self.path is None else number_of(tree)
        return None if amount is None or amount < 0 or amount.adjusted() > _MOST_DIGITS else amount


class BudgetUse(NamedTuple):
    """The state of one account of a policy's budget.

    Attributes:
        budget: The budget, with the limit that applied when something was last taken.
        used: How much of it is used now; None if its record does not match the journal, so that nothing is allowed.
        request: The newest request that took from it, which tells whose it is; None if there is none any more, or it
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
