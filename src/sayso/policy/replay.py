"""What a policy would have decided about past requests, compared with what happened or with another policy."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from sayso import errors
from sayso.model.request import Request
from sayso.model.schema import Schema
from sayso.policy.file import Policy

Outcome = Literal["allow", "hold", "deny", "uncertain", "error"]


class Past(NamedTuple):
    """What a policy would have decided about a past call, and the masked arguments that prevent an answer."""

    outcome: Outcome
    masked: tuple[str, ...] = ()


@dataclass
class Replay:
    """The result of a replay.

    Attributes:
        asked: The number of past calls that were evaluated.
        verdicts: How many the policy would have allowed, held and denied. `uncertain` depends on a masked value;
            `error` would not have run.
        changes: The ids of the calls with another decision, by the old and the new one.
        masked: The masked arguments that made verdicts uncertain, by name, and how often.
        left_out: The number of requests that are not calls, or were purged.
    """

    asked: int = 0
    verdicts: dict[str, int] = field(default_factory=dict[str, int])
    changes: dict[tuple[str, str], list[str]] = field(default_factory=dict[tuple[str, str], list[str]])
    masked: dict[str, int] = field(default_factory=dict[str, int])
    left_out: int = 0

    def as_json(self) -> dict[str, Any]:
        """Return it as plain JSON."""
        changes = [{"from": was, "to": now, "count": len(ids), "ids": ids} for (was, now), ids in self.changes.items()]
        return {
            "asked": self.asked, "verdicts": self.verdicts, "changes": changes, "masked": self.masked,
            "left_out": self.left_out,
        }  # fmt: skip


def replay(requests: Iterable[Request], policy: Policy, before: Policy | None = None) -> Replay:
    """Evaluate a policy for past calls, with the arguments that people saw and the time at which they were asked.

    Args:
        requests: The requests. Those that are not calls, or whose content was purged, are counted and left out.
        policy: The policy.
        before: The policy to compare with. Defaults to what happened: each was held, unless a budget allowed it.
    """
    found = Replay()
    for request in requests:
        if request.kind != "call" or request.purged_at is not None:
            found.left_out += 1
            continue
        past = verdict_on(policy, request)
        was = _happened(request) if before is None else verdict_on(before, request).outcome
        found.asked += 1
        found.verdicts[past.outcome] = found.verdicts.get(past.outcome, 0) + 1
        for name in past.masked:
            found.masked[name] = found.masked.get(name, 0) + 1
        if was != past.outcome:
            found.changes.setdefault((was, past.outcome), []).append(request.id)
    return found


def verdict_on(policy: Policy, request: Request) -> Past:
    """Evaluate a policy for a past call, with the arguments that people saw and the time at which it was asked."""
    call = request.call
    try:
        answer = policy.explain(
            call.tool, call.arguments, schema=Schema.from_text(call.schema), run=_run_of(request),
            agent=request.requester.subject, now=request.created_at, is_function=call.tool != call.name,
        )  # fmt: skip
    except (errors.PolicyError, ValueError):
        return Past("error")
    if answer.verdict is not None:
        return Past(answer.verdict.kind)
    masked = answer.steps[-1].masked
    return Past("uncertain", masked) if masked else Past("error")


def _happened(request: Request) -> Outcome:
    return "allow" if request.decision is not None and request.decision.under == "budget" else "hold"


def _run_of(request: Request) -> str | None:
    """Return the run's name as conditions see it; None if the program gave none."""
    return None if request.process is not None else request.run_id
