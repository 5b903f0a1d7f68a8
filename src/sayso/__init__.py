"""No irreversible action without your say-so.

The public names. Each module loads at the first use of one of its names; `import sayso` alone loads nothing heavy.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from sayso import gates as _dialog

if TYPE_CHECKING:
    from sayso import aio as aio
    from sayso import errors as errors
    from sayso import policy as policy
    from sayso.config import configure as configure
    from sayso.confirmation import ConfirmationRejected as ConfirmationRejected
    from sayso.confirmation import ConfirmationRequired as ConfirmationRequired
    from sayso.confirmation import ResumeState as ResumeState
    from sayso.confirmation import ToolCall as ToolCall
    from sayso.confirmation import clear_all_confirmations as clear_all_confirmations
    from sayso.confirmation import clear_confirmation as clear_confirmation
    from sayso.confirmation import confirm_first as confirm_first
    from sayso.confirmation import get_confirmation_context as get_confirmation_context
    from sayso.confirmation import get_confirmation_status as get_confirmation_status
    from sayso.confirmation import respond_to_confirmation as respond_to_confirmation
    from sayso.errors import SaysoError as SaysoError
    from sayso.gates import Converse as _Converse
    from sayso.gates.ask import ask as ask
    from sayso.gates.call import current_request as current_request
    from sayso.gates.gate import gate as gate
    from sayso.gates.gate import hold as hold
    from sayso.gates.held import Held as Held
    from sayso.gates.outcome import NotExecuted as NotExecuted
    from sayso.gates.scope import run as run
    from sayso.gates.signals import ConfirmationCancelled as ConfirmationCancelled
    from sayso.gates.signals import ConfirmationDenied as ConfirmationDenied
    from sayso.gates.signals import ConfirmationExpired as ConfirmationExpired
    from sayso.gates.signals import ConfirmationFeedback as ConfirmationFeedback
    from sayso.model.request import Decision as Decision
    from sayso.model.request import Request as Request
    from sayso.model.reviewer import Identity as Identity
    from sayso.model.reviewer import Reviewer as Reviewer
    from sayso.policy import Happened as Happened
    from sayso.policy import Verdict as Verdict
    from sayso.policy import allow as allow
    from sayso.policy import deny as deny
    from sayso.reviews import Review as Review
    from sayso.runs.agent import Agent as Agent
    from sayso.runs.agent import Tool as Tool
    from sayso.runs.agent import tool as tool
    from sayso.runs.decisions import ApprovalResolution as ApprovalResolution
    from sayso.runs.decisions import Cancel as Cancel
    from sayso.runs.decisions import suspend as suspend
    from sayso.runs.definition import ApprovalPolicyDecision as ApprovalPolicyDecision
    from sayso.runs.events import ApprovalEvent as ApprovalEvent
    from sayso.runs.events import DeltaEvent as DeltaEvent
    from sayso.runs.events import InteractionEvent as InteractionEvent
    from sayso.runs.events import OutputEvent as OutputEvent
    from sayso.runs.events import StartEvent as StartEvent
    from sayso.runs.load import load_run as load_run
    from sayso.runs.module import Module as Module
    from sayso.runs.module import Prediction as Prediction
    from sayso.runs.react import ReAct as ReAct
    from sayso.runs.workflow import Workflow as Workflow

__version__ = "0.1.0"

_HOMES = {
    "Agent": "runs.agent",
    "ApprovalEvent": "runs.events",
    "ApprovalPolicyDecision": "runs.definition",
    "ApprovalResolution": "runs.decisions",
    "Cancel": "runs.decisions",
    "ConfirmationCancelled": "gates.signals",
    "ConfirmationDenied": "gates.signals",
    "ConfirmationExpired": "gates.signals",
    "ConfirmationFeedback": "gates.signals",
    "ConfirmationRejected": "confirmation",
    "ConfirmationRequired": "confirmation",
    "Decision": "model.request",
    "DeltaEvent": "runs.events",
    "Happened": "policy",
    "Held": "gates.held",
    "Identity": "model.reviewer",
    "InteractionEvent": "runs.events",
    "Module": "runs.module",
    "NotExecuted": "gates.outcome",
    "OutputEvent": "runs.events",
    "Prediction": "runs.module",
    "ReAct": "runs.react",
    "Request": "model.request",
    "ResumeState": "confirmation",
    "Review": "reviews",
    "Reviewer": "model.reviewer",
    "SaysoError": "errors",
    "StartEvent": "runs.events",
    "Tool": "runs.agent",
    "ToolCall": "confirmation",
    "Verdict": "policy",
    "Workflow": "runs.workflow",
    "aio": "",
    "allow": "policy",
    "ask": "gates.ask",
    "clear_all_confirmations": "confirmation",
    "clear_confirmation": "confirmation",
    "configure": "config",
    "confirm_first": "confirmation",
    "current_request": "gates.call",
    "deny": "policy",
    "errors": "",
    "gate": "gates.gate",
    "get_confirmation_context": "confirmation",
    "get_confirmation_status": "confirmation",
    "hold": "gates.gate",
    "load_run": "runs.load",
    "policy": "",
    "respond_to_confirmation": "confirmation",
    "run": "gates.scope",
    "suspend": "runs.decisions",
    "tool": "runs.agent",
}

__all__ = [
    "Agent",
    "ApprovalEvent",
    "ApprovalPolicyDecision",
    "ApprovalResolution",
    "Cancel",
    "ConfirmationCancelled",
    "ConfirmationDenied",
    "ConfirmationExpired",
    "ConfirmationFeedback",
    "ConfirmationRejected",
    "ConfirmationRequired",
    "Decision",
    "DeltaEvent",
    "Happened",
    "Held",
    "Identity",
    "InteractionEvent",
    "Module",
    "NotExecuted",
    "OutputEvent",
    "Prediction",
    "ReAct",
    "Request",
    "ResumeState",
    "Review",
    "Reviewer",
    "SaysoError",
    "StartEvent",
    "Tool",
    "ToolCall",
    "Verdict",
    "Workflow",
    "aio",
    "allow",
    "ask",
    "clear_all_confirmations",
    "clear_confirmation",
    "configure",
    "confirm_first",
    "current_request",
    "deny",
    "errors",
    "gate",
    "get_confirmation_context",
    "get_confirmation_status",
    "hold",
    "load_run",
    "policy",
    "respond_to_confirmation",
    "run",
    "suspend",
    "tool",
]


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
