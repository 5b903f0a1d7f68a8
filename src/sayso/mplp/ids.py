"""Identifiers of the protocol: UUIDs of version 4, which is the only form that its schemas take.

New ones are random. What a request already names (itself, its run, a decision on it) gets an identifier that follows
from that name, so that every process writes the same one. Invariant: each one made here has the form of a UUID v4.
"""

from __future__ import annotations

import hashlib
import re

from sayso.model.edit import ID_PATTERN
from sayso.model.ids import new_token

__all__ = ["ID_PATTERN", "id_of", "is_id", "new_id", "shaped"]

_VARIANT = dict(zip("0123456789abcdef", "89ab" * 4, strict=True))
_WHOLE = re.compile(ID_PATTERN.removeprefix("^").removesuffix("$"))


def is_id(text: str) -> bool:
    """Say whether a text is an identifier of the protocol."""
    return _WHOLE.fullmatch(text) is not None


def new_id() -> str:
    """Return a new random identifier."""
    return shaped(new_token())


def shaped(digits: str) -> str:
    """Return 32 hexadecimal digits as an identifier: the six bits that say "UUID v4" are set, all others stay."""
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-{_VARIANT[digits[16]]}{digits[17:20]}-{digits[20:]}"


def id_of(*parts: object) -> str:
    """Return the identifier that follows from these parts, always the same one."""
    content = "sayso/mplp/1"
    for text in map(str, parts):
        content += f"\n{len(text)}:{text}"
    return shaped(hashlib.sha256(content.encode("utf-8", "surrogatepass")).hexdigest()[:32])
