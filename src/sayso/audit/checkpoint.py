"""Checkpoints: the heads of all chains, written into the journal as a row of a chain of its own, and signed.

A checkpoint names the heads that are new since the one before, and the root of a Merkle tree over all heads, so that a
receipt proves its chain by a dozen digests and names no other run. A chain that lost its end, or was removed together
with its requests, is found by reading the checkpoints, unless the newest of them are removed as well: that takes an
anchor (`sayso.audit.anchor`). A checkpoint counts only if it names the link of the one before, so of two that are
written at once one does not count. None is written over a journal that lacks a row which an earlier one names: it would
make the loss look whole.

A server writes them on a schedule, and compares each time with what it read last. So it also finds that an older copy
of the store was put back, though that copy agrees with itself.
"""

from __future__ import annotations

import hashlib
import json
import logging
import threading
from collections.abc import Collection, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from itertools import takewhile
from typing import Any, NamedTuple, cast

from sayso import clock, errors
from sayso.audit.signing import Signer, signed_by
from sayso.audit.verifier import ExpectedRow, rows_of
from sayso.clock import instant, microseconds
from sayso.model.journal import Entry, Head
from sayso.model.reviewer import PROGRAM, Identity
from sayso.stores.base import Store

__all__ = [
    "CHAIN",
    "Checkpoint",
    "History",
    "Schedule",
    "checkpoint",
    "checkpointing",
    "covering",
    "first_of",
    "head_line",
    "head_lines",
    "history",
    "parse_head",
    "problems",
    "proof_of",
    "root_by_proof",
    "root_of",
]


# The tree is that of RFC 9162: a leaf is SHA-256 over a zero byte and the text, a node SHA-256 over a one byte and its
# two halves, so that no proof leads to a node. The last one of an odd number goes up as it is.


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
    """Return the proof of the text at `place`: for each level `L` or `R`, the side of the other half, and its hex."""
    level, found = [_leaf(text) for text in texts], list[str]()
    while len(level) > 1:
        other = place ^ 1
        if other < len(level):
            found.append(f"{'L' if other < place else 'R'}{level[other].hex()}")
        level, place = _above(level), place // 2
    return found


def root_by_proof(text: str, proof: Sequence[str]) -> str:
    """Return the root that a text and its proof give, in hex; raises `ValueError` where it is no proof."""
    here = _leaf(text)
    for step in proof:
        side, other = step[:1], bytes.fromhex(step[1:])
        if side not in {"L", "R"} or len(other) != 32 or other.hex() != step[1:]:
            raise ValueError(f"{step[:80]!a} is no step of a proof")
        here = _node(other, here) if side == "L" else _node(here, other)
    return here.hex()


CHAIN = "sayso:checkpoints"
"""The run id of the chain of checkpoints."""

_BY = Identity(PROGRAM, "sayso")
_EVENT = "checkpoint"
_MOST = 1 << 62  # rows; what is greater cannot even be asked of a store
_FIELDS = ("at", "before", "chains", "rows", "root", "key", "signature")


class Checkpoint(NamedTuple):
    """One checkpoint that counts.

    Attributes:
        seq: Its place in its chain.
        link: Of its row.
        at: Microseconds since 1970, UTC, when the heads were read.
        before: Link of the checkpoint before; empty for the first.
        chains: Over how many chains the root is.
        rows: How many rows stand in them.
        root: Over the lines of all heads, ordered by run (see `head_line`).
        key: The public key that signed it; None where nobody did.
        signature: Over `statement`, in hex.
    """

    seq: int
    link: str
    at: int
    before: str
    chains: int
    rows: int
    root: str
    key: str | None
    signature: str | None

    @property
    def statement(self) -> str:
        """What is signed: six lines."""
        parts = (self.at, self.before or "-", self.chains, self.rows, self.root)
        return "\n".join(("sayso/checkpoint/1", *map(str, parts)))

    @property
    def witness(self) -> str:
        """How messages name it."""
        return f"checkpoint {self.seq} of {instant(self.at):%Y-%m-%d %H:%M:%S}Z"


