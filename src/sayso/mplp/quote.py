"""What reviewers and programs said beside a call, without the secrets of that call which they quote.

Here is what finds a call's secrets and takes them out of the texts in JSON values. The invariant: a secret leaves in
nobody's words, and what everybody sees of a call is no secret.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from functools import lru_cache
from typing import Any, cast

from sayso.model import canonical, redaction
from sayso.model.redaction import Redaction
from sayso.model.request import Call, Request

__all__ = ["redaction_of", "secrets_of", "without"]

_BETWEEN = "\0"

redaction_of = lru_cache(maxsize=256)(Redaction)
"""Return what masks beside the default names also these, which a gate gave; one is made for many requests."""


def secrets_of(request: Request) -> frozenset[str]:
    """Return the texts of a call that nobody may see: what a name marks, and what the gate's redactor took out."""
    found = frozenset[str]()
    for call in (request.subject, request.edited):
        if not isinstance(call, Call) or call.masked is None:
            continue
        redaction, tree, shown = redaction_of(request.redact), canonical.load(call.form), call.masked
        found |= redaction.secrets(tree) | {text for text in redaction.texts(tree) if not _stands_in(shown, text)}
    return found


def without(made: dict[str, Any], places: Sequence[tuple[str, str]], secrets: Collection[str]) -> dict[str, Any]:
    """Return JSON values with secrets taken out of every text in some places.

    Args:
        made: The values.
        places: A name in `made`, and a name in what stands there: where people and programs brought something. The
            rest is ours, and quotes nothing.
        secrets: What is taken out.
    """
    if not secrets:
        return made
    held = [made[part].get(name) for part, name in places]
    texts: list[str] = []
    _gather(held, texts)
    # All texts are cleaned as one, which is quicker by far, and most have nothing to be cleaned of.
    together = _BETWEEN.join(texts)
    clean = redaction.fit(together, secrets)
    if clean == together:
        return made
    pieces = clean.split(_BETWEEN)
    if len(pieces) != len(texts) or any(_BETWEEN in secret for secret in secrets):
        pieces = [redaction.fit(text, secrets) for text in texts]
    fitted, result = _replaced(held, iter(pieces)), dict(made)
    for (part, name), value in zip(places, fitted, strict=True):
        if name in made[part]:
            result[part] = result[part] | {name: value}
    return result


def _gather(content: Any, texts: list[str]) -> None:
    """Add the texts that stand in JSON values; names are none."""
    if isinstance(content, str):
        texts.append(content)
    elif isinstance(content, dict | list):
        parts = cast("dict[str, Any] | list[Any]", content)
        for held in parts.values() if isinstance(parts, dict) else parts:
            _gather(held, texts)


def _replaced(content: Any, texts: Iterator[str]) -> Any:
    """Return JSON values with other texts, in the order in which `_gather` found them."""
    match content:
        case str():
            return next(texts)
        case dict():
            return {name: _replaced(held, texts) for name, held in cast("dict[str, Any]", content).items()}
        case list():
            return [_replaced(held, texts) for held in cast("list[Any]", content)]
        case _:
            return content


def _stands_in(form: str, text: str) -> bool:
    """Say whether a text stands in a canonical form, which has quotes, backslashes and line feeds as JSON has them."""
    return text in form or json.dumps(text, ensure_ascii=False)[1:-1] in form
