"""The input of a single value: which one, and what stands in it.

The invariant: a value that an input would change or hide is given none here, and becomes JSON.
"""

from __future__ import annotations

import re

from sayso.model.canonical import Json, display
from sayso.model.canonical.decode import tag_in
from sayso.model.json_schema import Node
from sayso.server.form.text import is_visible
from sayso.server.form.widget import Kind, Widget
from sayso.view.arguments import Layout

__all__ = ["scalar_widget"]

_WIDTH = 96
_ONE_LINE = 60
_NUMBER = re.compile(r"-?\d+(\.\d+)?([eE][+-]?\d+)?")
_WHEN: dict[str, tuple[Kind, re.Pattern[str]]] = {
    "date": ("date", re.compile(r"\d{4}-\d\d-\d\d")),
    "datetime": ("datetime-local", re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d")),
    "time": ("time", re.compile(r"\d\d:\d\d:\d\d")),
}


def scalar_widget(kind: Node, tree: Json, key: str) -> Widget | None:
    """Return the field of a single value; None where it has no input of its own. `tree` is None without a value."""
    named = kind.get("type")
    if named == "boolean":
        return _bool(key, tree)
    if named in {"integer", "number"}:
        return _number(key, named == "integer", tree, kind)
    if named != "string":
        return None
    name = str(kind.get("x-sayso-type") or (kind.get("format") if kind.get("format") == "date" else "str"))
    if tree is None:
        return Widget(key, "", "", "date" if name == "date" else "text", "", limits=_lengths(kind))
    is_text = "x-sayso-type" not in kind or name == "str"
    if not (isinstance(tree, str) if is_text else tag_in(tree) == f"${name}"):
        return None  # what stands here is not of the declared type: it is shown as what it is
    return _text(key, name, str(display(tree)), tree, _lengths(kind))


def _bool(key: str, tree: Json) -> Widget | None:
    if tree is not None and not isinstance(tree, bool):
        return None
    empty = [("", "choose…")] if tree is None else []
    value = "" if tree is None else "true" if tree else "false"
    return Widget(key, "", "", "bool", "", value=value, options=(*empty, ("true", "true"), ("false", "false")))


def _number(key: str, is_whole: bool, tree: Json, kind: Node) -> Widget | None:  # noqa: FBT001
    is_fit = isinstance(tree, int if is_whole else int | float) and not isinstance(tree, bool)
    value = "" if tree is None else repr(tree)
    if (tree is not None and not is_fit) or (value and _NUMBER.fullmatch(value) is None):
        return None
    said = {"step": "1" if is_whole else "any"}
    for attribute, limit in (("min", kind.get("minimum")), ("max", kind.get("maximum"))):
        if isinstance(limit, int | float):
            said[attribute] = repr(limit)
    return Widget(key, "", "", "number", "", value=value, limits=said)


def _text(key: str, name: str, text: str, tree: Json, limits: dict[str, str]) -> Widget | None:
    if not is_visible(text):
        return None
    if name in _WHEN and _WHEN[name][1].fullmatch(text) and "[" not in text:
        return Widget(key, "", "", _WHEN[name][0], "", value=text, limits={} if name == "date" else {"step": "1"})
    if "\n" in text or len(text) > _ONE_LINE:
        drawn = "\n".join(Layout(_WIDTH, None).rows(tree))
        return Widget(key, "", "", "long", "", value=text, drawn=drawn, limits=limits)
    return Widget(key, "", "", "text", "", value=text, limits=limits)


def _lengths(kind: Node) -> dict[str, str]:
    # A browser counts in UTF-16 units, so a limit of ours would refuse what the function takes; only the hint says it.
    return {"data-longest": str(kind["maxLength"])} if isinstance(kind.get("maxLength"), int) else {}
