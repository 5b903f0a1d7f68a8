"""Values as texts that a browser shows and sends back unchanged.

What an input would hide (control and invisible characters) or change (line ends of a one-line field, fractions of a
millisecond) goes into another kind of input. The invariant: a text that comes back equal, line ends aside, stands for
the value that was shown.
"""

from __future__ import annotations

import json
from typing import Any

from sayso.model.canonical import Json, display
from sayso.model.text import escape

__all__ = ["as_json", "is_same", "is_visible", "read_json", "unified"]


def is_visible(text: str) -> bool:
    """Say whether people see every character of a text for what it is; line feeds count as seen."""
    return escape(text, block=True) == text


def as_json(tree: Json) -> str:
    """Return a value as JSON to be edited, with characters that cannot be seen as JSON escapes."""
    text = json.dumps(display(tree), indent=2, ensure_ascii=False)
    return text if is_visible(text) else "".join(map(_seen, text))


def _seen(character: str) -> str:
    if character == "\n" or escape(character) == character:
        return character
    return json.dumps(character)[1:-1]


def read_json(text: str) -> Any:
    """Return what a JSON text says.

    Raises:
        ValueError: It is none, or a name stands twice in one object.
    """
    try:
        return json.loads(text, object_pairs_hook=_object, parse_constant=_refuse)
    except RecursionError:
        raise ValueError("is nested too deeply") from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len({name for name, _ in pairs}) < len(pairs):
        raise ValueError("a name stands twice in one object")
    return dict(pairs)


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")


def unified(text: str) -> str:
    """Return a text with line ends as we write them; browsers send a carriage return, too."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def is_same(kind: str, sent: str, shown: str) -> bool:
    """Say whether a field came back as it was shown; some browsers leave out the seconds of a full minute."""
    if unified(sent) == unified(shown):
        return True
    return kind in {"datetime-local", "time"} and bool(sent) and f"{sent}:00" == shown
