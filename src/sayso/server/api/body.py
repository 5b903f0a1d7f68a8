"""A body as strict JSON: bounded in length and depth, no key twice, no NaN, no number or text that cannot be kept.

What it means is said by the pydantic model of each operation. The invariant: two readers of one body read the same.
"""

from __future__ import annotations

import asyncio
import json
import math
import re
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request as Http

from sayso.server.api.problem import Problem

__all__ = ["LONGEST", "parsed", "read_bytes", "read_json"]

T = TypeVar("T")
LONGEST = 2_000_000
_LARGE = 20_000
_PATIENCE = 30.0  # seconds for a body to arrive
_DEEPEST = 64
_SURROGATE = re.compile("[\ud800-\udfff]")


async def read_json(http: Http, then: Callable[[Any], T]) -> T:
    """Return what `then` makes of the body of a request, as JSON values; an empty one is an empty object.

    What is large is read in a thread, so that nobody else has to wait.

    Raises:
        Problem: It is too long, too slow, is not called JSON, or is none.
    """
    try:
        async with asyncio.timeout(_PATIENCE):
            body = await read_bytes(http)
    except TimeoutError:
        raise Problem("body_too_slow", f"the body did not come in {_PATIENCE:.0f} s; nothing was done") from None
    kind = http.headers.get("content-type", "").partition(";")[0].strip().casefold()
    if not body and kind in {"", "application/json"}:
        return then({})
    if kind != "application/json":
        raise Problem("wrong_content_type", "send the body with Content-Type: application/json; nothing was done")
    if len(body) <= _LARGE:
        return then(parsed(body))
    return await run_in_threadpool(lambda: then(parsed(body)))


async def read_bytes(http: Http) -> bytes:
    """Return the body as it came; raises `Problem` where it is too long."""
    body = bytearray()
    async for chunk in http.stream():
        body += chunk
        if len(body) > LONGEST:
            raise Problem("body_too_large", f"a body has at most {LONGEST:,} bytes; nothing was done")
    return bytes(body)


def parsed(body: bytes) -> Any:
    """Return what a body says as JSON values; raises `Problem` where that is not certain."""
    try:
        content = json.loads(
            body.decode(), object_pairs_hook=_object, parse_constant=_no_constant, parse_float=_finite
        )  # fmt: skip
    except UnicodeDecodeError:
        raise Problem("invalid_json", "the body is not UTF-8; nothing was done") from None
    except RecursionError:
        raise Problem("invalid_json", _TOO_DEEP) from None
    except ValueError as error:
        raise Problem("invalid_json", f"the body cannot be read ({_said(error)}); nothing was done") from None
    _must_be_shallow(content)
    return content


_TOO_DEEP = f"the body is nested deeper than {_DEEPEST} levels; nothing was done"


def _said(error: ValueError) -> str:
    # What Python says of a number with too many digits names a setting of this server.
    if isinstance(error, json.JSONDecodeError | _NotStrict):
        return str(error)
    return "a number has too many digits"


class _NotStrict(ValueError):
    """JSON that some readers take and others do not, or take for something else."""


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise _NotStrict("an object names a key twice")
    return found


def _no_constant(name: str) -> NoReturn:
    raise _NotStrict(f"{name} is no number in JSON")


def _finite(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise _NotStrict("a number is too large")
    return number


def _must_be_shallow(content: Any) -> None:
    """Refuse what is too deep, and texts that are no Unicode; without recursion, for that is what depth attacks."""
    level: list[Any] = [content]
    for _ in range(_DEEPEST + 1):
        below: list[Any] = []
        for value in level:
            match value:
                case dict():
                    below += [*value.keys(), *value.values()]  # pyright: ignore[reportUnknownArgumentType, reportUnknownMemberType]
                case list():
                    below += value
                case str() if _SURROGATE.search(value):
                    raise Problem("invalid_json", "a text has half of a surrogate pair; nothing was done")
                case _:
                    pass
        if not below:
            return
        level = below
    raise Problem("invalid_json", _TOO_DEEP)
