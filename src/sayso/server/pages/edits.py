"""Reads what a person submits about a request: an edit, an answer, or the name of a colleague.

A field that was not sent, or was sent back as shown, is not part of the edit and keeps its exact value, including
secrets. An object, list or dict with one changed part keeps the others. `sayso.reviews` checks the values against the
function's types. `sayso.server.pages.request` shows the forms, and `sayso.server.pages.actions` executes them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from sayso.errors import ArgumentError, InvalidChangesError
from sayso.model import canonical
from sayso.model.canonical import display, value_of
from sayso.model.edit import schema_of
from sayso.model.rendering import separators, ungrouped
from sayso.model.request import Request, State
from sayso.model.reviewer import LOCAL, Identity, Reviewer
from sayso.model.schema import SchemaError
from sayso.model.text import escape, say, unisolated
from sayso.server.context import RequestContext
from sayso.server.language import translated
from sayso.server.pages.forms import ABSENT, LABELS, Way, Widget, fields_for

_PLAIN_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?")
_GROUPED_NUMBER = re.compile(r"[-+]?[0-9.,' ]+")
_ONE_GROUP = re.compile(r"[-+]?[1-9][0-9]{0,2}\.[0-9]{3}")
_LONGEST_NAME = 400
_UNCHANGED = object()
_LEFT_OUT = object()


@dataclass
class Edit:
    """The changes in a form.

    Attributes:
        widgets: The fields, filled with what was sent.
        changes: New values of arguments.
        left_out: Arguments to omit, so that they get their defaults.
        problems: What cannot be parsed, as `where: what is wrong`.
    """

    widgets: tuple[Widget, ...]
    changes: dict[str, Any] = field(default_factory=dict[str, Any])
    left_out: list[str] = field(default_factory=list[str])
    problems: list[str] = field(default_factory=list[str])

    @property
    def is_any(self) -> bool:
        """Whether the form changes anything, or contains what cannot be parsed."""
        return bool(self.changes or self.left_out or self.problems)

    def given(self, request: Request) -> dict[str, Any]:
        """Return the edit as keyword arguments of `Review.approve`; raises `InvalidChangesError`."""
        if self.problems:
            raise InvalidChangesError(request.id, self.problems)
        if self.left_out:  # give all arguments; unchanged ones are as shown
            others = request.effective.shown.items()
            unchanged = {name: display(tree) for name, tree in others if name not in self.left_out}
            return {"arguments": unchanged | self.changes}
        return {"changes": self.changes} if self.changes else {}


def edit_of(request: Request, form: Mapping[str, str]) -> Edit:
    """Return what a form changes in the call of a request: nothing if that is not pending, or is a question."""
    if request.kind != "call" or request.state is not State.PENDING:
        return Edit(())
    widgets, reader = fields_for(request), _Reader(form, schema_of(request).classes)
    edit = Edit(reader.filled(widgets), problems=reader.problems)
    for widget in widgets:
        if widget.parts and widget.key in form:  # of a page that was sent before an upgrade: the edit would be lost
            edit.problems.append(widget.path + ": " + say("its form has changed; reload the page"))
            continue
        new = reader.read(widget)
        if new is _LEFT_OUT:
            edit.left_out.append(widget.name)
        elif new is not _UNCHANGED:
            edit.changes[widget.name] = new
    return edit


def answer_of(request: Request, form: Mapping[str, str]) -> tuple[object, list[str], tuple[Widget, ...]]:
    """Return the answer in a form, its problems, and the fields filled with what was sent."""
    (widget,), schema = fields_for(request), schema_of(request)
    reader = _Reader(form, schema.classes)
    filled = reader.filled([widget])
    if reader.way(widget) == "null":
        return None, [], filled
    none = f"{widget.key}.none"
    written = (
        text for key, text in form.items()
        if f"{key}.".startswith(f"{widget.key}.") and key[-4:] != ".way" and key != none
    )  # fmt: skip
    is_written = any(text.strip() for text in written)
    if widget.can_be_empty and is_written is (form.get(none) == "yes"):
        unclear = say("give at least one, or tick “None (an empty list)”, but not both")
        return None, [f"{widget.path}: {unclear}"], filled
    if widget.is_needed and not is_written:
        missing = say("write an answer first")
        return None, [f"{widget.path}: {missing}"], filled
    if widget.kind == "json":  # any type: parsed like an answer typed in a terminal
        try:
            return schema.parse("answer", _with_line_feeds(form.get(widget.key, ""))), [], filled
        except SchemaError as error:
            return None, error.problems, filled
    return reader.value(widget, is_new=True), reader.problems, filled


def _with_line_feeds(text: str) -> str:
    """Return a text with line feeds as line ends, because browsers send carriage returns as well."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


