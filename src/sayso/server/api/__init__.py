"""The HTTP API below `/api/v1`: the same verbs as the two doors, as JSON.

What can be asked is a list of operations (`sayso.server.api.endpoint`), from which the routes and the OpenAPI document
are both made. The invariant: nothing here answers, let alone decides, before it knows who asks.
"""
