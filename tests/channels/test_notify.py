"""`sayso notify`, and what `sayso doctor` says of channels: real processes, and a channel that writes to a terminal.

A mention and an assignment send a message to that person: once, by the channels that reach them, in person.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

import sayso as package
from sayso import clock as sayso_clock
from sayso import config, errors
from sayso.channels import Notification, deliver, registry
from sayso.channels.outbox import Deliverer
from sayso.channels.registry import MOST_WAITING, TerminalChannel, health
from sayso.model.reviewer import LOCAL, Identity
from sayso.stores.base import Store
from sayso.stores.memory import MemoryStore
from sayso.testing import frozen_clock, sample_call
from tests.support.commands import ask_question, ask_refund, sayso

TERMINAL = '[channels.desk]\ntype = "terminal"\n'
NOBODY = """
[channels.ops]
type = "webhook"
url = "http://127.0.0.1:9/hook"  # nobody listens there
ports = [9]
allow_private = true
secret_env = "OPS_SECRET"
"""
TYPES = f"type must be one of {', '.join(registry._TYPES)}"
SECRET = {"OPS_SECRET": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"}


@pytest.fixture(autouse=True)
def store(file_store: Store, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Store]:
    """A store that the commands find by the environment, a reviewer, and a folder for settings."""
    monkeypatch.setenv("SAYSO_STORE", file_store.url)
    monkeypatch.setenv("SAYSO_REVIEWER", "ada")
    monkeypatch.delenv("SAYSO_BASE_URL", raising=False)
    folder = tmp_path / "program"
    folder.mkdir()
    monkeypatch.chdir(folder)
    yield file_store
    file_store.close()


def settings(text: str) -> None:
    Path("sayso.toml").write_text(text, encoding="utf-8")
    Path("sayso.toml").chmod(0o600)


def test_notify_once_sends_what_is_due_and_ends(store: Store) -> None:
    settings(TERMINAL)
    assert sayso("notify", "--once").out == "desk: 0 sent\n"
    request = ask_refund()
    done = sayso("notify", "--once", "--base-url", "https://sayso.example/")
    assert (done.code, done.out) == (0, "desk: 1 sent\n")
    assert "wants to run refund; risk high; expires in 24h" in done.err.replace("in 1d", "in 24h").replace("23h", "24h")
    assert f"https://sayso.example/r/{request.id}" in done.err
    assert "A-4721" not in done.err
    package.Review(store).reject(request.id, by="bob")
    assert "refund: rejected by bob (python)" in sayso("notify", "--once").err
    assert sayso("notify", "--once").err == ""


def test_notify_delivers_until_it_is_ended_by_a_signal() -> None:
    settings(TERMINAL)
    process = subprocess.Popen(
        [sys.executable, "-m", "sayso", "notify"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        assert process.stdout.readline() == "delivering to desk; press Ctrl-C to stop\n"
        assert "a new one is created" in process.stderr.readline()
        ask_refund()
        assert "wants to run refund" in process.stderr.readline()
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.communicate()


def test_notify_says_when_there_is_no_channel(store: Store) -> None:
    for words in ((), ("--once",), ("--backlog", "desk")):
        done = sayso("notify", *words)
        assert (done.code, done.out) == (1, "")
        assert "no channel is configured, so nobody can be notified" in done.err
        assert "there is no sayso.toml in this folder or above it; write [channels.NAME] with type =" in done.err
    settings('reviewer = "ada"\n')
    assert f"{Path('sayso.toml').absolute()} names none" in sayso("notify", "--once").err
    assert health(store) == []


def test_a_channel_announces_what_waited_before_its_first_run(store: Store) -> None:
    request = ask_refund()
    decided, question = ask_refund("A-2", run="decided"), ask_question(run="asked")
    package.Review(store).reject(decided.id, by="bob")
    settings(TERMINAL)
    done = sayso("notify", "--once", "--base-url", "https://sayso.example/")
    assert (done.code, done.out) == (0, "desk: 2 sent\n")
    assert [f"/r/{one.id}" in done.err for one in (request, question, decided)] == [True, True, False]
    assert sayso("notify", "--once").out == "desk: 0 sent\n"
    package.Review(store).approve(request.id, by="bob")
    assert "refund: approved by bob (python)" in sayso("notify", "--once").err


def test_a_channel_that_would_announce_a_flood_at_its_first_run_says_so(store: Store) -> None:
    for number in range(MOST_WAITING + 1):
        store.ask(sample_call("batch", {"amount": number}))
    settings(TERMINAL)
    done = sayso("notify", "--once")
    assert (done.code, done.out) == (0, "desk: 0 sent\n")
    assert "51 requests were pending before the channel desk was added" in done.err
    assert "`sayso notify --backlog desk` announces them" in done.err
    ask_refund()
    done = sayso("notify", "--once")
    assert (done.out, done.err.count("wants to run refund")) == ("desk: 1 sent\n", 1)
    assert "sayso.toml has no channel 'desc' (it has desk)" in sayso("notify", "--backlog", "desc").err
    assert sayso("notify", "--backlog", "desk").out == "desk: 51 sent\n"
    assert sayso("notify", "--backlog", "desk").out == "desk: 0 sent\n"


def test_a_channel_whose_first_deliverer_died_announces_what_waited_all_the_same(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    request = ask_refund()

    def dies(_: Store, __: str) -> int:
        raise SystemExit

    with monkeypatch.context() as patch:
        patch.setattr(registry, "announce_waiting", dies)
        with pytest.raises(SystemExit):
            registry.register(store, [TerminalChannel("desk")], by="settings")
    settings(TERMINAL)
    done = sayso("notify", "--once")
    assert done.out == "desk: 1 sent\n"
    assert request.call.name in done.err


def test_a_test_message_goes_through_one_channel_and_no_request_is_needed(store: Store) -> None:
    settings(TERMINAL)
    done = sayso("notify", "--test", "desk")
    assert (done.code, done.out) == (0, "desk sent a test message\n")
    assert "a test of the channel desk" in done.err
    assert health(store) == []
    unknown = sayso("notify", "--test", "nobody")
    assert unknown.code == 1
    assert "has no channel 'nobody' (it has desk); nothing was sent" in unknown.err


def test_a_channel_that_fails_is_told_by_the_command_and_by_doctor_and_the_gate_goes_on(store: Store) -> None:
    settings(NOBODY)
    assert sayso("notify", "--once", **SECRET).out == "ops: 0 sent\n"
    request = ask_refund()
    done = sayso("notify", "--once", **SECRET)
    assert (done.code, done.out) == (1, "ops: 0 sent, 1 failed\n")
    found = sayso("doctor", "--json", **SECRET)
    assert found.code == 1
    (wrong,) = found.data["wrong"]
    assert wrong["name"] == "channel ops"
    assert wrong["problem"].startswith("1 messages failed and will be retried: ")
    assert "ConnectionRefusedError" in wrong["problem"]
    assert package.Review(store).approve(request.id, by="bob").state == "approved"
    assert sayso("notify", "--test", "ops", **SECRET).code == 1


def test_a_channel_that_is_forgotten_is_owed_nothing_more(store: Store) -> None:
    settings(TERMINAL)
    sayso("notify", "--once")
    Path("sayso.toml").unlink()
    ask_refund()
    assert [one.waiting for one in health(store)] == [1]
    assert sayso("notify", "--forget", "desk").code == 0
    assert health(store) == []
    again = sayso("notify", "--forget", "desk")
    assert (again.code, "no channel 'desk' is known" in again.err) == (1, True)


def test_a_channel_that_was_taken_out_of_the_settings_is_forgotten_by_the_next_deliverer(store: Store) -> None:
    settings(TERMINAL)
    sayso("notify", "--once")
    settings(TERMINAL.replace("desk", "other"))
    sayso("notify", "--once")
    assert [one.name for one in health(store)] == ["other"]


def test_doctor_is_content_with_a_channel_that_works() -> None:
    settings(TERMINAL)
    ask_refund()
    assert "configured, nothing delivered yet" in sayso("doctor").out
    sayso("notify", "--once")
    ask_refund("A-4722")
    sayso("notify", "--once")
    done = sayso("doctor")
    assert (done.code, "terminal, last sent" in done.out) == (0, True)


@pytest.mark.parametrize("has_store", [True, False], ids=["store", "no store yet"])
@pytest.mark.parametrize(
    ("text", "kind", "words"),
    [
        ('type = "pigeon"', "pigeon", f"{TYPES}, not 'pigeon'"),
        ("", "no type", f"{TYPES}, not None"),
        ('type = "slack"', "slack", "bot_token_env is missing"),
        (
            'type = "webhook"\nurl = "https://a.example/"\nsecret_env = "UNSET"',
            "webhook",
            "names the environment variable 'UNSET', which is not set",
        ),
        ('type = "webhook"\nurl = "http://a.example/"\nsecret_env = "OPS_SECRET"', "webhook", "https://"),
        (
            f'type = "webhook"\nurl = "https://a.example/"\nsecret_env = "{SECRET["OPS_SECRET"]}"',
            "webhook",
            "must be the name of an environment variable",
        ),
    ],
)
def test_doctor_finds_a_channel_that_can_never_send(
    monkeypatch: pytest.MonkeyPatch, has_store: bool, text: str, kind: str, words: str
) -> None:
    settings(f"[channels.ops]\n{text}\n")
    if has_store:
        ask_refund()
    else:
        monkeypatch.delenv("SAYSO_STORE")
    done = sayso("doctor", "--json", **SECRET)
    (wrong,) = done.data["wrong"]
    assert (done.code, wrong["name"]) == (1, "channel ops")
    assert words in wrong["problem"]
    assert wrong["problem"].endswith("; the channel sends no messages")
    assert done.data["found"]["channel ops"] == f"{kind}, configured, nothing delivered yet"
    assert SECRET["OPS_SECRET"] not in done.out


def test_doctor_finds_that_a_channel_which_worked_lost_its_secret() -> None:
    settings(NOBODY)
    sayso("notify", "--once", **SECRET)
    assert sayso("doctor", **SECRET).code == 0
    done = sayso("doctor")
    assert done.code == 1
    assert "webhook, nothing sent yet" in done.out
    assert "'OPS_SECRET', which is not set" in done.out


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[channels.desk]\ntype = "pigeon"', f"{TYPES}, not 'pigeon'"),
        ("[channels.desk]", f"{TYPES}, not None"),
        ('[channels.desk]\ntype = "queue"', "a queue exists only inside a program"),
        ('[channels.desk]\ntype = "terminal"\nloud = true', "loud is not known"),
        ('[channels."a/b"]\ntype = "terminal"', "a channel's name has 1 to 40 characters of"),
        ("[channels]\ndesk = 5", "channels.desk must be a table"),
        ("channels = 5", "channels must be a table"),
        ('base_url = "javascript:alert(1)"', "base_url must begin with https://"),
        ('base_url = "https://a b"', "base_url must begin with https://"),
    ],
)
def test_settings_that_cannot_be_used_are_refused_and_nothing_is_sent(store: Store, text: str, words: str) -> None:
    settings(text)
    done = sayso("notify", "--once")
    assert done.code == 1
    assert words in done.err
    assert health(store) == []


def test_an_extra_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "slack_sdk", None)
    monkeypatch.delitem(sys.modules, "sayso.channels.slack", raising=False)
    with pytest.raises(errors.ConfigError, match=r"channel ops needs the extra `slack`.*pip install 'sayso\[slack\]'"):
        registry.make("ops", {"type": "slack"})


def test_the_settings_make_channels_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    settings('base_url = "https://sayso.example/"\n' + TERMINAL)
    assert list(config.channel_tables()) == ["desk"]
    assert isinstance(registry.configured()["desk"], TerminalChannel)
    assert config.base_url() == "https://sayso.example"
    monkeypatch.setenv("SAYSO_BASE_URL", "http://other.example")
    assert config.base_url() == "http://other.example"
    assert config.table("serve") == {}


def test_show_and_its_json_say_who_else_may_decide_and_that_it_came_about(store: Store) -> None:
    @package.gate(
        wait="raise", roles={"finance"}, escalate_after="2h", escalate_to=["cfo", package.Reviewer("carol")]
    )  # fmt: skip
    def pay(amount: int) -> int:
        return amount

    with pytest.raises(package.ConfirmationRequired) as held:
        pay(1)
    request_id = held.value.confirmation_id
    before = sayso("show", request_id).out
    assert "  escalates      in " in before
    assert "  to the role    cfo\n  to             carol\n" in before
    found = sayso("show", request_id, "--json").data["escalation"]
    assert (found["roles"], found["people"], found["escalated_at"]) == (["cfo"], ["local:carol"], None)
    later = sayso_clock.now() + timedelta(hours=2)
    with sayso_clock.use(lambda: later):
        package.Review(store).get(request_id)
    after = sayso("show", request_id).out
    assert "  escalated      " in after
    assert "escalated   " in after.partition("what happened")[2]
    assert 'to: "the role cfo or carol"' in after


ADA, BOB, CAROL, ZOE = (Identity(LOCAL, name) for name in ("ada", "bob", "carol", "zoe"))


class Chat:
    """A channel that reaches people, remembers what it was given, and fails when it is told to."""

    def __init__(self, name: str, *people: Identity) -> None:
        self.name, self.people = name, people
        self.said, self.fails = list[Notification](), False

    def send(self, notification: Notification) -> None:
        if self.fails:
            raise OSError("nobody is there")
        self.said.append(notification)

    def follow_up(self, notification: Notification, reference: str | None) -> None:
        raise NotImplementedError

    def personal(self, deliverers: list[Deliverer]) -> list[tuple[str, str | None, str]]:
        for one in deliverers:
            one.deliver_due()
        found = [(one.event, one.to, one.title.partition(": ")[0]) for one in self.said if one.to is not None]
        self.said.clear()
        return found


def test_a_person_is_told_once_by_the_channels_that_reach_them_and_who_stands_in_too() -> None:
    with frozen_clock() as clock:
        store, chat, hook = MemoryStore(), Chat("chat", ADA, BOB, CAROL), Chat("hook")
        with deliver(store, [chat, hook], runs=False) as deliverers:
            request = store.ask(sample_call())

            def assign(to: Identity) -> None:
                store.assign(
                    request.id, CAROL, to=to, to_roles=None, roles=(), force=True, channel="test"
                )  # fmt: skip

            assign(ADA)
            assert chat.personal(deliverers) == [("assigned", "local:ada", "carol assigned to you")]
            assert hook.personal(deliverers) == []
            store.comment(request.id, CAROL, text="@ada and @local:Bob, and @carol, and @zoe", channel="test")
            said = chat.personal(deliverers)
            assert sorted(said) == [("mentioned", f"local:{name}", "carol mentions you") for name in ("ada", "bob")]
            assign(ZOE)  # whom no channel reaches
            assign(CAROL)  # who did it herself
            assert chat.personal(deliverers) == []
            store.delegate(ADA, to=BOB, until=clock() + timedelta(hours=1), channel="test")
            assign(ADA)
            assert sorted(chat.personal(deliverers)) == [
                ("assigned", "local:ada", "carol assigned to you"),
                ("assigned", "local:bob", "carol assigned to ada (away, you stand in)"),
            ]
            chat.fails = True
            store.comment(request.id, CAROL, text="and again, @ada, @bob", channel="test")
            assert chat.personal(deliverers) == []
            assert health(store)[0].failing == 2
            chat.fails = False
            clock.tick(seconds=5)
            assert {one[1] for one in chat.personal(deliverers)} == {"local:ada", "local:bob"}
            assert [one.key for one in store.records("delivery/chat")] == [request.id]
            chat.fails = True
            store.comment(request.id, CAROL, text="@ada", channel="test")
            deliverers[0].deliver_due()
            store.withdraw(request.id, request.requester)
            chat.fails = False
            clock.tick(seconds=60)
            assert chat.personal(deliverers) == []  # it is over
            quiet = store.ask(sample_call(channels=("hook",)))
            store.comment(quiet.id, CAROL, text="@ada", channel="test")
            assert chat.personal(deliverers) == []  # the gate's author named other channels


def test_the_settings_say_whom_a_webhook_reaches(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOOK", "whsec_" + "A" * 32)
    table = 'type = "webhook"\nurl = "https://example.com/x"\nsecret_env = "HOOK"\n'
    (place / "sayso.toml").write_text(
        f'[channels.ada]\n{table}people = ["ada", {{ name = "bob", issuer = "corp" }}]\n[channels.ops]\n{table}'
    )
    found = {name: registry.make(name, settings) for name, settings in config.channel_tables().items()}
    assert found["ada"].people == (ADA, Identity("corp", "bob"))  # pyright: ignore[reportAttributeAccessIssue]
    store = MemoryStore()
    registry.register(store, found.values(), by="settings")
    bodies = {one.key: one.body.get("people") for one in store.records("channel")}
    assert bodies == {"ada": ["corp:bob", "local:ada"], "ops": None}
