"""The API: all of its endpoints, and the document that tells of them.

Everything below `/api` answers in JSON, and a caller without a valid token cannot find out which paths exist.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from starlette.responses import JSONResponse, Response

from sayso.server.api import aap, aap_instances, events, openapi, program, review
from sayso.server.api.endpoint import Api, Context, Endpoint, Router

__all__ = ["api", "endpoints"]

_document = Router()


def endpoints() -> list[Endpoint]:
    """Return all endpoints of sayso's own API; those of another protocol have a specification of their own."""
    return [each for module in (review, program, events) for each in module.router.endpoints] + _document.endpoints


def api() -> Api:
    """Return the ASGI program that answers all of them, and those of the Agent Approval Protocol."""
    return Api([*endpoints(), *aap.router.endpoints, *aap_instances.router.endpoints], {"/aap/": aap.error})


@cache
def _written() -> dict[str, Any]:
    return openapi.document(endpoints())


@_document.get("/v1/openapi.json", "This document")
def openapi_document(context: Context) -> Response:
    # Where the inbox is mounted below another path, this is, too.
    return JSONResponse({**_written(), "servers": [{"url": context.http.scope["root_path"]}]})
