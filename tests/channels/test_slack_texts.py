"""What Slack shows of texts that want to deceive: plain text only, every character visible, and the call first."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from sayso.channels import slack_review as show
from sayso.channels.registry import Notification
from sayso.model.request import Request
from sayso.model.text import escape
from sayso.testing import sample_call, sample_question
from tests.channels.fake_slack import texts_in

NOW = datetime(2026, 1, 1, tzinfo=UTC)
_MARKS = [
    "<https://evil.example|Approve>", "<!channel>", "<!here>", "<@U1>", "<#C1>", "<mailto:a@b.example|x>",
    "*b* _i_ ~s~", "`code` ```block```", ":white_check_mark:", "[Approve](https://evil.example)",
    "<script>alert(1)</script>", "https://evil.example/approve", "&lt;b&gt; &amp;", "> quoted", "approved by ada",
]  # fmt: skip
_AROUND = [
    "{}", "\n{}\n", "\u202e{}", "\u200b{}\u2060", "\x1b[31m{}", "\r{}", "x\n\nWhat would run\n{}", "{}\U000e0041",
    "\ufeff{}\u3164", "a\u0300{}\u2028",
]  # fmt: skip
PAYLOADS = [around.format(mark) for mark in _MARKS for around in _AROUND]


def hostile(text: str) -> list[Request]:
    arguments = {"amount": 1, "to": text, "password": text}
    return [
        sample_call(
            arguments=arguments,
            prompt=text,
            description=text,
            rule=text,
            context={text: text},
            risk=text,
            title=text,
            summary=text,
            effect=text,
        ),
        sample_question(text=text, prompt=text),
    ]


def notification(text: str, event: Any) -> Notification:
    return Notification(
        id="msg_1", event=event, request_id="rq_" + "1" * 32, run_id=text, tool=text, kind="call", risk=None,
        state="pending", fingerprint="f", title=escape(text), line=escape(text), link=None, asked_at=NOW,
        expires_at=NOW, arguments={text: text}, outcome=escape(text),
        program_title=escape(text), summary=escape(text),
    )  # fmt: skip


def test_there_are_150_payloads() -> None:
    assert len(set(PAYLOADS)) == 150


def test_every_text_is_plain_and_visible() -> None:
    for text in PAYLOADS:
        asked = show.message(notification(text, "asked"), can_review=True)
        ended = show.outcome(notification(text, "outcome"))
        for thing in [*(show.modal(request, NOW, link=None) for request in hostile(text)), asked, ended]:
            assert thing is not None
            texts = texts_in(thing)
            assert {(one["type"], one["emoji"]) for one in texts} == {("plain_text", False)}
            assert all(one["text"] == escape(one["text"], block=True) or "<U+" in one["text"] for one in texts)
            said = json.dumps([one["text"] for one in texts], ensure_ascii=False)
            assert not set(said) & set("\u202e\u200b\u2060\x1b\r\U000e0041\ufeff\u3164\u2028")
        assert "evil" not in asked["text"] + ended["text"]


def test_what_would_run_is_the_same_whatever_the_program_says() -> None:
    call = {"amount": 1, "to": "alice"}
    plain = show.modal(sample_call("run_a", call), NOW, link=None)
    assert plain is not None
    assert plain["blocks"][0]["text"]["text"] == "What would run"
    for text in PAYLOADS[::7]:
        prompted = show.modal(sample_call("run_a", call, prompt=text, rule=text), NOW, link=None)
        assert prompted is not None
        assert plain["blocks"][:2] == prompted["blocks"][:2]
