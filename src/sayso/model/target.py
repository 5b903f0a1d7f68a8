"""The two calls by which targets of the Confirm protocol wait for approval, as far as a decision about one differs.

What they are and what runs is `sayso.mplp.call`; here stands what the person's door has to know of them. Invariant: the
no to a target has a reason, and no edit makes it another target.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sayso import errors
from sayso.model.call import Call
from sayso.model.canonical.tags import dump
from sayso.model.decision import Decision
from sayso.model.request import Request

__all__ = ["PLAN_TOOL", "TARGET_TOOL", "is_target", "moved", "must_have_reason"]

PLAN_TOOL = "sayso.mplp.call:carry_out_plan"
TARGET_TOOL = "sayso.mplp.call:use_target"
_FIXED = ("target_type", "target_id")
_NOES = frozenset({"reject", "feedback"})


def is_target(request: Request) -> bool:
    """Say whether a request waits for the approval of a target."""
    return isinstance(request.subject, Call) and request.subject.tool in {PLAN_TOOL, TARGET_TOOL}


def must_have_reason(request: Request, decision: Decision) -> None:
    """Refuse a no to a target that says nothing.

    Raises:
        ReasonMissingError: It does.
    """
    from sayso.model.show.escape import is_blank  # the package that draws is not wanted where nobody says no

    if decision.verb in _NOES and is_target(request) and is_blank(decision.comment or ""):
        raise errors.ReasonMissingError(request.id)


def moved(request: Request, before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Return what is wrong with an edit, given as trees of its arguments, that is about another target."""
    if request.call.tool != TARGET_TOOL:
        return []
    changed = [name for name in _FIXED if dump(before.get(name)) != dump(after.get(name))]
    told = "is what this Confirm is about, and stays as it is; to use another target, reject this one with a reason"
    return [f"{name}: {told}" for name in changed]
