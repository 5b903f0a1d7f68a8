"""Random ids, and the digests (SHA-256) of calls, questions, keys and effects.

Knowing an id grants no right, and an id cannot be computed from what it identifies. The fingerprint is the digest of a
call in its run. The digest of a call covers the tool's name, the digest of its schema (which includes the values
captured by the function) and the canonical arguments. Each part is prefixed with its length, so different lists of
parts never have the same bytes.
"""

from __future__ import annotations

import hashlib
import os
import re
import unicodedata
from collections.abc import Iterable
from functools import lru_cache

ID_LENGTH = len("rq_") + 32
_RANDOM_RUN = re.compile("run_[0-9a-f]{32}")


class StartToken(str):
    """The token of a start, whose lease is renewed while the object lives: who runs the call keeps it to the end."""

    __slots__ = ("__weakref__",)


def new_token() -> str:
    """Return a new fencing token, 128 random bits."""
    return os.urandom(16).hex()


def new_request_id() -> str:
    """Return a new request id: `rq_` and 128 random bits."""
    return "rq_" + new_token()


def new_grant_id() -> str:
    """Return a new grant id: `gr_` and 128 random bits."""
    return "gr_" + new_token()


def new_run_id() -> str:
    """Return a new run id: `run_` and 128 random bits."""
    return "run_" + new_token()


def is_random(run_id: str) -> bool:
    """Return whether a run has a random id, so that no later process can enter it again."""
    return _RANDOM_RUN.fullmatch(run_id) is not None


# -- digests ---------------------------------------------------------------------------------------------------


def _framed(*parts: bytes) -> bytes:
    return b"".join([b"%d:%b" % (len(part), part) for part in parts])


@lru_cache(maxsize=4096)
def _begun(*parts: str) -> hashlib._Hash:  # pyright: ignore[reportPrivateUsage]  # the stub has no public name for it
    return hashlib.sha256(_framed(*[part.encode() for part in parts]))


def captured_digest(values: Iterable[bytes]) -> str:
    """Return the digest of the plain values that a function captures; the digest of its schema covers it.

    Args:
        values: The canonical form of each with its place, in any order.
    """
    return hashlib.sha256(_framed(b"sayso/around/1", *sorted(values))).hexdigest()


def call_digest(tool: str, schema_digest: str, canonical: bytes) -> str:
    """Return the digest of a call, independent of its run.

    Args:
        tool: Qualified name `module:function`, or the name that the gate was given.
        schema_digest: Digest of the function's parameters and their types.
        canonical: The arguments' canonical form with sorted keys, as UTF-8.
    """
    digest = _begun("sayso/call/1", tool, schema_digest).copy()
    digest.update(b"%d:%b" % (len(canonical), canonical))
    return digest.hexdigest()


def question_digest(text: str, schema_digest: str, occasion: int) -> str:
    """Return the digest of a question; `occasion` counts equal questions of one run, from 0."""
    return hashlib.sha256(
        _framed(b"sayso/question/1", text.encode(), schema_digest.encode(), b"%d" % occasion)
    ).hexdigest()


@lru_cache(maxsize=1024)  # of one call it is asked for when it is asked, found and started
def fingerprint(run_id: str, digest: str, place: str = "", key: str | None = None) -> str:
    """Return the fingerprint of a call or question in its run. Equal ones with different places or keys differ."""
    if key is not None:
        whole = hashlib.sha256(_framed(b"sayso/key/1", *map(_utf8, (run_id, place, key))))
    else:
        whole = (_begun("sayso/place/1", run_id, place) if place else _begun("sayso/run/1", run_id)).copy()
    whole.update(digest.encode())
    return whole.hexdigest()


def key_digest(run_id: str, key: str) -> str:
    """Return the digest by which a store finds the request with this key in this run."""
    return hashlib.sha256(_framed(b"sayso/occasion/1", _utf8(run_id), _utf8(key))).hexdigest()


def effect_digest(effect: str) -> str:
    """Return the digest by which a store finds the requests with this effect, however its characters are composed."""
    return hashlib.sha256(_framed(b"sayso/effect/1", _utf8(unicodedata.normalize("NFC", effect)))).hexdigest()


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def shown_digest(text: str) -> str:
    """Return the digest of what a person saw: the masked canonical arguments, or the question, as text."""
    return hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest()
