"""Keys, signatures, and the signed JSON files (anchors and receipts) that leave the store."""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
from pathlib import Path
from typing import Any, NamedTuple, cast

from sayso import errors

_MARK = "ed25519:"
_PUBLIC = re.compile(r"ed25519:[0-9a-f]{64}")
_LONGEST = 10_000  # bytes; a private key file has about 120


def _cipher() -> Any:
    try:
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError:
        raise errors.ConfigError('signatures need the extra `crypto`: pip install "sayso[crypto]"') from None
    return ed25519


class Signer:
    """Signs with one private key.

    Args:
        private: The key, an object of the `crypto` extra.

    Attributes:
        key: The public key in its text form.
    """

    def __init__(self, private: Any) -> None:
        self._private = private
        self.key = _MARK + cast("bytes", private.public_key().public_bytes_raw()).hex()

    def sign(self, message: bytes) -> str:
        """Return the signature of a message, in hex."""
        return cast("bytes", self._private.sign(message)).hex()


def make_key(path: Path) -> str:
    """Create a private key in a file that only its owner can read, and return the public key.

    Raises:
        ConfigError: The file exists or cannot be created; nothing was written.
    """
    private = _cipher().Ed25519PrivateKey.generate()
    from cryptography.hazmat.primitives import serialization as form

    text = private.private_bytes(form.Encoding.PEM, form.PrivateFormat.PKCS8, form.NoEncryption())
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    except FileExistsError:
        raise errors.ConfigError(f"{path} exists already, and keys are not overwritten; name another file") from None
    except OSError as error:
        raise errors.ConfigError(f"{path} cannot be created ({error.strerror}); no key was made") from error
    with os.fdopen(descriptor, "wb") as file:
        file.write(text)
        file.flush()
        os.fsync(descriptor)
    return Signer(private).key


def signer_at(path: Path) -> Signer:
    """Load a private key from a file and return its signer.

    Raises:
        ConfigError: The file is missing, is readable by others, or does not contain a private key of sayso.
    """
    try:
        if path.exists() and not path.is_file():  # opening a pipe would block until a writer opens it
            raise errors.ConfigError(f"the key {path} is not a file, so it signs nothing")
        with path.open("rb") as file:
            mode, text = stat.S_IMODE(os.fstat(file.fileno()).st_mode), file.read(_LONGEST)
    except OSError as error:
        raise errors.ConfigError(f"the key {path} cannot be read ({error.strerror}), so it signs nothing") from error
    if os.name == "posix" and mode & 0o077:
        raise errors.ConfigError(f"others can read the key {path}; nothing was signed, run `chmod 600 {path}` first")
    cipher = _cipher()
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        private: Any = load_pem_private_key(text, None)
    except (TypeError, ValueError) as error:
        raise errors.ConfigError(f"{path} has no usable private key; nothing was signed") from error
    if not isinstance(private, cipher.Ed25519PrivateKey):
        raise errors.ConfigError(f"{path} has a key that is not an Ed25519 key; nothing was signed")
    return Signer(private)


def parse_key(text: str) -> str:
    """Return a public key in its text form, given either the text or the path of a file that contains it.

    Raises:
        ConfigError: It is neither a key nor such a file.
    """
    key = text.strip()
    if not key.startswith(_MARK):
        try:
            with Path(key).expanduser().open(encoding="ascii") as file:
                key = file.read(_LONGEST).strip()
        except (OSError, ValueError) as error:
            raise errors.ConfigError(f"{text!a} is neither a public key nor a file with one ({error})") from error
    if not _PUBLIC.fullmatch(key):
        raise errors.ConfigError(
            f"{text!a} is not a public key, which is `ed25519:` and 64 hexadecimal digits; nothing was checked"
        )
    return key


def signed_by(key: object, signature: object, message: bytes) -> bool:
    """Return whether a signature of this message by this public key is valid.

    Raises:
        ConfigError: The extra `crypto` is not installed.
    """
    if not isinstance(key, str) or not _PUBLIC.fullmatch(key):
        return False
    if not isinstance(signature, str) or not re.fullmatch(r"[0-9a-f]{128}", signature):
        return False
    cipher = _cipher()
    from cryptography.exceptions import InvalidSignature

    try:
        public = cipher.Ed25519PublicKey.from_public_bytes(bytes.fromhex(key.removeprefix(_MARK)))
        public.verify(bytes.fromhex(signature), message)
    except (InvalidSignature, ValueError):
        return False
    return True