class History(NamedTuple):
    """What the chain of checkpoints says.

    Attributes:
        newest: The newest one that counts.
        number: How many count.
        heads: Of all chains, as of the newest.
        keys: The public keys that signed, in the order in which they came.
        broken: What is wrong with them, one sentence each.
        last: Place of the newest row of their chain, counting or not.
        known: Every row that any of them names, counting or not, and their own rows.
        links: The links of those that count, and the empty one before the first.
        checked: How many of `known` were found in the journal already.
    """

    newest: Checkpoint | None
    number: int
    heads: dict[str, Head]
    keys: tuple[str, ...]
    broken: tuple[str, ...]
    last: int
    known: tuple[ExpectedRow, ...]
    links: frozenset[str]
    checked: int


_NOTHING = History(None, 0, {}, (), (), 0, (), frozenset({""}), 0)


def head_line(head: Head) -> str:
    """Return a head as text: how it is written, and a leaf of the tree."""
    return f"{head.seq} {head.link} {head.run_id}"


def head_lines(heads: Collection[Head]) -> list[str]:
    """Return the lines of heads, ordered by run."""
    return [head_line(head) for head in sorted(heads)]


def parse_head(line: object) -> Head:
    """Return the head in a line; raises `AttributeError` or `ValueError` where it is none."""
    seq, link, run_id = cast("str", line).split(" ", 2)
    if not 0 < int(seq) < _MOST:
        raise ValueError(f"no chain has a row {seq[:40]}")
    return Head(run_id, int(seq), link)


# -- writing ---------------------------------------------------------------------------------------------------------


def checkpoint(store: Store, signer: Signer | None = None, *, since: History | None = None) -> History:
    """Write a checkpoint if a chain has grown since the last one, and return what all of them say.

    Durable on return. It is also written if the newest one lacks this signer's signature.

    Args:
        store: Where.
        signer: Who signs it.
        since: The result of the last call, so that earlier checkpoints need not be read again, and what they named is
            still required.

    Raises:
        EvidenceError: The checkpoints are not valid, or a row that one of them names is gone; nothing was written.
        StoreError: One of its kinds, also where the journal holds what is never written.
    """
    before = history(store, since=since)
    heads = {head.run_id: _checked(head) for head in store.heads()}
    wrong = _problems(store, before, heads)
    if wrong:
        raise errors.EvidenceError(
            f"no checkpoint was written, because it would make a loss look whole: {first_of(wrong)};"
            " `sayso log --verify` says where, and the store as it is now is worth a copy"
        )
    before = before._replace(checked=len(before.known))
    new = [head for run_id, head in heads.items() if before.heads.get(run_id) != head]
    newest, key = before.newest, None if signer is None else signer.key
    has_grown = any(head.run_id != CHAIN for head in new)
    if not has_grown and (newest is None or key in {None, newest.key}):
        return before
    rows = sum(head.seq for head in heads.values())
    before_link = "" if newest is None else newest.link
    root = root_of(head_lines(heads.values()))
    made = Checkpoint(0, "", microseconds(clock.now()), before_link, len(heads), rows, root, key, None)
    detail: dict[str, Any] = {name: getattr(made, name) for name in _FIELDS[:5]}
    detail["heads"] = head_lines(new)
    if signer is not None:
        detail |= {"key": signer.key, "signature": signer.sign(made.statement.encode("ascii"))}
    store.note(CHAIN, _EVENT, _BY, detail)
    return history(store, since=before)


def _checked(head: Head) -> Head:
    if tuple(map(type, head)) != (str, int, str):
        raise errors.StoreCorruptError("the journal holds what is never written; `sayso log --verify` says where")
    return head


# -- reading ---------------------------------------------------------------------------------------------------------


