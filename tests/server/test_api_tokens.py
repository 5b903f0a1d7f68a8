"""Who may do what through the HTTP API: every operation with every kind of token, a session, and nobody.

The invariant: what a token's kind does not do is refused before anything is looked at, and nothing changes. That a
token was made or revoked stands in the journal: by whom and for whom, and never its secret.
"""

from __future__ import annotations

import hashlib
import json
import re
import sqlite3
from contextlib import closing
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

import sayso
from sayso import audit, errors
from sayso.audit.checkpoint import checkpoint, history
from sayso.audit.export import FORMATS, Format, exported
from sayso.cli import main
from sayso.model.journal import Entry
from sayso.model.request import State
from sayso.model.reviewer import Identity, Reviewer
from sayso.server import create_app
from sayso.server.api.endpoint import Endpoint
from sayso.server.app import endpoints
from sayso.server.auth.sign_in import SignIn
from sayso.server.auth.tokens import CHAIN, Tokens
from sayso.stores.base import Store
from sayso.stores.records import Record
from sayso.stores.sqlite import SqliteStore
from sayso.stores.sqlite_transaction import SqliteTransaction
from sayso.testing import sample_call
from tests.conftest import Clock
from tests.support.browsing import BASE, Browser, browser
from tests.support.calling import bearer, bought, caller, code_of

LOOK, DECIDE, KEEP, EVERYBODY = {"review", "admin"}, {"review"}, {"review", "admin"}, {"ask", "review", "admin"}
AT = "/v1/requests/{request_id}"
VERBS = ("approve", "reject", "feedback", "answer", "cancel", "claim", "extend", "grant", "comment", "assign", "snooze")
MAY = {
    "GET /v1/openapi.json": EVERYBODY, "GET /v1/me": EVERYBODY, "GET /v1/events": EVERYBODY,
    "GET /v1/requests": LOOK, f"GET {AT}": LOOK, f"GET {AT}/journal": LOOK, "GET /v1/journal": LOOK,
    "GET /v1/runs": LOOK, "GET /v1/runs/{run_id:path}": LOOK,
    **{f"POST {AT}/{verb}": DECIDE for verb in VERBS},
    f"POST {AT}/release": KEEP, f"POST {AT}/resolve": KEEP,
    "GET /v1/grants": LOOK, "POST /v1/grants/{grant_id}/agree": DECIDE, "POST /v1/grants/{grant_id}/revoke": KEEP,
    "GET /v1/away": LOOK, "POST /v1/away": DECIDE, "POST /v1/back": DECIDE,
    "GET /v1/stop": LOOK, "POST /v1/stop": KEEP, "POST /v1/go": DECIDE,
    "GET /v1/confirms/{confirm_id}": LOOK, "GET /v1/schemas/{kind}": EVERYBODY,
    "GET /v1/tokens": {"admin"}, "DELETE /v1/tokens/{token_id}": {"admin"},
}  # fmt: skip


def named(operation: Endpoint) -> str:
    return f"{operation.method} {operation.path}"


def may(operation: Endpoint) -> set[str]:
    """Return the kinds of tokens that may: as the table says it, and a program's own verbs only its own token."""
    return {"ask"} if operation.path.startswith("/v1/program/") else MAY[named(operation)]


BODIES: dict[str, dict[str, Any]] = {
    "approve": {"seen": "x"}, "feedback": {"comment": "no"}, "answer": {"value": 1}, "extend": {"span": "1h"},
    "resolve": {"happened": True}, "grant": {"seen": "x", "count": 2, "lasts": "1h"},
    "comment": {"text": "look"}, "assign": {"to": "bob"},
    "snooze": {"until": "1h"}, "away": {"until": "1h", "to": "bob"},
}  # fmt: skip


@pytest.fixture
def app(store: Store, clock: Clock) -> Starlette:
    return create_app(store)


def called(client: TestClient, operation: Endpoint, request_id: str, **headers: str) -> Any:
    path = re.sub(r":\w+}", "}", operation.path).format(
        request_id=request_id, run_id="no", token_id="no", grant_id="no", confirm_id=request_id, kind="confirm"
    )  # fmt: skip
    body = None if operation.method == "GET" or operation.input is None else BODIES.get(path.rpartition("/")[2], {})
    # A stream would not end; a HEAD of it asks the same questions.
    method = "HEAD" if operation.path == "/v1/events" else operation.method
    return client.request(method, f"/api{path}", json=body, headers=headers)


def status_of(answer: Any) -> tuple[int, str]:
    return (answer.status_code, "") if answer.request.method == "HEAD" or answer.is_success else code_of(answer)


def test_the_table_has_every_operation() -> None:
    assert {named(one) for one in endpoints() if not one.path.startswith("/v1/program/")} == set(MAY)


