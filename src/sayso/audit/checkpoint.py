"""Checkpoints and anchors: the heads of all chains, in the journal and in a file outside the store.

A checkpoint is a row in a chain of its own. It names the heads that changed since the previous checkpoint, and the link
of that checkpoint, so its signature covers all heads. Checkpoints reveal a chain that lost its end or was removed
together with its requests, unless the newest of them are removed as well; only an anchor reveals that. A checkpoint is
valid only if it names the link of the one before, so of two that are written concurrently one is invalid. No checkpoint
is written while the journal lacks a row that an earlier one names, because it would hide the loss.

A server writes checkpoints on a schedule and compares each time with what it read last. It thereby also detects that an
older copy of the store was restored, even though that copy is consistent.

An anchor holds the newest checkpoint and all heads in a file that the store's writers cannot reach. It reveals what the
store alone cannot: a journal that was cut off or rewritten, an older copy. It proves nothing about later rows.
"""

from __future__ import annotations

import hashlib
import json
import logging
import threading
from collections.abc import Collection, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from itertools import takewhile
from pathlib import Path
from typing import Any, NamedTuple, cast

from sayso import clock, errors
from sayso.audit import ExpectedRow, row_problem
from sayso.audit.signing import Signer, document_text, read_document, signed_by
from sayso.clock import instant, microseconds
from sayso.model.journal import Entry, Head, first_link
from sayso.model.reviewer import PROGRAM, Identity
from sayso.stores.base import Store
from sayso.stores.review import rows_of

CHAIN = "sayso:checkpoints"
"""The run id of the checkpoint chain."""

_BY = Identity(PROGRAM, "sayso")
_EVENT = "checkpoint"
_MOST = 1 << 62  # rows; a store cannot be queried for a greater number
_START = Head(CHAIN, 0, first_link(CHAIN))
_NUMBERS = ("at", "before", "chains", "rows")


class Checkpoint(NamedTuple):
    """One valid checkpoint.

    Attributes:
        seq: Its position in its chain.
        link: The link of its row.
        at: When the heads were read, in microseconds since 1970 UTC.
        before: The link of the previous checkpoint; empty for the first.
        chains: The number of chains at that time.
        rows: The total number of rows in them.
        digest: SHA-256 of the lines of the heads that it names (see `head_lines`).
        key: The public key that signed it; None if it is unsigned.
        signature: The signature of `statement`, in hex.
    """

    seq: int
    link: str
    at: int
    before: str
    chains: int
    rows: int
    digest: str
    key: str | None
    signature: str | None

    @property
    def statement(self) -> str:
        """The signed text: six lines."""
        parts = (self.at, self.before or "-", self.chains, self.rows, self.digest)
        return "\n".join(("sayso/checkpoint/1", *map(str, parts)))

    @property
    def witness(self) -> str:
        """The name of this checkpoint in messages."""
        return f"checkpoint {self.seq} of {instant(self.at):%Y-%m-%d %H:%M:%S}Z"


