"""What all documents of the protocol can do: be parsed with a list of what is wrong, and be exported if they conform.

In Python a document may be incomplete or wrong for a while; what leaves as JSON never is. The rules stand in one
place, the schemas that are made from the models. Invariant: what `export` returns fits the protocol's frozen schemas.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from enum import Enum
from typing import Any, Self, cast

from pydantic import BaseModel, ConfigDict, PrivateAttr

from sayso.mplp.conformance import problems_of
from sayso.mplp.fault import NotConformantError
from sayso.mplp.reading import UnreadableError, read

__all__ = ["Document", "Part", "time_text"]

_NO_OFFSET = timedelta(0)


class Part(BaseModel):
    """A part of a document; it does not change."""

    model_config = ConfigDict(extra="forbid", populate_by_name=True, frozen=True)


class Document(BaseModel):
    """A document of the protocol."""

    model_config = ConfigDict(extra="forbid", populate_by_name=True, validate_assignment=True)

    _changes: tuple[str, ...] = PrivateAttr(default=())

    @property
    def changes(self) -> tuple[str, ...]:
        """What `parse(..., strict=False)` changed, one line each; empty where it changed nothing."""
        return self._changes

    @classmethod
    def parse(cls, json: str | bytes | bytearray | Mapping[str, Any], *, strict: bool = True) -> Self:
        """Return the document that JSON holds.

        Args:
            json: The text, its bytes, or what they hold as Python values.
            strict: Take what fits the schema and nothing else. Without, other spellings are taken as well
                (`protocolVersion`, ids with a prefix, times without a zone, fields that there are not), and
                `changes` says what was made of them.

        Raises:
            NotConformantError: It does not fit; `problems` says where and why.
        """
        from sayso.mplp.schema import schema_of
        from sayso.mplp.spelling import respelled

        schema, changes = schema_of(cls), list[str]()
        try:
            found = read(json)
        except UnreadableError as error:
            raise NotConformantError(cls.__name__, error.problems) from None
        if not strict:
            found = respelled(schema, found, changes)
        problems = problems_of(schema, found) or list(cls.beyond_schema(found))
        if problems:
            raise NotConformantError(cls.__name__, problems)
        document = cls.model_validate(found)
        document.__pydantic_private__ = {**(document.__pydantic_private__ or {}), "_changes": tuple(changes)}
        return document

    @classmethod
    def beyond_schema(cls, document: Mapping[str, Any]) -> Iterator[str]:  # noqa: ARG003  for those that know more
        """Yield what the protocol forbids in words and its schema does not."""
        return iter(())

    @classmethod
    def fitting(cls, brought: Mapping[str, Any]) -> dict[str, Any]:
        """Return those of some fields, as JSON values, that fit the schema; the others are left out."""
        from sayso.mplp.schema import schema_of

        schema, found = schema_of(cls), dict[str, Any]()
        for name, value in brought.items():
            rule = schema["properties"].get(name)
            try:
                plain = read({name: value})
            except UnreadableError:
                continue
            if rule is not None and not problems_of({**rule, "$defs": schema["$defs"]}, plain[name]):
                found |= plain
        return found

    def export(self) -> dict[str, Any]:
        """Return the document as JSON values, which fit the protocol's schema.

        Raises:
            NotConformantError: They would not; `problems` names the fields.
        """
        from sayso.mplp.schema import schema_of

        plain = _plain(self)
        try:
            plain = read(plain)
        except UnreadableError as error:
            raise NotConformantError(type(self).__name__, error.problems) from None
        problems = problems_of(schema_of(type(self)), plain) or list(self.beyond_schema(plain))
        if problems:
            raise NotConformantError(type(self).__name__, problems)
        return plain

    def to_json(self) -> str:
        """Return `export` as indented JSON text."""
        return json.dumps(self.export(), indent=2, ensure_ascii=False)

    def take(self, other: Self) -> None:
        """Become what another one is, in place; whoever holds this one sees it."""
        object.__setattr__(self, "__dict__", dict(vars(other)))
        object.__setattr__(self, "__pydantic_fields_set__", set(other.model_fields_set))


def time_text(moment: datetime) -> str:
    """Return an instant as the protocol's own examples write it; without a zone where it has none."""
    precision = "microseconds" if moment.microsecond % 1000 else "milliseconds"
    text = moment.isoformat(timespec=precision)
    return f"{text.removesuffix('+00:00')}Z" if moment.utcoffset() == _NO_OFFSET else text


def _plain(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return {name: _plain(held) for name, held in _held(value)}
    if isinstance(value, datetime):
        return time_text(value)
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {name: _plain(held) for name, held in cast("Mapping[str, Any]", value).items()}
    return [_plain(item) for item in cast("list[Any]", value)] if isinstance(value, list | tuple) else value


def _held(model: BaseModel) -> Iterator[tuple[str, Any]]:
    """Yield the fields that are there, by the names of the protocol: none that was left out, or filled with nothing."""
    for name, info in type(model).model_fields.items():
        value = getattr(model, name)
        is_given = name in model.model_fields_set
        may_be_null = bool(info.json_schema_extra)
        if (value is None and not (is_given and may_be_null)) or (value == [] and not is_given):
            continue
        yield info.alias or name, value
    yield from (model.model_extra or {}).items()
