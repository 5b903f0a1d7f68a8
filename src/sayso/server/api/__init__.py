"""The HTTP API below `/api/v1`: the reviewers' verbs, and the verbs of a store for programs.

Invariant: every request is authenticated before it is answered.
"""