@dataclass
class History:
    """The content of the checkpoint chain.

    Attributes:
        newest: The newest valid checkpoint.
        number: The number of valid checkpoints.
        heads: The heads of all chains, as of the newest checkpoint.
        keys: The public keys that signed, in order of first use.
        broken: The problems of the checkpoints, one sentence each.
        last: The newest row of the chain, valid or not.
        known: Every row that any checkpoint names, valid or not, and the checkpoints' own rows.
        links: The links of the valid checkpoints, and the empty link before the first.
        checked: How many of the first entries of `known` were already found in the journal.
    """

    newest: Checkpoint | None = None
    number: int = 0
    heads: dict[str, Head] = field(default_factory=dict[str, Head])
    keys: list[str] = field(default_factory=list[str])
    broken: list[str] = field(default_factory=list[str])
    last: Head = _START
    known: list[ExpectedRow] = field(default_factory=list[ExpectedRow])
    links: set[str] = field(default_factory=lambda: {""})
    checked: int = 0

    def add(self, entry: Entry) -> None:
        """Add the next row of the chain."""
        problem = row_problem(entry, self.last.link, self.last.seq + 1)
        if problem is not None:
            self.broken.append(f"{CHAIN}: {problem}")
        self.last = Head(CHAIN, entry.seq, entry.link)
        if entry.event != _EVENT:
            return
        try:
            made, new = _parse(entry)
        except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError):
            self.broken.append(f"row {entry.seq} of {CHAIN} is not a readable checkpoint")
            return
        self.known += [ExpectedRow(head, made.witness) for head in (*new, self.last)]
        if made.key is not None and not signed_by(made.key, made.signature, made.statement.encode("ascii", "replace")):
            self.broken.append(f"the signature of {made.witness} is not valid")
        if made.before not in self.links:
            self.broken.append(f"{made.witness} names an earlier one that is missing: earlier ones were removed")
        elif made.before == ("" if self.newest is None else self.newest.link):
            self._accept(made, new)

    def _accept(self, made: Checkpoint, new: Sequence[Head]) -> None:
        for head in new:
            old = self.heads.get(head.run_id, head)
            if old != head and old.seq >= head.seq:
                self.broken.append(
                    f"{made.witness} knows row {head.seq} as the newest of run {head.run_id!r}, but an earlier one"
                    f" knew {'another one' if old.seq == head.seq else f'row {old.seq}'} there"
                )
            self.heads[head.run_id] = head
        self.newest, self.number = made, self.number + 1
        self.links.add(made.link)
        if made.key is not None and made.key not in self.keys:
            self.keys.append(made.key)


def _parse(entry: Entry) -> tuple[Checkpoint, list[Head]]:
    found: dict[str, Any] = json.loads(entry.detail)
    numbers = [found[name] for name in _NUMBERS]
    if tuple(map(type, numbers)) != (int, str, int, int):
        raise TypeError("a value of another kind")
    instant(found["at"])
    heads = [parse_head(line) for line in found["heads"]]
    digest = _digest(found["heads"])
    values = (entry.seq, entry.link, *numbers, digest, found.get("key"), found.get("signature"))
    return Checkpoint._make(values), heads


def head_lines(heads: Collection[Head]) -> list[str]:
    """Serialize heads, each as `SEQ LINK RUN`, in a fixed order."""
    return [f"{head.seq} {head.link} {head.run_id}" for head in sorted(heads)]


def parse_head(line: object) -> Head:
    """Parse a head from its line; raise `AttributeError` or `ValueError` if it is malformed."""
    seq, link, run_id = cast("str", line).split(" ", 2)
    if not 0 < int(seq) < _MOST:
        raise ValueError(f"no chain has a row {seq[:40]}")
    return Head(run_id, int(seq), link)


def _digest(lines: Sequence[str]) -> str:
    return hashlib.sha256(json.dumps(lines, separators=(",", ":")).encode("ascii")).hexdigest()


