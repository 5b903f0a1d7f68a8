"""Everything else, through the real Apprise to a service on this machine that speaks its `json://`."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from sayso import errors
from sayso.channels import registry
from sayso.channels.registry import Channel, DeliveryError, Notification
from tests.channels.test_webhook import NOTICE
from tests.support.receiver import Receiver, receiver

# Apprise loads all of its plugins at its first URL, and what one of them needs imports `imghdr`.
pytestmark = pytest.mark.filterwarnings("ignore:'imghdr' is deprecated:DeprecationWarning")


@pytest.fixture
def service() -> Iterator[Receiver]:
    with receiver() as one:
        one.status = 200
        yield one


def channel(*urls: str, **settings: Any) -> Channel:
    return registry.make("phones", {"type": "apprise", **({"urls": list(urls)} if urls else {}), **settings})


def url_of(service: Receiver) -> str:
    return f"json://ada:hunter2@127.0.0.1:{service.port}/hunter2?-token=hunter2"


def said(service: Receiver) -> list[tuple[str, str]]:
    return [(told["title"], told["message"]) for told in (json.loads(got.body) for got in service.got)]


def test_a_message_is_a_title_one_line_and_a_link(service: Receiver) -> None:
    assert channel(url_of(service)).send(NOTICE) is None
    assert said(service) == [
        ("a program wants to run refund", "refund, for order-1\nhttps://approvals.example.com/r/rq_1")
    ]


def test_arguments_never_go_along(service: Receiver) -> None:
    channel(url_of(service)).send(replace(NOTICE, arguments={"amount": 4711}, link=None))
    assert b"4711" not in service.got[0].body
    assert said(service) == [("a program wants to run refund", "refund, for order-1")]


@pytest.mark.parametrize(("name", "shown"), [
    ("[Approve](https://evil.example/r)", "[Approve] (https: //evil.example/r)"), ("@channel", "@ channel"),
    ("<!channel>", "< !channel>"), ("<https://evil.example|Approve>", "< https: //evil.example|Approve>"),
    ("WWW.evil.example", "WWW .evil.example"), ("shop/refund_2", "shop/refund_2"),
])  # fmt: skip
def test_a_name_is_no_link_and_no_mention(service: Receiver, name: str, shown: str) -> None:
    title = f"a program wants to run {name}"
    line = f"{title}; expires in 1h, at 2026-01-01 12:00Z"
    channel(url_of(service)).send(replace(NOTICE, title=title, line=line))
    link = "https://approvals.example.com/r/rq_1"
    assert said(service) == [(title.replace(name, shown), f"{line.replace(name, shown)}\n{link}")]


def test_an_outcome_is_a_message_of_its_own(service: Receiver) -> None:
    told: Notification = replace(NOTICE, event="outcome", title="refund: approved by ada", outcome="approved by ada")
    channel(url_of(service)).follow_up(told, None)
    assert said(service)[0][0] == "refund: approved by ada"


def test_a_service_that_fails_is_tried_again_alone(service: Receiver) -> None:
    with receiver() as other:
        other.status = 500
        phones = channel(url_of(service), url_of(other))
        for _ in range(2):
            with pytest.raises(DeliveryError, match="json did not accept"):
                phones.send(NOTICE)
        other.status = 200
        phones.send(NOTICE)
        assert (len(service.got), len(other.got)) == (1, 3)
        phones.send(replace(NOTICE, id="msg_8"))
        assert (len(service.got), len(other.got)) == (2, 4)


def test_no_redirect_is_followed(service: Receiver) -> None:
    with receiver() as other:
        service.status, service.headers = 307, {"location": other.url, "content-length": "0"}
        with pytest.raises(DeliveryError):
            channel(url_of(service)).send(NOTICE)
        assert other.got == []


def test_no_url_of_a_service_is_shown_or_logged(service: Receiver, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(1)
    logging.getLogger("apprise").setLevel(1)
    shown = list[str]()
    phones = channel(url_of(service))
    service.status = 500
    with pytest.raises(DeliveryError) as caught:
        phones.send(NOTICE)
    shown += [repr(phones), str(caught.value)]
    for wrong in ["hunter2://x", "json://", "hunter2", "json://127.0.0.1:hunter2/", "mailto://hunter2"]:
        with pytest.raises(errors.ConfigError, match="number 2") as refused:
            channel(url_of(service), wrong)
        shown.append(str(refused.value))
    assert "hunter2" not in "\n".join([*shown, caplog.text])
    assert repr(phones) == "AppriseChannel('phones', json)"


def test_urls_may_come_from_the_environment(service: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PHONES", f"{url_of(service)} {url_of(service)}2")
    channel(urls_env="PHONES").send(NOTICE)
    assert len(service.got) == 2


@pytest.mark.parametrize(
    ("settings", "wrong"),
    [({}, "urls is missing"), ({"urls": []}, "urls is missing"), ({"urls": "json://x"}, "a list"),
     ({"urls_env": "NOT_SET"}, "NOT_SET"), ({"urls": ["json://127.0.0.1"], "url": "x"}, "url is not known")],
)  # fmt: skip
def test_a_wrong_setting_is_refused(settings: dict[str, Any], wrong: str) -> None:
    with pytest.raises(errors.ConfigError, match=wrong):
        channel(**settings)
