"""The OpenAPI 3.1 document, made from the operations and the pydantic models that read and write their JSON.

Nothing of a schema is written by hand. The invariant: what is not in the document does not happen, a refusal included.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from pydantic import BaseModel, ConfigDict
from pydantic.json_schema import models_json_schema

from sayso import __version__
from sayso.server.api import problems
from sayso.server.api.endpoint import Endpoint

__all__ = ["Problem", "codes_of", "document"]

_REF = "#/components/schemas/{model}"
_ALWAYS = (
    "not_signed_in", "rate_limited", "internal", "store", "store_busy", "store_corrupt", "store_full",
    "store_read_only", "store_sealed", "store_unavailable", "store_version",
)  # fmt: skip
_WITH_BODY = ("invalid_json", "body_too_large", "wrong_content_type", "invalid_input", "not_from_here")
_PROBLEM = "Problem"


class Problem(BaseModel):
    """What went wrong (RFC 9457). `code` never changes; further members depend on it."""

    model_config = ConfigDict(extra="allow")

    type: str
    title: str
    status: int
    detail: str
    code: str


def document(operations: Iterable[Endpoint]) -> dict[str, Any]:
    """Return the document of these operations."""
    operations = list(operations)
    models = {model for each in operations for model in (each.body, each.answer) if model is not None}
    inputs = {each.body for each in operations}
    refs, definitions = models_json_schema(
        [(model, "validation" if model in inputs else "serialization") for model in _sorted({*models, Problem})],
        ref_template=_REF,
    )
    schemas: dict[Any, dict[str, Any]] = {model: ref for (model, _), ref in refs.items()}
    paths: dict[str, Any] = {}
    for each in operations:
        paths.setdefault(_path(each), {})[each.method.lower()] = _operation(each, schemas)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "sayso", "version": __version__,
            "description": "What waits for a person, and what became of it. A token's kind says what it may do.",
        },
        "servers": [{"url": "/api"}],
        "paths": paths,
        "components": {
            "schemas": definitions["$defs"],
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer", "description": "`sayso token new` makes one."}
            },
        },
        "security": [{"token": []}],
    }  # fmt: skip


def _sorted(models: Iterable[type[BaseModel]]) -> list[type[BaseModel]]:
    return sorted(models, key=lambda model: model.__name__)


def _path(operation: Endpoint) -> str:
    return re.sub(r":\w+}", "}", operation.path)


def _operation(operation: Endpoint, schemas: dict[type[BaseModel], dict[str, Any]]) -> dict[str, Any]:
    kinds = sorted(operation.kinds)
    found: dict[str, Any] = {
        "operationId": operation.name,
        "summary": operation.summary,
        "description": f"For tokens of the kind {', '.join(kinds)}.",
        "x-token-kinds": kinds,
        "parameters": [*_in_path(operation), *_in_query(operation), *_in_headers(operation)],
        "responses": _answers(operation, schemas),
    }
    if operation.body is not None:
        content = {"application/json": {"schema": schemas[operation.body]}}
        is_needed = any(field.is_required() for field in operation.body.model_fields.values())
        found["requestBody"] = {"required": is_needed, "content": content}
    return found


def _in_path(operation: Endpoint) -> list[dict[str, Any]]:
    names = re.findall(r"{(\w+)", operation.path)
    return [{"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in names]


def _in_query(operation: Endpoint) -> list[dict[str, Any]]:
    if operation.query is None:
        return []
    schema = operation.query.model_json_schema()
    definitions = schema.get("$defs", {})
    found: list[dict[str, Any]] = []
    for name, field in schema.get("properties", {}).items():
        given = {key: value for key, value in field.items() if key != "description"}
        found.append({
            "name": name, "in": "query", "required": name in schema.get("required", ()),
            "schema": _inlined(given, definitions), "description": field.get("description", ""),
        })  # fmt: skip
    return found


def _inlined(schema: Any, definitions: dict[str, Any]) -> Any:
    """Return a schema without references: a parameter's stands alone."""
    if isinstance(schema, list):
        return [_inlined(each, definitions) for each in schema]  # pyright: ignore[reportUnknownVariableType]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        return _inlined(definitions[str(schema["$ref"]).rpartition("/")[2]], definitions)  # pyright: ignore[reportUnknownArgumentType]
    return {key: _inlined(value, definitions) for key, value in schema.items()}  # pyright: ignore[reportUnknownVariableType]


def _in_headers(operation: Endpoint) -> list[dict[str, Any]]:
    return [
        {"name": name, "in": "header", "required": False, "schema": {"type": "string"}, "description": said}
        for name, said in operation.headers.items()
    ]


def _answers(operation: Endpoint, schemas: dict[type[BaseModel], dict[str, Any]]) -> dict[str, Any]:
    good: dict[str, Any] = {"description": "Done."}
    if operation.answer is not None:
        good["content"] = {operation.media_type: {"schema": schemas[operation.answer]}}
    elif operation.media_type != "application/json":
        good["content"] = {operation.media_type: {"schema": {"type": "string"}}}
    found: dict[str, Any] = {str(operation.status): good}
    for status, said in operation.also.items():
        found[str(status)] = {**(good if status < 300 else {}), "description": said}
    codes: dict[int, list[problems.ProblemKind]] = {}
    for code in codes_of(operation):
        kind = problems.every()[code]
        codes.setdefault(kind.status, []).append(kind)
    for status, kinds in sorted(codes.items()):
        said = "; ".join(f"`{kind.code}`: {kind.title}" for kind in kinds)
        content = {problems.MEDIA_TYPE: {"schema": schemas[Problem]}}
        found[str(status)] = {"description": said, "content": content}
    return found


def codes_of(operation: Endpoint) -> list[str]:
    """Return the codes of all problems that an operation may answer."""
    found = [*_ALWAYS, "wrong_token_kind", "not_admitted", "invalid_input", *operation.problems]
    if operation.method != "GET":
        found += ["not_from_here"]
    if operation.body is not None:
        found += _WITH_BODY
    return list(dict.fromkeys(found))
