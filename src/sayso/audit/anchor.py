"""Anchors: the newest checkpoint and the heads of all chains, in a file that the store's writers cannot reach.

It shows what the store alone cannot: chains whose end was removed together with its requests, a journal that was
rewritten, an older copy that was put back. It says nothing about what happened after it was made.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from sayso import errors
from sayso.audit.checkpoint import CHAIN, Checkpoint, checkpoint, head_lines, parse_head
from sayso.audit.signing import Signer, document_text, read_bytes, read_document
from sayso.audit.verifier import ExpectedRow
from sayso.clock import instant
from sayso.model.journal import Head
from sayso.stores.base import Store

_KIND = "anchor"
_LIMIT = 512 << 20


class AnchorFile(NamedTuple):
    """An anchor that was read, and holds.

    Attributes:
        checkpoint: The newest one, as of then.
        heads: Of all chains.
        key: The public key that signed the file; None where nobody did.
    """

    checkpoint: Checkpoint
    heads: tuple[Head, ...]
    key: str | None

    @property
    def witness(self) -> str:
        """How messages name it."""
        return f"the anchor of {instant(self.checkpoint.at):%Y-%m-%d %H:%M:%S}Z"

    @property
    def known(self) -> Iterator[ExpectedRow]:
        """Every row that must be in the store, the checkpoint's own among them."""
        for head in (*self.heads, Head(CHAIN, self.checkpoint.seq, self.checkpoint.link)):
            yield ExpectedRow(head, self.witness)

    def must_be_of(self, store: Store) -> None:
        """Raise `EvidenceError` where none of its chains is in this store."""
        mine = {head.run_id for head in self.heads} - {CHAIN}
        if mine.isdisjoint(head.run_id for head in store.heads()):
            raise errors.EvidenceError(
                f"no chain that {self.witness} knows is in this store ({len(mine):,} missing): the anchor is of another"
                " store, or this one was replaced by another"
            )


def anchor_text(store: Store, signer: Signer | None = None) -> str:
    """Return the text of an anchor of the store as it is now; writes a checkpoint if a chain has grown.

    Raises:
        EvidenceError: Nothing has happened yet, or the checkpoints do not hold.
    """
    found = checkpoint(store, signer)
    if found.newest is None:
        raise errors.EvidenceError("nothing stands in the journal yet, so there is nothing to anchor")
    if found.broken:
        raise errors.EvidenceError(f"the checkpoints do not hold: {'; '.join(found.broken)}; see `sayso log --verify`")
    heads = head_lines(found.heads.values())
    return document_text(
        _KIND, {"format": "sayso/anchor/1", "checkpoint": found.newest._asdict(), "heads": heads}, signer
    )


def read_anchor_file(path: Path, *, trusted: str | None = None) -> AnchorFile:
    """Return the anchor in a file; raises as `read_anchor`."""
    return read_anchor(read_bytes(_KIND, path, _LIMIT), trusted=trusted)


def read_anchor(content: bytes, *, trusted: str | None = None) -> AnchorFile:
    """Return an anchor, after verifying it.

    Args:
        content: The whole file.
        trusted: The public key that must have signed it.

    Raises:
        EvidenceError: It is none, was changed or truncated, or is not signed by that key.
    """
    body, key = read_document(_KIND, content, trusted=trusted)
    try:
        found: dict[str, Any] = body["checkpoint"]
        made = Checkpoint(**found)
        heads = tuple(parse_head(line) for line in body["heads"])
        instant(made.at)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise errors.EvidenceError(f"the anchor has not the content of an anchor ({type(error).__name__})") from error
    return AnchorFile(made, heads, key)
