"""Decisions under the approval face's module path; they live in `sayso.runs.decisions` and `sayso.runs.options`."""

from sayso.runs.decisions import ApprovalResolution, Cancel
from sayso.runs.options import ApprovalPolicyDecision

__all__ = ["ApprovalPolicyDecision", "ApprovalResolution", "Cancel"]
