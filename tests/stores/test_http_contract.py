"""A sayso server keeps the contract of a store for the program of a token, over a real connection.

What a token of the kind `ask` must not do is done at the server's own store, as people do it there: deciding, claiming,
extending, resolving, records, and reading the whole journal. Left out are the facts about records, which no program's
token reaches, about budgets, which a server takes from no program, and three more: that ids of any form are taken, that
a program says who asks, and a fault that is put into the server's own process.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any, TypeVar

import pytest

from sayso.model.journal import Entry, RowDigests
from sayso.model.request import Request
from sayso.model.reviewer import LOCAL, Identity
from sayso.model.teamwork import COMMENTED
from sayso.model.text import storable
from sayso.server.auth.tokens import CHAIN
from sayso.stores.base import Store
from sayso.stores.http import HttpStore
from sayso.stores.memory import MemoryStore
from sayso.stores.records import RecordRow
from sayso.stores.sqlite import SqliteStore
from sayso.testing.contract_records import EvidenceContract, RecordContract
from tests.stores.contract_grants import AlteredRecordContract, BudgetContract
from tests.stores.full_contract import FullContract
from tests.support.serving import Serving, new_token, serving

T = TypeVar("T")
_ME, _OWNER = Identity("token", "tests"), Identity(LOCAL, "tests")


class Program(HttpStore):
    """The store of a program, with people at the server's own."""

    def __init__(self, address: str, token: str, server: Store) -> None:
        super().__init__(address, token)
        self.token, self.server = token, server

    def resolve(self, request_id: str, by: Identity, *, roles: Collection[str] | None, **said: Any) -> Request:
        where = super() if roles is None else self.server
        return where.resolve(request_id, by, roles=roles, **said)

    def journal(self, **wanted: Any) -> Sequence[Entry]:
        is_whole = wanted.get("run_id") is None and wanted.get("request_id") in {None, "rq_none"}
        found = self.server.journal(**wanted)
        if not is_whole and all(row.event != COMMENTED for row in found):  # a comment is not the program's to read
            return super().journal(**wanted)
        return [row for row in found if row.run_id != CHAIN]  # which its own token begins

    def row_digests(self, *, run_id: str | None = None, after: str = "", limit: int = 1000) -> Sequence[RowDigests]:
        return self.server.row_digests(run_id=run_id, after=after, limit=limit)

    def _transact(self, work: Callable[..., T], *args: Any, **options: Any) -> T:
        return self.server._transact(work, *args, **options)

    def _record_row(self, kind: str, key: str) -> RecordRow | None:
        return self.server._record_row(kind, key)

    def _record_rows(self, kind: str, due_by: int | None, after: str, limit: int) -> Sequence[RecordRow]:
        return self.server._record_rows(kind, due_by, after, limit)


@pytest.fixture(scope="module")
def server() -> Iterator[Serving]:
    with serving() as one:
        yield one


class TestHttp(FullContract):
    @pytest.fixture(autouse=True)
    def _serving(self, server: Serving, tmp_path: Any) -> None:
        self.serving, self.folder = server, tmp_path

    def behind(self) -> Store:
        return MemoryStore()

    def make_store(self) -> Store:
        store = self.behind()
        address = self.serving.of(store)
        return Program(address, new_token(store, lasts=timedelta(days=36_500)), store)

    def elsewhere(self, store: Store) -> Store:
        assert isinstance(store, Program)
        return Program(store.url, store.token, store.server)

    def recorded(self, request: Request) -> Request:
        behalf, also = request.on_behalf_of, request.also_for
        request = replace(request, prompt=None if request.prompt is None else storable(request.prompt))
        if behalf is None:
            return replace(request, requester=_ME, on_behalf_of=_OWNER)
        return replace(request, requester=_ME, also_for=(*also, _OWNER))

    def test_ids_are_matched_by_their_beginning(self) -> None:
        ids = sorted(self.ask().id for _ in range(3))
        assert sorted(self.store.match("rq_")) == ids
        assert list(self.store.match(ids[0][:12])) == [one for one in ids if one.startswith(ids[0][:12])]
        assert len(self.store.match("rq_", 2)) == 2
        assert list(self.store.match("rq_a%")) == []


LEFT_OUT = {name for name in vars(RecordContract) if name.startswith("test_")}
LEFT_OUT |= {name for name in vars(EvidenceContract) if name.startswith("test_")}  # evidence is the server's business
LEFT_OUT |= {name for name in vars(BudgetContract) if name.startswith("test_")}  # a program's word allows nothing
LEFT_OUT |= {name for name in vars(AlteredRecordContract) if name.startswith("test_")}  # nor writes records by hand
LEFT_OUT |= {
    # These ask in the name of somebody that the program is not, or read a chain that is not its own.
    "test_an_escalation_never_lets_the_requester_decide",
    "test_a_call_of_another_program_or_for_somebody_waits",
    "test_nobody_grants_what_they_ask_for",
    "test_a_stop_blocks_what_was_approved_until_starts_go_on",
    # What breaks inside of the server is told as a fault of the store; the server's own store has this test, too.
    "test_what_is_owed_and_what_is_recorded_become_durable_together_or_not_at_all",
}
for left_out in LEFT_OUT:
    setattr(TestHttp, left_out, None)


class TestHttpOverSqlite(TestHttp):
    def behind(self) -> Store:
        return SqliteStore(self.folder / "server.db")
