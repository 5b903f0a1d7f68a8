"""Verdicts of a rule: allow, hold or deny a call, and what a hold requires.

A gate's `when=` is a bool or a callable that takes the call's arguments. The only valid results are `True`, `False` and
a `Verdict`. If a rule returns anything else or raises, the call does not run and `PolicyError` names the rule.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal

from sayso import errors
from sayso.model import duration
from sayso.model.reviewer import Escalation, Quorum, Reviewer

__all__ = ["Happened", "Verdict", "allow", "deny", "describe", "hold", "verdict_of"]


@dataclass(frozen=True)
class Verdict:
    """A rule's answer; made by `allow`, `hold` and `deny`.

    Attributes:
        kind: What is to happen to the call.
        reason: Why; reviewers see it on a hold, the program gets it on a denial.
        prompt: For a hold, what the reviewer is to read first, instead of the gate's.
        expires: For a hold, how long the request waits, instead of the gate's.
        quorum: For a hold, who must agree, instead of the gate's.
        risk: For a hold, the risk word, instead of the gate's.
        context: For a hold, facts for the reviewer's front end: JSON values, and nothing that may not be shown.
        escalation: For a hold, who else may decide later, instead of the gate's; a hold with a quorum of its own has
            no other than this one.
    """

    kind: Literal["allow", "hold", "deny"]
    reason: str | None = None
    prompt: str | None = None
    expires: timedelta | None = None
    quorum: Quorum | None = None
    risk: str | None = None
    context: dict[str, Any] | None = None
    escalation: Escalation | None = None

    def __post_init__(self) -> None:
        # Rules are written by users, and a verdict that cannot be kept must be told as the rule's fault.
        kinds = {
            "reason": str, "prompt": str, "expires": timedelta, "quorum": Quorum, "risk": str, "context": dict,
            "escalation": Escalation,
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


@dataclass(frozen=True)
class Happened:
    """What a `verify=` hook returns when the call had its effect, and what the call then returns.

    Attributes:
        result: The value that the call would have returned; a hook that knows none may return `True` instead.
    """

    result: Any = None


_ALLOW, _HOLD = Verdict("allow"), Verdict("hold")


def allow() -> Verdict:
    """Return the verdict that lets the call through; nothing is written."""
    return _ALLOW


def hold(
    reason: str | None = None, *, prompt: str | None = None, expires: timedelta | str | None = None,
    quorum: int | None = None, roles: Collection[str] | None = None, risk: str | None = None,
    escalate_after: timedelta | str | None = None, escalate_to: Collection[str | Reviewer] = (),
) -> Verdict:  # fmt: skip
    """Return the verdict that makes the call wait for a person.

    Args:
        reason: Why, shown to the reviewer.
        prompt: What the reviewer is to read first.
        expires: How long the request waits, e.g. `"24h"`.
        quorum: How many distinct reviewers must approve.
        roles: Each of them must have one of these.
        risk: A word of yours, e.g. `high`.
        escalate_after, escalate_to: After this time those with one of these roles, and these reviewers, may decide too.
            A hold that says `quorum` or `roles` and not this is not escalated, whatever the gate says.
    """
    wanted: dict[str, Any] = {"count": quorum, "roles": roles}
    given = {name: value for name, value in wanted.items() if value is not None}
    needs = Quorum(**given) if given else None
    span = None if expires is None else duration.parse(expires)
    escalation = Escalation.of(escalate_after, escalate_to)
    return Verdict("hold", reason, prompt, span, needs, risk, escalation=escalation)


def deny(reason: str) -> Verdict:
    """Return the verdict that refuses the call without asking anybody."""
    return Verdict("deny", reason)


def describe(rule: Any, option: str = "when") -> str:
    """Return how a rule is named to people; `option` is what its author calls it."""
    if isinstance(rule, bool):
        return f"{option}={rule}"
    return f"{option}={getattr(rule, '__name__', type(rule).__name__)}"


def verdict_of(answer: object, rule: str) -> Verdict:
    """Return the verdict that a rule's answer means; `rule` is how the rule is named to people.

    Raises:
        PolicyError: It is neither a bool nor a `Verdict`: `None`, `1`, `"no"` and `{}` are errors, not truth.
    """
    match answer:
        case True:
            return _HOLD
        case False:
            return _ALLOW
        case Verdict():
            return answer
        case _:
            raise errors.PolicyError(
                rule, f"returned {type(answer).__name__}, not True (hold), False (allow) or a Verdict"
            )
