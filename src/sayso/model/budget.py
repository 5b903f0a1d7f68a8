"""Budgets: how much the calls that a policy allows may use in a rolling span of time, before a person is asked.

    sum(args.amount) <= 1000 per 24h per agent
    count() <= 20 per 1h per run

Here is what a budget says and what a call uses of it; `sayso.stores.grants` keeps the account and takes from it in the
start's transaction.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field
from datetime import timedelta
from decimal import Decimal
from typing import Any, Literal, NamedTuple, cast

from sayso.errors import ConfigError
from sayso.model import canonical, duration
from sayso.model.canonical.tags import dumps
from sayso.model.grant import number_of
from sayso.model.request import Call, Request
from sayso.model.reviewer import Identity

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
            raise ConfigError(
                f"{self.text!r} is no budget; write `sum(args.amount) <= 1000 per 24h per agent` or"
                " `count() <= 20 per 1h per run`"
            )
        if self.name is not None and (not isinstance(self.name, str) or not self.name.strip()):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigError(f"the name of a budget is a text, not {self.name!r}")
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
