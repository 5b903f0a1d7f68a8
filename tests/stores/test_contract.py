"""Every store keeps the contract: in memory, in SQLite, in JSON lines, and in files whose arguments are sealed."""

from __future__ import annotations

import base64
import inspect
from pathlib import Path

import pytest

from sayso.stores.base import Store
from sayso.stores.jsonl import JsonlStore
from sayso.stores.memory import MemoryStore
from sayso.stores.sqlite import SqliteStore
from tests.stores.full_contract import FullContract
from tests.support.pooler import through_pooler
from tests.support.postgres import server

KEY = base64.urlsafe_b64encode(bytes(range(32))).decode()


class TestMemory(FullContract):
    def make_store(self) -> Store:
        return MemoryStore()


class TestSqlite(FullContract):
    key: str | None = None

    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path) -> None:
        self.path = tmp_path / "requests.db"

    def make_store(self) -> Store:
        return SqliteStore(self.path, key=self.key)

    def elsewhere(self, store: Store) -> Store:
        return SqliteStore(store.url.removeprefix("sqlite:///"), key=self.key)


class TestSealedSqlite(TestSqlite):
    key = KEY
    searches_words = False  # what people wrote is sealed, and only ids, runs and names are looked through


class TestJsonl(FullContract):
    key: str | None = None

    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path) -> None:
        self.path = tmp_path / "requests.jsonl"

    def make_store(self) -> Store:
        return JsonlStore(self.path, key=self.key)

    def elsewhere(self, store: Store) -> Store:
        return JsonlStore(store.url.removeprefix("jsonl:"), key=self.key)


class TestSealedJsonl(TestJsonl):
    key = KEY
    searches_words = False


class TestPostgres(FullContract):
    key: str | None = None
    place = 0  # in the list of servers

    @pytest.fixture(autouse=True)
    def _database(self) -> None:
        self.url = server(self.place).used()

    def make_store(self) -> Store:
        from sayso.stores.postgres import PostgresStore

        return PostgresStore(self.url, key=self.key)

    def elsewhere(self, store: Store) -> Store:
        assert store.url == self.url
        return self.make_store()


@pytest.mark.slow
class TestSealedPostgres(TestPostgres):
    key = KEY
    searches_words = False


@pytest.mark.slow
class TestSecondPostgres(TestPostgres):
    place = 1


@pytest.mark.slow
class TestPostgresBehindPooler(TestPostgres):
    @pytest.fixture(autouse=True)
    def _pooler(self, _database: None) -> None:
        self.url = through_pooler(server(), self.url)


def test_help_on_a_verb_shows_what_a_caller_passes() -> None:
    for name, verb in inspect.getmembers(Store, inspect.isfunction):
        assert next(iter(inspect.signature(verb).parameters)) == "self", name
