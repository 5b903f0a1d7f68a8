"""One digest over many texts, and the proof that one of them is under it: a Merkle tree as RFC 9162 has it.

A leaf is SHA-256 over a zero byte and the text, a node SHA-256 over a one byte and its two halves; of an odd number
the last one goes up as it is. Invariant: the bytes of a leaf are never those of a node, so no proof leads to a node.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

__all__ = ["climbed", "proof_of", "root_of"]


def _leaf(text: str) -> bytes:
    return hashlib.sha256(b"\0" + text.encode()).digest()


def _node(left: bytes, right: bytes) -> bytes:
    return hashlib.sha256(b"\1" + left + right).digest()


def _above(level: Sequence[bytes]) -> list[bytes]:
    pairs = [_node(left, right) for left, right in zip(level[::2], level[1::2], strict=False)]
    return pairs if len(level) % 2 == 0 else [*pairs, level[-1]]


def root_of(texts: Sequence[str]) -> str:
    """Return the root over texts in their order, in hex."""
    level = [_leaf(text) for text in texts]
    while len(level) > 1:
        level = _above(level)
    return (level[0] if level else hashlib.sha256(b"").digest()).hex()


def proof_of(texts: Sequence[str], place: int) -> list[str]:
    """Return what leads from the text at `place` to the root: `L` or `R`, the side of the other half, and its hex."""
    level, found = [_leaf(text) for text in texts], list[str]()
    while len(level) > 1:
        other = place ^ 1
        if other < len(level):
            found.append(f"{'L' if other < place else 'R'}{level[other].hex()}")
        level, place = _above(level), place // 2
    return found


def climbed(text: str, proof: Sequence[str]) -> str:
    """Return the root to which a proof leads from a text, in hex; raises `ValueError` where it is no proof."""
    here = _leaf(text)
    for step in proof:
        side, other = step[:1], bytes.fromhex(step[1:])
        if side not in {"L", "R"} or len(other) != 32 or other.hex() != step[1:]:
            raise ValueError(f"{step[:80]!a} is no step of a proof")
        here = _node(other, here) if side == "L" else _node(here, other)
    return here.hex()
