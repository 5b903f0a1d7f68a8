"""A real `sayso notify` with every kind of channel: what is asked comes out, is decided there, and is told again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sayso import config
from sayso.model.request import State
from sayso.stores.base import Store
from sayso.testing import sample_call
from tests.channels.fake_slack import APP, BOT, CHANNEL, FakeSlack, fake_slack, texts_in
from tests.support.receiver import Receiver, receiver

pytestmark = pytest.mark.slow

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
SETTINGS = """
base_url = "https://approvals.example.com"

[channels.ops]
type = "webhook"
url = "http://127.0.0.1:{webhook}/hook"
secret_env = "OPS_SECRET"
allow_private = true

[channels.phones]
type = "apprise"
urls_env = "PHONES"

[channels.chat]
type = "slack"
bot_token_env = "SLACK_BOT"
app_token_env = "SLACK_APP"
channel = "{channel}"
api_url = "{slack}"

[channels.chat.people]
U1 = "ada"
"""


@pytest.fixture
def slack() -> Iterator[FakeSlack]:
    with fake_slack() as one:
        yield one


@pytest.fixture
def hook() -> Iterator[Receiver]:
    with receiver() as one:
        yield one


@pytest.fixture
def phones() -> Iterator[Receiver]:
    with receiver() as one:
        yield one


@pytest.fixture
def store(
    place: Path, slack: FakeSlack, hook: Receiver, phones: Receiver, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Store]:
    file = place / "sayso.toml"
    file.write_text(SETTINGS.format(webhook=hook.port, channel=CHANNEL, slack=slack.url), encoding="utf-8")
    file.chmod(0o600)
    url = f"sqlite:///{place / 'sayso.db'}"
    secrets = {"OPS_SECRET": SECRET, "PHONES": f"json://ada:hunter2@127.0.0.1:{phones.port}", "SLACK_BOT": BOT,
               "SLACK_APP": APP, "SAYSO_STORE": url}  # fmt: skip
    for name, value in secrets.items():
        monkeypatch.setenv(name, value)
    config.configure(store=url)
    return config.default_store()


@contextmanager
def notifying() -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "sayso", "notify"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=os.environ) as process:
        try:
            yield process
        finally:
            process.kill()


def until(fact: Callable[[], object], seconds: float = 30.0) -> None:
    """Look again and again until something that another process does is so."""
    deadline = time.monotonic() + seconds
    while not fact():
        assert time.monotonic() < deadline, "it did not come"
        time.sleep(0.02)


def said(slack: FakeSlack) -> str:
    return "\n".join(text["text"] for text in texts_in(list(slack.messages.values())))


def test_every_channel_is_told_slack_decides_and_every_channel_is_told_again(
    store: Store, slack: FakeSlack, hook: Receiver, phones: Receiver
) -> None:
    with notifying() as process:
        slack.connected()
        request = store.ask(sample_call(arguments={"amount": 471_147_114_711, "to": "canary"}))
        until(lambda: hook.got and phones.got and slack.messages)
        view = slack.opens("U1", next(iter(slack.messages.values())))
        slack.submit("U1", view, "approve")
        until(lambda: len(hook.got) == 2 and len(phones.got) == 2 and "approved by ada (slack)" in said(slack))
        process.send_signal(signal.SIGTERM)
        output, _ = process.communicate(timeout=30)
    decided = store.get(request.id)
    assert decided.state is State.APPROVED
    assert decided.decision is not None
    assert (decided.decision.by.qualified, decided.decision.channel) == ("local:ada", "slack")
    assert [json.loads(got.body)["type"] for got in hook.got] == ["request.asked", "request.decided"]
    assert len(slack.messages) == 1
    everything = b"".join([*(got.body for got in [*hook.got, *phones.got]), said(slack).encode(), output])
    assert b"canary" not in everything
    assert b"471147114711" not in everything  # a short number can be a part of a random id
    assert b"hunter2" not in everything


def test_a_test_goes_through_each_channel(store: Store, slack: FakeSlack, hook: Receiver, phones: Receiver) -> None:
    for name in ("ops", "phones", "chat"):
        done = subprocess.run(
            [sys.executable, "-m", "sayso", "notify", "--test", name], capture_output=True, timeout=60, check=False
        )
        assert (done.returncode, done.stdout.decode()) == (0, f"{name} sent a test message\n"), done.stderr
    assert json.loads(hook.got[0].body)["type"] == "test"
    assert len(phones.got) == 1
    assert "there is nothing to do" in said(slack)
