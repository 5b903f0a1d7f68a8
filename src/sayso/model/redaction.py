"""What must not be shown: secrets are masked in trees of the canonical form, at every depth.

Here are the mask and a gate's own redactor; which names mark a secret is `sayso.model.secret_name`, texts that quote
one are cleaned by `sayso.model.scrub`, the way back from a mask is `sayso.model.unmask`, and what people see is drawn
in `sayso.model.show`. Invariant: where a value is masked neither it nor its length nor its type remains, and the call
still runs with the real one.
"""

from __future__ import annotations

import copy
import inspect
from base64 import b64decode
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from functools import lru_cache, partial
from types import MappingProxyType
from typing import Final, cast

from sayso.errors import ConfigError
from sayso.model.canonical.tags import MASK, TAGS, Json
from sayso.model.canonical.tree import fields_of, items_of, tag_in, with_fields, with_items
from sayso.model.scrub import scrub
from sayso.model.secret_name import DEFAULT_KEYS, ends_of, is_marked, is_named_by, words_of
from sayso.model.url_password import conceal, passwords_in

__all__ = ["DEFAULT_KEYS", "FAILED", "MASK", "Redaction", "agrees", "marks", "masked_besides", "scrub", "shown_by"]

FAILED: Final = MappingProxyType({"<redacted>": "the redactor failed"})
"""What is shown where a redactor failed."""

_MAY_HIDE: Final = (dict, list, str)
_SCALARS: Final = frozenset({"$enum", *TAGS}) - {"$secret"}


@dataclass(frozen=True, slots=True, init=False)
class Redaction:
    """Which names mark a secret.

    A name is compared without case, `-`, `_`, camelCase, digits at its end and a plural `s`, and by its last words:
    `password` marks `Password1`, `db_password` and `smtpPasswords`, and does not mark `password_reset_url`.

    Attributes:
        keys: `DEFAULT_KEYS` and the gate's own.
        is_secret: Whether a name marks a secret.
    """

    keys: frozenset[str]
    is_secret: Callable[[str], bool] = field(init=False, repr=False, compare=False)

    def __init__(self, keys: Collection[str] = ()) -> None:
        own = [keys] if isinstance(keys, str) else list(keys)
        for key in own:
            if not isinstance(key, str) or not words_of(key):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise ConfigError(f"{key!r} cannot name a secret; give names of arguments or fields as texts")
        object.__setattr__(self, "keys", DEFAULT_KEYS.union(own))
        object.__setattr__(self, "is_secret", lru_cache(maxsize=4096)(partial(is_marked, ends_of(own))))

    def mask(self, tree: Json) -> Json:
        """Return `tree` with `MASK` in the place of every secret; the same object where there is none.

        A secret is any value under a marked name (argument, key of a dict, field), and any `SecretStr`; of a text
        with a URL in it, the URL's password.
        """
        if isinstance(tree, str):
            return conceal(tree)
        if isinstance(tree, list):
            return self._mask_items(tree)
        if not isinstance(tree, dict):
            return tree
        if len(tree) == 1 and (tag := tag_in(tree)) is not None:
            return self._mask_tagged(tree, tag)
        return self._mask_names(tree)

    def secrets(self, tree: Json) -> frozenset[str]:
        """Return the texts that `mask` hides in `tree`, for `scrub`: strings, numbers as text, bytes as text."""
        return frozenset(self._secrets(tree, hidden=False)) - {MASK, ""}

    def texts(self, tree: Json) -> frozenset[str]:
        """Return all texts in `tree` as `secrets` would if everything in it were one."""
        return frozenset(self._secrets(tree, hidden=True)) - {MASK, ""}

    def _mask_names(self, named: dict[str, Json]) -> dict[str, Json]:
        result = named
        is_secret = self.is_secret
        for name, value in named.items():
            if is_secret(name):
                shown: Json = MASK
            elif isinstance(value, _MAY_HIDE):
                shown = self.mask(value)
            else:
                continue
            if shown is not value:
                result = dict(named) if result is named else result
                result[name] = shown
        return result

    def _mask_items(self, items: list[Json]) -> list[Json]:
        masked = [self.mask(item) if isinstance(item, _MAY_HIDE) else item for item in items]
        return masked if any(new is not old for new, old in zip(masked, items, strict=True)) else items

    def _mask_tagged(self, tree: dict[str, Json], tag: str) -> Json:
        named, items = fields_of(tree), items_of(tree)
        if named is not None:
            masked = self._mask_names(named)
            return tree if masked is named else with_fields(tree, masked)
        if items is not None:
            changed = self._mask_items(items)
            return tree if changed is items else with_items(tree, changed)
        # A tag that is malformed or not known could hold anything.
        return tree if tag in _SCALARS else MASK

    def _secrets(self, tree: Json, *, hidden: bool) -> Iterator[str]:
        named = fields_of(tree)
        if named is not None:
            for name, value in named.items():
                yield from self._secrets(value, hidden=hidden or self.is_secret(name))
            return
        items = items_of(tree)
        if items is not None:
            for item in items:
                yield from self._secrets(item, hidden=hidden)
            return
        if hidden or tag_in(tree) == "$secret":
            yield from _texts(tree)
        elif isinstance(tree, str):
            yield from passwords_in(tree)


