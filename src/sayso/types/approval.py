"""The approval API's decisions, for compatibility; the code is in `sayso.runs`."""

from sayso.runs.decisions import ApprovalResolution, Cancel
from sayso.runs.definition import ApprovalPolicyDecision

__all__ = ["ApprovalPolicyDecision", "ApprovalResolution", "Cancel"]
