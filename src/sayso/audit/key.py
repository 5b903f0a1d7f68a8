"""The key that signs evidence: Ed25519, a private half in a file of its owner, a public half that anybody may have.

The public half is written as `ed25519:` and 64 hexadecimal digits. The extra `crypto` brings the cipher, and nothing
here loads it before it is wanted. Invariant: a private key that others can read signs nothing, and where a key was
configured and cannot be used, nothing is written unsigned in its place.
"""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path
from typing import Any, cast

from sayso import errors

__all__ = ["Signer", "checked_key", "make_key", "signed_by", "signer_at"]

_MARK = "ed25519:"
_PUBLIC = re.compile(r"ed25519:[0-9a-f]{64}")
_SIGNATURE = re.compile(r"[0-9a-f]{128}")
_LONGEST = 10_000  # bytes; a private key has some 120


def _cipher() -> Any:
    try:
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError:
        raise errors.ConfigError('signatures need the extra `crypto`: pip install "sayso[crypto]"') from None
    return ed25519


def _public_text(private: Any) -> str:
    return _MARK + cast("bytes", private.public_key().public_bytes_raw()).hex()


class Signer:
    """Signs with one private key.

    Args:
        private: The key, of the extra's own class.

    Attributes:
        key: Its public half, as it is written.
    """

    def __init__(self, private: Any) -> None:
        self._private = private
        self.key = _public_text(private)

    def sign(self, message: bytes) -> str:
        """Return the signature of a message, in hex."""
        return cast("bytes", self._private.sign(message)).hex()


def make_key(path: Path) -> str:
    """Make a new private key, in a file that only its owner can read, and return its public half.

    Raises:
        ConfigError: The file is there already, or cannot be made; nothing was written.
    """
    private = _cipher().Ed25519PrivateKey.generate()
    from cryptography.hazmat.primitives import serialization as form

    text = private.private_bytes(form.Encoding.PEM, form.PrivateFormat.PKCS8, form.NoEncryption())
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    except FileExistsError:
        raise errors.ConfigError(f"{path} is there already, and keys are not written over; name another file") from None
    except OSError as error:
        raise errors.ConfigError(f"{path} cannot be made ({error.strerror}); no key was made") from error
    with os.fdopen(descriptor, "wb") as file:
        file.write(text)
        file.flush()
        os.fsync(descriptor)
    return _public_text(private)


def signer_at(path: Path) -> Signer:
    """Return who signs with the private key in a file.

    Raises:
        ConfigError: It is not there, others can read it, or it is no private key of ours; nothing was signed.
    """
    try:
        if path.exists() and not path.is_file():  # to open a pipe would wait for who writes into it
            raise errors.ConfigError(f"the key {path} is no file, and signs nothing")
        with path.open("rb") as file:
            mode, text = stat.S_IMODE(os.fstat(file.fileno()).st_mode), file.read(_LONGEST)
    except OSError as error:
        raise errors.ConfigError(f"the key {path} cannot be read ({error.strerror}), and signs nothing") from error
    if os.name == "posix" and mode & 0o077:
        raise errors.ConfigError(f"others can read the key {path}; nothing was signed, `chmod 600 {path}` first")
    cipher = _cipher()
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        private: Any = load_pem_private_key(text, None)
    except (TypeError, ValueError) as error:
        raise errors.ConfigError(f"{path} holds no private key that can be used; nothing was signed") from error
    if not isinstance(private, cipher.Ed25519PrivateKey):
        raise errors.ConfigError(f"{path} holds a key of another kind than Ed25519; nothing was signed")
    return Signer(private)


def checked_key(text: str) -> str:
    """Return a public key as it is written, given so or as the path of a file that holds it.

    Raises:
        ConfigError: It is neither.
    """
    said = text.strip()
    if not said.startswith(_MARK):
        try:
            with Path(said).expanduser().open(encoding="ascii") as file:
                said = file.read(_LONGEST).strip()
        except (OSError, ValueError) as error:
            raise errors.ConfigError(f"{text!a} is neither a public key nor a file with one ({error})") from error
    if not _PUBLIC.fullmatch(said):
        raise errors.ConfigError(f"{text!a} is no public key, which is `ed25519:` and 64 digits; nothing was checked")
    return said


def signed_by(key: object, signature: object, message: bytes) -> bool:
    """Say whether a signature is that of this message by this public key.

    Raises:
        ConfigError: The extra `crypto` is missing.
    """
    if not isinstance(key, str) or not isinstance(signature, str):
        return False
    if not _PUBLIC.fullmatch(key) or not _SIGNATURE.fullmatch(signature):
        return False
    cipher = _cipher()
    from cryptography.exceptions import InvalidSignature

    try:
        public = cipher.Ed25519PublicKey.from_public_bytes(bytes.fromhex(key.removeprefix(_MARK)))
        public.verify(bytes.fromhex(signature), message)
    except (InvalidSignature, ValueError):
        return False
    return True
