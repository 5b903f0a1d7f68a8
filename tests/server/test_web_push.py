"""Notifications in reviewers' browsers: to whom, what they show, where they may go, and what they may approve.

The phone of these tests has keys of its own and a push service on this machine; it opens what came as a browser would.
"""

from __future__ import annotations

import base64
import importlib
import json
import os
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch

import http_ece  # pyright: ignore[reportMissingImports,reportMissingTypeStubs]
import py_vapid  # pyright: ignore[reportMissingImports,reportMissingTypeStubs]
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from starlette.applications import Starlette

import sayso
from sayso import errors
from sayso.channels.outbox import Deliverer
from sayso.channels.registry import health
from sayso.model.reviewer import TOKENS, Identity, Quorum, Reviewer
from sayso.model.text import speaking
from sayso.policy import Policy
from sayso.server import login_path
from sayso.server.auth.sessions import TokenSigner
from sayso.server.auth.sign_in import SignIn
from sayso.server.language import choose_language, languages
from sayso.server.web_push import DeviceRefusedError, Push, may_approve_there
from sayso.stores.base import Store
from sayso.stores.records import Record
from sayso.testing import sample_call
from tests.conftest import Clock
from tests.support.acting import held, state_of
from tests.support.browsing import BASE, Browser, browser, fields_of, text_of
from tests.support.receiver import Receiver, receiver

ADA, SECRET = Reviewer("ada"), "hunter2"