@pytest.mark.parametrize("operation", endpoints(), ids=named)
def test_each_kind_of_token_does_what_it_may_and_nothing_else(memory: Store, operation: Endpoint) -> None:
    store, app, request_id = memory, create_app(memory), bought()
    ended = Tokens(store).new("admin", "eve", lasts=timedelta(seconds=0))[1]
    revoked, text = Tokens(store).new("review", "eve")
    Tokens(store).revoke(revoked.id)
    before = list(store.journal())
    for stranger in ({}, *({"authorization": f"Bearer {one}"} for one in (ended, text, text[:-1], "sst_x", ""))):
        client = TestClient(app, base_url=BASE, headers=stranger)
        answer = called(client, operation, request_id)
        assert answer.status_code == 401, stranger
        assert answer.headers["www-authenticate"] == "Bearer"
    assert list(store.journal()) == before
    for kind in ("ask", "review", "admin"):
        status, code = status_of(called(caller(app, kind), operation, request_id))
        if kind in may(operation):
            assert status != 401
            assert code != "wrong_token_kind", kind
        else:
            assert (status, code) in {(403, "wrong_token_kind"), (403, "")}, kind
    if may(operation) == {"review"}:
        assert {row.by for row in store.journal() if row not in before and row.run_id != CHAIN} <= {"local:ada"}


@pytest.mark.parametrize("operation", endpoints(), ids=named)
def test_a_session_changes_something_only_from_a_page_of_ours(memory: Store, operation: Endpoint) -> None:
    store, app, request_id = memory, create_app(memory), bought()
    ada = browser(app, "ada")
    csrf = ada.get("/api/v1/me").json()["csrf"]
    theirs = browser(app, "bob").get("/api/v1/me").json()["csrf"]
    before = list(store.journal())
    if operation.method != "GET":
        forged: list[dict[str, str]] = [
            {}, {"origin": BASE}, {"x-csrf-token": csrf}, {"origin": BASE, "x-csrf-token": theirs},
            {"origin": "https://evil.example", "x-csrf-token": csrf}, {"origin": "null", "x-csrf-token": csrf},
        ]  # fmt: skip
        for headers in forged:
            assert code_of(called(ada, operation, request_id, **headers)) == (403, "not_from_here"), headers
        assert list(store.journal()) == before
    status, code = status_of(called(ada, operation, request_id, **{"origin": BASE, "x-csrf-token": csrf}))
    assert (status == 403 and code in {"wrong_token_kind", ""}) is ("review" not in may(operation))


def test_every_decision_says_who_decided_and_through_which_channel(app: Starlette, store: Store) -> None:
    first, second = bought(1), bought(2)
    assert caller(app, "review", "ada").post(f"/api/v1/requests/{first}/reject").status_code == 200
    bob = browser(app, "bob")
    headers = {"origin": BASE, "x-csrf-token": bob.get("/api/v1/me").json()["csrf"]}
    assert bob.post(f"/api/v1/requests/{second}/reject", headers=headers).status_code == 200
    decisions = [store.get(one).decision for one in (first, second)]
    assert [(one.by.qualified, one.channel) for one in decisions if one] == [("local:ada", "api"), ("local:bob", "web")]


def test_a_reviewer_has_the_roles_of_the_token_and_no_others(app: Starlette) -> None:
    request_id = bought(roles=["finance"])
    assert code_of(caller(app).post(f"/api/v1/requests/{request_id}/reject")) == (403, "missing_role")
    treasurer = caller(app, "review", "ada", roles=["finance"])
    assert treasurer.post(f"/api/v1/requests/{request_id}/reject").status_code == 200


@pytest.mark.parametrize(("issuer", "name"), [("local", "ada"), ("corp", "Ada"), ("local", "ada@host")])
def test_nobody_decides_what_a_token_of_their_name_asked(app: Starlette, store: Store, issuer: str, name: str) -> None:
    who = Reviewer("ada")
    request = store.ask(sample_call(requester=Identity("token", "ada"), on_behalf_of=who.identity))
    client = caller(app, "review", name, issuer=issuer)
    seen = {"seen": request.current_fingerprint}
    for verb, body in [
        ("approve", seen),
        ("reject", {}),
        ("feedback", {"comment": "x"}),
        ("cancel", {}),
        ("claim", {}),
    ]:
        assert code_of(client.post(f"/api/v1/requests/{request.id}/{verb}", json=body)) == (403, "own_request")
    assert store.get(request.id).state is State.PENDING


