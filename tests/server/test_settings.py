"""The page of settings: it shows how the inbox is set up, no secret of it, and can try a channel."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from starlette.applications import Starlette

from sayso import config
from sayso.audit.checkpoint import Schedule
from sayso.channels import registry
from sayso.channels.registry import Notification
from sayso.cli import main
from sayso.server import create_app
from sayso.server.pages import settings as settings_page
from sayso.stores.base import Store
from sayso.stores.records import Record
from sayso.testing import sample_call
from tests.conftest import Clock
from tests.support.browsing import Browser, browser, fields_of, text_of


class Channel:
    """A channel that keeps what is sent, or fails."""

    def __init__(self, name: str = "ops", fault: Exception | None = None) -> None:
        self.name, self.fault, self.sent = name, fault, list[Notification]()

    def send(self, notification: Notification) -> None:
        if self.fault is not None:
            raise self.fault
        self.sent.append(notification)

    def follow_up(self, notification: Notification, reference: str | None) -> None:
        raise NotImplementedError


@pytest.fixture
def ops(place: Path, monkeypatch: pytest.MonkeyPatch) -> Channel:
    """The channel `ops` of the settings file."""
    (place / "sayso.toml").write_text('[channels.ops]\ntype = "terminal"\n')
    made = Channel()
    monkeypatch.setattr(registry, "make", lambda _name, _settings: made)
    return made


def tried(ada: Browser, channel: str) -> str:
    form = fields_of(ada.get("/settings").text)
    answer = ada.submit("/settings/test", csrf=form["csrf"], channel=channel)
    return f"{answer.status_code} {text_of(answer.text)}"


def test_the_store_and_the_gates_are_shown_with_what_they_take(ada: Browser, store: Store, clock: Clock) -> None:
    store.ask(sample_call())
    assert "1 request, last just now" in text_of(ada.get("/settings").text)
    store.ask(sample_call())
    text = text_of(ada.get("/settings").text)
    assert store.url in text
    assert "2 requests, last just now" in text
    assert "amount" in text
    assert "integer" in text


def test_no_password_of_a_store_is_shown(ada: Browser, store: Store) -> None:
    store.url = "postgresql://kim:hidden@db.example/sayso?sslpassword=hidden"
    text = text_of(ada.get("/settings").text)
    assert "postgresql://kim:***@db.example/sayso?sslpassword=***" in text
    assert "hidden" not in text


def test_a_test_message_goes_out_and_decides_nothing(ada: Browser, store: Store, ops: Channel) -> None:
    request = store.ask(sample_call())
    assert tried(ada, "ops").startswith("200")
    (notification,) = ops.sent
    assert (notification.event, notification.request_id, notification.arguments) == ("test", "", None)
    assert store.get(request.id) == request
    assert len(store.journal()) == 1


def test_a_channel_that_fails_says_so_on_the_page(ada: Browser, ops: Channel) -> None:
    ops.fault = OSError("no <b>route</b>\u202e")
    said = tried(ada, "ops")
    assert said.startswith("502")
    assert "did not go out through ops: OSError: no <b>route</b><U+202E>" in said


def test_only_a_channel_of_the_settings_can_be_tried(ada: Browser, ops: Channel) -> None:
    assert tried(ada, "other").startswith("404")
    assert ops.sent == []


def test_a_look_at_the_page_sends_nothing(ada: Browser, ops: Channel) -> None:
    ada.get("/settings")
    assert ada.get("/settings/test").status_code == 405
    assert ops.sent == []


def test_a_form_of_another_session_sends_nothing(ada: Browser, ops: Channel) -> None:
    assert ada.submit("/settings/test", csrf="x", channel="ops").status_code == 403
    assert ops.sent == []


def test_settings_that_cannot_be_read_are_told(ada: Browser, place: Path, store: Store) -> None:
    (place / "sayso.toml").write_text("[channels]\nops = 3\n")
    assert config.default_store() is store
    page = ada.get("/settings")
    assert page.status_code == 200
    assert "channels.ops must be a table" in text_of(page.text)


def test_a_channel_that_can_never_send_is_told_as_doctor_tells_it(
    place: Path, file_store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    (place / "sayso.toml").write_text(
        '[channels.ops]\ntype = "webhook"\nurl = "https://a.example/"\nsecret_env = "UNSET"\n'
        '[channels.desk]\ntype = "terminal"\n[channels.odd]\ntype = "<b>pigeon"\n'
    )
    registry.register(file_store, [Channel("mine")], by="program")
    file_store.keep(Record("delivery/mine", "rq_1", {"changes": 0, "sent": [], "tries": 2, "error": "no <i>route</i>"}))
    assert main(["doctor", "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    page = browser(create_app(file_store), "ada").get("/settings")
    text = text_of(page.text)
    wrong = {one["name"].removeprefix("channel "): one["problem"] for one in told["wrong"]}
    assert wrong.keys() == {"ops", "odd", "mine"}
    assert "'UNSET', which is not set; the channel sends no messages" in wrong["ops"]
    for problem in wrong.values():
        assert problem in text
    assert "<b>pigeon" not in page.text
    assert "nothing was delivered to it yet" in text
    assert page.text.count('class="warn"') == 3


def test_doctor_and_the_page_look_with_one_function(
    ada: Browser, file_store: Store, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    odd = registry.ChannelCheck("odd", "pigeon", False, None, "it has flown away")
    for module in (settings_page, registry):  # the command calls it through its module
        monkeypatch.setattr(module, "check", lambda _: ([odd], None))
    assert main(["doctor"]) == 1
    assert "it has flown away" in capsys.readouterr().out
    assert "it has flown away" in text_of(ada.get("/settings").text)


def test_a_checkpoint_that_the_server_could_not_write_is_told(app: Starlette, ada: Browser) -> None:
    assert "no checkpoint" not in ada.get("/settings").text
    app.state.checkpoints = Schedule()
    assert "no checkpoint" not in ada.get("/settings").text
    app.state.checkpoints.problem = "no checkpoint was written: <b>run 'night'</b> has lost row 8"
    page = ada.get("/settings").text
    assert "has lost row 8" in text_of(page)
    assert "<b>run" not in page
