"""A mention and an assignment send a message to that person: once, by the channels that reach them, in person."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from sayso import config
from sayso.channels import Notification, deliver, registry
from sayso.channels.outbox import Deliverer
from sayso.channels.registry import health
from sayso.model.reviewer import LOCAL, Identity
from sayso.stores.memory import MemoryStore
from sayso.testing import frozen_clock, sample_call

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