class _Reader:
    """Reads the fields of one form. A field with a problem counts as unchanged."""

    def __init__(self, form: Mapping[str, str], classes: Mapping[str, type]) -> None:
        self._form, self._classes = form, classes
        self.problems: list[str] = []

    def way(self, widget: Widget) -> Way:
        """Return whether a field gives a value, null, or is left out."""
        offered: dict[str, Way] = {way: way for way in widget.ways}
        return offered.get(self._form.get(f"{widget.key}.way", widget.way), widget.way)

    def filled(self, widgets: Sequence[Widget]) -> tuple[Widget, ...]:
        return tuple(
            replace(
                widget, value=_with_line_feeds(self._form.get(widget.key, widget.value)), proposed=widget.value,
                way=self.way(widget), proposed_way=widget.way, parts=self.filled(widget.parts),
                entry=self._form.get(f"{widget.key}.name", "") if widget.kind == "entry" else "",
            )
            for widget in widgets
        )  # fmt: skip

    def read(self, widget: Widget) -> object:
        """Return the new value, `_UNCHANGED` or `_LEFT_OUT`."""
        if not widget.can_change:
            return _UNCHANGED
        way, new = self.way(widget), self.value(widget)
        if way == widget.way and (way == "value" or new is not _UNCHANGED):
            return new  # a value typed into an empty field counts without choosing “given”
        if way != "value" and new is not _UNCHANGED:
            return self._add_problem(
                widget, say("a value is given, and “%(way)s” is chosen; choose one of them", way=say(LABELS[way]))
            )
        if way == widget.way:
            return _UNCHANGED
        return self.value(widget, is_new=True) if way == "value" else None if way == "null" else _LEFT_OUT

    def value(self, widget: Widget, *, is_new: bool = False) -> object:
        """Return the value in a field, `_UNCHANGED` if it was sent back as shown.

        With `is_new` it had no value before, so its content counts even if it is empty or unchanged.
        """
        if widget.kind == "fields":
            return self._object(widget, is_new=is_new)
        if widget.kind == "items":
            return self._list(widget, is_new=is_new)
        sent = self._form.get(widget.key, widget.value)
        # Some browsers omit the seconds of a full minute.
        is_minute = widget.kind in {"datetime-local", "time"} and bool(sent) and f"{sent}:00" == widget.value
        if not is_new and (is_minute or _with_line_feeds(sent) == _with_line_feeds(widget.value)):
            return _UNCHANGED
        try:
            return _typed(widget, _with_line_feeds(sent))
        except ValueError as error:
            return self._add_problem(widget, str(error))

    def _add_problem(self, widget: Widget, why: str) -> object:
        problem = f"{widget.path}: {unisolated(why)}"
        self.problems += [] if problem in self.problems else [problem]  # a field may be read twice
        return _UNCHANGED

    def _object(self, widget: Widget, *, is_new: bool) -> object:
        named = [part for part in widget.parts if part.kind != "entry"]
        new = {part.name: self.read(part) for part in named}
        added = self._added(widget, {part.name for part in named})
        if not is_new and not added and all(value is _UNCHANGED for value in new.values()):
            return _UNCHANGED
        whole: dict[str, object] = {}
        for part in named:
            if new[part.name] is not _UNCHANGED:
                if new[part.name] is not _LEFT_OUT:
                    whole[part.name] = new[part.name]
            elif part.is_given and part.way != "absent" and part.tree is not ABSENT:
                whole[part.name] = self._unchanged_value(part)
            elif part.kind == "items" and part.way == "value":
                whole[part.name] = []  # of a new object; no row was written
        return whole | added

    def _added(self, widget: Widget, taken: set[str]) -> dict[str, object]:
        found: dict[str, object] = {}
        for part in widget.parts:
            if part.kind != "entry":
                continue
            name, value = self._form.get(f"{part.key}.name", "").strip(), self.read(part.parts[0])
            if not name and value is _UNCHANGED:
                continue
            if not name or name in taken | found.keys():
                self._add_problem(part, say("a new entry needs a name that is not used yet"))
            elif value is _UNCHANGED:
                self._add_problem(part, say("the new argument %(name)s needs a value", name=escape(name)))
            else:
                found[name] = value
        return found

    def _list(self, widget: Widget, *, is_new: bool) -> object:
        new = [self.read(part) for part in widget.parts]
        if not is_new and all(value is _UNCHANGED for value in new):
            return _UNCHANGED
        whole: list[object] = []
        for part, value in zip(widget.parts, new, strict=True):
            if value is _UNCHANGED:
                whole += [] if part.way == "absent" else [self._unchanged_value(part)]
            elif value is not _LEFT_OUT:
                whole.append(value)
        return whole

    def _unchanged_value(self, part: Widget) -> object:
        try:
            return value_of(part.tree, self._classes)  # exact: plain JSON lacks the name of a time zone
        except ArgumentError:
            return display(part.tree)


