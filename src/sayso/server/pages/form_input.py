"""Reads a submitted form: what a reviewer changed, and nothing else.

A field that was not sent, or came back as it was shown, is not part of the edit and keeps its exact value, secrets
included; an object of which one field was changed keeps the others. `sayso.reviews` checks the values by the function's
types.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sayso.errors import ArgumentError
from sayso.model.canonical import Json, display, value_of
from sayso.model.schema import Schema, SchemaError
from sayso.server.pages.forms import LABELS, Way, Widget, is_same, read_json, unified

__all__ = ["Edit", "read_answer", "read_edit"]

_PLAIN_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?")


@dataclass
class Edit:
    """What a form changes.

    Attributes:
        changes: New values of arguments.
        left_out: Arguments that are to have their defaults.
        problems: What cannot be read, `where: what is wrong`.
        widgets: The fields, with what was sent standing in them.
    """

    changes: dict[str, Any] = field(default_factory=dict[str, Any])
    left_out: list[str] = field(default_factory=list[str])
    problems: list[str] = field(default_factory=list[str])
    widgets: tuple[Widget, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether nothing was changed."""
        return not (self.changes or self.left_out or self.problems)

    def arguments(self, shown: Mapping[str, Json]) -> dict[str, Any]:
        """Return all arguments, for an edit that leaves some out; what was not changed is as it was shown."""
        kept = {name: display(tree) for name, tree in shown.items() if name not in self.left_out}
        return kept | self.changes


class _Unreadable(Exception):
    """What was sent cannot be a value."""


_UNCHANGED = object()
_LEFT_OUT = object()


class _Reader:
    def __init__(self, form: Mapping[str, str], classes: Mapping[str, type]) -> None:
        self._form = form
        self._classes = classes
        self.problems: list[str] = []

    def read(self, widget: Widget) -> object:
        """Return the new value, `_UNCHANGED` or `_LEFT_OUT`; a problem counts as unchanged."""
        if not widget.can_change:
            return _UNCHANGED
        way = self.way(widget)
        new = self._read_value(widget)
        if way == widget.way and (way == "value" or new is not _UNCHANGED):
            return new  # whoever writes a value where there was none means that value
        if way != "value" and new is not _UNCHANGED:
            self.problems.append(f"{widget.path}: a value is given, and “{LABELS[way]}” is chosen; choose one of them")
            return _UNCHANGED
        if way == widget.way:
            return _UNCHANGED
        match way:
            case "null":
                return None
            case "absent":
                return _LEFT_OUT
            case "value":
                return self._first_value(widget) if new is _UNCHANGED else new

    def way(self, widget: Widget) -> Way:
        """Return what is said of a field: a value, null, or nothing at all."""
        sent: str = self._form.get(f"{widget.key}.way", widget.way)
        offered: dict[str, Way] = {way: way for way in widget.ways}
        return offered.get(sent, widget.way)

    def _read_value(self, widget: Widget) -> object:
        if widget.kind == "fields":
            return self._object(widget)
        sent = self._form.get(widget.key)
        if sent is None or is_same(widget.kind, sent, widget.value):
            return _UNCHANGED
        return self._meant(widget, sent)

    def _first_value(self, widget: Widget) -> object:
        """Return the value of a field that had none: what stands in it, also where that is nothing."""
        if widget.kind == "fields":
            return self._whole(widget, {})
        return self._meant(widget, self._form.get(widget.key, widget.value))

    def _meant(self, widget: Widget, sent: str) -> object:
        try:
            return _value(widget, unified(sent))
        except _Unreadable as error:
            self.problems.append(f"{widget.path}: {error}")
            return _UNCHANGED

    def _object(self, widget: Widget) -> object:
        new = {part.name: self.read(part) for part in widget.parts}
        changed = {name: value for name, value in new.items() if value is not _UNCHANGED}
        return self._whole(widget, changed) if changed else _UNCHANGED

    def _whole(self, widget: Widget, changed: Mapping[str, object]) -> dict[str, object]:
        whole: dict[str, object] = {}
        for part in widget.parts:
            if part.name in changed:
                if changed[part.name] is not _LEFT_OUT:
                    whole[part.name] = changed[part.name]
            elif part.is_given and part.way != "absent":
                whole[part.name] = self._kept(part)
        return whole

    def _kept(self, part: Widget) -> object:
        try:
            return value_of(part.tree, self._classes)  # with all that its plain JSON does not say, a time zone's name
        except ArgumentError:
            return display(part.tree)


def _value(widget: Widget, text: str) -> object:
    match widget.kind:
        case "bool":
            if text not in {"true", "false"}:
                raise _Unreadable("choose true or false")
            return text == "true"
        case "choice":
            if not (text.isascii() and text.isdigit() and int(text) < len(widget.choices)):
                raise _Unreadable("choose one of them")
            return widget.choices[int(text)]
        case "lines":
            return [line.strip() for line in text.split("\n") if line.strip()]
        case "json":
            try:
                return read_json(text)
            except ValueError as error:
                raise _Unreadable(f"this is no JSON: {error}") from None
        case "number":
            return _number(text.strip())
        case _:
            return text


def _number(text: str) -> object:
    """Return a number where one was typed: a strict type takes no text for it."""
    try:
        return read_json(text) if _PLAIN_NUMBER.fullmatch(text) else text
    except ValueError:  # it has more digits than are read
        return text


def read_edit(widgets: Sequence[Widget], form: Mapping[str, str], classes: Mapping[str, type]) -> Edit:
    """Return what a form changes of a call.

    Args:
        widgets: The fields as they are made of the call as it stands.
        form: What was sent.
        classes: The classes of the call's schema (`Schema.classes`).
    """
    reader, edit = _Reader(form, classes), Edit()
    for widget in widgets:
        new = reader.read(widget)
        if new is _LEFT_OUT:
            edit.left_out.append(widget.name)
        elif new is not _UNCHANGED:
            edit.changes[widget.name] = new
    edit.problems = reader.problems
    edit.widgets = _filled(widgets, form, reader)
    return edit


def read_answer(
    widgets: Sequence[Widget], form: Mapping[str, str], schema: Schema
) -> tuple[object, list[str], tuple[Widget, ...]]:
    """Return the answer in a form, what cannot be read of it, and the fields as they were sent."""
    reader = _Reader(form, schema.classes)
    filled = _filled(widgets, form, reader)
    (widget,) = widgets
    if reader.way(widget) == "null":
        return None, [], filled
    if widget.kind == "json":  # any type at all: people type it as at a terminal
        try:
            return schema.parse("answer", unified(form.get(widget.key, ""))), [], filled
        except SchemaError as error:
            return None, error.problems, filled
    new = reader._read_value(widget)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
    value = reader._first_value(widget) if new is _UNCHANGED else new  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
    return value, reader.problems, filled


def _filled(widgets: Collection[Widget], form: Mapping[str, str], reader: _Reader) -> tuple[Widget, ...]:
    return tuple(
        replace(
            widget,
            value=unified(form.get(widget.key, widget.value)),
            proposed=widget.value,
            way=reader.way(widget),
            proposed_way=widget.way,
            parts=_filled(widget.parts, form, reader),
        )
        for widget in widgets
    )