_PROOF = ("digest", "key", "signature")


class SignedDocument(NamedTuple):
    """A verified document.

    Attributes:
        body: Its content.
        key: The public key that signed it; None if it is unsigned, so that only damage is detected, not forgery.
    """

    body: dict[str, Any]
    key: str | None


def document_text(kind: str, body: dict[str, Any], signer: Signer | None) -> str:
    """Return the text of a document of this kind, signed if there is a signer."""
    content = json.dumps(body, indent=1)
    key, signature = (None, None) if signer is None else (signer.key, signer.sign(content.encode("ascii")))
    return _frame(kind, content, {"digest": _digest(content), "key": key, "signature": signature})


def _digest(content: str) -> str:
    return hashlib.sha256(content.encode("ascii")).hexdigest()


def _frame(kind: str, content: str, proof: dict[str, Any]) -> str:
    return f'{{\n"{kind}": {content},\n"proof": {json.dumps(proof)}\n}}\n'


def _read_file(kind: str, path: Path, limit: int) -> bytes:
    try:
        with path.open("rb") as file:
            content = file.read(len(_begin(kind)))
            if content != _begin(kind):
                raise errors.EvidenceError(f"{path} is not a sayso {kind}; nothing was checked")
            content += file.read(limit)
    except OSError as error:
        raise errors.EvidenceError(f"{path} cannot be read ({error.strerror}); nothing was checked") from error
    if len(content) > limit:
        raise errors.EvidenceError(
            f"{path} is over {limit >> 20} MB long, which is too long for a {kind}; nothing was checked"
        )
    return content


def _begin(kind: str) -> bytes:
    return f'{{\n"{kind}": {{'.encode("ascii")


def read_document(kind: str, source: bytes | Path, *, limit: int, trusted: str | None = None) -> SignedDocument:
    """Parse a document, and verify its digest and signature.

    Args:
        kind: The required kind of document.
        source: The whole file, or its path.
        limit: The maximum length of a file at that path.
        trusted: The public key that must have signed it; None accepts the key that the document names.

    Raises:
        EvidenceError: It cannot be read, is not of this kind, was changed or truncated, or is not signed by that key.
        ConfigError: It is signed, and the extra `crypto` is not installed.
    """
    text, proof = _split(kind, _read_file(kind, source, limit) if isinstance(source, Path) else source)
    if proof["digest"] != _digest(text):
        raise errors.EvidenceError(f"the {kind} was changed after it was written: its digest does not match")
    key = proof["key"]
    if key is None and trusted is not None:
        raise errors.EvidenceError(f"the {kind} is not signed, and must be signed by {trusted}")
    if trusted is not None and key != trusted:
        raise errors.EvidenceError(
            f"the {kind} is signed by another key, {str(key)[:80]}, and must be signed by {trusted}"
        )
    if key is not None and not signed_by(key, proof["signature"], text.encode("ascii")):
        raise errors.EvidenceError(f"the {kind} or its signature was changed after it was signed")
    body = cast("dict[str, Any]", json.loads(text))
    if body.get("format") != f"sayso/{kind}/1":
        known = str(body.get("format"))[:80]
        raise errors.EvidenceError(f"the {kind} has the format {known!a}, which this version of sayso does not know")
    return SignedDocument(body, key)


def _split(kind: str, content: bytes) -> tuple[str, dict[str, Any]]:
    """Return a document's content and proof, after checking that its framing is exactly as sayso writes it."""
    begin = f'{{\n"{kind}": '
    if not content.startswith(_begin(kind)):
        raise errors.EvidenceError(f"this is not a sayso {kind}")
    try:
        # Only ASCII is ever written, and no line inside the first part begins with a quote.
        text, has_proof, rest = content.decode("ascii").removeprefix(begin).rpartition(',\n"proof": ')
        found: Any = json.loads(rest.removesuffix("\n}\n")) if has_proof else None
    except (RecursionError, ValueError):
        found, text = None, ""
    proof = cast("dict[str, Any]", found) if isinstance(found, dict) else {}
    if tuple(proof) != _PROOF or (proof["key"] is None) is not (proof["signature"] is None):
        raise errors.EvidenceError(f"the {kind} is truncated, or was changed: it does not end with its proof")
    if _frame(kind, text, proof).encode("ascii", "replace") != content:
        raise errors.EvidenceError(f"the {kind} was changed after it was written: it is not in its canonical form")
    return text, proof
