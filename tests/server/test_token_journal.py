"""That a token was made or revoked stands in the journal: by whom and for whom, and never its secret."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest

from sayso import audit, errors
from sayso.audit.checkpoint import checkpoint, history
from sayso.audit.export import FORMATS, Format, exported
from sayso.cli import main
from sayso.model.journal import Entry
from sayso.model.reviewer import Identity, Reviewer
from sayso.server import create_app
from sayso.server.auth.tokens import CHAIN, Tokens
from sayso.stores.base import Store
from sayso.stores.sqlite import SqliteStore
from sayso.stores.sqlite_transaction import SqliteTransaction
from tests.conftest import Clock
from tests.support.calling import caller, code_of

ROOT = Identity("local", "root")


def rows(store: Store) -> list[Entry]:
    return list(store.journal(run_id=CHAIN))


def said(row: Entry) -> dict[str, object]:
    found: dict[str, object] = json.loads(row.detail)
    return found


def test_a_token_that_is_made_stands_in_the_journal(store: Store, clock: Clock) -> None:
    token, _ = Tokens(store).new("review", "ada", roles={"b", "a"}, issuer="corp", by=ROOT, channel="cli")
    (row,) = rows(store)
    assert (row.event, row.by, row.channel, row.request_id) == ("token_made", "local:root", "cli", "")
    assert said(row) == {
        "token_id": token.id, "token_kind": "review", "subject": "corp:ada", "roles": ["a", "b"],
        "expires_at": "2026-04-01T12:00:00Z",
    }  # fmt: skip


def test_a_token_that_is_revoked_stands_in_the_journal_once(store: Store, clock: Clock) -> None:
    token, text = Tokens(store).new("ask", "bot", by=ROOT)
    for _ in range(2):
        Tokens(store).revoke(token.id, by=Identity("local", "kim"), channel="cli")
    Tokens(store).revoke("0" * 16, by=ROOT)
    made, revoked = rows(store)
    assert (revoked.event, revoked.by, revoked.channel) == ("token_revoked", "local:kim", "cli")
    assert said(revoked) == said(made)
    assert Tokens(store).find(text) is None


def test_the_use_of_a_token_is_no_row(store: Store, clock: Clock) -> None:
    tokens = Tokens(store)
    _, text = tokens.new("ask", "bot", by=ROOT)
    assert tokens.find(text) is not None
    tokens.write_uses()
    assert [row.event for row in rows(store)] == ["token_made"]


def test_nobody_named_is_the_configured_reviewer(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAYSO_REVIEWER", "kim")
    Tokens(store).new("ask", "bot")
    assert (rows(store)[0].by, rows(store)[0].channel) == ("local:kim", "python")


def test_an_admin_who_revokes_by_the_api_is_named(store: Store, clock: Clock) -> None:
    app = create_app(store)
    token, _ = Tokens(store).new("ask", "bot", by=ROOT)
    assert caller(app, "admin", "boss").delete(f"/api/v1/tokens/{token.id}").status_code == 200
    row = rows(store)[-1]
    assert (row.event, row.by, row.channel) == ("token_revoked", "local:boss", "api")


def test_the_command_line_names_who_it_was_and_log_shows_it(
    capsys: pytest.CaptureFixture[str], file_store: Store, clock: Clock
) -> None:
    assert main(["token", "new", "--kind", "ask", "--name", "bot", "--as", "kim"]) == 0
    token_id = capsys.readouterr().out.split("_")[1]
    assert main(["token", "revoke", token_id, "--as", "lee"]) == 0
    assert main(["log"]) == 0
    made, revoked = capsys.readouterr().out.splitlines()[-2:]
    for line, event, who in ((made, "token_made", "kim (cli)"), (revoked, "token_revoked", "lee (cli)")):
        for words in (event, who, token_id, "local:bot", 'token_kind: "ask"', f"run {CHAIN}"):
            assert words in line, (words, line)
    assert main(["log", "--verify"]) == 0


@pytest.mark.parametrize("form", FORMATS)
def test_an_export_says_which_tokens_and_none_of_their_secrets(store: Store, clock: Clock, form: Format) -> None:
    token, text = Tokens(store).new("admin", "ada", by=ROOT)
    Tokens(store).revoke(token.id, by=ROOT)
    exports = "".join(exported(store, form))
    assert exports.count(token.id) == 2
    assert text.rpartition("_")[2] not in exports
    assert token.digest not in exports
    if form == "ocsf":
        made, revoked = map(json.loads, exports.splitlines())
        assert [(one["activity_name"], one["api"]["operation"]) for one in (made, revoked)] == [
            ("Create", "token_made"), ("Delete", "token_revoked"),
        ]  # fmt: skip
        assert made["actor"]["user"]["uid"] == "local:root"


def test_the_chain_of_tokens_is_verified_and_stands_in_checkpoints(store: Store, clock: Clock) -> None:
    token, _ = Tokens(store).new("ask", "bot", by=ROOT)
    checkpoint(store)
    Tokens(store).revoke(token.id, by=ROOT)
    found = audit.verify(store, known=history(store).known)
    assert found.broken == ()
    assert CHAIN in {head.run_id for head in store.heads()}


def test_a_row_of_a_token_that_was_rewritten_is_found(tmp_path: Path, clock: Clock) -> None:
    store = SqliteStore(tmp_path / "a.db")
    Tokens(store).new("ask", "bot", by=ROOT)
    store.close()
    with closing(sqlite3.connect(tmp_path / "a.db")) as file, file:
        file.execute("DROP TRIGGER journal_is_not_updated")
        file.execute("UPDATE journal SET by = 'local:eve'")
    file.close()
    assert [one.run_id for one in audit.verify(store).broken] == [CHAIN]
    store.close()


def test_a_token_that_could_not_be_kept_leaves_no_row(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = SqliteStore(tmp_path / "a.db")
    real = SqliteTransaction.note

    def full(tx: SqliteTransaction, *row: object) -> None:
        real(tx, *row)  # pyright: ignore[reportArgumentType]
        raise errors.StoreFullError("there is no room")

    monkeypatch.setattr(SqliteTransaction, "note", full)
    with pytest.raises(errors.StoreFullError):
        Tokens(store).new("ask", "bot", by=ROOT)
    assert (rows(store), Tokens(store).all()) == ([], [])
    store.close()


@pytest.mark.parametrize("run_id", [CHAIN, "sayso:checkpoints", "sayso:", "sayso:later"])
def test_no_program_stands_first_in_a_chain_that_sayso_writes(store: Store, clock: Clock, run_id: str) -> None:
    bot = caller(create_app(store), "ask", "bot")
    before = store.journal()
    note = {"run_id": run_id, "event": "denied", "detail": {}}
    assert code_of(bot.post("/api/v1/program/note", json=note)) == (404, "run_not_found")
    assert code_of(bot.post("/api/v1/program/journal", json={"run_id": run_id})) == (404, "run_not_found")
    assert store.journal() == before
    assert store.record("run", run_id) is None


def test_a_name_that_cannot_be_one_leaves_no_row(store: Store, clock: Clock) -> None:
    with pytest.raises(ValueError, match="has no issuer"):
        Tokens(store).new("ask", "bot", issuer="corp", by=Reviewer("root").identity, lasts=timedelta(days=1))
    assert rows(store) == []
