"""Sessions: they survive a restart, are known to every server of a store, and end everywhere at once.

The invariant: a session that ended, is not used, or began under other sign-in options shows and decides nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from starlette.testclient import TestClient

from sayso import config
from sayso.model.request import State
from sayso.model.reviewer import Reviewer
from sayso.server import create_app
from sayso.server.auth.sessions import IDLE, Sessions, TokenSigner
from sayso.server.auth.sign_in import SignIn
from sayso.stores.base import Store
from tests.conftest import Clock, forget_settings
from tests.support.acting import held, payer, state_of
from tests.support.browsing import BASE, Browser, browser, fields_of

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
