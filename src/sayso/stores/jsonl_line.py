"""The lines of a JSON-lines store: how one is written behind another, and how it is found that one was altered.

Each line is a JSON object whose last field, `link`, is a digest over the line and the link before it. The first line
says what the file is. Invariant: a line that was changed, removed, moved or put in is refused when it is read.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any, cast

from sayso import errors
from sayso.model.canonical.compact import dumps

__all__ = ["Lines"]

_VERSION = 1
_KIND = "sayso.jsonl"
_LINK = 32  # hexadecimal digits
_TAIL = len(',"link":""}') + _LINK


class Lines:
    """How far a file was read.

    Args:
        name: Of the file, for the errors.
        number: How many lines were read.
        link: Of the last of them.
    """

    def __init__(self, name: str, number: int = 0, link: str = "") -> None:
        self._name, self.number, self._link = name, number, link

    def read(self, line: bytes) -> dict[str, Any]:
        """Return what the next line says.

        Raises:
            StoreCorruptError: It is not as it was written, or does not follow the one before.
            StoreVersionError: A newer sayso wrote it.
        """
        if self.number == 0:
            self._check_first(line)
        body, tail = line[:-_TAIL], line[-_TAIL:]
        link = _linked(self._link, body)
        if tail != _tail(link):
            raise errors.StoreCorruptError(
                f"{self._name}: line {self.number + 1} is not as it was written, or lines before it are missing;"
                " nothing was changed, restore the file or name another one"
            )
        record: dict[str, Any] = json.loads(line.decode("ascii"))
        self._check_version(record)
        self._link = link
        self.number += 1
        return record

    def written(self, record: Mapping[str, Any]) -> tuple[bytes, Lines]:
        """Return the text of the next line, with the first one before it where there is none yet, and where it ends."""
        head, before, number = (_FIRST, _FIRST_LINK, 1) if self.number == 0 else (b"", self._link, self.number)
        body = dumps(record)[:-1].encode("ascii")
        link = _linked(before, body)
        return head + body + _tail(link) + b"\n", Lines(self._name, number + 1, link)

    def check_remnant(self, text: bytes) -> None:
        """Check that a line without its end can be what a crash left; raises `StoreCorruptError`."""
        if self.number == 0 and not _FIRST.startswith(text.rstrip(b"\0")):
            raise self._foreign()

    def _check_first(self, line: bytes) -> None:
        try:
            found: Any = json.loads(line)
        except (ValueError, RecursionError):
            raise self._foreign() from None
        first = cast("dict[str, Any]", found) if isinstance(found, dict) else {}
        if first.get("kind") != _KIND:
            raise self._foreign()
        self._check_version(first)  # before its link, which a newer format may compute otherwise

    def _check_version(self, record: Mapping[str, Any]) -> None:
        version = record.get("version", _VERSION)
        if version != _VERSION:
            raise errors.StoreVersionError(
                f"{self._name} was written by a newer sayso (format {version}, this one knows {_VERSION});"
                " upgrade sayso to open it"
            )

    def _foreign(self) -> errors.StoreCorruptError:
        return errors.StoreCorruptError(f"{self._name} is not a sayso store; nothing was changed, name another file")


def _linked(before: str, body: bytes) -> str:
    return hashlib.sha256(before.encode("ascii") + body).hexdigest()[:_LINK]


def _tail(link: str) -> bytes:
    return f',"link":"{link}"}}'.encode("ascii")


_BEGINS = dumps({"kind": _KIND, "version": _VERSION})[:-1].encode("ascii")
_FIRST_LINK = _linked("", _BEGINS)
_FIRST = _BEGINS + _tail(_FIRST_LINK) + b"\n"
