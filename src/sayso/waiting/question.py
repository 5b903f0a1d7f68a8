"""A question at one point of a run: found there again with its answer, or asked.

`sayso.ask` and the requests of `sayso.channels` are thin layers over this; how the waiting is done is theirs. In one
run an equal question finds its answer again, also in another process; asked a second time in the same run of the
program, it is a new question. Invariant: an answer counts for the question's own run and place, and once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from typing import Any

from sayso import clock
from sayso.drive import Effects, Verb
from sayso.errors import InvalidAnswerError
from sayso.gates import Needs, Place, not_found_again, open_request, requester
from sayso.model import canonical
from sayso.model.fingerprint import fingerprint, question_digest
from sayso.model.ids import new_request_id
from sayso.model.lifecycle import is_due
from sayso.model.quorum import Quorum
from sayso.model.request import Question, Request, State
from sayso.model.schema import Schema, SchemaError
from sayso.stores import worker
from sayso.stores.base import Store
from sayso.waiting.scope import Scope

__all__ = ["Asking"]


class Asking:
    """One question, asked now.

    Args:
        text: What is asked.
        shape: Which answers fit.
        here: The run in which it is asked.
        place: Which runs' answers count for it; those that a call that blocks would find, when not given.
        at: The place in a journaled run from which it is asked, where the run given does not know it: equal questions
            of two places have two answers.
    """

    def __init__(self, text: str, shape: Schema, here: Scope, at: str = "", *, place: Place | None = None) -> None:
        self._shape, self._here = shape, here
        self._place = here.place_of_block() if place is None else place
        self._at = at or next((known.at for known in here.lineage() if known.at), "")
        self._occasion = question_digest(text, shape.digest, 0)
        # What a parent of this task has heard is asked anew as well.
        self._number = max(known.occasions.get(self._occasion, 0) for known in here.lineage())
        self._subject = Question(text, question_digest(text, shape.digest, self._number), shape.text, shape.digest)

    def find_or_ask(self, store: Store, expires: timedelta, quorum: Quorum, risk: str | None) -> Effects[Request]:
        """Return the request of this question: the one that is known, else a new one. Durable then.

        Raises:
            StoreError: The question could not be recorded.
        """
        request = yield from self._found_or_asked(store, expires, quorum, risk)
        if request.state is State.PENDING:
            self._here.raised[request.id] = None
        return request

    def answer(self, store: Store, request: Request) -> Effects[Any]:
        """Return the answer as a value of the type; the next equal question of this run is a new one.

        The type's own validators see it here once more; the reviewer's process may not have had them.

        Raises:
            InvalidAnswerError: They refuse it.
            StoreCorruptError: The row does not match the journal: this is not what was answered.
        """
        request = yield Verb(store.blocks, store.settle, request.id)
        text = "{}" if request.decision is None or request.decision.answer is None else request.decision.answer
        try:
            answer = self._shape.validate(canonical.decode(text, self._shape.classes))["answer"]
        except SchemaError as error:
            yield Verb(store.blocks, store.clear, request.id, requester())
            raise InvalidAnswerError(request.id, error.problems, still_waits=False) from None
        for known in self._here.lineage():
            known.forget(request.id)
        # Several tasks of the run may have asked this at once, and all of them have this one answer.
        heard = self._here.occasions.get(self._occasion, 0)
        self._here.occasions[self._occasion] = max(heard, self._number + 1)
        return answer

    def _found_or_asked(self, store: Store, expires: timedelta, quorum: Quorum, risk: str | None) -> Effects[Request]:
        place, digest = self._place, self._subject.digest
        needs = Needs(quorum, place.acts_for)
        for find in self._finds(store):
            found = yield Verb(store.blocks, find)
            if found is not None and is_due(found, clock.now()):
                found = yield Verb(store.blocks, store.settle, found.id)
            if found is None or not found.holds:
                continue
            lacks = needs.unmet_by(found) if found.state in {State.PENDING, State.ANSWERED} else None
            if lacks is None:
                return found
            yield Verb(store.blocks, store.clear, found.id, requester(), lacks)
            needs = needs.joined(found)
        if place.pool is not None:
            raise not_found_again("the question", place.pool)
        now, run_id = clock.now(), place.run_ids[0]
        request = Request(
            id=new_request_id(),
            kind="question",
            run_id=run_id,
            fingerprint=fingerprint(run_id, digest, self._at),
            place=self._at,
            subject=self._subject,
            requester=requester(),
            created_at=now,
            expires_at=now + expires,
            approval_window=expires,
            quorum=needs.quorum,
            on_behalf_of=needs.barred[0] if needs.barred else None,
            also_for=needs.barred[1:],
            process=None if place.has_name else worker.current(),
            risk=risk,
        )
        return (yield from open_request(store, request))

    def _finds(self, store: Store) -> Iterator[Callable[[], Request | None]]:
        """Yield how to find the requests that may be this question's."""
        digest, left = self._subject.digest, self._place.adopted.get(self._subject.digest)
        if left is not None:
            yield partial(store.get, left)
        for run_id in self._place.run_ids:
            yield partial(store.find, fingerprint(run_id, digest, self._at))
