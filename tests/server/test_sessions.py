"""Sessions: they survive a restart, are known to every server of a store, and end everywhere at once.

The invariant: a session that ended, is not used, or began under other sign-in options shows and decides nothing. Login
links are good for one session within their time, on whichever server of the store: what was not signed by this server's
secret for this purpose, was changed, has ended or was used begins no session.
"""

from __future__ import annotations

import re
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx2
import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from sayso import config, errors
from sayso.channels.registry import Notification
from sayso.cli import main
from sayso.model.request import State
from sayso.model.reviewer import Reviewer
from sayso.server import create_app, login_path
from sayso.server.auth.sessions import IDLE, LASTS, LONGEST, Links, Sessions, TokenSigner, server_secret
from sayso.server.auth.sign_in import FAILURES, SignIn
from sayso.stores.base import Store
from sayso.testing import sample_call
from tests.conftest import Clock, forget_settings
from tests.server.test_where_it_listens import running
from tests.support.acting import held, payer, state_of
from tests.support.browsing import BASE, Browser, Here, browser, fields_of

NAME = "sayso-8600"


def restarted(store: Store, **options: Any) -> Any:
    """Return the app of a server that begins anew over the same files."""
    url = store.url
    forget_settings()
    return create_app(config.open_store(url), **options)


def same_browser(app: Any, before: TestClient) -> Browser:
    return Browser(app, base_url=BASE, cookies={NAME: before.cookies[NAME]})


def test_a_person_stays_signed_in_over_a_restart(file_store: Store) -> None:
    ada = browser(create_app(file_store), roles={"finance"})
    after = same_browser(restarted(file_store), ada)
    assert after.get("/").status_code == 200
    assert after.get("/api/v1/me").json()["roles"] == ["finance"]


def test_a_form_that_was_open_over_a_restart_is_taken(file_store: Store) -> None:
    config.configure(store=file_store)
    request_id = held(payer(), 5).confirmation_id
    ada = browser(create_app(file_store))
    page = fields_of(ada.get(f"/r/{request_id}").text)
    after = same_browser(create_app(file_store), ada)
    sent = {name: page[name] for name in ("csrf", "seen")}
    assert after.submit(f"/r/{request_id}/reject", **sent).status_code == 200
    assert state_of(request_id) is State.REJECTED


def test_signing_out_ends_the_session_for_every_server_of_the_store(file_store: Store) -> None:
    ada = browser(create_app(file_store))
    other = same_browser(create_app(file_store), ada)
    csrf = fields_of(other.get("/").text)["csrf"]
    assert other.submit("/logout", csrf=csrf).status_code == 200
    for app in (ada.app, other.app, restarted(file_store)):
        assert same_browser(app, ada).get("/").status_code == 401


def test_a_session_ends_over_a_restart_as_it_would_have_without(file_store: Store, clock: Clock) -> None:
    ada = browser(create_app(file_store))
    clock.tick(seconds=IDLE.total_seconds() - 1)
    assert same_browser(create_app(file_store), ada).get("/").status_code == 200
    clock.tick(seconds=IDLE.total_seconds())
    assert same_browser(create_app(file_store), ada).get("/").status_code == 401


@pytest.mark.parametrize(
    "options",
    [
        {"sign_in": SignIn(reviewers=["bob"])}, {"sign_in": SignIn(role="root")}, {"sign_in": SignIn(has_links=False)},
        {"sign_in": SignIn(lasts=timedelta(minutes=5))}, {"who": lambda _: None},
    ],
    ids=["reviewers", "role", "no-links", "shorter", "who"],
)  # fmt: skip
def test_options_that_changed_count_for_sessions_that_have_begun(
    file_store: Store, clock: Clock, options: dict[str, Any]
) -> None:
    ada = browser(create_app(file_store))
    clock.tick(minutes=10)
    assert same_browser(create_app(file_store), ada).get("/").status_code == 200
    assert same_browser(create_app(file_store, **options), ada).get("/").status_code == 401
    assert same_browser(create_app(file_store, **options), ada).get("/api/v1/me").status_code == 401


def test_a_session_of_one_address_is_none_of_another_with_the_same_store(file_store: Store) -> None:
    ada = browser(create_app(file_store))
    there = create_app(file_store, base_url="https://approvals.example")
    client = TestClient(there, base_url="https://approvals.example", cookies={"__Host-sayso": ada.cookies[NAME]})
    assert client.get("/").status_code == 401


