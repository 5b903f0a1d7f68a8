"""The routes of the API: one for each endpoint, and one for unknown paths.

Everything below `/api` answers in JSON, and a caller without a valid token cannot find out which paths exist.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any, TypeVar

from starlette.responses import JSONResponse, Response
from starlette.routing import Mount, Route

from sayso.server.api import aap, aap_instances, events, openapi, program, review
from sayso.server.api.endpoint import Context, Endpoint, EndpointsAtPath, Router

__all__ = ["endpoints", "mounted"]

_R = TypeVar("_R", Mount, Route)
_document = Router()


def endpoints() -> list[Endpoint]:
    """Return all endpoints of sayso's own API; those of another protocol have a specification of their own."""
    return [each for module in (review, program, events) for each in module.router.endpoints] + _document.endpoints


def mounted() -> Mount:
    """Return all of them, and those of the Agent Approval Protocol, below `/api`."""
    at: dict[str, dict[str, Endpoint]] = {"/{rest:path}": {}}
    for endpoint in [*endpoints(), *aap.router.endpoints, *aap_instances.router.endpoints]:
        at.setdefault(endpoint.path, {})[endpoint.method] = endpoint
    # What takes a whole rest of a path comes after what stands below it, and what takes anything last.
    paths = sorted(at, key=lambda path: (path == "/{rest:path}", ":path}" in path, path))
    return _whole(Mount("/api", routes=[_whole(Route(path, _at(path, at[path]))) for path in paths]))


def _at(path: str, found: dict[str, Endpoint]) -> EndpointsAtPath:
    return EndpointsAtPath(found, error=aap.error) if path.startswith("/aap/") else EndpointsAtPath(found)


def _whole(route: _R) -> _R:
    """Let a route take line feeds as it takes any other letter, which Starlette's own do not."""
    route.path_regex = re.compile(route.path_regex.pattern, re.DOTALL)
    return route


@cache
def _written() -> dict[str, Any]:
    return openapi.document(endpoints())


@_document.get("/v1/openapi.json", "This document")
def openapi_document(context: Context) -> Response:
    # Where the inbox is mounted below another path, this is, too.
    return JSONResponse({**_written(), "servers": [{"url": context.http.scope["root_path"]}]})
