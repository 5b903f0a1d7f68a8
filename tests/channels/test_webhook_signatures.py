"""The signatures of webhooks: as others make and check them, and refused where one bit differs."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import standardwebhooks
from hypothesis import given
from hypothesis import strategies as st

from sayso import clock, errors
from sayso.channels.webhook import ID, SIGNATURE, TIMESTAMP, WebhookKeys, _signature

SECRET = "whsec_" + base64.b64encode(bytes(range(32))).decode()
OTHER = "whsec_" + base64.b64encode(bytes(range(1, 33))).decode()
AT = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)


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