def checkpoint(store: Store, signer: Signer | None = None, *, since: History | None = None) -> History:
    """Write a checkpoint if a chain has grown since the last one, and return the content of all checkpoints.

    Durable on return. A checkpoint is also written if the newest one lacks this signer's signature.

    Args:
        since: The result of the last call. Earlier checkpoints are then not read again, and the rows that they named
            are still required.

    Raises:
        EvidenceError: A checkpoint is invalid, or a row that one of them names is gone; nothing was written.
        StoreError: The store failed, or the journal contains a malformed row.
    """
    before = history(store, since=since)
    heads = {head.run_id: head for head in store.heads()}
    if any(tuple(map(type, head)) != (str, int, str) for head in heads.values()):
        raise errors.StoreCorruptError(
            "the journal has content that sayso never writes; `sayso log --verify` says where"
        )
    wrong = problems(store, before, heads)
    if wrong:
        raise errors.EvidenceError(
            f"no checkpoint was written, because it would hide a loss: {first_of(wrong)};"
            " `sayso log --verify` says where. Keep a copy of the store as it is now"
        )
    before.checked = len(before.known)
    new = [head for run_id, head in heads.items() if before.heads.get(run_id) != head]
    newest, key = before.newest, None if signer is None else signer.key
    has_grown = any(head.run_id != CHAIN for head in new)
    if not has_grown and (newest is None or key in {None, newest.key}):
        return before
    lines, rows = head_lines(new), sum(head.seq for head in heads.values())
    before_link = "" if newest is None else newest.link
    made = Checkpoint(0, "", microseconds(clock.now()), before_link, len(heads), rows, _digest(lines), key, None)
    detail: dict[str, Any] = {name: getattr(made, name) for name in _NUMBERS} | {"heads": lines}
    if signer is not None:
        detail |= {"key": signer.key, "signature": signer.sign(made.statement.encode("ascii"))}
    store.note(CHAIN, _EVENT, _BY, detail)
    return history(store, since=before)


def history(store: Store, *, since: History | None = None, trusted: str | None = None) -> History:
    """Read the checkpoints, and check their chain, signatures and order.

    Args:
        since: An earlier result, which is not modified; only later checkpoints are read.
        trusted: The public key that must have signed the newest checkpoint, whose link vouches for the earlier ones.
    """
    past = since or History()
    found = replace(
        past, heads=dict(past.heads), keys=[*past.keys], broken=[*past.broken], known=[*past.known],
        links=set(past.links),
    )  # fmt: skip
    for entry in rows_of(store, run_id=CHAIN, after=(CHAIN, past.last.seq)):
        found.add(entry)
    newest = found.newest
    if newest is not None and trusted is not None and newest.key != trusted:
        by = "not signed" if newest.key is None else f"signed by another key, {newest.key}"
        found.broken.append(f"{newest.witness} is {by}, and must be signed by {trusted}")
    return found


def first_of(wrong: Sequence[str]) -> str:
    """Return the first problem and the number of further ones."""
    return wrong[0] if len(wrong) == 1 else f"{wrong[0]} (and {len(wrong) - 1:,} more)"


def problems(store: Store, past: History, heads: Mapping[str, Head] | None = None) -> list[str]:
    """Return the problems of the checkpoints and the missing rows that they name, one sentence each.

    `heads` are those of the store if they were just read.
    """
    if heads is None:
        heads = {head.run_id: head for head in store.heads()}
    # Every row is looked up once. Afterwards the newest row of each chain is enough, because its link covers the rows
    # before it; `sayso.audit` finds changes to those.
    newest = dict[str, ExpectedRow]()
    for one in past.known:
        if one.head.seq >= newest.get(one.head.run_id, one).head.seq:
            newest[one.head.run_id] = one
    wanted = dict[str, list[ExpectedRow]]()
    for one in {one.head: one for one in (*newest.values(), *past.known[past.checked :])}.values():
        if heads.get(one.head.run_id) != one.head:
            wanted.setdefault(one.head.run_id, []).append(one)
    return [
        *past.broken,
        *(problem for run_id, known in wanted.items() for problem in _lost_rows(store, run_id, known)),
    ]


def _lost_rows(store: Store, run_id: str, known: Sequence[ExpectedRow]) -> Iterator[str]:
    first = min(one.head.seq for one in known)
    rows = rows_of(store, run_id=run_id, after=(run_id, first - 1))
    last = max(one.head.seq for one in known)
    links = {row.seq: row.link for row in takewhile(lambda row: row.seq <= last, rows)}
    for head, witness in known:
        if head.seq not in links:
            yield f"run {run_id!r} has lost row {head.seq}, which {witness} knows"
        elif links[head.seq] != head.link:
            yield f"row {head.seq} of run {run_id!r} does not match {witness}"


@dataclass
class Schedule:
    """The schedule on which a server writes checkpoints.

    Attributes:
        problem: Why the last checkpoint was not written; None if it was.
    """

    problem: str | None = None


