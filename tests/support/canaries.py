"""A program full of secrets, and checks whether any of them leaks.

Every secret contains the same word. This module has secrets at every depth, the program that uses them, and what the
public interfaces return for its requests; tests add the other surfaces. Invariant: a text with that word is not clean.
"""

from __future__ import annotations

import base64
import json
import pickle
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel, SecretBytes, SecretStr

import sayso

__all__ = [
    "DEPTHS", "FORMS", "NUMBER", "WORD", "Program", "assert_clean", "assert_clean_error", "canary", "secrets_in",
    "told_of",
]  # fmt: skip


WORD = "CANARY"
NUMBER = 7_215_893_461
FORMS = (WORD, base64.b64encode(WORD.encode()).decode(), str(NUMBER), WORD.encode().hex())
DEPTHS = 5


def canary(name: str) -> str:
    return f'{WORD}-{name}-it\'s "quoted" \\ and größer\n{WORD} second line of it'


@dataclass
class Box:
    token: str
    note: str = "plain"
    inner: Box | None = None


class Crate(BaseModel):
    password: str
    pin: SecretStr
    raw: SecretBytes = SecretBytes(b"")
    inner: Crate | None = None


def box(depth: int) -> Box:
    return Box(canary(f"box{depth}"), inner=box(depth + 1) if depth < DEPTHS else None)


def crate(depth: int) -> Crate:
    return Crate(
        password=canary(f"crate{depth}"),
        pin=SecretStr(canary(f"pin{depth}")),
        raw=SecretBytes(canary(f"raw{depth}").encode()),
        inner=crate(depth + 1) if depth < DEPTHS else None,
    )


def tree(depth: int) -> dict[str, Any]:
    here: dict[str, Any] = {"dbPassword": canary(f"tree{depth}"), "user": "plain"}
    return here | ({"next": tree(depth + 1)} if depth < DEPTHS else {})


def rows(depth: int) -> list[Any]:
    here: list[Any] = [{"API-Key": canary(f"rows{depth}")}, "plain"]
    return [*here, rows(depth + 1)] if depth < DEPTHS else here


def pair(depth: int) -> tuple[Any, ...]:
    here = ({"client_secret": {"of": [canary(f"pair{depth}")]}}, "plain")
    return (*here, pair(depth + 1)) if depth < DEPTHS else here


@dataclass
class Program:
    """A program with one gated call full of secrets."""

    ran: list[dict[str, Any]] = field(default_factory=list)
    ends: list[Any] = field(default_factory=list)
    arguments: dict[str, Any] = field(
        default_factory=lambda: {
            "password": canary("zero"), "api_key": canary("key"), "token": canary("bytes").encode(), "secret": NUMBER,
            "pin": SecretStr(canary("pin")), "box": box(1), "crate": crate(1), "tree": tree(1), "rows": rows(1),
            "pair": pair(1), "to": "alice",
        }
    )  # fmt: skip

    def gated(self, **options: Any) -> Callable[..., Any]:
        @sayso.gate(wait=options.pop("wait", "raise"), **options)
        def act(
            password: str, api_key: str, token: bytes, secret: int, pin: SecretStr, box: Box, crate: Crate,
            tree: dict[str, Any], rows: list[Any], pair: tuple[Any, ...], to: str,
        ) -> Any:  # fmt: skip
            """Do what needs many secrets."""
            self.ran.append({
                "password": password, "api_key": api_key, "token": token, "secret": secret, "pin": pin, "box": box,
                "crate": crate, "tree": tree, "rows": rows, "pair": pair, "to": to,
            })  # fmt: skip
            end = self.ends.pop(0) if self.ends else None
            if isinstance(end, BaseException):
                raise end
            return end

        return act

    def everything(self) -> str:
        """Return all secrets in one text, in every quotation style that programs use."""
        texts = list(secrets_in(self.arguments))
        return "\n".join([*texts, *map(repr, texts), *map(json.dumps, texts), str(NUMBER)])


def secrets_in(value: Any) -> Iterator[str]:
    if isinstance(value, str) and WORD in value:
        yield value
    elif isinstance(value, bytes):
        yield value.decode()
    elif isinstance(value, SecretStr | SecretBytes):
        yield from secrets_in(value.get_secret_value())
    elif isinstance(value, dict):
        for item in value.values():
            yield from secrets_in(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from secrets_in(item)
    elif isinstance(value, Box | Crate):
        yield from secrets_in(vars(value))


def assert_clean(*texts: object) -> None:
    for text in texts:
        for said in (str(text), repr(text)):
            for form in FORMS:
                assert form not in said, (
                    f"{form} at {said.index(form)}: …{said[max(0, said.index(form) - 80) :][:160]}…"
                )


def assert_clean_error(error: BaseException) -> None:
    """Check an error, its traceback, its attributes and its pickle."""
    printed = "".join(traceback.format_exception(error))
    assert_clean(error, printed, vars(error), pickle.dumps(error))


def told_of(request_id: str) -> list[object]:
    """Return everything that the public interfaces return for a request."""
    review = sayso.Review()
    request = review.get(request_id)
    said: list[object] = [request, request.prompt, request.rule, request.description, request.effective]
    said += [request.effective.arguments, request.effective.shown, request.call.arguments, request.execution]
    said += [None if request.execution is None else request.execution.result, request.decision]
    said += [review.list(state="all"), *review.store.journal()]
    return said