def test_who_reads_the_store_finds_nothing_to_sign_in_with(file_store: Store) -> None:
    ada = browser(create_app(file_store))
    csrf = fields_of(ada.get("/").text)["csrf"]
    (record,) = file_store.records("session")
    for secret in (ada.cookies[NAME], csrf):
        assert secret not in f"{record.key} {record.body}"
    for guess in (record.key, "", "0" * 64):
        client = TestClient(ada.app, base_url=BASE, headers={"cookie": f"{NAME}={guess}"})
        assert client.get("/").status_code == 401


def test_a_use_is_seldom_written_and_a_session_that_ended_is_not_written_again(
    file_store: Store, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    sessions = Sessions(file_store, TokenSigner(file_store))
    session = sessions.begin(Reviewer("ada"))
    (first,) = file_store.records("session")
    clock.tick(minutes=1)
    assert sessions.find(session.id) is not None
    assert file_store.records("session") == [first]
    clock.tick(minutes=5)
    real: Callable[..., Any] = type(file_store).swap

    def ended_first(store: Store, *records: Any) -> bool:
        sessions.end(session)
        return real(store, *records)

    monkeypatch.setattr(type(file_store), "swap", ended_first)
    sessions.find(session.id)
    assert not file_store.records("session")
    assert sessions.find(session.id) is None


def test_sessions_that_are_over_are_deleted(file_store: Store, clock: Clock) -> None:
    sessions = Sessions(file_store, TokenSigner(file_store))
    for _ in range(3):
        sessions.begin(Reviewer("ada"))
    clock.tick(days=8)
    kept = sessions.begin(Reviewer("ada"))
    assert len(file_store.records("session")) == 1
    assert sessions.find(kept.id) is not None


ORIGIN = {"origin": BASE}
ADA = Reviewer("ada", roles={"finance"})


def links_of(store: Store) -> Links:
    """Return the links of another server of the same store."""
    return Links(TokenSigner(store))


def test_a_link_is_used_once_whichever_server_it_is_brought_to(each_store: Store) -> None:
    token = links_of(each_store).token(ADA)
    if each_store.url.startswith("memory:"):
        same = links_of(each_store)
        token = same.token(ADA)
        assert [same.use(token), same.use(token)] == [ADA, "used"]
    else:
        assert [links_of(each_store).use(token), links_of(each_store).use(token)] == [ADA, "used"]


def test_a_link_stays_used_over_a_restart(file_store: Store) -> None:
    token = links_of(file_store).token(ADA)
    assert links_of(file_store).use(token) == ADA
    url = file_store.url
    forget_settings()
    assert links_of(config.open_store(url)).use(token) == "used"


def test_of_sixteen_who_use_a_link_at_once_one_comes_in(each_store: Store) -> None:
    links = links_of(each_store)
    token = links.token(ADA)
    ready = threading.Barrier(16)

    def use(_: int) -> Reviewer | str:
        ready.wait()
        return links.use(token)

    with ThreadPoolExecutor(16) as pool:
        used = list(pool.map(use, range(16)))
    assert used.count(ADA) == 1
    assert used.count("used") == 15


def test_a_link_ends_after_its_time_and_what_was_used_is_forgotten_later(file_store: Store, clock: Clock) -> None:
    links = links_of(file_store)
    early, late, used = links.token(ADA), links.token(ADA), links.token(ADA)
    assert links.use(used) == ADA
    clock.tick(seconds=LASTS.total_seconds() - 1)
    assert links.use(early) == ADA
    clock.tick(seconds=1)
    assert links.use(late) == "ended"
    assert len(file_store.records("link")) == 2
    clock.tick(days=2)
    assert links.use(links.token(ADA)) == ADA
    assert len(file_store.records("link")) == 1
    assert links.use(used) == "ended"


def test_a_link_lasts_no_longer_than_a_day(memory: Store, clock: Clock) -> None:
    links = links_of(memory)
    token = links.token(ADA, timedelta(days=30))
    clock.tick(seconds=LONGEST.total_seconds())
    assert links.use(token) == "ended"


def test_every_flipped_bit_of_a_link_opens_nothing(memory: Store) -> None:
    links = links_of(memory)
    token = links.token(ADA)
    raw = token.encode()
    for at in range(len(raw)):
        for bit in range(8):
            flipped = raw[:at] + bytes([raw[at] ^ 1 << bit]) + raw[at + 1 :]
            assert links.use(flipped.decode("latin-1")) == "foreign"
    for other in ("", "a", token[:-1], token + "0", token.upper(), token[1:], "0" + token, token * 40, " " + token):
        assert links.use(other) == "foreign"
    assert links.use(token) == ADA


def test_a_text_that_was_signed_for_something_else_is_no_link(memory: Store) -> None:
    stamps = TokenSigner(memory)
    body = {"by": "local", "name": "ada", "roles": []}
    assert Links(stamps).use(stamps.sign("openid flow", body, LASTS)) == "foreign"
    assert Links(stamps).use(stamps.sign("login link", body, LASTS)) == Reviewer("ada")


def test_another_servers_links_open_nothing(memory: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAYSO_SECRET", "0" * 32)
    token = links_of(memory).token(ADA)
    monkeypatch.setenv("SAYSO_SECRET", "1" * 32)
    assert links_of(memory).use(token) == "foreign"


def test_a_link_that_cannot_be_marked_as_used_begins_nothing(memory: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_: Any, **__: Any) -> bool:
        raise errors.StoreBusyError("locked")

    app = create_app(memory)
    token = login_path(app, ADA).partition("token=")[2]
    monkeypatch.setattr(type(memory), "keep", away)
    client = TestClient(app, base_url=BASE, follow_redirects=False)
    answer = client.post("/login", data={"token": token}, headers=ORIGIN)
    assert answer.status_code == 503
    assert "set-cookie" not in answer.headers
    assert not app.state.settings.store.records("session")


# -- the server's secret -----------------------------------------------------------------------------------------


def test_the_secret_lies_beside_the_store_for_its_owner_alone(file_store: Store, place: Path) -> None:
    made = server_secret(file_store)
    path = place / "sayso.db.secret"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert made == server_secret(file_store) == path.read_bytes().strip()
    assert [file.name for file in place.glob("*secret*")] == ["sayso.db.secret"]


def test_of_many_who_make_the_secret_at_once_all_have_the_same(file_store: Store) -> None:
    with ThreadPoolExecutor(16) as pool:
        assert len(set(pool.map(lambda _: server_secret(file_store), range(16)))) == 1


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o602, 0o660])
def test_a_secret_that_others_can_reach_is_not_used(file_store: Store, place: Path, mode: int) -> None:
    server_secret(file_store)
    (place / "sayso.db.secret").chmod(mode)
    with pytest.raises(errors.ConfigError, match="sign in as anybody"):
        server_secret(file_store)


