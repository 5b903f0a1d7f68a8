"""Gated functions that a handler calls by itself: what they gave is kept in the run, too.

A handler that waits inside of itself runs again from its top when it goes on. The gated calls that it had finished by
then are not made a second time: they give again what they gave. They are told apart by what would run and by how often
the handler has called exactly that in this pass. Invariant: what is not surely the same call asks a person anew.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from sayso import errors
from sayso.effects import Attempt
from sayso.gates import Gate
from sayso.model import canonical
from sayso.model.fingerprint import call_digest
from sayso.model.request import Request
from sayso.model.run import RunUpdate
from sayso.runs.frame import Frame
from sayso.runs.values import Live, back, recorded, result_classes
from sayso.stores.base import Store

__all__ = ["Inner", "InnerCall"]


class Inner:
    """The gated calls of one handler in one pass; a `sayso.scope.Memory`."""

    def __init__(self, frame: Frame) -> None:
        self._frame = frame
        self._seen: Counter[str] = Counter()

    def recall(self, gate: Gate, store: Store, arguments: Mapping[str, Any]) -> InnerCall | None:
        """Return what is known of this call; None where the run cannot keep it."""
        if store is not self._frame.journal.store:
            return None
        if self._frame.journal.is_left:
            raise RuntimeError(
                f"the run {self._frame.journal.run_id} was handed back; {gate.name} is not called for it"
            )
        try:
            form = canonical.encode(dict(arguments))
        except errors.ArgumentError:
            return None
        digest = call_digest(gate.tool, gate.schema.digest, form.digest_input)
        self._seen[digest] += 1
        return InnerCall(self._frame, f"{self._frame.place}!{digest}.{self._seen[digest]}", gate, digest)


class InnerCall:
    """One gated call inside of a handler.

    Attributes:
        known: What it gave in an earlier pass; None where it has to be made.
    """

    def __init__(self, frame: Frame, place: str, gate: Gate, digest: str) -> None:
        self._frame, self._place, self._gate = frame, place, gate
        self.known = self._recalled(digest)

    def _recalled(self, digest: str) -> Attempt | None:
        journal, place = self._frame.journal, self._place
        body, made, noted = journal.at(place), journal.proof.made(digest), journal.count(f"!{digest}.")
        if body is None:
            # One more was made than was noted: by a thread that went on when its run had been handed back.
            return self._happened(made[noted]) if len(made) > noted else None
        if self._gate.when is True and journal.is_hearsay(place) and len(made) < journal.count_hearsay(f"!{digest}."):
            return None
        return self._given(body["value"])

    def _happened(self, request: Request) -> Attempt:
        result = None if request.execution is None else request.execution.result
        value = None if result is None else recorded(result)
        self._frame.journal.put(self._place, {"value": Live(value, self._gate.function, self._gate.name)})
        return Attempt(value, None)

    def _given(self, kept: Any) -> Attempt | None:
        if isinstance(kept, Live):
            return Attempt(kept.value, None)
        if kept is None or "form" in kept:
            return Attempt(None if kept is None else back(kept["form"], result_classes(self._gate.function)), None)
        return None

    def snapshot(self, attempt: Attempt) -> RunUpdate | None:
        """Note what it gave; return what is to be saved with its outcome. What failed is asked anew."""
        if attempt.raised is not None:
            return None
        journal, value = self._frame.journal, attempt.value
        live = None if value is None else Live(value, self._gate.function, self._gate.name)
        journal.put(self._place, {"value": live})
        return journal.offer()[0] if journal.is_kept else None
