"""All endpoints of the API, and the OpenAPI 3.1 document generated from them and the pydantic models of their JSON.

No schema is written by hand. Invariant: the document lists every answer of an endpoint, including errors. Everything
below `/api` answers in JSON, and a client without a valid token cannot find out which paths exist.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema
from starlette.responses import JSONResponse, Response

from sayso import __version__
from sayso.server.api import aap, events, problems, program, review
from sayso.server.api.endpoint import Api, Context, Endpoint, Router
from sayso.server.api.messages import ProblemDocument
from sayso.stores.http_messages import Message

__all__ = ["api", "codes_of", "document", "endpoints"]


_Schemas = dict[type[BaseModel], dict[str, Any]]

_ALWAYS = (
    "not_signed_in", "rate_limited", "internal", "store", "store_busy", "store_corrupt", "store_full",
    "store_read_only", "store_sealed", "store_unavailable", "store_version",
)  # fmt: skip
_WITH_BODY = ("invalid_json", "body_too_large", "wrong_content_type", "invalid_input", "not_from_here")


def document(endpoints: Iterable[Endpoint]) -> dict[str, Any]:
    """Return the OpenAPI document of these endpoints."""
    endpoints = list(endpoints)
    schemas: _Schemas = {}
    definitions: dict[str, Any] = {}
    modes = {each.answer: "serialization" for each in endpoints} | {each.input: "validation" for each in endpoints}
    modes = {model: mode for model, mode in modes.items() if model is not None} | {ProblemDocument: "serialization"}
    # The programs' messages get a prefix, because some share a name with the reviewers' messages.
    for is_programs, prefix in ((True, "Program"), (False, "")):
        wanted: list[Any] = [each for each in modes.items() if issubclass(each[0], Message) is is_programs]
        if wanted:
            refs, found = models_json_schema(wanted, ref_template=f"#/components/schemas/{prefix}{{model}}")
            schemas |= {model: ref for (model, _), ref in refs.items()}  # pyright: ignore[reportAssignmentType]
            definitions |= {prefix + name: schema for name, schema in found["$defs"].items()}
    paths: dict[str, Any] = {}
    for each in endpoints:
        paths.setdefault(_path(each), {})[each.method.lower()] = _operation(each, schemas, definitions)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "sayso", "version": __version__,
            "description": "Requests, decisions and outcomes. The kind of a token determines what it may do.",
        },
        "servers": [{"url": "/api"}],
        "paths": paths,
        "components": {
            "schemas": definitions,
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer", "description": "Create one with `sayso token new`."}
            },
        },
        "security": [{"token": []}],
    }  # fmt: skip


def _path(endpoint: Endpoint) -> str:
    return re.sub(r":\w+}", "}", endpoint.path)


def _operation(endpoint: Endpoint, schemas: _Schemas, definitions: dict[str, Any]) -> dict[str, Any]:
    kinds = sorted(endpoint.kinds)
    found: dict[str, Any] = {
        "operationId": endpoint.name,
        "summary": endpoint.summary,
        "description": f"For tokens of the kind {', '.join(kinds)}.",
        "x-token-kinds": kinds,
        "parameters": [*_in_path(endpoint), *_in_query(endpoint, schemas, definitions), *_in_headers(endpoint)],
        "responses": _answers(endpoint, schemas),
    }
    if endpoint.input is not None and endpoint.method != "GET":
        content = {"application/json": {"schema": schemas[endpoint.input]}}
        is_needed = any(field.is_required() for field in endpoint.input.model_fields.values())
        found["requestBody"] = {"required": is_needed, "content": content}
    return found


def _in_path(endpoint: Endpoint) -> list[dict[str, Any]]:
    names = re.findall(r"{(\w+)", endpoint.path)
    return [{"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in names]


def _in_query(endpoint: Endpoint, schemas: _Schemas, definitions: dict[str, Any]) -> list[dict[str, Any]]:
    if endpoint.input is None or endpoint.method != "GET":
        return []
    query = definitions[schemas[endpoint.input]["$ref"].rpartition("/")[2]]
    return [
        {
            "name": name, "in": "query", "required": name in query.get("required", ()),
            "schema": {key: value for key, value in field.items() if key != "description"},
            "description": field.get("description", ""),
        }
        for name, field in query.get("properties", {}).items()
    ]  # fmt: skip


def _in_headers(endpoint: Endpoint) -> list[dict[str, Any]]:
    return [
        {"name": name, "in": "header", "required": False, "schema": {"type": "string"}, "description": description}
        for name, description in endpoint.reads.items()
    ]


def _answers(endpoint: Endpoint, schemas: _Schemas) -> dict[str, Any]:
    good: dict[str, Any] = {"description": "Done."}
    if endpoint.answer is not None:
        good["content"] = {endpoint.media_type: {"schema": schemas[endpoint.answer]}}
    elif endpoint.media_type != "application/json":
        good["content"] = {endpoint.media_type: {"schema": {"type": "string"}}}
    found: dict[str, Any] = {"200": good}
    for status, description in endpoint.also.items():
        found[str(status)] = {**(good if status < 300 else {}), "description": description}
    codes: dict[int, list[problems.ProblemKind]] = {}
    for code in codes_of(endpoint):
        kind = problems.kinds()[code]
        codes.setdefault(kind.status, []).append(kind)
    for status, kinds in sorted(codes.items()):
        description = "; ".join(f"`{kind.code}`: {kind.title}" for kind in kinds)
        content = {problems.MEDIA_TYPE: {"schema": schemas[ProblemDocument]}}
        found[str(status)] = {"description": description, "content": content}
    return found


def codes_of(endpoint: Endpoint) -> list[str]:
    """Return the codes of all problems that an endpoint may return."""
    found = [*_ALWAYS, "wrong_token_kind", "not_admitted", "invalid_input", *endpoint.problems]
    if endpoint.method != "GET":
        found += ["not_from_here"]
        found += [] if endpoint.input is None else _WITH_BODY
    return list(dict.fromkeys(found))


_document = Router()


def endpoints() -> list[Endpoint]:
    """Return all endpoints of sayso's API, without those of AAP, which has its own specification."""
    return [each for module in (review, program, events) for each in module.router.endpoints] + _document.endpoints


def api() -> Api:
    """Return the ASGI application for all endpoints, including those of the Agent Approval Protocol (AAP)."""
    return Api([*endpoints(), *aap.router.endpoints], {"/aap/": aap.error})


@cache
def _written() -> dict[str, Any]:
    return document(endpoints())


@_document.get("/v1/openapi.json", "This document")
def openapi_document(context: Context) -> Response:
    # The server's address includes the path where the inbox is mounted.
    return JSONResponse({**_written(), "servers": [{"url": f"{context.http.scope.get('root_path', '')}/api"}]})
