"""One field of a form: what kind of input it is, what stands in it, and what it may be.

Names and hints are escaped here already; `value` is what an input holds, and is only ever a text that a browser shows
and sends back as it is. The invariant: two fields of one form never have the same key, whatever a program calls its
arguments.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from sayso.model.canonical import Json

__all__ = ["LABELS", "Kind", "Way", "Widget", "walk", "with_problems"]

Kind = Literal[
    "text", "long", "number", "bool", "choice", "date", "datetime-local", "time", "lines", "json", "fields", "fixed"
]
Way = Literal["value", "null", "absent"]

LABELS: dict[Way, str] = {"value": "this value", "null": "null", "absent": "leave out"}


@dataclass(frozen=True)
class Widget:
    """A field.

    Attributes:
        key: What the input is called in the form.
        name: The argument's or field's own name.
        path: Where it stands, as problems name it: `order.lines`.
        kind: Which input it is; `fields` has parts, and `fixed` cannot be changed.
        label: The name as people see it.
        hint: What it may be, in a few words.
        value: What stands in the input.
        tree: The value as it stands, of the canonical form, masked; None where there is none.
        drawn: The whole value, drawn by us, where the input may not show all of it.
        limits: Attributes of the input.
        options: For a choice, what is sent and what is read, in order.
        choices: What each option stands for.
        parts: For `fields`, its own.
        ways: What can be said of it: a value, null, or nothing at all.
        way: What is said now.
        proposed: Where an edit is shown again, what stood in the input before it.
        proposed_way: Where an edit is shown again, what was said before it.
        is_given: Whether it is sent with its object; a class sets some of its fields itself.
        problem: What is wrong with what was sent.
    """

    key: str
    name: str
    path: str
    kind: Kind
    label: str
    hint: str = ""
    value: str = ""
    tree: Json = field(default=None, repr=False)
    drawn: str | None = None
    limits: dict[str, str] = field(default_factory=dict[str, str])
    options: tuple[tuple[str, str], ...] = ()
    choices: tuple[Any, ...] = ()
    parts: tuple[Widget, ...] = ()
    ways: tuple[Way, ...] = ("value",)
    way: Way = "value"
    proposed: str | None = None
    proposed_way: Way | None = None
    default: str = ""
    is_given: bool = True
    problem: str | None = None

    @property
    def can_change(self) -> bool:
        """Whether anything of it can be changed."""
        return self.kind != "fixed" and (self.kind != "fields" or any(part.can_change for part in self.parts))

    def labels(self) -> list[tuple[Way, str]]:
        """Return the ways with their words."""
        words = {**LABELS}
        if self.default:
            words["absent"] = f"leave out ({self.default})"
        return [(way, words[way]) for way in self.ways]


def walk(widgets: Sequence[Widget]) -> Iterator[Widget]:
    """Yield fields and the fields in them."""
    for widget in widgets:
        yield widget
        yield from walk(widget.parts)


def with_problems(widgets: Sequence[Widget], problems: Sequence[str]) -> tuple[tuple[Widget, ...], list[str]]:
    """Return the fields with the problems that are about them, and the problems that are about none."""
    paths = {widget.path for widget in walk(widgets)}
    found: dict[str, list[str]] = {}
    rest: list[str] = []
    for problem in problems:
        where, _, what = problem.partition(": ")
        nearest = max((path for path in paths if _is_within(where, path)), key=len, default=None)
        if nearest is None or not what:
            rest.append(problem)
        else:
            found.setdefault(nearest, []).append(what if where == nearest else problem)
    return tuple(_marked(widget, found) for widget in widgets), rest


def _is_within(where: str, path: str) -> bool:
    return where == path or where.startswith((f"{path}.", f"{path}["))


def _marked(widget: Widget, found: dict[str, list[str]]) -> Widget:
    mine = found.get(widget.path)
    parts = tuple(_marked(part, found) for part in widget.parts)
    return replace(widget, parts=parts, problem="; ".join(mine) if mine else widget.problem)
