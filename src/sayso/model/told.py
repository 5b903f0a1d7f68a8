"""What a program's own code tells us (errors, prompts, reasons), made fit to be kept and shown.

Here secrets of the call are masked in such texts, and characters that no file takes are written out. Which texts are
secrets is `sayso.model.redaction`. Invariant: reading a user's error never raises.
"""

from __future__ import annotations

from collections.abc import Collection

from sayso.model.redaction import scrub
from sayso.model.show.escape import storable

__all__ = ["error_text", "fit", "quotes", "words"]


def fit(text: str, secrets: Collection[str]) -> str:
    """Return `text` with the secrets masked and lone surrogates written out."""
    return storable(scrub(text, secrets) if secrets else text)


def error_text(error: BaseException, secrets: Collection[str]) -> str:
    """Return `Kind: words` of an error, fit to be kept."""
    return f"{type(error).__name__}: {words(error, secrets)}"


def words(error: BaseException, secrets: Collection[str]) -> str:
    """Return what an error says, fit to be kept."""
    try:
        return fit(str(error), secrets)
    except Exception:  # noqa: BLE001  the words of an error are the program's own code, too
        return "(its words could not be read)"


def quotes(error: BaseException, secrets: Collection[str]) -> bool:
    """Say whether the traceback of an error, or of one that led to it, would print one of the secrets."""
    if not secrets:
        return False
    from traceback import format_exception

    text = "".join(format_exception(error))
    return scrub(text, secrets) != text
