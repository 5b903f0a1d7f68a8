"""What people say in a row of the journal, sealed where there is a key, and opened again to be read.

Invariant: the chain covers a row as it is kept, so that it holds for who has no key.
"""

from __future__ import annotations

import json
from typing import Any

from sayso import errors
from sayso.model.canonical.compact import dumps_sorted
from sayso.model.entry import Entry
from sayso.stores.seal import Seal

__all__ = ["legible", "sealed"]

_WORDS = ("comment", "reason")


def sealed(detail: dict[str, Any], owner: str, seal: Seal) -> dict[str, Any]:
    """Return a row's detail with people's words sealed; the chain then covers them as they are kept."""
    words = {name: detail[name] for name in _WORDS if isinstance(detail.get(name), str)}
    return detail | {name: seal.close(text, owner, f"journal/{name}") for name, text in words.items()}


def legible(entry: Entry, seal: Seal) -> Entry:
    """Return a row with people's words to read, or a note where they do not open; the link covers the sealed ones."""
    # Somebody may have written bytes into the file.
    is_sealed = type(entry.detail) is str and '"sealed:' in entry.detail
    return entry._replace(detail=_opened(entry, seal)) if is_sealed else entry


def _opened(entry: Entry, seal: Seal) -> str:
    owner = entry.request_id or entry.run_id
    try:
        detail: Any = json.loads(entry.detail)
        words = {name: detail[name] for name in _WORDS if str(detail.get(name)).startswith("sealed:")}
    except (AttributeError, ValueError, RecursionError):
        return entry.detail
    for name, text in words.items():
        try:
            detail[name] = seal.open(text, owner, f"journal/{name}")
        except errors.StoreSealedError:
            detail[name] = "(sealed)"
    return dumps_sorted(detail)