def history(
    store: Store, *, since: History | None = None, until: int | None = None, trusted: str | None = None
) -> History:
    """Return what the checkpoints say, after checking their signatures, their order and the root of the newest.

    Args:
        store: Where.
        since: An earlier result; only the checkpoints after it are read.
        until: Only up to this place in their chain.
        trusted: The public key that must have signed the newest; its link to the one before vouches for the others.
    """
    past = _NOTHING if since is None else since
    reading = _Reading(past)
    for entry in rows_of(store, run_id=CHAIN, after=(CHAIN, past.last)):
        if until is not None and entry.seq > until:
            break
        reading.step(entry)
    newest, wrong = reading.newest, reading.wrong
    if newest is not None and newest.root != root_of(head_lines(reading.heads.values())):
        wrong.append(f"the root of {newest.witness} is not that of the heads that it and those before it name")
    if newest is not None and trusted is not None and newest.key != trusted:
        by = "not signed" if newest.key is None else f"signed by another key, {newest.key}"
        wrong.append(f"{newest.witness} is {by}, and must be by {trusted}")
    return History(
        newest, reading.number, reading.heads, tuple(reading.keys), tuple(dict.fromkeys(wrong)), reading.last,
        tuple(reading.known), frozenset(reading.links), past.checked,
    )  # fmt: skip


class _Reading:
    """What the checkpoints say, up to one of them."""

    def __init__(self, past: History) -> None:
        self.newest, self.number, self.last = past.newest, past.number, past.last
        self.heads, self.keys, self.wrong = dict(past.heads), dict.fromkeys(past.keys), list(past.broken)
        self.known, self.links = list(past.known), set(past.links)

    def step(self, entry: Entry) -> None:
        """Read the next row of their chain."""
        self.last, read = entry.seq, _read(entry)
        if read is None:
            return
        if isinstance(read, str):
            self.wrong.append(read)
            return
        made, new = read
        witness = made.witness
        self.known += [ExpectedRow(head, witness) for head in (*new, Head(CHAIN, made.seq, made.link))]
        if made.key is not None and not _is_signed(made):
            self.wrong.append(f"the signature of {made.witness} does not hold")
        if made.before not in self.links:
            self.wrong.append(f"{made.witness} names one before it that is not here: earlier ones were removed")
        elif made.before == ("" if self.newest is None else self.newest.link):
            self._count(made, new)

    def _count(self, made: Checkpoint, new: Sequence[Head]) -> None:
        for head in new:
            old = self.heads.get(head.run_id, head)
            if (old.seq, old.link) != (head.seq, head.link) and old.seq >= head.seq:
                self.wrong.append(
                    f"{made.witness} knows row {head.seq} as the newest of run {head.run_id!r}, and one before it"
                    f" knew {'another one' if old.seq == head.seq else f'row {old.seq}'} there"
                )
            self.heads[head.run_id] = head
        self.newest, self.number = made, self.number + 1
        self.links.add(made.link)
        if made.key is not None:
            self.keys[made.key] = None


def problems(store: Store, past: History) -> list[str]:
    """Return what is wrong with the checkpoints, and which rows that they name are gone, one sentence each."""
    return _problems(store, past, {head.run_id: head for head in store.heads()})


def first_of(wrong: Sequence[str]) -> str:
    """Return the first problem, and how many more there are."""
    return wrong[0] if len(wrong) == 1 else f"{wrong[0]} (and {len(wrong) - 1:,} more)"


def _problems(store: Store, past: History, heads: Mapping[str, Head]) -> list[str]:
    # Every row is looked up once. After that the newest one of each chain is enough, because its link covers those
    # before it: `sayso.audit.verifier` finds what was changed there.
    newest = dict[str, ExpectedRow]()
    for one in past.known:
        if one.head.seq >= newest.get(one.head.run_id, one).head.seq:
            newest[one.head.run_id] = one
    wanted = dict[str, list[ExpectedRow]]()
    for one in {one.head: one for one in (*newest.values(), *past.known[past.checked :])}.values():
        if heads.get(one.head.run_id) != one.head:
            wanted.setdefault(one.head.run_id, []).append(one)
    return [*past.broken, *(problem for run_id, known in wanted.items() for problem in _missing(store, run_id, known))]


