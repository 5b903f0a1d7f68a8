"""`Text`: what an agent says, which is a `str` and can be read as a message as well."""

from __future__ import annotations

__all__ = ["Text"]


class Text(str):
    """A text that programs for other libraries read as a message; written down it is a plain `str`."""

    __slots__ = ()

    def collect_text(self) -> str:
        """Return the text."""
        return str(self)
