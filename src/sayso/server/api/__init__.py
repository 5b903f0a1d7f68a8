"""The HTTP API below `/api/v1`: the verbs of the person's door for reviewers, and those of a store for programs.

Nothing here answers, let alone decides, before it knows who asks.
"""
