"""Passwords inside of URLs: `postgres://ada:***@db.example.com/shop`.

Here they are found, masked and put back; where values are walked is `sayso.model.redaction`. Invariant: what a mask
hides is made only of characters that a URL writes as they are, so that no command of a shell can hide behind one.
"""

from __future__ import annotations

import re

from sayso.model.canonical.tags import MASK

__all__ = ["conceal", "has_gap", "passwords_in", "restored"]

_USER = r"(?<=[A-Za-z0-9+.-])://[^\s/?#@:'\"`<>\\]{0,256}:"
_LETTER = r"[\w.~%!*+,=@:^-]|\$(?![({])"
# Behind a user's name. With a slash in it, which should have been escaped, it must not look like a port and a path.
_PASSWORD = rf"(?:(?!://)(?:{_LETTER})){{1,512}}(?=@)|(?!\d*[/?#])(?:(?!://)(?:{_LETTER}|[/?#])){{1,512}}?(?=@)"
_INSIDE = re.compile(rf"(?P<user>{_USER})(?P<password>{_PASSWORD})")


def conceal(text: str) -> str:
    """Return `text` with `MASK` in the place of each password in a URL; the same object where there is none."""
    if "://" not in text or "@" not in text:
        return text
    return _INSIDE.sub(rf"\g<user>{MASK}", text)


def passwords_in(text: str) -> set[str]:
    """Return the passwords in the URLs of a text, as they are written and as they are meant."""
    if "://" not in text or "@" not in text:
        return set()
    from urllib.parse import unquote

    written = {found["password"] for found in _INSIDE.finditer(text)}
    return {form for password in written for form in (password, unquote(password))} - {MASK}


def has_gap(text: str) -> bool:
    """Say whether a URL in the text has a mask for its password."""
    return f":{MASK}@" in text and any(found["password"] == MASK for found in _INSIDE.finditer(text))


def restored(edited: str, original: str) -> str | None:
    """Return `edited` with the password of `original` where it has a mask; None where it is not certain whose it is."""
    gaps = [found for found in _INSIDE.finditer(edited) if found["password"] == MASK]
    if not gaps:
        return edited
    kept = list(_INSIDE.finditer(original))
    if len(gaps) > 1 or len(kept) != 1:
        return None
    begin, end = gaps[0].span("password")
    return edited[:begin] + kept[0]["password"] + edited[end:]
