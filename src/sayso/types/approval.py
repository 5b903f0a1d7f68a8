"""Decisions under the approval face's module path; they live in `sayso.runs.resolution`."""

from sayso.runs.resolution import ApprovalPolicyDecision, ApprovalResolution, Cancel

__all__ = ["ApprovalPolicyDecision", "ApprovalResolution", "Cancel"]
