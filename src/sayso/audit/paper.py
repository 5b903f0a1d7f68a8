"""A document that leaves the store: one JSON file of two parts, what it says and the proof that it says so.

    {
    "receipt": { ... },
    "proof": {"digest": "...", "key": "ed25519:...", "signature": "..."}
    }

Digest and signature are over the bytes between `"receipt": ` and the comma before `"proof": `, as they stand in the
file, so that nobody has to write JSON anew to check them. Invariant: everything around those bytes has one form only;
of a file that differs from what was written in a single byte, nothing is believed.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, NamedTuple, cast

from sayso import errors
from sayso.audit.key import Signer, signed_by

__all__ = ["Paper", "read_bytes", "read_paper", "written_paper"]

_PROOF = ("digest", "key", "signature")


class Paper(NamedTuple):
    """A document as it was read, after its proof held.

    Attributes:
        body: What it says.
        key: The public key that signed it; None where nobody did, and then it shows damage but no forgery.
    """

    body: dict[str, Any]
    key: str | None


def written_paper(kind: str, body: dict[str, Any], signer: Signer | None) -> str:
    """Return the text of a document of this kind, signed where somebody signs."""
    said = json.dumps(body, indent=1)
    key, signature = (None, None) if signer is None else (signer.key, signer.sign(said.encode("ascii")))
    return _framed(kind, said, {"digest": _digest(said), "key": key, "signature": signature})


def _digest(said: str) -> str:
    return hashlib.sha256(said.encode("ascii")).hexdigest()


def _framed(kind: str, said: str, proof: dict[str, Any]) -> str:
    return f'{{\n"{kind}": {said},\n"proof": {json.dumps(proof)}\n}}\n'


def read_bytes(kind: str, path: Path, limit: int) -> bytes:
    """Return what stands in a file that is to hold a document of this kind.

    Raises:
        EvidenceError: It cannot be read, or is longer than any such document.
    """
    try:
        with path.open("rb") as file:
            content = file.read(len(_begin(kind)))
            if content != _begin(kind):
                raise errors.EvidenceError(f"{path} is no {kind} of sayso; nothing was checked")
            content += file.read(limit)
    except OSError as error:
        raise errors.EvidenceError(f"{path} cannot be read ({error.strerror}); nothing was checked") from error
    if len(content) > limit:
        raise errors.EvidenceError(f"{path} is over {limit >> 20} MB long, as no {kind} is; nothing was checked")
    return content


def _begin(kind: str) -> bytes:
    return f'{{\n"{kind}": {{'.encode("ascii")


def read_paper(kind: str, content: bytes, *, trusted: str | None = None) -> Paper:
    """Return what a document says, after its proof held.

    Args:
        kind: What it must be.
        content: The whole file.
        trusted: The public key that must have signed it; None believes the one that it names itself.

    Raises:
        EvidenceError: It is none of this kind, was changed, is not whole, or is not signed by that key.
        ConfigError: It is signed, and the extra `crypto` is missing.
    """
    said, proof = _parts(kind, content)
    if proof["digest"] != _digest(said):
        raise errors.EvidenceError(f"the {kind} was changed since it was written: its digest is another one")
    key = proof["key"]
    if key is None and trusted is not None:
        raise errors.EvidenceError(f"the {kind} is not signed, and must be by {trusted}")
    if trusted is not None and key != trusted:
        raise errors.EvidenceError(f"the {kind} is signed by another key, {str(key)[:80]}, and must be by {trusted}")
    if key is not None and not signed_by(key, proof["signature"], said.encode("ascii")):
        raise errors.EvidenceError(f"the {kind} was changed since it was signed, or its signature was")
    body = cast("dict[str, Any]", json.loads(said))
    if body.get("format") != f"sayso/{kind}/1":
        known = str(body.get("format"))[:80]
        raise errors.EvidenceError(f"the {kind} is of the format {known!a}, which this version of sayso does not know")
    return Paper(body, key)


def _parts(kind: str, content: bytes) -> tuple[str, dict[str, Any]]:
    """Return the two parts of a document, of which everything around them is as it is always written."""
    begin = f'{{\n"{kind}": '
    if not content.startswith(_begin(kind)):
        raise errors.EvidenceError(f"this is no {kind} of sayso")
    try:
        # Bytes beyond ASCII are never written, and no line inside of the first part begins with a quote.
        said, has_proof, rest = content.decode("ascii").removeprefix(begin).rpartition(',\n"proof": ')
        found: Any = json.loads(rest.removesuffix("\n}\n")) if has_proof else None
    except (RecursionError, ValueError):
        found, said = None, ""
    proof = cast("dict[str, Any]", found) if isinstance(found, dict) else {}
    if tuple(proof) != _PROOF or (proof["key"] is None) is not (proof["signature"] is None):
        raise errors.EvidenceError(f"the {kind} is cut off, or was changed: it does not end with its proof")
    if _framed(kind, said, proof).encode("ascii", "replace") != content:
        raise errors.EvidenceError(f"the {kind} was changed since it was written: it does not have its one form")
    return said, proof