def test_a_secret_that_was_emptied_is_not_used(file_store: Store, place: Path) -> None:
    server_secret(file_store)
    (place / "sayso.db.secret").write_text("\n")
    with pytest.raises(errors.ConfigError, match="contains no secret"):
        server_secret(file_store)


# -- sessions that begin -----------------------------------------------------------------------------------------


@pytest.fixture
def app(memory: Store) -> Starlette:
    return create_app(memory)


def test_a_session_begins_with_an_id_of_its_own_and_ends_the_one_before(app: Starlette) -> None:
    """Session fixation: what a browser brought along is never what it is known by."""
    client = browser(app, "mallory")
    planted = client.cookies["sayso-8600"]
    token = login_path(app, ADA).partition("token=")[2]
    assert client.post("/login", data={"token": token}, headers=ORIGIN).status_code == 200
    assert client.cookies["sayso-8600"] != planted
    assert "You are <strong>ada" in client.get("/").text
    attacker = Browser(app, base_url=BASE, cookies={"sayso-8600": planted})
    assert attacker.get("/").status_code == 401


def test_an_id_that_a_browser_makes_up_is_no_session(app: Starlette) -> None:
    client = Browser(app, base_url=BASE, cookies={"sayso-8600": "0" * 64})
    token = login_path(app, ADA).partition("token=")[2]
    assert client.get("/").status_code == 401
    client.post("/login", data={"token": token}, headers=ORIGIN)
    assert Browser(app, base_url=BASE, cookies={"sayso-8600": "0" * 64}).get("/").status_code == 401