@contextmanager
def checkpointing(store: Store, *, every: timedelta, signer: Signer | None = None) -> Generator[Schedule]:
    """Write checkpoints in a thread while the block runs; log a failure and try again at the next interval."""
    ended, log, schedule = threading.Event(), logging.getLogger("sayso"), Schedule()

    def work() -> None:
        known: History | None = None
        while not ended.wait(every.total_seconds()):
            try:
                known = checkpoint(store, signer, since=known)
                schedule.problem = None
            except errors.EvidenceError as error:
                schedule.problem = str(error)
                log.error("%s", error)  # noqa: TRY400  the message is complete without a traceback
            except Exception as error:  # noqa: BLE001  the next one may succeed, and a dead thread would write none
                schedule.problem = f"no checkpoint was written: {type(error).__name__}: {error}"
                log.warning("%s", schedule.problem)

    thread = threading.Thread(target=work, name="sayso-checkpoints", daemon=True)
    thread.start()
    try:
        yield schedule
    finally:
        ended.set()
        thread.join()


_KIND = "anchor"
_LIMIT = 512 << 20


class AnchorFile(NamedTuple):
    """A verified anchor.

    Attributes:
        checkpoint: The newest checkpoint at the time of the anchor.
        heads: The heads of all chains.
        key: The public key that signed the file; None if it is unsigned.
    """

    checkpoint: Checkpoint
    heads: tuple[Head, ...]
    key: str | None

    @property
    def witness(self) -> str:
        """The name of this checkpoint in messages."""
        return f"the anchor of {instant(self.checkpoint.at):%Y-%m-%d %H:%M:%S}Z"

    @property
    def known(self) -> Iterator[ExpectedRow]:
        """Every row that must be in the store, including the checkpoint's own row."""
        for head in (*self.heads, Head(CHAIN, self.checkpoint.seq, self.checkpoint.link)):
            yield ExpectedRow(head, self.witness)

    def must_be_of(self, store: Store) -> None:
        """Raise `EvidenceError` if none of the anchor's chains is in this store."""
        mine = {head.run_id for head in self.heads} - {CHAIN}
        if mine.isdisjoint(head.run_id for head in store.heads()):
            raise errors.EvidenceError(
                f"no chain in {self.witness} is in this store ({len(mine):,} missing): the anchor is of another"
                " store, or this store was replaced"
            )


def anchor_text(store: Store, signer: Signer | None = None) -> str:
    """Return the text of an anchor of the store's current state; write a checkpoint first if a chain has grown.

    Raises:
        EvidenceError: The journal is empty, or the checkpoints do not verify.
    """
    found = checkpoint(store, signer)
    if found.newest is None:
        raise errors.EvidenceError("the journal is empty, so there is nothing to anchor")
    if found.broken:
        raise errors.EvidenceError(
            f"the checkpoints are not valid: {'; '.join(found.broken)}; see `sayso log --verify`"
        )
    heads = head_lines(found.heads.values())
    return document_text(
        _KIND, {"format": "sayso/anchor/1", "checkpoint": found.newest._asdict(), "heads": heads}, signer
    )


def read_anchor(source: bytes | Path, *, trusted: str | None = None) -> AnchorFile:
    """Parse and verify an anchor.

    Args:
        source: The whole file, or its path.
        trusted: The public key that must have signed it.

    Raises:
        EvidenceError: It cannot be read, is not an anchor, was changed or truncated, or is not signed by that key.
    """
    body, key = read_document(_KIND, source, limit=_LIMIT, trusted=trusted)
    try:
        found: dict[str, Any] = body["checkpoint"]
        made = Checkpoint(**found)
        heads = tuple(parse_head(line) for line in body["heads"])
        instant(made.at)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise errors.EvidenceError(
            f"the anchor does not have the content of an anchor ({type(error).__name__})"
        ) from error
    return AnchorFile(made, heads, key)
