"""The approval API's decisions, for compatibility; the code is in `sayso.runs.decisions` and `sayso.runs.options`."""

from sayso.runs.decisions import ApprovalResolution, Cancel
from sayso.runs.options import ApprovalPolicyDecision

__all__ = ["ApprovalPolicyDecision", "ApprovalResolution", "Cancel"]