def test_a_link_of_an_attacker_is_not_used_by_a_page_elsewhere(app: Starlette) -> None:
    """Login CSRF: a victim is not signed in, unseen, in the attacker's name."""
    token = login_path(app, Reviewer("mallory")).partition("token=")[2]
    victim = Browser(app, base_url=BASE)
    for headers in ({}, {"origin": "https://evil.example"}, {"origin": "null"}, {"origin": "http://localhost:86"}):
        assert victim.post("/login", data={"token": token}, headers=headers).status_code == 403
    assert not victim.cookies
    assert isinstance(app.state.settings.links.use(token), Reviewer)


def test_who_may_not_review_has_no_session_by_a_link_either(memory: Store) -> None:
    app = create_app(memory, sign_in=SignIn(reviewers=["bob"]))
    client = Browser(app, base_url=BASE)
    token = login_path(app, ADA).partition("token=")[2]
    answer = client.post("/login", data={"token": token}, headers=ORIGIN)
    assert answer.status_code == 403
    assert "you are ada, and cannot review here" in answer.text
    assert not client.cookies


def test_sessions_last_as_long_as_is_set(memory: Store, clock: Clock) -> None:
    app = create_app(memory, sign_in=SignIn(lasts=timedelta(hours=1)))
    client = browser(app)
    clock.tick(minutes=59)
    assert client.get("/").status_code == 200
    clock.tick(minutes=1)
    assert client.get("/").status_code == 401


def test_failed_attempts_are_held_up_and_a_good_link_is_not(app: Starlette, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1_000.0]
    monkeypatch.setattr(time, "time", lambda: now[0])
    most, within = int(FAILURES.partition("/")[0]), 60
    client = Browser(app, base_url=BASE, follow_redirects=False)

    def attempt(token: str) -> Any:
        return client.post("/login", data={"token": token}, headers=ORIGIN)

    assert [attempt("guess").status_code for _ in range(most)] == [401] * most
    refused = attempt("guess")
    assert refused.status_code == 429
    assert 0 < int(refused.headers["retry-after"]) <= within + 1
    elsewhere = TestClient(app, base_url=BASE, client=("10.0.0.9", 1))
    assert elsewhere.post("/login", data={"token": "guess"}, headers=ORIGIN).status_code == 401
    assert attempt(login_path(app, ADA).partition("token=")[2]).status_code == 303
    client.cookies.clear()
    now[0] += within + 1
    assert attempt("guess").status_code == 401