def _text(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


class Phone:
    """A browser with a push service: its subscription, and what it could read of what came."""

    def __init__(self, service: Receiver, name: str = "phone") -> None:
        self._key, self._auth, self._service = ec.generate_private_key(ec.SECP256R1()), os.urandom(16), service
        self.path = f"/send/{name}"
        public = self._key.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
        endpoint = f"http://127.0.0.1:{service.port}{self.path}"
        self.subscription = {"endpoint": endpoint, "p256dh": _text(public), "auth": _text(self._auth)}

    @property
    def shown(self) -> list[dict[str, Any]]:
        return [
            json.loads(http_ece.decrypt(one.body, private_key=self._key, auth_secret=self._auth, version="aes128gcm"))
            for one in self._service.got
            if one.path == self.path
        ]


@pytest.fixture
def service() -> Iterator[Receiver]:
    with receiver() as one:
        one.status = 201
        yield one


@pytest.fixture
def push(app: Starlette, store: Store) -> Push:
    app.state.push = Push(store, app.state.settings.signer, base_url=BASE, allow_private=True)
    return app.state.push


@pytest.fixture
def phone(push: Push, service: Receiver) -> Phone:
    one = Phone(service)
    push.add(ADA, "phone", **one.subscription)
    return one


def delivered(store: Store, push: Push) -> int:
    """Send what is due, and return how many messages failed."""
    deliverer = Deliverer(store, push)
    deliverer.deliver_due()
    return deliverer.failed


RULE = """
[[rules]]
tool = "*"
verdict = "hold"
risk = "low"
approve_from_notification = true
"""


def low(store: Store, rule: str = RULE, **options: Any) -> Callable[..., Any]:
    """Return a function whose calls are of low risk, by the policy."""

    @sayso.gate(wait="raise", store=store, when=Policy.of_text(rule), **options)
    def restart(service: str, password: str = SECRET) -> None: ...

    return restart


# -- messages ----------------------------------------------------------------------------------------------------------


def test_a_message_is_signed_and_only_the_device_can_read_it(
    store: Store, push: Push, phone: Phone, service: Receiver, clock: Clock
) -> None:
    request_id = held(low(store), "nginx").confirmation_id
    assert delivered(store, push) == 0
    (got,), (told,) = service.got, phone.shown
    assert b"nginx" not in got.body
    assert SECRET not in json.dumps(told)
    assert told["title"].endswith("wants to run restart")
    assert told["body"].startswith('restart(service="nginx", password=')
    assert told["body"].endswith("risk low; expires in 1d")
    request = sayso.Review(store).get(request_id)
    assert (told["request"], told["approve"], told["is_over"]) == (request_id, request.current_fingerprint, False)
    assert told["for"] == ADA.identity.qualified
    headers = got.headers
    assert (headers["content-encoding"], headers["ttl"], headers["urgency"]) == ("aes128gcm", "86400", "high")
    assert py_vapid.Vapid02.verify(headers["authorization"])
    claims, _, key = headers["authorization"].removeprefix("vapid t=").partition(",k=")
    assert key == push.public_key()
    middle = claims.split(".")[1]
    assert json.loads(base64.urlsafe_b64decode(middle + "==")) == {
        "aud": f"http://127.0.0.1:{service.port}", "sub": "https://localhost",
        "exp": int(clock().timestamp()) + 12 * 3600,
    }  # fmt: skip


def test_a_message_is_in_the_language_of_its_reader(store: Store, push: Push, phone: Phone, service: Receiver) -> None:
    with speaking(languages()["de"]):
        push.add(ADA, "laptop", **(laptop := Phone(service, "laptop")).subscription)
    request_id = held(low(store), "nginx").confirmation_id
    delivered(store, push)
    (english,), (german,) = phone.shown, laptop.shown
    assert english["title"].endswith("wants to run restart")
    assert english["words"]["approve"] == "Approve"
    assert german["title"].endswith("will restart ausführen")
    assert german["body"].endswith("Risiko niedrig; läuft in 1 T. ab")
    assert (german["words"]["approve"], german["words"]["lost"]) == (
        "Freigeben", "Unklar, ob entschieden wurde: bitte öffnen"
    )  # fmt: skip
    assert "{count}" in german["words"]["undo"]
    choose_language(store, ADA.identity, "de")  # what a person chooses holds in all of their browsers
    sayso.Review(store, channel="cli").reject(request_id, by="bob")
    delivered(store, push)
    assert phone.shown[1]["title"].startswith("restart: abgelehnt von bob")
    assert "words" not in phone.shown[1]


def test_the_outcome_takes_the_place_of_the_question_and_offers_nothing(
    store: Store, push: Push, phone: Phone, service: Receiver
) -> None:
    request_id = held(low(store), "nginx").confirmation_id
    delivered(store, push)
    sayso.Review(store, channel="cli").reject(request_id, by="bob")
    delivered(store, push)
    asked, ended = phone.shown
    assert (ended["request"], ended["approve"], ended["is_over"]) == (asked["request"], None, True)
    assert ended["title"] == "restart: rejected by bob (cli)"
    assert service.got[0].headers["topic"] == service.got[1].headers["topic"]
    assert service.got[1].headers["urgency"] == "normal"


def test_only_who_could_decide_is_told(store: Store, push: Push, phone: Phone, clock: Clock) -> None:
    def plain(**options: Any) -> str:
        return store.ask(sample_call(None, {"at": str(options)}, **options)).id

    review = sayso.Review(store)
    plain(on_behalf_of=ADA.identity)
    plain(quorum=Quorum(roles={"cfo"}))
    review.claim(plain(place="claimed"), by="bob")
    store.snooze(plain(place="snoozed"), ADA.identity, until=clock() + timedelta(hours=1))
    review.approve(plain(place="voted", quorum=Quorum(2)), by=ADA)
    mine, stands_in, half = plain(place="mine"), plain(place="stands in"), plain(place="half", quorum=Quorum(2))
    review.claim(stands_in, by="carol")
    review.claim(half, by="bob")
    sayso.Review(store, reviewer=Reviewer("carol")).delegate(ADA, "1h")
    assert delivered(store, push) == 0
    assert sorted(one["request"] for one in phone.shown) == sorted([mine, stands_in, half])


def test_nobody_who_may_not_review_any_more_is_told(store: Store, app: Starlette, phone: Phone) -> None:
    held(low(store), "nginx")
    signer = app.state.settings.signer
    strict = Push(store, signer, sign_in=SignIn(reviewers=["bob"]), allow_private=True)
    assert delivered(store, strict) == 0
    assert phone.shown == []


def test_a_device_that_is_gone_is_told_nothing_more_and_without_any_nothing_is_owed(
    store: Store, push: Push, phone: Phone, service: Receiver
) -> None:
    restart = low(store)
    for status in (404, 410):
        push.add(ADA, "phone", **phone.subscription)
        service.status = status
        held(restart, f"nginx {status}")
        assert delivered(store, push) == 0
        assert push.devices() == []
        assert health(store) == []


def test_what_fails_is_tried_again_for_the_devices_that_it_did_not_reach(
    store: Store, push: Push, phone: Phone, service: Receiver, clock: Clock
) -> None:
    with receiver() as broken:
        other = Phone(broken, "other")
        push.add(ADA, "other", **other.subscription)
        held(low(store), "nginx")
        broken.status = 500
        assert delivered(store, push) == 1
        assert "1 of 2 devices could not be reached" in (health(store)[0].error or "")
        assert "/send/" not in (health(store)[0].error or "")
        broken.status = 201
        clock.tick(seconds=10)
        assert delivered(store, push) == 0
        assert (len(service.got), len(broken.got)) == (1, 2)


def test_no_message_goes_to_a_private_address(store: Store, app: Starlette, service: Receiver) -> None:
    strict = Push(store, app.state.settings.signer)
    phone = Phone(service)
    for endpoint in (
        phone.subscription["endpoint"], "https://127.0.0.1/x", "https://10.0.0.8/x", "https://[::1]/x",
        "https://169.254.169.254/latest", "https://push/x", "http://push.example/x", "https://u@push.example/x",
        "https://push.example:22/x", "file:///etc/passwd",
    ):  # fmt: skip
        with pytest.raises(DeviceRefusedError, match="nothing was turned on"):
            strict.add(ADA, "phone", **{**phone.subscription, "endpoint": endpoint})
    # A name that led elsewhere when it was added is looked at again, and the connection goes to what was checked.
    strict.add(ADA, "phone", **{**phone.subscription, "endpoint": "https://push.example/x"})
    held(low(store), "nginx")
    with patch("sayso.channels.webhook.addresses_of", lambda _, __: ["127.0.0.1"]):
        assert delivered(store, strict) == 1
    assert "127.0.0.1 is a private" in (health(store)[0].error or "")
    assert service.got == []


def test_what_is_no_subscription_is_refused(store: Store, push: Push, service: Receiver) -> None:
    good = Phone(service).subscription
    for wrong in ({"p256dh": "AAAA"}, {"p256dh": "B" * 87}, {"auth": "AAAA"}, {"auth": "é"}, {"endpoint": ""}):
        with pytest.raises(DeviceRefusedError):
            push.add(ADA, "phone", **{**good, **wrong})
    for number in range(10):
        push.add(ADA, "phone", **Phone(service, str(number)).subscription)
    with pytest.raises(DeviceRefusedError, match="10 devices"):
        push.add(ADA, "phone", **good)


def test_the_key_stays_with_the_secret_of_the_server(store: Store, push: Push, monkeypatch: pytest.MonkeyPatch) -> None:
    before = push.public_key()
    if store.url.startswith("sqlite:"):
        assert Push(store, TokenSigner(store)).public_key() == before
        secret = Path(store.url.removeprefix("sqlite:///") + ".secret")
        assert secret.stat().st_mode & 0o777 == 0o600
    monkeypatch.setenv("SAYSO_SECRET", "x" * 32)
    assert Push(store, TokenSigner(store)).public_key() != before


def test_a_device_of_another_key_is_forgotten(
    store: Store, phone: Phone, push: Push, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert len(push.devices()) == 1
    monkeypatch.setenv("SAYSO_SECRET", "x" * 32)
    assert Push(store, TokenSigner(store)).devices() == []


def test_without_the_extra_it_is_named(store: Store, ada: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise ModuleNotFoundError(name)

    monkeypatch.setattr("sayso.server.pages.settings.find_spec", lambda _: None)
    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(errors.ConfigError, match=r"pip install 'sayso\[push\]'"):
        Push(store, TokenSigner(store)).public_key()
    assert "extra push is not installed" in text_of(ada.get("/settings").text)


# -- devices -----------------------------------------------------------------------------------------------------------


def turned_on(page: Browser, phone: Phone, name: str = "phone") -> Any:
    csrf = fields_of(page.get("/settings").text)["csrf"]
    return page.submit("/devices/add", csrf=csrf, name=name, **phone.subscription)


def test_a_person_sends_ten_test_messages_a_minute_to_devices_and_through_channels(
    app: Starlette, push: Push, ada: Browser, service: Receiver, place: Path
) -> None:
    (place / "sayso.toml").write_text('[channels.ops]\ntype = "terminal"\n', encoding="utf-8")
    phone, bob = Phone(service), browser(app, "bob")
    turned_on(ada, phone)
    form = {"csrf": fields_of(ada.get("/settings").text)["csrf"], "key": push.devices(ADA)[0].key, "channel": "ops"}
    for _ in range(9):
        app.state.settings.tests.count(ADA.identity.folded)
    assert ada.submit("/devices/test", **form).status_code == 200
    for page in ("/devices/test", "/settings/test"):
        refused = ada.submit(page, **form)
        assert (refused.status_code, "nothing was sent" in text_of(refused.text)) == (429, True)
        assert int(refused.headers["retry-after"]) > 0
    assert len(phone.shown) == 1
    theirs = {**form, "csrf": fields_of(bob.get("/settings").text)["csrf"]}
    assert bob.submit("/settings/test", **theirs).status_code == 200


def test_a_reviewer_sees_tries_and_removes_their_own_devices(
    app: Starlette, store: Store, push: Push, ada: Browser, service: Receiver
) -> None:
    phone = Phone(service)
    assert "phone" in turned_on(ada, phone).text
    page = ada.get("/settings").text
    assert "<small>this browser</small>" in page
    (device,) = push.devices(ADA)
    form = {"csrf": fields_of(page)["csrf"], "key": device.key}
    ada.submit("/devices/test", **form)
    assert [one["title"] for one in phone.shown] == ["sayso reaches this device"]
    service.status = 500
    assert "did not go out" in ada.submit("/devices/test", **form).text
    bob = browser(app, "bob")
    theirs = {**form, "csrf": fields_of(bob.get("/settings").text)["csrf"]}
    assert "this browser</small>" not in bob.get("/settings").text
    assert {bob.submit(f"/devices/{verb}", **theirs).status_code for verb in ("remove", "test", "odd")} == {404}
    assert push.devices(ADA) == [device]
    store.keep(Record("device", "altered", {"name": "whose?"}))
    assert push.devices() == [device]
    store.drop("device", "altered")
    ada.submit("/devices/remove", **form)
    assert push.devices() == []


def test_a_device_is_told_until_its_reviewer_signs_out_or_somebody_else_signs_in_or_nobody_does(
    app: Starlette, push: Push, service: Receiver, clock: Clock
) -> None:
    def again(page: Browser, name: str) -> None:
        token = login_path(app, Reviewer(name)).partition("token=")[2]
        page.post("/login", data={"token": token}, headers={"origin": BASE})

    page = browser(app, "ada")
    turned_on(page, Phone(service))
    clock.tick(days=20)
    again(page, "ada")
    clock.tick(days=20)
    assert len(push.devices()) == 1
    clock.tick(days=11)
    assert push.devices() == []
    again(page, "ada")
    turned_on(page, Phone(service))
    page.submit("/logout", csrf=fields_of(page.get("/settings").text)["csrf"])
    assert push.devices() == []
    again(page, "ada")
    turned_on(page, Phone(service))
    again(page, "bob")
    assert push.devices() == []


# -- approval from a notification ----------------------------------------------------------------------------------


def sent_from(page: Browser, request_id: str, seen: str, verb: str = "approve", **more: str) -> int:
    """Decide as the service worker does."""
    csrf = page.get("/api/v1/me").json()["csrf"]
    return page.submit(f"/notified/{request_id}/{verb}", csrf=csrf, seen=seen, **more).status_code


def test_what_the_policy_lets_be_approved_from_a_notification_is(store: Store, ada: Browser) -> None:
    request = sayso.Review(store).get(held(low(store), "nginx").confirmation_id)
    assert sent_from(ada, request.id, request.current_fingerprint) == 200
    decision = sayso.Review(store).get(request.id).decision
    assert decision is not None
    assert (decision.by.subject, decision.channel, decision.verb) == ("ada", "push", "approve")
    assert sent_from(ada, request.id, request.current_fingerprint) == 409  # decided is decided


def test_what_may_be_approved_from_a_notification_is_rejected_there_with_a_reason(store: Store, ada: Browser) -> None:
    for note, told in (("not\ntoday", "not\ntoday"), ("", "rejected from a notification, without a reason")):
        request = sayso.Review(store).get(held(low(store), f"nginx {len(note)}").confirmation_id)
        assert sent_from(ada, request.id, request.current_fingerprint, "feedback") == 404
        assert sent_from(ada, request.id, "f" * 64, "reject") in {409, 412}
        assert state_of(request.id) == "pending"
        assert sent_from(ada, request.id, request.current_fingerprint, "reject", note=note) == 200
        decision = sayso.Review(store).get(request.id).decision
        assert decision is not None
        assert (decision.verb, decision.comment, decision.channel) == ("reject", told, "push")
    other = held(low(store, RULE.replace("approve_from_notification = true", "")), "other").confirmation_id
    assert sent_from(ada, other, sayso.Review(store).get(other).current_fingerprint, "reject") == 409
    assert state_of(other) == "pending"


def test_a_request_that_changed_since_is_not_approved_from_its_notification(store: Store, ada: Browser) -> None:
    request = sayso.Review(store).get(held(low(store, quorum=1), "nginx").confirmation_id)
    for seen in ("", "f" * 64):
        assert sent_from(ada, request.id, seen) in {409, 412}
    assert state_of(request.id) == "pending"


def test_who_is_signed_out_or_another_site_approves_nothing(store: Store, app: Starlette, ada: Browser) -> None:
    request = sayso.Review(store).get(held(low(store), "nginx").confirmation_id)
    address, seen = f"/notified/{request.id}/approve", request.current_fingerprint
    csrf = ada.get("/api/v1/me").json()["csrf"]
    stranger = Browser(app, base_url=BASE)
    assert stranger.get("/api/v1/me").status_code == 401
    assert stranger.submit(address, csrf=csrf, seen=seen).status_code == 401
    assert (
        ada.post(address, data={"csrf": csrf, "seen": seen}, headers={"origin": "https://evil.example"}).status_code
        == 403
    )
    assert ada.submit(address, csrf="0" * 64, seen=seen).status_code == 403
    assert ada.get(address).status_code == 405
    assert state_of(request.id) == "pending"


def test_nothing_else_is_approved_from_a_notification(store: Store, ada: Browser) -> None:
    def asked(rule: str = RULE, *args: Any, **options: Any) -> str:
        return held(low(store, rule, **options), *(args or ("nginx",))).confirmation_id

    review = sayso.Review(store)
    first = asked(RULE, "edited", quorum=2)
    review.approve(first, by="bob", changes={"service": "apache"})
    not_so = {
        "no rule says so": asked(RULE.replace("approve_from_notification = true", "")),
        "two must agree": asked(RULE, "two", quorum=2), "a role is needed": asked(RULE, "role", roles={"ada"}),
        "it was edited": first, "it is long": asked(RULE, "x" * 400), "it may deceive": asked(RULE, "ngi\u200bnx"),
        "its effect is taken": [asked(RULE, one, effect="restart") for one in ("e1", "e2")][1],
        "a program with a token asks": store.ask(
            sample_call(None, risk="low", approve_from_notification=True, requester=Identity(TOKENS, "bot"))
        ).id,
        "its risk is higher": store.ask(sample_call(None, {"a": 1}, risk="high", approve_from_notification=True)).id,
        "its risk is not known": store.ask(sample_call(None, {"a": 2}, approve_from_notification=True)).id,
        "names hide a value": store.ask(
            sample_call(None, {"a": {one * 21_000: 1 for one in "xy"}}, risk="low", approve_from_notification=True)
        ).id,
        "it may start again": asked(RULE, "again", retries=5),
        "something is to be read first": asked(RULE, "prompt", prompt="Is the backup there?"),
        "the program tells facts": store.ask(
            sample_call(None, {"a": 3}, risk="low", approve_from_notification=True, context={"backup": "missing"})
        ).id,
    }  # fmt: skip
    wrong = []
    for why, request_id in not_so.items():
        request = review.get(request_id)
        answer = sent_from(ada, request_id, request.current_fingerprint)
        if may_approve_there(store, request) or answer != 409 or review.get(request_id).state != "pending":
            wrong.append(why)
    assert wrong == []
    assert may_approve_there(store, review.get(asked(RULE, "plain")))


def test_a_rule_that_could_not_count_is_refused() -> None:
    for wrong in (
        'risk = "high"', "", 'risk = "low"\nquorum = 2', 'risk = "low"\nroles = ["cfo"]',
        'risk = "low"\nescalate_after = "1h"\nescalate_to = ["cfo"]\nquorum = 2',
    ):  # fmt: skip
        with pytest.raises(errors.PolicyError, match="approve_from_notification= needs a hold") as caught:
            Policy.of_text(f'[[rules]]\ntool = "a"\nverdict = "hold"\napprove_from_notification = true\n{wrong}\n')
        assert ":4:1:" in str(caught.value)
    with pytest.raises(errors.PolicyError, match="is for a rule that holds"):
        Policy.of_text('[[rules]]\ntool = "a"\nverdict = "allow"\napprove_from_notification = true\n')
