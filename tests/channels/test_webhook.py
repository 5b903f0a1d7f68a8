"""Messages by webhook, to a receiver on this machine: signed, sent once, not led elsewhere, and with an end in time.

Signatures are as others make and check them, and are refused where one bit differs.
"""

from __future__ import annotations

import base64
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
import standardwebhooks
from hypothesis import given
from hypothesis import strategies as st

from sayso import Review, clock, errors
from sayso import clock as sayso_clock
from sayso.channels import webhook
from sayso.channels.outbox import deliver
from sayso.channels.registry import DeliveryError, Notification, UndeliverableError
from sayso.channels.webhook import (
    ID,
    SIGNATURE,
    TIMESTAMP,
    Destination,
    WebhookChannel,
    WebhookKeys,
    _signature,
    document,
    make,
    post,
)
from sayso.model.lifecycle import Outcome
from sayso.server import hooks
from sayso.stores.base import Store
from sayso.testing import sample_call
from tests.conftest import Clock
from tests.support.receiver import Receiver, certificate, receiver

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
AT = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
NOTICE = Notification(
    id="msg_7f", event="asked", request_id="rq_1", run_id="order-1", tool="shop:refund", kind="call", risk="high",
    state="pending", fingerprint="f" * 64, title="a program wants to run refund", line="refund, for order-1",
    link="https://approvals.example.com/r/rq_1", asked_at=AT, expires_at=AT + timedelta(hours=24), arguments=None,
    outcome=None,
)  # fmt: skip


@pytest.fixture
def hook() -> Iterator[Receiver]:
    with receiver() as one:
        yield one


@pytest.fixture
def ops(hook: Receiver, monkeypatch: pytest.MonkeyPatch) -> WebhookChannel:
    monkeypatch.setenv("OPS_SECRET", SECRET)
    return make("ops", {"type": "webhook", "url": hook.url, "secret_env": "OPS_SECRET", "allow_private": True})


def test_a_message_is_json_that_another_library_verifies(ops: WebhookChannel, hook: Receiver) -> None:
    with sayso_clock.use(lambda: datetime.now(UTC)):
        assert ops.send(NOTICE) is None
    (got,) = hook.got
    assert (got.method, got.path) == ("POST", "/hook?key=k-1")
    assert got.headers["content-type"] == "application/json"
    assert got.headers["webhook-id"] == "msg_7f"
    told = standardwebhooks.Webhook(SECRET).verify(got.body, got.headers)
    assert told["type"] == "request.asked"
    assert told["data"] == {
        "id": "rq_1", "kind": "call", "tool": "shop:refund", "run_id": "order-1", "risk": "high", "state": "pending",
        "fingerprint": "f" * 64, "title": "a program wants to run refund", "line": "refund, for order-1",
        "link": "https://approvals.example.com/r/rq_1", "asked_at": "2026-01-01T12:00:00Z",
        "expires_at": "2026-01-02T12:00:00Z",
    }  # fmt: skip


def test_arguments_go_along_only_where_the_notice_has_them(ops: WebhookChannel, hook: Receiver) -> None:
    ops.send(NOTICE)
    ops.send(replace(NOTICE, arguments={"amount": 320, "password": "***"}))
    assert [json.loads(got.body)["data"].get("arguments") for got in hook.got] == [
        None, {"amount": 320, "password": "***"},
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("event", "state", "kind"),
    [("asked", "pending", "request.asked"), ("reminder", "pending", "request.reminder"),
     ("escalated", "pending", "request.escalated"), ("test", "pending", "test"),
     ("outcome", "approved", "request.decided"), ("outcome", "rejected", "request.decided"),
     ("outcome", "answered", "request.decided"), ("outcome", "cancelled", "request.decided"),
     ("outcome", "done", "request.ended"), ("outcome", "failed", "request.ended"),
     ("outcome", "unknown", "request.ended"), ("outcome", "expired", "request.expired")],
)  # fmt: skip
def test_each_event_has_its_type(ops: WebhookChannel, hook: Receiver, event: Any, state: str, kind: str) -> None:
    ops.follow_up(replace(NOTICE, event=event, state=state, outcome="it ended"), None)
    (got,) = hook.got
    told = json.loads(got.body)
    assert (told["type"], told["data"]["state"], told["data"]["outcome"]) == (kind, state, "it ended")