def _missing(store: Store, run_id: str, known: Sequence[ExpectedRow]) -> Iterator[str]:
    first = min(one.head.seq for one in known)
    rows = rows_of(store, run_id=run_id, after=(run_id, first - 1))
    last = max(one.head.seq for one in known)
    links = {row.seq: row.link for row in takewhile(lambda row: row.seq <= last, rows)}
    for head, witness in known:
        if head.seq not in links:
            yield f"run {run_id!r} has lost row {head.seq}, which {witness} knows"
        elif links[head.seq] != head.link:
            yield f"row {head.seq} of run {run_id!r} is not the one that {witness} knows"


def covering(store: Store, head: Head) -> tuple[Checkpoint, Sequence[str], Head] | None:
    """Return the first checkpoint that names this row or a later one, the lines under its root, and the head it names.

    None where there is none yet.

    Raises:
        EvidenceError: The checkpoints do not hold.
    """
    place = next((seq for seq, known in _of_run(store, head.run_id) if known.seq >= head.seq), None)
    if place is None:
        return None
    found = history(store, until=place)
    if found.broken or found.newest is None:
        raise errors.EvidenceError(f"the checkpoints do not hold: {'; '.join(found.broken)}; see `sayso log --verify`")
    if found.newest.seq != place:  # one that does not count
        return None
    return found.newest, head_lines(found.heads.values()), found.heads[head.run_id]


def _of_run(store: Store, run_id: str) -> Iterator[tuple[int, Head]]:
    before = ""
    for entry in rows_of(store, run_id=CHAIN):
        read = _read(entry)
        if read is None or isinstance(read, str) or read[0].before != before:
            continue
        before = entry.link
        yield from ((entry.seq, head) for head in read[1] if head.run_id == run_id)


def _read(entry: Entry) -> tuple[Checkpoint, list[Head]] | str | None:
    """Return a row as a checkpoint and the heads that are new in it; None for another row, a sentence for a bad one."""
    if entry.event != _EVENT:
        return None
    try:
        found: dict[str, Any] = json.loads(entry.detail)
        values = [found.get(name) for name in _FIELDS]
        if tuple(map(type, values[:5])) == (int, str, int, int, str):
            made = Checkpoint._make((entry.seq, entry.link, *values))
            instant(made.at)
            return made, [parse_head(line) for line in found["heads"]]
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError):
        pass
    return f"row {entry.seq} of {CHAIN} is no checkpoint that can be read"


def _is_signed(made: Checkpoint) -> bool:
    return signed_by(made.key, made.signature, made.statement.encode("ascii", "replace"))


class Schedule:
    """The checkpoints that a server writes.

    Attributes:
        problem: Why the last one was not written; None where it was.
    """

    def __init__(self) -> None:
        self.problem: str | None = None


@contextmanager
def checkpointing(store: Store, *, every: timedelta, signer: Signer | None = None) -> Generator[Schedule]:
    """Write checkpoints in a thread while the block runs; one that fails is logged, and tried again the next time.

    Args:
        store: Where.
        every: How long to wait between two.
        signer: Who signs them.
    """
    ended, log, schedule = threading.Event(), logging.getLogger("sayso"), Schedule()

    def work() -> None:
        known: History | None = None
        while not ended.wait(every.total_seconds()):
            try:
                known = checkpoint(store, signer, since=known)
                schedule.problem = None
            except errors.EvidenceError as error:
                schedule.problem = str(error)
                log.error("%s", error)  # noqa: TRY400  the message says all; a traceback would add nothing
            except Exception as error:  # noqa: BLE001  a thread that ended would write none; the next one may succeed
                schedule.problem = f"no checkpoint was written: {type(error).__name__}: {error}"
                log.warning("%s", schedule.problem)

    thread = threading.Thread(target=work, name="sayso-checkpoints", daemon=True)
    thread.start()
    try:
        yield schedule
    finally:
        ended.set()
        thread.join()
