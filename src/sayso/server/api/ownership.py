"""Limits a program to its own objects: the requests that it asked, and the runs that it began.

A run belongs to the program that first wrote to it; a second program that uses the same name is refused. Chains that
sayso itself writes belong to no program. Invariant: an object of another program gets the same answer as a missing one.
"""

from __future__ import annotations

import re

from starlette.requests import Request as Http

from sayso import errors
from sayso.model import teamwork
from sayso.model.journal import Entry
from sayso.model.request import Request
from sayso.model.reviewer import PROGRAM, TOKENS, Identity
from sayso.model.run import RunSnapshot, RunUpdate
from sayso.server.api.endpoint import Context, Principal
from sayso.server.api.limits import Slot
from sayso.stores.base import Filter, Page, Store
from sayso.stores.transaction import Record

AAP_RUNS = "aap:"
"""Prefix of the run ids of calls asked through the Agent Approval Protocol; the program's name and a digest follow."""

_ID = re.compile(r"rq_[0-9a-f]{32}")
_RECORD = "run"
_OWN_CHAINS = "sayso:"  # of checkpoints and tokens; a program that owned one could forge their records
_LOOKED_AT = 2_000  # requests read for one page of a list
_SOMEBODY = Identity(PROGRAM, "somebody")


class Ownership(Context):
    """A program's request to the API, and what the program may see of the store.

    Attributes:
        me: The program, as the requester of its requests.
        owner: The person or program in whose name the token was made, who may not decide what was asked with it.
    """

    def __init__(self, http: Http, principal: Principal, slot: Slot | None, store: Store | None = None) -> None:
        super().__init__(http, principal, slot, store)
        self.me, self.owner = principal.requester, principal.reviewer.identity
        self._readable: dict[str, bool] = {}

    # -- requests ----------------------------------------------------------------------------------------------

    def is_mine(self, request: Request) -> bool:
        """Return whether the program asked a request."""
        return request.requester == self.me

    def request(self, request_id: str) -> Request:
        """Return one of the program's requests; raises `RequestNotFoundError` for any other id."""
        request = self.store.get(request_id) if _ID.fullmatch(request_id) else None
        if request is None or not self.is_mine(request):
            raise errors.RequestNotFoundError(request_id)
        return request

    def request_or_none(self, request_id: str) -> Request | None:
        """Return one of the program's requests; None for any other id."""
        try:
            return self.request(request_id)
        except errors.RequestNotFoundError:
            return None

    def page(self, wanted: Filter, cursor: str | None, limit: int, *, newest: bool) -> Page:
        """Return a page of the program's requests. It may be short, even empty, and still have a cursor.

        Raises:
            ValueError: The cursor is not one of this list.
        """
        found: list[Request] = []
        looked_at = 0
        while True:
            # Read no more than are still wanted, so that the cursor points right behind the last one returned.
            page = self.store.list(wanted, cursor=cursor, limit=limit - len(found), newest=newest)
            found += filter(self.is_mine, page.requests)
            looked_at += len(page.requests)
            cursor = page.cursor
            if cursor is None or len(found) == limit or looked_at >= _LOOKED_AT:
                return Page(tuple(found), cursor)

    # -- runs --------------------------------------------------------------------------------------------------

    def must_be_free(self, run_id: str) -> None:
        """Raise `RunNotFoundError` for a run that another program began. A run that does not exist is free."""
        if self._owner(run_id) not in {None, self.me}:
            raise errors.RunNotFoundError(run_id)

    def run(self, run_id: str) -> RunSnapshot:
        """Return one of the program's runs; raises `RunNotFoundError` for any other id."""
        self.must_be_mine(run_id)
        return self.store.get_run(run_id)

    def must_be_mine(self, run_id: str) -> None:
        """Raise `RunNotFoundError` for a run that the program did not begin."""
        if not self.is_my_run(run_id):
            raise errors.RunNotFoundError(run_id)

    def is_my_run(self, run_id: str) -> bool:
        """Return whether the program began a run."""
        return self._owner(run_id) == self.me

    def may_read(self, entry: Entry) -> bool:
        """Return whether the program may read a journal row: of its requests, or a note by itself or the server.

        Comments among reviewers are not for programs.
        """
        if entry.event == teamwork.COMMENTED:
            return False
        if not entry.request_id:
            return entry.by == self.me.qualified or not entry.by.startswith(f"{self.me.issuer}:")
        if entry.request_id not in self._readable:
            self._readable[entry.request_id] = self.request_or_none(entry.request_id) is not None
        return self._readable[entry.request_id]

    def claim(self, run_id: str) -> bool:
        """Record that a run belongs to the program, if no program has begun it; raises as `must_be_free` does.

        Returns:
            Whether this call began the run, so that it is still empty.
        """
        owner = self._owner(run_id)
        if owner is None:
            body = {"issuer": self.me.issuer, "subject": self.me.subject}
            if self.store.keep(Record(_RECORD, run_id, body), only_new=True):
                return True
            owner = self._owner(run_id)  # another process was faster
        if owner != self.me:
            raise errors.RunNotFoundError(run_id)
        return False

    def must_be_able_to_save(self, update: RunUpdate) -> None:
        """Raise a not-found error if a run, or a request that it waits for, belongs to another program."""
        self.must_be_free(update.run.id)
        for request_id in {step.waits for step in update.steps if step.waits is not None}:
            try:
                request = self.store.get(request_id)
            except errors.RequestNotFoundError:
                continue  # about to be asked; nobody else can guess its random id
            if not self.is_mine(request):
                raise errors.RequestNotFoundError(request_id)

    def _owner(self, run_id: str) -> Identity | None:
        if run_id.startswith(_OWN_CHAINS):
            return _SOMEBODY
        if run_id.startswith(AAP_RUNS):  # by its name, so that no other program can begin it first
            return Identity(TOKENS, run_id.removeprefix(AAP_RUNS).rpartition(":")[0])
        claimed = self._claimed_by(run_id)
        if claimed is not None:
            return claimed
        for first in self.store.journal(run_id=run_id, limit=1):
            return Identity.named(first.by)
        try:
            self.store.get_run(run_id)
        except errors.RunNotFoundError:
            return None
        # Another thread of the program may have claimed it meanwhile; else a process on this machine saved the run.
        return self._claimed_by(run_id) or _SOMEBODY

    def _claimed_by(self, run_id: str) -> Identity | None:
        record = self.store.record(_RECORD, run_id)
        return None if record is None else Identity(record.body["issuer"], record.body["subject"])