@pytest.mark.parametrize("status", [200, 201, 202, 204, 299])
def test_every_2xx_is_delivered(ops: WebhookChannel, hook: Receiver, status: int) -> None:
    hook.status = status
    ops.send(NOTICE)
    assert len(hook.got) == 1


@pytest.mark.parametrize("status", [300, 301, 302, 303, 307, 308, 400, 401, 404, 429, 500, 503])
def test_everything_else_is_tried_again_later_and_no_redirect_is_followed(
    ops: WebhookChannel, hook: Receiver, status: int
) -> None:
    hook.status, hook.headers = status, {"location": hook.url + "&led=on", "content-length": "0"}
    with pytest.raises(DeliveryError, match=f"answered {status}"):
        ops.send(NOTICE)
    assert len(hook.got) == 1


def test_gone_is_gone_for_good(ops: WebhookChannel, hook: Receiver) -> None:
    hook.status = 410
    with pytest.raises(UndeliverableError):
        ops.send(NOTICE)


def test_proxies_of_the_environment_are_not_asked(
    ops: WebhookChannel, hook: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    with receiver() as proxy:
        for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
        ops.send(NOTICE)
    assert (len(hook.got), proxy.got) == (1, [])


def _drip(answer: BaseHTTPRequestHandler) -> None:
    for byte in b"HTTP/1.1 200 OK\r\n\r\n":
        threading.Event().wait(0.1)
        answer.wfile.write(bytes([byte]))


def test_a_receiver_that_drips_is_cut_off_at_the_deadline(hook: Receiver) -> None:
    hook.instead = _drip
    where = Destination.parse(hook.url, allow_private=True)
    assert post(where, b"{}", {}, seconds=60) == (200, b"")
    with pytest.raises(TimeoutError, match=f"127.0.0.1:{hook.port} did not answer in time"):
        post(where, b"{}", {}, seconds=0.3)


def test_a_receiver_that_says_nothing_is_left(hook: Receiver) -> None:
    stop = threading.Event()
    hook.instead = lambda _: stop.wait(30) and None
    where = Destination.parse(hook.url, allow_private=True)
    try:
        with pytest.raises(TimeoutError, match="did not answer in time"):
            post(where, b"{}", {}, seconds=0.3)
    finally:
        stop.set()


@pytest.mark.parametrize(
    "said",
    [b"", b"\r\n\r\n", b"SSH-2.0-x\r\n", b"HTTP/1.1 abc\r\n\r\n", b"HTTP/1.1 200 " + b"x" * 70_000,
     b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 200 + b"\r\n", b"HTTP/1.1 200 OK\r\na" + b"b" * 70_000],
    ids=["nothing", "empty", "ssh", "no number", "a long line", "many headers", "a long header"],
)  # fmt: skip
def test_what_is_no_answer_of_http_is_tried_again_later(ops: WebhookChannel, hook: Receiver, said: bytes) -> None:
    hook.instead = lambda answer: answer.wfile.write(said) and None
    with pytest.raises(OSError):  # noqa: PT011  whichever way it is none
        ops.send(NOTICE)


def test_an_answer_without_end_is_not_read(ops: WebhookChannel, hook: Receiver) -> None:
    ended = threading.Event()

    def flood(answer: BaseHTTPRequestHandler) -> None:
        answer.wfile.write(b"HTTP/1.1 200 OK\r\n\r\n")
        with suppress(OSError):  # whoever asked has left
            while True:
                answer.wfile.write(b"x" * 10_000)
        ended.set()

    hook.instead = flood
    ops.send(NOTICE)
    assert ended.wait(30)


def test_nobody_there_is_tried_again_later(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        where = Destination.parse(f"http://127.0.0.1:{deaf.getsockname()[1]}/", allow_private=True)
        with pytest.raises(OSError):  # noqa: PT011
            WebhookChannel("ops", where, WebhookKeys([SECRET], source="the test")).send(NOTICE)


def test_a_request_is_told_when_it_is_asked_decided_and_done(
    ops: WebhookChannel, hook: Receiver, memory: Store, clock: Clock
) -> None:
    came = threading.Semaphore(0)

    def take(answer: BaseHTTPRequestHandler) -> None:
        answer.send_response(204)
        answer.end_headers()
        came.release()

    hook.instead = take
    with deliver(memory, [ops], base_url="https://approvals.example.com"):
        request = memory.ask(sample_call(arguments={"amount": 471_147_114_711, "to": "canary"}))
        assert came.acquire(timeout=30)
        Review(memory).approve(request.id, by="ada")
        assert came.acquire(timeout=30)
        memory.start(request.id, "token")
        memory.finish(request.id, "token", Outcome("done"))
        assert came.acquire(timeout=30)
    told = [json.loads(got.body) for got in hook.got]
    assert [one["type"] for one in told] == ["request.asked", "request.decided", "request.ended"]
    assert len({got.headers["webhook-id"] for got in hook.got}) == 3
    assert {one["data"]["link"] for one in told} == {f"https://approvals.example.com/r/{request.id}"}
    sent = b"".join(got.body for got in hook.got)
    assert b"canary" not in sent
    assert b"471147114711" not in sent  # a short number can be a part of a random id


def test_the_page_about_webhooks_shows_what_is_sent(root: Path) -> None:
    page = (root / "docs/guides/webhooks.md").read_text(encoding="utf-8")
    shown = json.loads(page.split("```json")[1].split("```")[0])
    real = document(NOTICE)
    assert (list(shown), list(shown["data"])) == (list(real), list(real["data"]))
    for kind in {*webhook._TYPES.values(), *webhook._ENDED.values(), "request.decided"}:
        assert f"`{kind}`" in page, kind
    for setting in {*webhook._KNOWN, *hooks._KNOWN} - {"type"}:
        assert f"`{setting}`" in page, setting


# -- by https --------------------------------------------------------------------------------------------------


def by_name(port: int, trusted: Path) -> WebhookChannel:
    where = Destination.parse(f"https://hooks.example.com:{port}/x", allow_private=True)
    keys = WebhookKeys([SECRET], source="the test")
    return WebhookChannel("ops", where, keys, ca_file=str(trusted))


@pytest.fixture
def resolved_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sayso.channels.webhook.addresses_of", lambda _, __: ["127.0.0.1"])


@pytest.mark.usefixtures("resolved_here")
def test_https_is_by_name_at_the_address_that_was_resolved(tmp_path: Path) -> None:
    pem = certificate(tmp_path, "hooks.example.com")
    with receiver(pem) as hook:
        by_name(hook.port, pem).send(NOTICE)
    assert hook.got[0].headers["host"] == f"hooks.example.com:{hook.port}"


@pytest.mark.usefixtures("resolved_here")
def test_a_certificate_of_another_name_is_not_trusted(tmp_path: Path) -> None:
    pem = certificate(tmp_path, "other.example.com")
    with receiver(pem) as hook, pytest.raises(OSError, match="certificate"):
        by_name(hook.port, pem).send(NOTICE)
    assert hook.got == []


@pytest.mark.usefixtures("resolved_here")
def test_a_certificate_that_nobody_vouches_for_is_not_trusted(tmp_path: Path) -> None:
    pem = certificate(tmp_path, "hooks.example.com")
    (tmp_path / "others").mkdir()
    with receiver(pem) as hook, pytest.raises(OSError, match="certificate"):
        by_name(hook.port, certificate(tmp_path / "others", "hooks.example.com")).send(NOTICE)
    assert hook.got == []


# -- settings --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "said"),
    [({}, "url is missing"), ({"url": "https://example.com/"}, "secret_env is missing"),
     ({"url": "https://example.com/", "secret_env": "NOT_SET"}, "NOT_SET"),
     ({"url": "https://example.com/", "secret_env": "SHORT"}, "not contain a valid webhook secret"),
     ({"url": "http://example.com/", "secret_env": "OPS_SECRET"}, "https"),
     ({"url": "https://127.0.0.1/", "secret_env": "OPS_SECRET"}, "private"),
     ({"url": "https://example.com/", "secret_env": "OPS_SECRET", "allow_private": "yes"}, "true or false"),
     ({"url": "https://example.com/", "secret_env": "OPS_SECRET", "ports": ["443"]}, "numbers"),
     ({"url": "https://example.com/", "secret_env": "OPS_SECRET", "secret": SECRET}, "secret is not known")],
)  # fmt: skip
def test_a_wrong_setting_is_refused_and_no_secret_is_quoted(
    settings: dict[str, Any], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPS_SECRET", SECRET)
    monkeypatch.setenv("SHORT", "whsec_hunter2")
    with pytest.raises(errors.ConfigError, match=said) as caught:
        make("ops", {"type": "webhook", **settings})
    assert "hunter2" not in str(caught.value)
    assert SECRET not in str(caught.value)


def test_the_address_may_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPS_SECRET", SECRET)
    monkeypatch.setenv("OPS_URL", "https://example.com/T0/hunter2")
    made = make("ops", {"type": "webhook", "url_env": "OPS_URL", "secret_env": "OPS_SECRET"})
    assert "hunter2" not in repr(made)


def test_a_relative_ca_file_is_meant_from_the_settings_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sayso.toml").touch()
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path / "below")
    monkeypatch.setenv("OPS_SECRET", SECRET)
    monkeypatch.setattr("sayso.channels.webhook.addresses_of", lambda _, __: ["127.0.0.1"])
    pem = certificate(tmp_path, "hooks.example.com")
    settings = {"type": "webhook", "secret_env": "OPS_SECRET", "allow_private": True}
    with receiver(pem) as hook:
        url = f"https://hooks.example.com:{hook.port}/x"
        make("ops", {**settings, "url": url, "ca_file": pem.name}).send(NOTICE)
    assert len(hook.got) == 1
    with pytest.raises(errors.ConfigError, match=r"\[channels.ops\] ca_file names .*other.pem', which is not a file"):
        make("ops", {**settings, "url": url, "ca_file": "other.pem"})


OTHER = "whsec_" + base64.b64encode(bytes(range(1, 33))).decode()


def keys(*secrets: str) -> WebhookKeys:
    return WebhookKeys(secrets or (SECRET,), source="the test")


def has_signed(checking: WebhookKeys, headers: dict[str, str], body: bytes, now: datetime = AT) -> bool:
    return checking.has_signed(headers[ID], headers[TIMESTAMP], headers[SIGNATURE], body, now=now)


def test_the_signature_is_the_one_of_the_standards_own_example() -> None:
    secret, body = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", b'{"test": 2432232314}'
    at = datetime.fromtimestamp(1614265330, UTC)
    headers = keys(secret).headers("msg_p5jXN8AQM9LWM0D4loKWxJek", at, body)
    assert headers[SIGNATURE] == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
    assert headers[TIMESTAMP] == "1614265330"


@given(body=st.dictionaries(st.text(), st.integers() | st.text()))
def test_what_we_sign_is_taken_by_another_library(body: dict[str, Any]) -> None:
    text = json.dumps(body)
    headers = keys(OTHER, SECRET).headers("msg_1", clock.now(), text.encode())
    assert standardwebhooks.Webhook(SECRET).verify(text, headers) == json.loads(text)
    assert standardwebhooks.Webhook(OTHER).verify(text, headers) == json.loads(text)


@given(body=st.text(st.characters(exclude_categories=["Cs"])))
def test_what_another_library_signs_is_taken(body: str) -> None:
    signature = standardwebhooks.Webhook(SECRET).sign("msg_1", AT, body)
    headers = {ID: "msg_1", TIMESTAMP: str(int(AT.timestamp())), SIGNATURE: signature}
    assert has_signed(keys(OTHER, SECRET), headers, body.encode())
    assert not has_signed(keys(OTHER), headers, body.encode())


def test_every_flipped_bit_of_20_messages_is_refused() -> None:
    refused = 0
    for number in range(20):
        body = json.dumps({"request_id": f"rq_{number}", "verb": "approve", "note": "x" * number}).encode()
        right = keys().headers(f"msg_{number}", AT, body)
        assert has_signed(keys(), right, body)
        for name, value in right.items():
            for wrong in flipped(value.encode("latin-1")):
                headers = right | {name: wrong.decode("latin-1")}
                assert not has_signed(keys(), headers, body), (name, wrong)
                refused += 1
        for wrong in flipped(body):
            assert not has_signed(keys(), right, wrong)
            refused += 1
    assert refused > 20_000


def flipped(text: bytes) -> list[bytes]:
    return [bytes([*text[:at], text[at] ^ 1 << bit, *text[at + 1 :]]) for at in range(len(text)) for bit in range(8)]


@pytest.mark.parametrize(("seconds", "is_taken"), [(-301, False), (-300, True), (0, True), (300, True), (301, False)])
def test_the_window_is_five_minutes_both_ways(seconds: int, is_taken: bool) -> None:
    headers = keys().headers("msg_1", AT + timedelta(seconds=seconds), b"{}")
    assert has_signed(keys(), headers, b"{}") is is_taken


@pytest.mark.parametrize("odd", ["", "v1", "garbage", "v1,", "v1 ,", "v1a,AAAA", ",", "v1,é", " ", "v1," + "A" * 9_000])
def test_an_odd_signature_is_refused_and_is_no_fault(odd: str) -> None:
    headers = keys().headers("msg_1", AT, b"{}") | {SIGNATURE: odd}
    assert not has_signed(keys(), headers, b"{}")


@pytest.mark.parametrize("odd", ["", "a.b", "a b", "é", "a" * 257, "a\n"])
def test_an_odd_id_is_refused(odd: str) -> None:
    assert not has_signed(keys(), keys().headers(odd, AT, b"{}"), b"{}")


@pytest.mark.parametrize(
    "odd", ["", " {0}", "{0} ", "0{0}", "+{0}", "{0}.0", "١٢٣٤٥٦٧٨٩٠", "nan", "1e9", "9" * 12, "9" * 13]
)
def test_an_odd_instant_is_refused(odd: str) -> None:
    seconds = odd.format(int(AT.timestamp()))
    signature = _signature(bytes(range(32)), "msg_1", seconds, b"{}")
    assert not has_signed(keys(), {ID: "msg_1", TIMESTAMP: seconds, SIGNATURE: signature}, b"{}")


def test_only_one_spelling_of_a_signature_is_taken() -> None:
    headers = keys().headers("msg_1", AT, b"{}")
    for other in [headers[SIGNATURE].rstrip("="), headers[SIGNATURE] + "=", headers[SIGNATURE].replace("v1", "v01")]:
        assert not has_signed(keys(), headers | {SIGNATURE: other}, b"{}")


def test_of_several_signatures_one_that_fits_is_enough() -> None:
    headers = keys(OTHER, SECRET).headers("msg_1", AT, b"{}")
    assert len(headers[SIGNATURE].split(" ")) == 2
    assert has_signed(keys(SECRET), headers, b"{}")


NO_SECRETS = ["", "whsec_", "whsec_YWJj", "hunter2", "whsec_" + "A" * 200, "whsec_%%%", SECRET[6:]]


@pytest.mark.parametrize("secret", NO_SECRETS)
def test_what_is_no_secret_is_refused_and_not_quoted(secret: str) -> None:
    with pytest.raises(errors.ConfigError) as caught:
        keys(secret) if secret else WebhookKeys([], source="the test")
    assert not secret or secret not in str(caught.value).replace("whsec_ and", "").replace("like whsec_", "")
