"""Secrets in texts: error messages, prompts, results.

Here is where a secret is found in a text, in whatever spelling it was quoted; which values are secrets is
`sayso.model.redaction`. Invariant: no occurrence is left, also where several overlap, and the time grows with the
text and with the secrets, not with their product.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator

from sayso.model.canonical.tags import MASK

__all__ = ["scrub"]

# Shorter ones are left alone: they stand in ordinary words and numbers, so masking them would garble the text, and
# the places of the gaps would tell the secret.
_SHORTEST_SCRUBBED = 4
_SHORTEST_LINE = 8
# Up to so many spellings are looked for one by one, which is quicker than to look at every place of the text.
_FEW = 64
# Longer ones are looked for one by one; of these no call holds very many.
_LONG = 256
_SPELT_ONE_WAY = re.compile(r"[\w.~-]+", re.ASCII)
_KEPT_RUN = re.compile(rf"[\w.~-]{{{_SHORTEST_SCRUBBED}}}", re.ASCII)

_Span = tuple[int, int]


def scrub(text: str, secrets: Collection[str]) -> str:
    """Return `text` with `MASK` in the place of each secret: for error messages, prompts and results.

    A secret is also found where it was quoted (`repr`, JSON, URL) and by its longer lines. Secrets of fewer than
    four characters are left alone. Parts of a secret and other encodings of it are not found.
    """
    wanted = secrets if len(secrets) <= _FEW else _likely(text, secrets)
    spans = sorted(_spans(text, {form for secret in wanted for form in _spellings(secret)}))
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


def _likely(text: str, secrets: Collection[str]) -> Iterator[str]:
    """Yield the secrets that may be in the text: to spell one out costs more than to see that it cannot be there."""
    size = _SHORTEST_SCRUBBED
    runs = {text[place : place + size] for place in range(len(text) - size + 1)}
    for secret in secrets:
        # No spelling changes these characters; of several lines, each one may stand alone.
        kept = _KEPT_RUN.search(secret)
        if kept is None or kept[0] in runs or len(secret.splitlines()) > 1:
            yield secret


def _spellings(secret: str) -> Collection[str]:
    if len(secret) < _SHORTEST_SCRUBBED:
        return ()
    if _SPELT_ONE_WAY.fullmatch(secret) is not None:
        return (secret,)
    from urllib.parse import quote, quote_plus

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


def _spans(text: str, forms: Collection[str]) -> Iterator[_Span]:
    if len(forms) <= _FEW:
        for form in forms:
            yield from _occurrences(text, form)
        return
    yield from _any_of(text, sorted(form for form in forms if len(form) <= _LONG))
    for form in forms:
        if len(form) > _LONG:
            yield from _occurrences(text, form)


def _occurrences(text: str, secret: str) -> Iterator[_Span]:
    # From both ends: one that overlaps the next of its kind would be passed over from one side.
    size, place = len(secret), text.find(secret)
    while place >= 0:
        yield place, place + size
        place = text.find(secret, place + size)
    place = text.rfind(secret)
    while place >= 0:
        yield place, place + size
        place = text.rfind(secret, 0, place)


def _any_of(text: str, forms: list[str]) -> Iterator[_Span]:
    """Yield the longest of the sorted `forms` at each place of `text` where there is one."""
    shorter = _shorter(forms)
    begins = {form[:_SHORTEST_SCRUBBED] for form in forms}
    size = _SHORTEST_SCRUBBED
    for place in [place for place in range(len(text) - size + 1) if text[place : place + size] in begins]:
        here = text[place : place + _LONG]
        # The longest that `here` begins with is the last one not above it, or one that this one begins with.
        candidate = bisect_right(forms, here) - 1
        while candidate >= 0 and not here.startswith(forms[candidate]):
            candidate = shorter[candidate]
        if candidate >= 0:
            yield place, place + len(forms[candidate])


def _shorter(forms: Iterable[str]) -> list[int]:
    """Return for each of the sorted forms the longest other one that it begins with, -1 where there is none."""
    result: list[int] = []
    around: list[tuple[str, int]] = []
    for index, form in enumerate(forms):
        while around and not form.startswith(around[-1][0]):
            around.pop()
        result.append(around[-1][1] if around else -1)
        around.append((form, index))
    return result