def _typed(widget: Widget, text: str) -> object:
    """Return the typed value of a text; raises `ValueError` if it cannot be parsed."""
    match widget.kind:
        case "bool":
            if text not in {"true", "false"}:
                one, other = (shown for sent, shown in widget.options if sent)
                raise ValueError(say("choose %(one)s or %(other)s", one=one, other=other))
            return text == "true"
        case "choice":
            if not (text.isascii() and text.isdigit() and int(text) < len(widget.choices)):
                raise ValueError(say("choose one of them"))
            return widget.choices[int(text)]
        case "lines":
            return [line.strip() for line in text.split("\n") if line.strip()]
        case "json":
            try:
                return canonical.strict_loads(text)
            except ValueError as error:
                raise ValueError(say("this is not valid JSON: %(fault)s", fault=translated(str(error)))) from None
        case "number":
            text = clear_number(text.strip())
            # Parsed here, because strict types refuse a text. Other text is returned as it is, for validation.
            with suppress(ValueError):  # too many digits
                return canonical.strict_loads(text) if _PLAIN_NUMBER.fullmatch(text) else text
            return text
        case _:
            return clear_number(text.strip()) if widget.limits.get("inputmode") == "decimal" else text


def clear_number(text: str) -> str:
    """Return a number as JSON writes it: also of 2300,50 where a card writes 2.300,50.

    A number that means another one to other people is refused: 4,900 anywhere, and 1.250 where a card writes 2.300,50.

    Raises:
        ValueError: With what to write instead.
    """
    _, point = separators()
    plain = ungrouped(text, point) if point == "," else None
    if plain is not None:
        return plain
    if "," in text and _GROUPED_NUMBER.fullmatch(text):
        raise ValueError(say("write a number with a point before its decimals and no other sign, such as 4900.50"))
    if point == "," and _ONE_GROUP.fullmatch(text):
        whole = text.replace(".", "")
        raise ValueError(
            say("%(text)s has two meanings here; write %(whole)s or %(part)s", text=text, whole=whole, part=f"{text}0")
        )
    return text


class NotDoneError(Exception):
    """A form is refused because something in it is missing or wrong; the message says what."""


def colleagues(context: RequestContext) -> list[str]:
    """Return the other people who are signed in, by the names that the form of an assignment accepts."""
    me = context.reviewer.identity
    others = (one.identity for one in context.settings.sessions.people() if not one.identity.is_same(me))
    return sorted(one.subject if one.issuer == LOCAL else one.qualified for one in others)


def person_named(context: RequestContext, name: str) -> Reviewer | Identity:
    """Return the signed-in person of a name, with their roles; else an identity, by default of the reader's issuer."""
    if len(name) > _LONGEST_NAME:
        raise NotDoneError(say("A name has at most %(most)s characters. Nothing was changed.", most=_LONGEST_NAME))
    known = [one for one in context.settings.sessions.people() if one.identity.goes_by(name)]
    if len(known) > 1:
        raise NotDoneError(
            say("Several people go by %(name)s: write ISSUER:NAME. Nothing was changed.", name=escape(name))
        )
    if known:
        return known[0]
    issuer, colon, subject = name.partition(":")
    try:
        return Identity(issuer, subject) if colon else Identity(context.reviewer.issuer, name)
    except ValueError as error:
        raise NotDoneError(say("%(fault)s; nothing was changed.", fault=escape(str(error)))) from None