def shown_by(redactor: Callable[[dict[str, object]], object], arguments: dict[str, object]) -> dict[str, object]:
    """Return what a gate's own redactor makes of a copy of the arguments; `FAILED` where it fails, never the secret.

    It fails where it raises, or returns anything but a dict with texts as keys.
    """
    try:
        shown = redactor(copy.deepcopy(arguments))
    except Exception:  # noqa: BLE001  it is the user's code, and its error may quote the secret
        return dict(FAILED)
    if inspect.iscoroutine(shown):
        shown.close()
    if type(shown) is not dict:
        return dict(FAILED)
    result = cast("dict[object, object]", shown)
    return cast("dict[str, object]", result) if all(type(name) is str for name in result) else dict(FAILED)


def agrees(shown: Json, real: Json) -> bool:
    """Say whether `shown` is `real` but for what is masked in it: the same names, places and values."""
    if isinstance(shown, dict) and isinstance(real, dict):
        return shown.keys() == real.keys() and all(agrees(value, real[name]) for name, value in shown.items())
    if isinstance(shown, list) and isinstance(real, list):
        return len(shown) == len(real) and all(map(agrees, shown, real))
    if isinstance(shown, str) and isinstance(real, str) and shown == conceal(real):
        return True
    return shown == MASK or (type(shown) is type(real) and shown == real)


def masked_besides(shown: Json, usual: Json) -> int:
    """Return how many values are masked in `shown` and not in `usual`, another masked form of the same tree."""
    if isinstance(shown, dict) and isinstance(usual, dict):
        return sum(masked_besides(value, usual.get(name)) for name, value in shown.items())
    if isinstance(shown, list) and isinstance(usual, list):
        return sum(map(masked_besides, shown, usual))
    return int(shown == MASK != usual)


def marks(key: str, name: str) -> bool:
    """Say whether a gate's own key marks a name."""
    return is_named_by(ends_of([key]), name)


def _texts(leaf: Json) -> Iterator[str]:
    if isinstance(leaf, dict):
        tag, body = next(iter(leaf.items()))
        if tag == "$bytes" or (tag == "$secret" and isinstance(body, list) and body[:1] == ["bytes"]):
            encoded = body[-1] if isinstance(body, list) else body
            yield str(encoded)
            yield b64decode(str(encoded)).decode(errors="replace")
        elif tag != "$enum":
            parts = body if isinstance(body, list) else [body]
            yield from (str(part) for part in (parts[1:] if tag == "$secret" else parts))
    elif isinstance(leaf, str) or (isinstance(leaf, int | float) and not isinstance(leaf, bool)):
        yield str(leaf)
