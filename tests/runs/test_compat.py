"""Other libraries' names for a store, and the refusal of what cannot protect a start."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from sayso import config, errors
from sayso.model.lifecycle import Outcome
from sayso.model.request import State
from sayso.runs import compat
from sayso.stores.base import Store
from sayso.stores.jsonl import JsonlStore
from sayso.stores.memory import MemoryStore
from sayso.stores.sqlite import SqliteStore
from sayso.testing.scene import Scene, refusal


class Custom:
    """A tracing provider as somebody else's library has it."""

    async def put(self, trace: object) -> None: ...


def test_each_provider_gives_what_a_store_setting_takes(tmp_path: Path) -> None:
    jsonl = compat.JsonlTracingProvider.configured(_path=tmp_path / "traces.jsonl")
    sqlite = compat.SqliteTracingProvider.configured(_path=str(tmp_path / "traces.db"))
    assert isinstance(jsonl, JsonlStore)
    assert isinstance(sqlite, SqliteStore)
    assert isinstance(compat.InMemoryTracingProvider.configured(), MemoryStore)
    assert compat.JsonlTracingProvider.configured(_path=tmp_path / "traces.jsonl") is jsonl
    assert (tmp_path / "traces.jsonl").as_posix() in jsonl.url
    for store in (jsonl, sqlite):
        assert compat.store_of(store) is compat.store_of(None, store) is config.open_store(store.url) is store


def test_the_provider_in_memory_is_given_as_it_is() -> None:
    memory = config.open_store("memory:")
    for given in (compat.InMemoryTracingProvider, compat.InMemoryTracingProvider()):
        assert compat.store_of(None, given) is memory


def test_an_address_or_nothing_is_passed_on() -> None:
    assert compat.store_of() is None
    assert compat.store_of("memory:") == compat.store_of(None, "memory:") == "memory:"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (Custom(), "takes a sayso.stores.base.Store"),
        (Custom, "takes a sayso.stores.base.Store"),
        (object(), "takes a sayso.stores.base.Store"),
        (3, "takes a sayso.stores.base.Store, not 3"),
        (MemoryStore, "takes a sayso.stores.base.Store"),
        (compat.JsonlTracingProvider, "configured(_path="),
        (compat.SqliteTracingProvider, "configured(_path="),
    ],
)
def test_what_cannot_protect_a_start_is_refused(given: object, said: str) -> None:
    for refused in (lambda: compat.store_of(given), lambda: compat.store_of(None, given)):
        assert said in str(refusal(errors.ConfigError, refused))


def test_two_different_stores_are_refused() -> None:
    store = MemoryStore()
    assert compat.store_of(store, store) is store
    refusal(errors.ConfigError, lambda: compat.store_of(store, MemoryStore()))


class TestClaim(Scene):
    def make_store(self) -> Store:
        return MemoryStore()

    def test_the_first_claim_wins_and_later_ones_are_told(self) -> None:
        request = self.approved()
        said = [compat.claim_approval(request.run_id, request.id, f"run_{n}", store=self.store) for n in range(3)]
        assert said == [True, False, False]
        assert self.store.finish(request.id, "run_0", Outcome("done")).state is State.DONE
        assert not compat.claim_approval(request.run_id, request.id, "run_3", store=self.store)

    def test_what_is_not_approved_in_this_run_is_not_claimed(self) -> None:
        request, other = self.approved(), self.ask()
        claims: list[Callable[[], object]] = [
            lambda: compat.claim_approval("run_other", request.id, "run_1", store=self.store),
            lambda: compat.claim_approval(other.run_id, other.id, "run_1", store=self.store),
        ]
        for claim in claims:
            refusal(errors.NotApprovedError, claim)
        assert self.store.get(request.id).state is State.APPROVED
