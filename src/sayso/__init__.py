"""No irreversible action without your say-so.

The public names. Each module loads at the first use of one of its names; `import sayso` alone loads nothing heavy.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from sayso.gates import dialog as _dialog

if TYPE_CHECKING:
    from sayso import aio, errors, policy
    from sayso.config import configure
    from sayso.confirmation import (
        ConfirmationRejected,
        ConfirmationRequired,
        ResumeState,
        ToolCall,
        clear_all_confirmations,
        clear_confirmation,
        confirm_first,
        get_confirmation_context,
        get_confirmation_status,
        respond_to_confirmation,
    )
    from sayso.errors import SaysoError
    from sayso.gates.ambiguous import NotExecuted
    from sayso.gates.ask import ask
    from sayso.gates.dialog import Converse as _Converse
    from sayso.gates.exceptions import (
        ConfirmationCancelled,
        ConfirmationDenied,
        ConfirmationExpired,
        ConfirmationFeedback,
    )
    from sayso.gates.gate import gate, hold
    from sayso.gates.gated_call import current_request
    from sayso.gates.held import Held
    from sayso.gates.scope import run
    from sayso.model.request import Decision, Request
    from sayso.model.reviewer import Identity, Reviewer
    from sayso.policy import Happened, Verdict, allow, deny
    from sayso.reviews import Review
    from sayso.runs.agent import Agent, Tool, tool
    from sayso.runs.decisions import ApprovalResolution, Cancel, suspend
    from sayso.runs.definition import ApprovalPolicyDecision
    from sayso.runs.events import ApprovalEvent, DeltaEvent, InteractionEvent, OutputEvent, StartEvent
    from sayso.runs.load import load_run
    from sayso.runs.module import Module, Prediction
    from sayso.runs.react import ReAct
    from sayso.runs.workflow import Workflow

__version__ = "0.1.0"

# The public names of each module; those of the first line are modules themselves.
_NAMES = {
    "": "aio errors policy",
    "config": "configure",
    "confirmation": "ConfirmationRejected ConfirmationRequired ResumeState ToolCall clear_all_confirmations"
    " clear_confirmation confirm_first get_confirmation_context get_confirmation_status respond_to_confirmation",
    "errors": "SaysoError",
    "gates.ask": "ask",
    "gates.gated_call": "current_request",
    "gates.gate": "gate hold",
    "gates.held": "Held",
    "gates.ambiguous": "NotExecuted",
    "gates.scope": "run",
    "gates.exceptions": "ConfirmationCancelled ConfirmationDenied ConfirmationExpired ConfirmationFeedback",
    "model.request": "Decision Request",
    "model.reviewer": "Identity Reviewer",
    "policy": "Happened Verdict allow deny",
    "reviews": "Review",
    "runs.agent": "Agent Tool tool",
    "runs.decisions": "ApprovalResolution Cancel suspend",
    "runs.definition": "ApprovalPolicyDecision",
    "runs.events": "ApprovalEvent DeltaEvent InteractionEvent OutputEvent StartEvent",
    "runs.load": "load_run",
    "runs.module": "Module Prediction",
    "runs.react": "ReAct",
    "runs.workflow": "Workflow",
}
_HOMES = {name: home for home, names in _NAMES.items() for name in names.split()}

__all__ = [
    "Agent", "ApprovalEvent", "ApprovalPolicyDecision", "ApprovalResolution", "Cancel", "ConfirmationCancelled",
    "ConfirmationDenied", "ConfirmationExpired", "ConfirmationFeedback", "ConfirmationRejected", "ConfirmationRequired",
    "Decision", "DeltaEvent", "Happened", "Held", "Identity", "InteractionEvent", "Module", "NotExecuted",
    "OutputEvent", "Prediction", "ReAct", "Request", "ResumeState", "Review", "Reviewer", "SaysoError", "StartEvent",
    "Tool", "ToolCall", "Verdict", "Workflow", "aio", "allow", "ask", "clear_all_confirmations", "clear_confirmation",
    "configure", "confirm_first", "current_request", "deny", "errors", "gate", "get_confirmation_context",
    "get_confirmation_status", "hold", "load_run", "policy", "respond_to_confirmation", "run", "suspend", "tool",
]  # fmt: skip


def _load_dialog() -> _Converse:
    from sayso.terminal import converse

    return converse


_dialog.offer(_load_dialog)  # here only: this module is loaded before every other module of the package


if not TYPE_CHECKING:  # with `__getattr__` in view, a type checker would accept every misspelt name as Any

    def __getattr__(name: str) -> Any:
        home = _HOMES.get(name)
        if home is None:
            raise AttributeError(f"module 'sayso' has no attribute {name!r}")
        value = importlib.import_module(f"sayso.{home}" if home else f"sayso.{name}")
        value = getattr(value, name) if home else value
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
