"""All operations of the API, and their routes: one place for each path, and one for every address that is none.

The reviewers' half is in `review` and `events`, the programs' in `ask` and `kept`.
The invariant: whatever is below `/api` answers in JSON, and a wrong address tells nothing to who is not known.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any, TypeVar

from starlette.responses import JSONResponse
from starlette.routing import BaseRoute, Mount, Route

from sayso.server.api import ask, events, openapi, review
from sayso.server.api.endpoint import Context, Endpoint, EndpointsAtPath

__all__ = ["mounted", "operations"]

_R = TypeVar("_R", Mount, Route)


def operations() -> list[Endpoint]:
    """Return everything that can be asked."""
    return [_OPENAPI, *review.OPERATIONS, *ask.OPERATIONS, *events.OPERATIONS]


def mounted() -> Mount:
    """Return all of it, below `/api`."""
    return _whole(Mount("/api", routes=_routes()))


def _routes() -> list[BaseRoute]:
    places: dict[str, dict[str, Endpoint]] = {}
    for operation in operations():
        places.setdefault(operation.path, {})[operation.method] = operation
    # What takes a whole rest of a path comes after what stands below it.
    ordered = sorted(places.items(), key=lambda place: (":path}" in place[0], place[0]))
    return [_whole(Route(path, EndpointsAtPath(operations))) for path, operations in [*ordered, ("/{rest:path}", {})]]


def _whole(route: _R) -> _R:
    """Let a route take line feeds as it takes any other letter, which Starlette's own do not."""
    route.path_regex = re.compile(route.path_regex.pattern, re.DOTALL)
    return route


@cache
def _document() -> dict[str, Any]:
    return openapi.document(operations())


def _openapi(asked: Context) -> JSONResponse:
    # Where the inbox is mounted below another path, this is, too.
    return JSONResponse({**_document(), "servers": [{"url": asked.http.scope["root_path"]}]})


_OPENAPI = Endpoint("GET", "/v1/openapi.json", "This document", _openapi)
