"""Verdicts of a rule: allow, hold or deny a call, and what a hold requires.

A gate's `when=` is a bool or a callable that takes the call's arguments. The only valid results are `True`, `False` and
a `Verdict`. If a rule returns anything else or raises, the call does not run and `PolicyError` names the rule.
`Happened` is what a `verify=` hook answers.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Literal

from sayso import errors
from sayso.model import duration
from sayso.model.grant import Budget
from sayso.model.reviewer import Escalation, Quorum, Reviewer


@dataclass(frozen=True)
class Verdict:
    """A rule's answer; created by `allow`, `hold` and `deny`.

    Attributes:
        kind: What happens to the call.
        reason: Why; reviewers see it on a hold, the program gets it on a denial.
        prompt: For a hold, what the reviewer should read first, instead of the gate's.
        expires: For a hold, how long the request waits, instead of the gate's.
        quorum: For a hold, who must approve, instead of the gate's.
        risk: For a hold, the risk word, instead of the gate's.
        context: For a hold, facts for the reviewer's front end: JSON values that may be shown.
        escalation: For a hold, who else may decide later, instead of the gate's; a hold with its own quorum does not
            use the gate's.
        budgets: For an allowed call, its limits. The call is recorded; if a limit is used up, it is held, with the
            options of a hold given here.
        always: For a hold, that a person decides each call, and no grant can.
        summary: For a hold, what the call does, in one line; a template, instead of the gate's.
        redact: For a hold, more names of arguments and fields to mask, in addition to the gate's.
        channels: For a hold, the only channels that are notified; empty for all.
        effect: For a hold, the effect of the call; a template, used if the gate has none.
        approve_from_notification: For a hold, that its push notification may have an Approve button.
        log: For an allowed call, that it is written to the journal.
        rule: Name of the rule, if it has one; it is recorded.
    """

    kind: Literal["allow", "hold", "deny"]
    reason: str | None = None
    prompt: str | None = None
    expires: timedelta | None = None
    quorum: Quorum | None = None
    risk: str | None = None
    context: dict[str, Any] | None = None
    escalation: Escalation | None = None
    budgets: tuple[Budget, ...] = ()
    always: bool = False
    summary: str | None = None
    redact: tuple[str, ...] = ()
    channels: tuple[str, ...] = ()
    effect: str | None = None
    approve_from_notification: bool = False
    log: bool = False
    rule: str | None = None

    def __post_init__(self) -> None:
        # Users write rules, so an invalid verdict must be reported as the rule's fault.
        kinds = {
            "reason": str, "prompt": str, "expires": timedelta, "quorum": Quorum, "risk": str, "context": dict,
            "escalation": Escalation, "budgets": tuple, "always": bool, "summary": str, "redact": tuple,
            "channels": tuple, "effect": str, "approve_from_notification": bool, "log": bool, "rule": str,
        }  # fmt: skip
        for name, kind in kinds.items():
            value = getattr(self, name)
            if value is not None and not isinstance(value, kind):
                raise TypeError(
                    f"a verdict's {name} is a {kind.__name__}, not {type(value).__name__}; use sayso.policy.hold()"
                )
        if self.kind not in {"allow", "hold", "deny"}:
            raise ValueError(f"a verdict is allow, hold or deny, not {self.kind!r}")
        if self.expires is not None:
            duration.parse(self.expires)
        if (self.budgets and self.kind != "allow") or not all(isinstance(one, Budget) for one in self.budgets):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ValueError("budgets are for an allow only; use sayso.policy.allow(budget=...)")
        if self.always and self.kind != "hold":
            raise ValueError("always= is for a hold only; use sayso.policy.hold(always=True)")
        needs_anybody = self.quorum is None or (self.quorum.count == 1 and not self.quorum.roles)
        if self.approve_from_notification and not (self.kind == "hold" and self.risk == "low" and needs_anybody):
            raise ValueError("approve_from_notification= needs a hold with risk='low' and without a quorum and roles")
        # An option that would have no effect is rejected, not ignored.
        needs = {"summary": self.summary, "redact": self.redact, "channels": self.channels, "effect": self.effect}
        may_be_held = self.kind == "hold" or bool(self.budgets)
        lost = [name for name, value in needs.items() if value is not None and value != () and not may_be_held]
        lost += ["log"] if self.log and self.kind != "allow" else []
        if lost:
            raise ValueError(f"a verdict's {lost[0]} cannot be used for {self.kind}")

    @property
    def is_recorded(self) -> bool:
        """Whether the call becomes a request: it is held, or allowed within a budget."""
        return self.kind == "hold" or bool(self.budgets)


@dataclass(frozen=True)
class Happened:
    """Returned by a `verify=` hook if the call had its effect, with the call's result.

    Attributes:
        result: The value that the call would have returned. A hook that does not know it may return `True` instead.
    """

    result: Any = None


_ALLOW, HOLD = Verdict("allow"), Verdict("hold")


def allow(
    *, budget: Budget | str | Iterable[Budget | str] | None = None, otherwise: Verdict | None = None, log: bool = False
) -> Verdict:  # fmt: skip
    """Return the verdict that lets the call run. Without a budget, nothing is recorded.

    Args:
        budget: One or several limits, such as `"sum(args.amount) <= 1000 per 24h per agent"`. The call is recorded and
            uses its part when it starts; if a limit would be exceeded, it waits for a person.
        otherwise: A `hold(...)` with the options of such a hold; defaults to the gate's.
        log: Whether the call is also written to the journal.

    Raises:
        ConfigError: A text is not a budget.
        ValueError: `otherwise` is not a hold, or is given without a budget.
    """
    if otherwise is not None and (otherwise.kind != "hold" or otherwise.always or budget is None):
        raise ValueError("otherwise= takes a hold() without always=, and needs budget=")
    if budget is None:
        return Verdict("allow", log=True) if log else _ALLOW
    given = (budget,) if isinstance(budget, Budget | str) else budget
    budgets = tuple(Budget(one) if isinstance(one, str) else one for one in given)
    return replace(otherwise or _ALLOW, kind="allow", budgets=budgets, log=log)


def hold(
    reason: str | None = None, *, prompt: str | None = None, expires: timedelta | str | None = None,
    quorum: int | None = None, roles: Collection[str] | None = None, risk: str | None = None,
    escalate_after: timedelta | str | None = None, escalate_to: Collection[str | Reviewer] = (),
    always: bool = False, summary: str | None = None, redact: Collection[str] = (), channels: Collection[str] = (),
    effect: str | None = None, approve_from_notification: bool = False,
) -> Verdict:  # fmt: skip
    """Return the verdict that makes the call wait for a person.

    Args:
        reason: Why, shown to the reviewer.
        prompt: What the reviewer should read first.
        expires: How long the request waits, e.g. `"24h"`.
        quorum: How many distinct reviewers must approve.
        roles: Each of them must have one of these.
        risk: A word of your own, e.g. `high`.
        escalate_after, escalate_to: After this time, people with one of these roles and these reviewers may also
            decide. A hold with `quorum` or `roles` and without these is not escalated, whatever the gate says.
        always: Whether a person decides each call, so that no grant can.
        summary: What the call does, in one line: a template over the arguments.
        redact: More names of arguments and fields to mask.
        channels: The only channels that are notified.
        effect: What the call does to the world: a template over the arguments, as for `sayso.gate`.
        approve_from_notification: Whether its push notification may have an Approve button; only with `risk="low"`,
            and without quorum and roles.
    """
    wanted: dict[str, Any] = {"count": quorum, "roles": roles}
    given = {name: value for name, value in wanted.items() if value is not None}
    needs = Quorum(**given) if given else None
    span = None if expires is None else duration.parse(expires)
    escalation = Escalation.of(escalate_after, escalate_to)
    return Verdict(
        "hold", reason, prompt, span, needs, risk, escalation=escalation, always=always, summary=summary,
        redact=_names("redact", redact), channels=_names("channels", channels), effect=effect,
        approve_from_notification=approve_from_notification,
    )  # fmt: skip


def _names(option: str, given: Collection[str]) -> tuple[str, ...]:
    if isinstance(given, str) or not all(isinstance(one, str) and one.strip() for one in given):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"{option} takes a collection of names, not {given!r}")
    return tuple(given)


def deny(reason: str) -> Verdict:
    """Return the verdict that refuses the call without asking a person; the program gets `reason`."""
    return Verdict("deny", reason)


def describe(rule: Any, option: str = "when") -> str:
    """Return a rule's name for messages; `option` is the name of the option that takes it."""
    if isinstance(rule, bool):
        return f"{option}={rule}"
    return f"{option}={getattr(rule, '__name__', type(rule).__name__)}"


def verdict_of(answer: object, rule: str) -> Verdict:
    """Return the verdict for a rule's result; `rule` is the rule's name for messages.

    Raises:
        PolicyError: It is neither a bool nor a `Verdict`. `None`, `1`, `"no"` and `{}` are errors, not booleans.
    """
    match answer:
        case True:
            return HOLD
        case False:
            return _ALLOW
        case Verdict():
            return answer
        case _:
            raise errors.PolicyError(
                rule, f"returned {type(answer).__name__}, not True (hold), False (allow) or a Verdict"
            )