def test_a_person_counts_once_by_token_and_by_browser(app: Starlette, store: Store) -> None:
    request_id = bought(quorum=2)
    page = browser(app, "ada")
    page.decide(request_id, "approve")
    client = caller(app, "review", "ada")
    seen = {"seen": store.get(request_id).current_fingerprint}
    assert code_of(client.post(f"/api/v1/requests/{request_id}/approve", json=seen)) == (409, "already_voted")


# -- tokens themselves -----------------------------------------------------------------------------------------


def test_the_store_keeps_no_text_of_a_token(store: Store) -> None:
    token, text = Tokens(store).new("admin", "ada")
    secret = text.rpartition("_")[2]
    (record,) = store.records("token")
    assert secret not in repr(record)
    assert record.body["digest"] == hashlib.sha256(secret.encode()).hexdigest()
    assert secret not in repr(token)
    assert len(bytes.fromhex(secret)) == 32


def test_a_token_ends_at_its_instant(app: Starlette, clock: Clock) -> None:
    client = caller(app, lasts=timedelta(hours=1))
    clock.tick(seconds=3599)
    assert client.get("/api/v1/me").status_code == 200
    clock.tick(seconds=1)
    assert client.get("/api/v1/me").status_code == 401


def test_a_revoked_token_opens_nothing_from_then_on(app: Starlette, store: Store) -> None:
    client = caller(app)
    token_id = client.get("/api/v1/me").json()["token"]
    assert Tokens(store).revoke(token_id)
    assert client.get("/api/v1/me").status_code == 401
    Tokens(store).write_uses()
    assert client.get("/api/v1/me").status_code == 401


def test_every_changed_letter_of_a_token_opens_nothing(store: Store) -> None:
    _, text = Tokens(store).new("review", "ada")
    assert Tokens(store).find(text) is not None
    for place, letter in enumerate(text):
        other = "0" if letter != "0" else "1"
        assert Tokens(store).find(text[:place] + other + text[place + 1 :]) is None, place
    for wrong in (text.upper(), f"{text}0", f" {text}", f"{text}\n", text[4:], ""):
        assert Tokens(store).find(wrong) is None


def test_two_tokens_at_once_open_nothing(app: Starlette, store: Store) -> None:
    one, two = bearer(store), bearer(store, "admin", "bob")
    headers = [("authorization", one["authorization"]), ("authorization", two["authorization"])]
    assert TestClient(app, base_url=BASE).get("/api/v1/me", headers=headers).status_code == 401


def test_a_token_that_opens_nothing_is_not_made_up_for_by_a_session(app: Starlette) -> None:
    ada = browser(app, "ada")
    assert ada.get("/api/v1/me").status_code == 200
    assert ada.get("/api/v1/me", headers={"authorization": "Bearer no"}).status_code == 401


def test_a_token_opens_no_page(app: Starlette) -> None:
    client = caller(app, "admin")
    for page in ("/", "/history", "/runs", "/events"):
        assert client.get(page).status_code == 401


def test_a_name_that_cannot_be_one_makes_no_token(store: Store) -> None:
    for wrong in ("", " ada", "a\u200bda"):
        with pytest.raises(ValueError, match="subject"):
            Tokens(store).new("review", wrong)
    assert list(store.records("token")) == []


def test_no_program_gets_a_name_that_another_ones_grants_and_budgets_fit(store: Store) -> None:
    tokens = Tokens(store)
    for _ in range(2):
        tokens.new("ask", "bot")
    for name in ("Bot", "\uff42ot"):
        with pytest.raises(ValueError, match="looks like the existing program 'bot'"):
            tokens.new("ask", name)
    tokens.new("review", "Bot")
    assert len(tokens.all()) == 3


def test_a_token_that_was_rewritten_by_hand_opens_nothing(store: Store) -> None:
    token, text = Tokens(store).new("review", "ada")
    record = store.record("token", token.id)
    assert record is not None
    nobody = {"person": {"issuer": "local", "subject": ""}}
    for change in ({"kind": "root"}, {"expires_at": "never"}, {"roles": 1}, nobody):
        store.keep(Record("token", token.id, record.body | change))
        with pytest.raises(errors.StoreCorruptError):
            Tokens(store).find(text)


def test_admin_lists_and_revokes_tokens_and_sees_no_secret(app: Starlette, store: Store) -> None:
    boss, bot = caller(app, "admin", "boss"), caller(app, "ask", "bot")
    listed = boss.get("/api/v1/tokens").json()["tokens"]
    assert {(one["kind"], one["name"]) for one in listed} == {("admin", "boss"), ("ask", "bot")}
    assert all("digest" not in one and "secret" not in one for one in listed)
    (theirs,) = [one["id"] for one in listed if one["kind"] == "ask"]
    assert boss.delete(f"/api/v1/tokens/{theirs}").json()["revoked_at"] is not None
    assert bot.get("/api/v1/me").status_code == 401
    assert code_of(boss.delete("/api/v1/tokens/0000")) == (404, "not_found")
    assert Tokens(store).revoke("0000") is None


