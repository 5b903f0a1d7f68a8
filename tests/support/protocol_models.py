"""The schemas of the models of `sayso.mplp`, for a comparison with the shipped ones.

pydantic generates the schema of each model. This module adds what the models do not enforce, because a document may be
invalid while a program builds it: the form of ids and versions, and that texts are not empty and values not null.
"""

from __future__ import annotations

from functools import cache
from typing import Any, cast

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from sayso.model.edit import ID_PATTERN
from sayso.mplp import Confirm, LearningSample, Plan, confirm, document, history
from sayso.mplp.schema import VERSION

MODELS: dict[str, type[BaseModel]] = {"confirm": Confirm, "learning-sample": LearningSample, "plan": Plan}
_ID = {"type": "string", "pattern": ID_PATTERN}
_VERSION = {"type": "string", "pattern": r"^[0-9]+\.[0-9]+\.[0-9]+$"}
_NOT_EMPTY = {"minLength": 1}
# By `Model.field`, or else by the suffix of the field's name.
_MORE: dict[str, dict[str, Any]] = {
    "Meta.protocol_version": _VERSION,
    "Meta.schema_version": _VERSION,
    "Meta.tags": {"uniqueItems": True},
    "Meta.cross_cutting": {"uniqueItems": True},
    "Ref.id": _ID,
    "Event.event_type": {"pattern": r"^[a-z][a-z0-9]*(?:\.[a-z][a-z0-9]*)*$"},
    "Plan.title": _NOT_EMPTY,
    "Plan.objective": _NOT_EMPTY,
    "Plan.steps": {"minItems": 1},
    "PlanStep.description": _NOT_EMPTY,
    "PlanStep.dependencies": {"items": _ID},
    "PlanStep.order_index": {"minimum": 0},
    "SampleMeta.quality_score": {"minimum": 0, "maximum": 1},
    "SampleMeta.source_flow_id": {},
}
_NULLABLE = {"Event.data"}


def made_schema(kind: str) -> dict[str, Any]:
    """Return the schema of the model of this kind."""
    model = MODELS[kind]
    raw = model.model_json_schema(by_alias=True, mode="validation")
    definitions: dict[str, Any] = {name: _tidied(name, made) for name, made in raw.pop("$defs", {}).items()}
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": model.__name__,
        "$comment": f"Protocol {VERSION}; made by sayso from its models.",
        **_tidied(model.__name__, raw),
        "$defs": definitions,
    }


def _tidied(name: str, made: dict[str, Any]) -> dict[str, Any]:
    """Return pydantic's schema of one model or enum, with our additions."""
    if made.get("type") != "object":
        return {"type": made["type"], "enum": made["enum"]}
    model = _models()[name]
    fields = {info.alias or field: f"{name}.{field}" for field, info in model.model_fields.items()}
    tidied: dict[str, Any] = {
        "type": "object",
        "properties": {key: _field(fields[key], rule) for key, rule in made["properties"].items()},
    }
    needed = [info.alias or field for field, info in model.model_fields.items() if _is_needed(info.default)]
    if needed:
        tidied["required"] = needed
    tidied["additionalProperties"] = model.model_config.get("extra") == "allow"
    return tidied


def _is_needed(default: object) -> bool:
    # Fields with generated defaults (an id, a time, an initial status) are required in a document.
    return default is PydanticUndefined or (default is not None and default != [])


def _field(name: str, rule: dict[str, Any]) -> dict[str, Any]:
    kept = {key: part for key, part in rule.items() if key in {"type", "format", "items", "$ref", "enum", "anyOf"}}
    if "anyOf" in kept and name not in _NULLABLE:
        (only,) = [one for one in kept["anyOf"] if one.get("type") != "null"]
        kept = {key: part for key, part in only.items() if key != "additionalProperties"}
    elif "anyOf" in kept:
        kept["anyOf"] = [{"type": one["type"]} for one in cast("list[dict[str, Any]]", kept["anyOf"])]
    more = _MORE.get(name, _ID if name.endswith("_id") else {})
    return {**kept, **more}


@cache
def _models() -> dict[str, type[BaseModel]]:
    found = [thing for module in (confirm, document, history) for thing in vars(module).values()]
    return {one.__name__: one for one in found if isinstance(one, type) and issubclass(one, BaseModel)}
