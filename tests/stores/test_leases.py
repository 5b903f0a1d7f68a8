"""How a process keeps the leases of what it runs, and what that costs."""

from __future__ import annotations

import os
from typing import Any

import pytest

import sayso
from sayso import errors
from sayso.stores import processes
from sayso.stores.base import Store
from sayso.stores.memory import MemoryStore


def test_a_start_is_held_until_its_end_is_recorded(file_store: Store) -> None:
    held: list[list[str]] = []

    @sayso.gate(wait="raise")
    def pay(amount: int) -> str:
        held.append([one.id for one in processes._keepers[file_store].held.values()])
        return f"paid {amount}"

    with pytest.raises(sayso.ConfirmationRequired) as asked:
        pay(1)
    sayso.Review(reviewer="ada").approve(asked.value.confirmation_id)
    pay(1)
    assert held == [[asked.value.confirmation_id]]
    assert processes._keepers[file_store].held == {}


def test_a_short_call_writes_nothing_for_its_lease(file_store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    verbs: list[str] = []
    transact = type(file_store)._transact

    def counted(self: Store, work: Any, *args: Any, **options: Any) -> Any:
        verbs.append(work.__name__)
        return transact(self, work, *args, **options)

    monkeypatch.setattr(type(file_store), "_transact", counted)

    @sayso.gate(wait="raise")
    def pay(amount: int) -> str:
        return f"paid {amount}"

    with pytest.raises(sayso.ConfirmationRequired) as held:
        pay(1)
    sayso.Review(reviewer="ada").approve(held.value.confirmation_id)
    verbs.clear()
    assert pay(1) == "paid 1"
    assert verbs == ["_started", "_finished"]
    assert file_store.records("lease") == []


def test_a_renewal_that_fails_is_tried_again_and_told_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = MemoryStore()
    keeper = processes._Keeper(store)
    held = processes._Held("rq_1", 0.0)
    keeper.held["token"] = held

    def away(_: object) -> list[str]:
        raise errors.StoreUnavailableError("away")

    monkeypatch.setattr(store, "renew", away, raising=False)
    for now in (100.0, 200.0):
        keeper._renew({"token": held}, now)
        assert held.due < now + keeper._half / 2
    assert [record.message.count("away") for record in caplog.records] == [1]

    monkeypatch.setattr(store, "renew", lambda _: [], raising=False)
    keeper._renew({"token": held}, 300.0)
    assert held.due == 300.0 + keeper._half

    monkeypatch.setattr(store, "renew", lambda _: ["rq_1"], raising=False)
    keeper._renew({"token": held}, 400.0)
    assert keeper.held == {}
    assert "was lost" in caplog.records[-1].message


def test_a_lease_is_as_long_as_its_worker_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAYSO_LEASE", "2m")
    processes._named.cache_clear()
    try:
        assert str(processes.lease_of(processes.current())) == "0:02:00"
        assert processes.lease_of(f"{processes.current()}#token") == processes.lease_of(processes.current())
        assert processes.lease_of(processes.named(os.getppid())) is None
        for name in (None, "", "aap:shop", "host/boot/1/1", "////////x", "////////nan"):
            assert processes.lease_of(name) is None
        for text in ("0", "1ms", "2d", "soon"):
            monkeypatch.setenv("SAYSO_LEASE", text)
            processes._named.cache_clear()
            with pytest.raises(errors.ConfigError, match="SAYSO_LEASE"):
                processes.current()
    finally:
        monkeypatch.undo()
        processes._named.cache_clear()
