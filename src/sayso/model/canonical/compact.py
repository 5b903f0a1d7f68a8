"""JSON text without spaces, written fast.

`JSONEncoder.encode` builds its C encoder anew for every call, which costs as much as encoding a few fields; here it
is built once. Falls back to the plain encoder where the C one is missing. Everything beyond ASCII is escaped: an
error's text may hold half a character (a file name that is no UTF-8), which no database takes.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

__all__ = ["dumps", "dumps_sorted", "quote"]


def _encoder(*, sort_keys: bool) -> Callable[[object], str]:
    plain = json.JSONEncoder(separators=(",", ":"), allow_nan=False, check_circular=False, sort_keys=sort_keys)
    make: Any = getattr(json.encoder, "c_make_encoder", None)
    if make is None:
        return plain.encode
    quote: Any = json.encoder.encode_basestring_ascii  # pyright: ignore[reportAttributeAccessIssue]  # not in the stub
    write: Callable[[object, int], tuple[str, ...]] = make(
        None, plain.default, quote, None, ":", ",", sort_keys, False, False
    )
    return lambda tree: "".join(write(tree, 0))


quote: Callable[[str], str] = json.encoder.encode_basestring_ascii  # pyright: ignore[reportAttributeAccessIssue]  # not in the stub
dumps = _encoder(sort_keys=False)
dumps_sorted = _encoder(sort_keys=True)
