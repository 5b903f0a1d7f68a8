"""What must not be shown: secrets are masked in trees of the canonical form, at every depth.

Here are the names that mark a secret, the mask, the scrubbing of texts and a gate's own redactor; the way back from a
mask is `sayso.model.unmask`, and what people see is drawn in `sayso.model.show`. Invariant: where a value is masked
neither it nor its length nor its type remains, and the call still runs with the real one.
"""

from __future__ import annotations

import copy
import inspect
import json
import re
from base64 import b64decode
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from functools import lru_cache, partial
from types import MappingProxyType
from typing import Final, cast

from sayso.errors import ConfigError
from sayso.model.canonical.tags import MASK, TAGS, Json
from sayso.model.canonical.tree import fields_of, items_of, tag_in, with_fields, with_items

__all__ = ["DEFAULT_KEYS", "FAILED", "MASK", "Redaction", "scrub", "shown_by"]

DEFAULT_KEYS: Final = frozenset(
    {
        "access_key",
        "access_token",
        "api_key",
        "api_secret",
        "api_token",
        "auth",
        "auth_token",
        "authorization",
        "bearer_token",
        "client_secret",
        "connection_string",
        "cookie",
        "credential",
        "encryption_key",
        "id_token",
        "jwt",
        "passphrase",
        "passwd",
        "password",
        "private_key",
        "pwd",
        "refresh_token",
        "secret",
        "secret_key",
        "session_token",
        "set_cookie",
        "signing_key",
        "token",
    }
)
FAILED: Final = MappingProxyType({"<redacted>": "the redactor failed"})
"""What is shown where a redactor failed."""

# These mark a secret only where they are the whole name: `token` does, `next_page_token` and `max_tokens` do not.
_ALONE: Final = frozenset({"auth", "jwt", "token"})
# Shorter ones are left alone: they stand in ordinary words and numbers, so masking them would garble the text, and
# the places of the gaps would tell the secret.
_SHORTEST_SCRUBBED: Final = 4
_SHORTEST_LINE: Final = 8
_NESTED: Final = (dict, list)
_SCALARS: Final = frozenset({"$enum", *TAGS}) - {"$secret"}
_WORD = re.compile(r"[^\W_]+")
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


def _words(name: str) -> list[str]:
    return [word.lower() for part in _WORD.findall(name) for word in _HUMP.sub(" ", part).split(" ")]


_DEFAULT_ENDS: Final = frozenset("".join(_words(key)) for key in DEFAULT_KEYS - _ALONE)


@dataclass(frozen=True, slots=True, init=False)
class Redaction:
    """Which names mark a secret.

    A name is compared without case, `-`, `_`, camelCase and a plural `s`, and by its last words: `password` marks
    `Password`, `db_password` and `smtpPasswords`, and does not mark `password_reset_url`.

    Attributes:
        keys: `DEFAULT_KEYS` and the gate's own.
        is_secret: Whether a name marks a secret.
    """

    keys: frozenset[str]
    is_secret: Callable[[str], bool] = field(init=False, repr=False, compare=False)

    def __init__(self, keys: Collection[str] = ()) -> None:
        own = [keys] if isinstance(keys, str) else list(keys)
        for key in own:
            if not isinstance(key, str) or not _words(key):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise ConfigError(f"{key!r} cannot name a secret; give names of arguments or fields as texts")
        everywhere = _DEFAULT_ENDS.union("".join(_words(key)) for key in own)
        object.__setattr__(self, "keys", DEFAULT_KEYS.union(own))
        object.__setattr__(self, "is_secret", lru_cache(maxsize=4096)(partial(_is_marked, everywhere)))

    def mask(self, tree: Json) -> Json:
        """Return `tree` with `MASK` in the place of every secret; the same object where there is none.

        A secret is any value under a marked name (argument, key of a dict, field), and any `SecretStr`.
        """
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
            elif isinstance(value, _NESTED):
                shown = self.mask(value)
            else:
                continue
            if shown is not value:
                result = dict(named) if result is named else result
                result[name] = shown
        return result

    def _mask_items(self, items: list[Json]) -> list[Json]:
        masked = [self.mask(item) if isinstance(item, _NESTED) else item for item in items]
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


def scrub(text: str, secrets: Collection[str]) -> str:
    """Return `text` with `MASK` in the place of each secret: for error messages, prompts and results.

    A secret is also found where it was quoted (`repr`, JSON, URL) and by its longer lines. Secrets of fewer than
    four characters are left alone. Parts of a secret and other encodings of it are not found.
    """
    spans = sorted(span for secret in secrets for form in _spellings(secret) for span in _occurrences(text, form))
    if not spans:
        return text
    start, end = spans[0]
    pieces = [text[:start]]
    # Spans that overlap are one gap: the rest of a secret must not stay behind another one that began earlier.
    for begin, stop in spans[1:]:
        if begin > end:
            pieces += [MASK, text[end:begin]]
        end = max(end, stop)
    return "".join([*pieces, MASK, text[end:]])


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


def _is_marked(everywhere: frozenset[str], name: str) -> bool:
    words = _words(name)
    if "".join(words) in _ALONE:
        return True
    ends = ("".join(words[first:]) for first in range(len(words)))
    return any(end in everywhere or end.removesuffix("s") in everywhere for end in ends)


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


def _spellings(secret: str) -> set[str]:
    from urllib.parse import quote, quote_plus

    if len(secret) < _SHORTEST_SCRUBBED:
        return set()
    linked = {quote(secret, safe, errors="replace") for safe in ("/", "")} | {quote_plus(secret, errors="replace")}
    found = {secret, *(line for line in map(str.strip, secret.splitlines()) if len(line) >= _SHORTEST_LINE)}
    for _ in range(2):  # an error often quotes what was quoted before, as the words of a KeyError
        found |= {form for text in found for form in _quoted(text)}
    return found | linked


def _quoted(text: str) -> Iterator[str]:
    yield repr(text)[1:-1]
    yield repr(text + "'\"")[1:-4]  # as it stands in a longer text, where the other kind of quote is taken
    yield json.dumps(text)[1:-1]
    yield json.dumps(text, ensure_ascii=False)[1:-1]


def _occurrences(text: str, secret: str) -> Iterator[tuple[int, int]]:
    # From both ends: one that overlaps the next of its kind would be passed over from one side.
    size, place = len(secret), text.find(secret)
    while place >= 0:
        yield place, place + size
        place = text.find(secret, place + size)
    place = text.rfind(secret)
    while place >= 0:
        yield place, place + size
        place = text.rfind(secret, 0, place)