def test_no_token_can_be_made_from_elsewhere(app: Starlette) -> None:
    assert code_of(caller(app, "admin").post("/api/v1/tokens", json={})) == (405, "method_not_allowed")


def test_the_day_of_use_is_written_by_a_change_and_not_by_looking(app: Starlette, store: Store, clock: Clock) -> None:
    looker, request_id = caller(app), bought()
    (before,) = store.records("token")
    assert looker.get("/api/v1/me").status_code == 200
    assert list(store.records("token")) == [before]
    doer = caller(app, name="bob")
    assert doer.post(f"/api/v1/requests/{request_id}/claim").status_code == 200
    assert {token.person.subject: token.used_on for token in Tokens(store).all()} == {
        "ada": "2026-01-01", "bob": "2026-01-01",
    }  # fmt: skip
    written = list(store.records("token"))
    assert doer.post(f"/api/v1/requests/{request_id}/release").status_code == 200
    assert list(store.records("token")) == written
    clock.tick(days=1)
    assert doer.post(f"/api/v1/requests/{request_id}/extend", json={"span": "1h"}).status_code == 409
    assert doer.get("/api/v1/me").status_code == 200
    assert list(store.records("token")) == written


def test_many_tokens_are_all_listed(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "records", partial(store.records, limit=10))
    made = {Tokens(store).new("ask", f"bot{number}")[0].id for number in range(25)}
    assert {token.id for token in Tokens(store).all()} == made


# -- sessions of a program around --------------------------------------------------------------------------------


def test_a_program_around_that_knows_its_people_has_the_last_word(store: Store) -> None:
    names: list[str | None] = ["kim"]
    app = create_app(store, who=lambda _: None if names[0] is None else Reviewer(names[0]))
    client = Browser(app, base_url=BASE)
    assert client.get("/api/v1/me").status_code == 401  # no session has begun
    assert client.get("/").status_code == 200
    assert client.get("/api/v1/me").json()["name"] == "kim"
    for other in ("lee", None):
        names[0] = other
        assert client.get("/api/v1/me").status_code == 401


def test_reading_by_the_api_begins_no_session(store: Store) -> None:
    app = create_app(store, who=lambda _: Reviewer("kim"))
    for _ in range(3):
        assert TestClient(app, base_url=BASE).get("/api/v1/me").status_code == 401
    assert not store.records("session")


def test_review_token_does_what_the_door_does(app: Starlette) -> None:
    request_id = bought()
    client = caller(app)
    seen = client.get(f"/api/v1/requests/{request_id}").json()["fingerprint"]
    assert client.post(f"/api/v1/requests/{request_id}/approve", json={"seen": seen}).json()["state"] == "approved"
    assert sayso.Review().get(request_id).state is State.APPROVED


def test_a_review_token_reviews_as_whom_the_settings_let_in(store: Store) -> None:
    app = create_app(store, sign_in=SignIn(reviewers=["ada"], role="finance"))
    assert caller(app, roles=["finance"]).get("/api/v1/requests").status_code == 200
    for options in ({"roles": ["ops"]}, {"name": "bob", "roles": ["finance"]}):
        assert code_of(caller(app, **options).get("/api/v1/requests")) == (403, "not_admitted")
    assert caller(app, "ask", "bot").post("/api/v1/program/runs").status_code == 200
    assert caller(app, "admin", "root").get("/api/v1/tokens").status_code == 200


def test_how_often_an_approval_may_start_a_call_is_told(store: Store, clock: Clock) -> None:
    app = create_app(store)
    request = store.ask(sample_call(retries=2))
    told = caller(app).get(f"/api/v1/requests/{request.id}").json()
    assert (told["retries"], told["idempotent"]) == (2, False)
    assert "up to 3 times, again after each failure" in browser(app).get(f"/r/{request.id}").text


def test_a_fault_of_the_store_is_logged_once_however_often_a_program_asks(
    app: Starlette, store: Store, clock: Clock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    client = caller(app)
    headers = bearer(store, "ask")

    def sealed(*_: Any, **__: Any) -> Any:
        raise errors.StoreSealedError("the token record t1 is not sealed")

    monkeypatch.setattr(Tokens, "find", sealed)
    for wait in (0, 1, 601):
        clock.tick(seconds=wait)
        answer = client.get("/api/v1/me", headers=headers)
        assert code_of(answer) == (500, "store_sealed")  # which no client repeats
        client.get("/", headers=headers)
    lines = [line.getMessage() for line in caplog.records if "not sealed" in line.getMessage()]
    assert len(lines) == 2


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