def test_a_refused_link_says_why_and_is_logged_once_without_itself(
    app: Starlette, memory: Store, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    links: Links = app.state.settings.links
    used, ended = links.token(ADA), links.token(ADA, timedelta(seconds=1))
    assert links.use(used) == ADA
    clock.tick(seconds=2)
    told = {used: "was already used", ended: "has expired", used[:-1] + "z": "not a login link of this server"}
    client = Browser(app, base_url=BASE)
    for token, why in told.items():
        for _ in range(2):
            answer = client.post("/login", data={"token": token}, headers=ORIGIN)
            assert (answer.status_code, why in answer.text) == (401, True)
    lines = [line.getMessage() for line in caplog.records if line.levelname == "WARNING"]
    assert len(lines) == 3
    assert all("was refused" in line and "from testclient" in line for line in lines)
    assert not any(token[:20] in line for token in told for line in lines)


# -- the command -------------------------------------------------------------------------------------------------


def test_login_prints_a_link_that_begins_one_session(file_store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    file_store.ask(sample_call())
    words = ["--store", file_store.url, "login", "ada", "--role", "finance", "--base-url", BASE]
    assert main(words) == 0
    out, err = capsys.readouterr()
    found = re.fullmatch(rf"{re.escape(BASE)}/login\?token=([0-9a-f]+)\n", out)
    assert found is not None
    store = f"store {file_store.public_url} (from --store)\n"
    assert err == f"{store}it signs in ada (finance), once, within 15m\n"
    client = Browser(create_app(file_store), base_url=BASE)
    assert client.get(out.strip()).status_code == 200
    assert client.post("/login", data={"token": found[1]}, headers=ORIGIN).status_code == 200
    assert "You are <strong>ada" in client.get("/").text
    again = Browser(create_app(file_store), base_url=BASE)
    assert again.post("/login", data={"token": found[1]}, headers=ORIGIN).status_code == 401


def test_login_sends_the_link_by_a_channel(
    file_store: Store, place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (place / "sayso.toml").write_text(f'base_url = "{BASE}"\n[channels.ada]\ntype = "terminal"\n')
    sent: list[Notification] = []
    monkeypatch.setattr(
        "sayso.channels.registry.TerminalChannel.send", lambda _, notification: sent.append(notification)
    )
    assert main(["--store", file_store.url, "login", "ada", "--send", "ada"]) == 0
    out = capsys.readouterr().out
    assert out == "sent through ada: it signs in ada, once, within 15m\n"
    (notification,) = sent
    assert notification.link is not None
    assert "token" not in notification.title + notification.line
    client = Browser(create_app(file_store), base_url=BASE)
    data = {"token": notification.link.partition("token=")[2]}
    assert client.post("/login", data=data, headers=ORIGIN).status_code == 200


def test_a_channel_that_fails_is_told_without_the_link(
    file_store: Store, place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(_: Any, notification: Notification) -> None:
        raise ConnectionError(notification.link)

    (place / "sayso.toml").write_text('[channels.ada]\ntype = "terminal"\n')
    monkeypatch.setattr("sayso.channels.registry.TerminalChannel.send", away)
    assert main(["--store", file_store.url, "login", "ada", "--send", "ada"]) == 1
    assert main(["--store", file_store.url, "login", "ada", "--send", "bob"]) == 1
    said = "".join(capsys.readouterr())
    assert "could not send the link (ConnectionError)" in said
    assert "no channel [channels.bob]" in said
    assert "token=" not in said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["login", "ada", "--for", "2d"], "for at most 1d"), (["login", "ada", "--for", "soon"], "not a duration"),
        (["login", "ada", "--base-url", "x"], "is not a URL"),
    ],
)  # fmt: skip
def test_login_says_what_it_cannot_do(
    words: list[str], said: str, file_store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--store", file_store.url, *words]) == 1
    out, err = capsys.readouterr()
    assert said in err
    assert out == ""


def test_login_refuses_a_name_that_cannot_be_one(file_store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--store", file_store.url, "login", "a\u200bda"]) == 2
    assert "invisible" in capsys.readouterr().err


@pytest.mark.slow
def test_over_two_servers_a_link_begins_one_session(file_store: Store) -> None:
    words = [sys.executable, "-m", "sayso", "--store", file_store.url, "login", "ada"]
    with running(file_store, "--as", "op") as (_, first), running(file_store, "--as", "op") as (_, second):
        bases = [re.findall(r"(http://\S+)/login", "".join(said))[0] for said in (first, second)]
        made = subprocess.run(words, capture_output=True, text=True, check=True).stdout
        token = made.strip().partition("token=")[2]
        ready = threading.Barrier(16)

        def use(number: int) -> int:
            base = bases[number % 2]
            ready.wait()
            with httpx2.Client(timeout=60, transport=Here()) as client:
                return client.post(f"{base}/login", data={"token": token}, headers={"origin": base}).status_code

        with ThreadPoolExecutor(16) as pool:
            answers = list(pool.map(use, range(16)))
    assert answers.count(303) == 1
    assert set(answers) <= {303, 401, 429}


def test_login_says_which_store_it_is_for_and_refuses_where_a_proxy_signs_in(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["login", "ada"]) == 0
    assert "(the default: there is no sayso.toml here or above" in capsys.readouterr().err
    forget_settings()
    (place / "sayso.toml").write_text('store = "sqlite:///here.db"\n')
    for words in (["login", "ada"], ["token", "new", "--kind", "ask", "--name", "bot"]):
        assert main(words) == 0
        assert f"here.db (from {place / 'sayso.toml'})" in capsys.readouterr().err
    forget_settings()
    monkeypatch.setenv("SAYSO_STORE", "sqlite:///there.db")
    (place / "sayso.toml").write_text('[serve]\nproxy_header = "X-Forwarded-User"\n')
    assert main(["token", "new", "--kind", "ask", "--name", "bot"]) == 0
    assert "there.db (from SAYSO_STORE)" in capsys.readouterr().err
    assert main(["login", "ada"]) == 1
    out, err = capsys.readouterr()
    assert (out, "people sign in through the proxy's header X-Forwarded-User" in err) == ("", True)
