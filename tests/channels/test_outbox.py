"""Messages leave by channels: each one once, at least once, later where a channel fails, and never in a gate's way."""

from __future__ import annotations

import asyncio
import json
import queue
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import sayso
from sayso import errors
from sayso.channels import Notification, UndeliverableError, deliver, forget, health, queue_channel, registry
from sayso.channels.outbox import GIVES_UP_AFTER, LEASE, RETENTION, Deliverer
from sayso.channels.webhook import document
from sayso.model.ids import new_token
from sayso.model.lifecycle import Outcome
from sayso.model.request import Decision, Request
from sayso.model.reviewer import LOCAL, Escalation, Identity, Quorum
from sayso.stores import transaction
from sayso.stores.base import Store
from sayso.stores.memory import MemoryStore
from sayso.stores.records import Record
from sayso.stores.sqlite import SqliteStore
from sayso.testing import Clock, frozen_clock, sample_call, sample_question
from tests.support.acting import held

ADA = Identity(LOCAL, "ada")


class Chat:
    """A channel that remembers what it was given, and fails when it is told to."""

    def __init__(self, name: str = "ops", fault: Exception | None = None) -> None:
        self.name, self.fault = name, fault
        self.said: list[Notification] = []
        self.edits: list[tuple[Notification, str | None]] = []
        self.tries = 0

    def send(self, notification: Notification) -> str | None:
        self.tries += 1
        if self.fault is not None:
            raise self.fault
        self.said.append(notification)
        return f"ref-{len(self.said)}"

    def follow_up(self, notification: Notification, reference: str | None) -> None:
        self.tries += 1
        if self.fault is not None:
            raise self.fault
        self.edits.append((notification, reference))

    @property
    def events(self) -> list[str]:
        return [notification.event for notification in self.said]


class Desk:
    """A store with one channel, and somebody who delivers to it."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self.store, self.clock, self.chat = store, clock, Chat()
        self.deliverer = self.another(self.chat)

    def another(self, chat: Chat) -> Deliverer:
        registry.register(self.store, [chat], by="program")
        return Deliverer(self.store, chat, "https://sayso.example")

    def ask(self, **fields: Any) -> Request:
        return self.store.ask(sample_call(**fields))

    def decide(self, verb: Any, request: Request, by: Identity = ADA) -> Request:
        request = self.store.get(request.id)
        decision = Decision(verb, by, self.clock(), "browser", "a comment", request.current_fingerprint)
        return self.store.decide(request.id, decision, roles={"finance"}, seen=None)

    def finish(self, request: Request, state: Any = "done") -> Request:
        token = new_token()  # a token starts a call once
        self.store.start(request.id, token)
        return self.store.finish(request.id, token, Outcome(state))

    def run(self) -> int:
        return self.deliverer.deliver_due()

    def owed(self) -> list[Any]:
        return list(self.store.records(transaction.delivery_kind("ops")))


@pytest.fixture
def clock() -> Iterator[Clock]:
    with frozen_clock() as frozen:
        yield frozen


@pytest.fixture
def desk(clock: Clock, tmp_path: Path) -> Iterator[Desk]:
    store = SqliteStore(tmp_path / "sayso.db")
    yield Desk(store, clock)
    store.close()


# -- what is said -----------------------------------------------------------------------------------------------------


def test_a_request_is_announced_once_and_its_outcome_follows_the_message(desk: Desk) -> None:
    request = desk.ask(risk="high")
    assert (desk.run(), desk.run()) == (1, 0)
    (asked,) = desk.chat.said
    assert asked.title == "tests (program) wants to run pay"
    assert asked.line == f"{asked.title}; risk high; expires in 1d, at 2026-01-02 12:00:00Z"
    assert asked.link == f"https://sayso.example/r/{request.id}"
    assert (asked.tool, asked.state, asked.outcome, asked.fingerprint) == ("pay", "pending", None, request.fingerprint)
    desk.decide("approve", request)
    assert (desk.run(), desk.run()) == (1, 0)
    desk.finish(request)
    assert (desk.run(), desk.run()) == (1, 0)
    assert [(notification.outcome, reference) for notification, reference in desk.chat.edits] == [
        ("approved by ada (browser), not run yet", "ref-1"),
        ("approved by ada (browser), executed", "ref-1"),
    ]
    ids = {notification.id for notification in [asked, *(notification for notification, _ in desk.chat.edits)]}
    assert len(ids) == 3
    assert desk.owed() == []  # nothing can happen to it any more


@pytest.mark.parametrize(
    ("verb", "outcome"),
    [
        ("reject", "rejected by ada (browser)"),
        ("feedback", "sent back with feedback by ada (browser)"),
        ("cancel", "cancelled by ada (browser)"),
    ],
)
def test_each_decision_is_told_with_who_and_through_which_channel(desk: Desk, verb: str, outcome: str) -> None:
    request = desk.ask()
    desk.run()
    desk.decide(verb, request)
    desk.run()
    assert [notification.outcome for notification, _ in desk.chat.edits] == [outcome]
    assert desk.owed() == []


def test_an_expired_request_and_a_withdrawn_one_are_told_so(desk: Desk) -> None:
    expired, withdrawn = desk.ask(), desk.ask(expires_at=desk.clock() + timedelta(days=9))
    desk.run()
    desk.clock.tick("24h")
    desk.store.sweep()
    desk.store.withdraw(withdrawn.id, withdrawn.requester)
    desk.run()
    told = {notification.request_id: notification.outcome for notification, _ in desk.chat.edits}
    assert told == {expired.id: "expired without a decision", withdrawn.id: "withdrawn by the program"}


def test_what_is_decided_before_it_was_announced_is_one_message_that_says_it_all(desk: Desk) -> None:
    request = desk.ask()
    desk.decide("approve", request)
    desk.finish(request)
    assert desk.run() == 1
    (notification,) = desk.chat.said
    assert (notification.event, notification.outcome) == ("outcome", "approved by ada (browser), executed")
    assert desk.chat.edits == []
    assert desk.owed() == []


def test_a_call_that_is_tried_again_is_told_when_it_has_ended(desk: Desk) -> None:
    request = desk.ask(retries=1)
    desk.run()
    desk.decide("approve", request)
    desk.run()
    desk.finish(request, "failed")
    assert desk.run() == 0
    desk.finish(request)
    desk.run()
    assert [notification.state for notification, _ in desk.chat.edits] == ["approved", "done"]


def test_a_question_is_announced_without_its_words(desk: Desk) -> None:
    desk.store.ask(sample_question(text="Is canary the password?"))
    desk.run()
    (notification,) = desk.chat.said
    assert notification.title == "tests (program) asks a question"
    assert "canary" not in repr(notification)


def test_a_message_carries_no_argument_prompt_context_or_comment(desk: Desk) -> None:
    words = {name: f"canary-{name}" for name in ("prompt", "description", "rule", "title", "summary")}
    request = desk.store.ask(
        sample_call(None, {"amount": 471_147_114_711, "to": "canary-to"}, context={"a": "canary-context"}, **words)
    )
    desk.run()
    desk.decide("reject", request)
    desk.run()
    everything = repr([*desk.chat.said, *desk.chat.edits])
    assert "canary" not in everything
    assert "471147114711" not in everything  # a short number can be a part of a random id
    assert "a comment" not in everything


def test_a_gate_that_opts_in_sends_its_arguments_masked(desk: Desk) -> None:
    arguments = {"amount": 4_711, "to": "alice", "password": "canary-secret"}
    desk.store.ask(sample_call(None, arguments, notify_arguments=True))
    desk.run()
    (notification,) = desk.chat.said
    assert notification.arguments is not None
    assert (notification.arguments["amount"], notification.arguments["to"]) == (4_711, "alice")
    assert "canary" not in repr(notification)


def test_a_gate_that_opts_in_sends_its_title_and_summary_with_secrets_masked(desk: Desk) -> None:
    @sayso.gate(
        wait="raise", store=desk.store, notify_arguments=True, title="Refund\u202e an order",
        summary="Refund {amount} with {password}",
    )  # fmt: skip
    def refund(amount: int, password: str) -> None:
        raise AssertionError(amount)

    with pytest.raises(sayso.ConfirmationRequired):
        refund(4_711, "canary-secret")
    desk.run()
    (notification,) = desk.chat.said
    assert (notification.program_title, notification.summary) == ("Refund<U+202E> an order", "Refund 4711 with ***")
    assert document(notification)["data"]["program_says"] == {
        "title": "Refund<U+202E> an order", "summary": "Refund 4711 with ***",
    }  # fmt: skip
    assert "4711" not in notification.title + notification.line


def test_the_option_of_a_gate_and_of_a_tool_reaches_the_message(desk: Desk) -> None:
    @sayso.gate(wait="raise", store=desk.store)
    def quiet(amount: int) -> None:
        raise AssertionError(amount)

    @sayso.gate(wait="raise", store=desk.store, notify_arguments=True)
    def loud(amount: int) -> None:
        raise AssertionError(amount)

    def pay(amount: int) -> None:
        raise AssertionError(amount)

    for function in (quiet, loud):
        with pytest.raises(sayso.ConfirmationRequired):
            function(4_711)
    for said in (False, True):
        tool = sayso.Tool(pay, name=f"pay_{said}", requires_approval=True, store=desk.store, notify_arguments=said)
        with pytest.raises(sayso.ConfirmationRequired):
            tool.call(amount=4_711)
    desk.run()
    told = {notification.tool: notification.arguments for notification in desk.chat.said}
    arguments = {"amount": 4_711}
    assert told == {"quiet": None, "loud": arguments, "pay_False": None, "pay_True": arguments}


def test_what_a_program_named_itself_cannot_deceive_in_a_message(desk: Desk) -> None:
    who = Identity("program", "bot; approved by ada")
    desk.ask(requester=who, risk="low\n\x1b[2K\u202e high", run_id="run\u202e\x1b")
    desk.run()
    (notification,) = desk.chat.said
    assert notification.title.startswith('"bot; approved by ada" (program) wants to run')
    shown = notification.line + notification.title + notification.run_id + str(notification.risk)
    assert shown.isprintable()
    assert "\u202e" not in shown


# -- reminders and escalations ----------------------------------------------------------------------------------------


def test_reminders_come_at_half_and_nine_tenths_of_the_time_and_once_each(desk: Desk) -> None:
    desk.ask(expires_at=desk.clock() + timedelta(hours=10))
    told: list[tuple[int, list[str]]] = []
    for minute in range(0, 600, 5):
        desk.run()
        if len(desk.chat.said) > len(told):
            told.append((minute, desk.chat.events))
        desk.clock.tick(minutes=5)
    assert [minute for minute, _ in told] == [0, 300, 540]
    assert desk.chat.events == ["asked", "reminder", "reminder"]
    assert len({notification.id for notification in desk.chat.said}) == 3
    assert desk.chat.said[1].title == "still waiting: tests (program) wants to run pay"


def test_a_deliverer_knows_when_the_next_reminder_is_due(desk: Desk) -> None:
    request = desk.ask(expires_at=desk.clock() + timedelta(seconds=40))
    desk.run()
    assert desk.owed()[0].due == request.created_at + timedelta(minutes=1)  # not within a minute of the announcement
    request = desk.ask(expires_at=desk.clock() + timedelta(hours=1))
    desk.run()
    assert {record.due for record in desk.owed() if record.key == request.id} == {
        request.created_at + timedelta(minutes=30)
    }


def test_nobody_is_reminded_of_what_is_decided(desk: Desk) -> None:
    request = desk.ask()
    desk.run()
    desk.decide("reject", request)
    desk.run()
    desk.clock.tick("23h")
    assert desk.run() == 0
    assert desk.chat.events == ["asked"]


def test_what_is_announced_late_is_not_reminded_of_at_once(desk: Desk) -> None:
    desk.ask()
    desk.clock.tick("23h")
    desk.run()
    desk.clock.tick("30m")
    desk.run()
    assert desk.chat.events == ["asked"]


def test_an_escalation_is_announced_once_and_names_whom(desk: Desk) -> None:
    escalation = Escalation(timedelta(hours=1), frozenset({"cfo"}))
    desk.ask(quorum=Quorum(1, {"finance"}), escalation=escalation)
    desk.run()
    desk.clock.tick("1h")
    desk.store.sweep()
    assert (desk.run(), desk.run()) == (1, 0)
    assert desk.chat.said[-1].title == "escalated to the role cfo: tests (program) wants to run pay"
    assert desk.chat.events == ["asked", "escalated"]


def test_whom_an_escalation_names_has_little_room_in_a_title(desk: Desk) -> None:
    roles = {"a. All clear: nothing is to be done. " * 50, *(f"z{number}" for number in range(20))}
    desk.ask(quorum=Quorum(1, {"finance"}), escalation=Escalation(timedelta(hours=1), roles))
    desk.run()
    desk.clock.tick("1h")
    desk.store.sweep()
    desk.run()
    title = desk.chat.said[-1].title
    assert desk.chat.events[-1] == "escalated"
    assert len(title) < 250
    assert title.startswith('escalated to the role "a. All clear')
    assert title.endswith("or the role z1 or 18 more: tests (program) wants to run pay")


def test_the_options_of_a_gate_escalate_its_requests(desk: Desk) -> None:
    @sayso.gate(
        wait="raise", store=desk.store, roles={"finance"}, escalate_after="2h",
        escalate_to=["cfo", sayso.Reviewer("carol")],
    )  # fmt: skip
    def pay(amount: int) -> int:
        return amount

    with pytest.raises(sayso.ConfirmationRequired):
        pay(1)
    desk.clock.tick("2h")
    review = sayso.Review(desk.store, reviewer=sayso.Reviewer("bob", roles={"cfo"}))
    (request,) = review.list().requests
    assert request.escalated_at == desk.clock()
    review.approve(request.id)
    assert pay(1) == 1


def test_a_request_that_cannot_be_escalated_holds_up_no_other(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    @sayso.gate(wait="raise", store=desk.store, roles={"finance"}, escalate_after="2h", escalate_to=["cfo"])
    def pay(amount: int) -> int:
        return amount

    first, second = held(pay, 1).confirmation_id, held(pay, 2).confirmation_id
    settle = desk.store.settle

    def settles(request_id: str, **options: Any) -> Request:
        if request_id == first:
            raise errors.StoreCorruptError(f"the row of {first} was altered")
        return settle(request_id, **options)

    monkeypatch.setattr(desk.store, "settle", settles)
    desk.clock.tick("2h")
    assert desk.store.sweep() == 1
    assert desk.store.get(second).escalated_at == desk.clock()
    assert first in caplog.text


def test_a_gate_that_names_nobody_else_any_more_does_not_take_an_escalated_approval(desk: Desk) -> None:
    def gated(**options: Any) -> Any:
        @sayso.gate(wait="raise", store=desk.store, roles={"finance"}, name="pay", **options)
        def pay(amount: int) -> int:
            return amount

        return pay

    with sayso.run("order-1"):
        with pytest.raises(sayso.ConfirmationRequired):
            gated(escalate_after="2h", escalate_to=["cfo"])(1)
        desk.clock.tick("2h")
        review = sayso.Review(desk.store, reviewer=sayso.Reviewer("bob", roles={"cfo"}))
        (request,) = review.list().requests
        review.approve(request.id)
        with pytest.raises(sayso.ConfirmationRequired) as held:
            gated()(1)
        assert held.value.confirmation_id != request.id


def test_a_hold_that_says_who_must_agree_is_not_opened_to_whom_the_gate_names(desk: Desk) -> None:
    def rule(amount: int) -> Any:
        if amount > 10:
            return sayso.policy.hold(roles={"board"})
        return sayso.policy.hold(escalate_after="1h", escalate_to=["lead"]) if amount > 5 else True

    @sayso.gate(
        when=rule, wait="raise", store=desk.store, roles={"finance"}, escalate_after="2h", escalate_to=["cfo"]
    )  # fmt: skip
    def pay(amount: int) -> int:
        return amount

    for amount in (1, 6, 11):
        with pytest.raises(sayso.ConfirmationRequired):
            pay(amount)
    found = {
        request.call.arguments["amount"]: request.escalation for request in sayso.Review(desk.store).list().requests
    }
    assert found == {
        1: Escalation(timedelta(hours=2), frozenset({"cfo"})),
        6: Escalation(timedelta(hours=1), frozenset({"lead"})),
        11: None,
    }


@pytest.mark.parametrize(
    "options",
    [
        {"escalate_after": "1h"},
        {"escalate_to": ["cfo"]},
        {"escalate_after": "1h", "escalate_to": "cfo"},
        {"escalate_after": "1h", "escalate_to": [7]},
        {"escalate_after": "1h", "escalate_to": [""]},
        {"escalate_after": "soon", "escalate_to": ["cfo"]},
        {"escalate_after": "24h", "escalate_to": ["cfo"]},
        {"notify_arguments": "yes"},
    ],
)
def test_an_escalation_that_cannot_be_is_refused_where_it_is_declared(options: dict[str, Any]) -> None:
    def pay(amount: int) -> int:
        return amount

    with pytest.raises(errors.ConfigError):
        sayso.gate(**options)(pay)
    with pytest.raises(errors.ConfigError):
        sayso.Tool(pay, requires_approval=True, **options).gate  # noqa: B018  the gate is made when it is wanted


# -- failures ---------------------------------------------------------------------------------------------------------


def test_a_failing_channel_is_tried_again_ever_later_and_then_given_up(desk: Desk) -> None:
    desk.ask(expires_at=desk.clock() + timedelta(days=5))
    desk.chat.fault = OSError("no route")
    waits: list[float] = []
    while not desk.owed()[0].body.get("given_up"):
        at = desk.clock()
        assert desk.run() == 0
        due = desk.owed()[0].due
        assert due is not None
        waits.append((due - at).total_seconds())
        assert len(waits) < 50
        desk.clock.at = due
    assert waits[:11] == [5, 10, 20, 40, 80, 160, 320, 640, 1280, 2560, 3600]
    assert set(waits[10:-1]) == {3600}
    assert timedelta(seconds=sum(waits[:-1])) >= GIVES_UP_AFTER
    (found,) = health(desk.store)
    assert (found.given_up, found.failing, found.error) == (1, 0, "OSError: no route")
    assert found.problem == "1 were given up: OSError: no route"
    tries = desk.chat.tries
    desk.clock.tick(RETENTION)
    desk.run()
    assert (desk.chat.tries, desk.owed()) == (tries, [])


def test_a_channel_that_works_again_gets_what_it_missed_once(desk: Desk) -> None:
    desk.ask()
    desk.chat.fault = OSError("no route")
    desk.run()
    (found,) = health(desk.store)
    assert (found.failing, found.waiting) == (1, 0)
    assert found.problem == "1 messages failed and will be retried: OSError: no route"
    desk.chat.fault = None
    assert desk.run() == 0  # not before its time
    desk.clock.tick(seconds=5)
    assert (desk.run(), desk.run()) == (1, 0)
    (found,) = health(desk.store)
    assert (found.failing, found.problem) == (0, None)


def test_what_a_channel_calls_undeliverable_is_not_tried_again(desk: Desk) -> None:
    request = desk.ask()
    desk.chat.fault = UndeliverableError("gone for good")
    desk.run()
    desk.chat.fault = None
    desk.clock.tick("5h")
    desk.decide("reject", request)
    assert desk.run() == 0
    assert desk.chat.tries == 1
    assert health(desk.store)[0].given_up == 1


def test_a_failing_channel_is_in_no_gates_and_no_other_channels_way(desk: Desk) -> None:
    calls: list[int] = []

    @sayso.gate(wait="raise", store=desk.store)
    def pay(amount: int) -> None:
        calls.append(amount)

    other = Chat("desk")
    second = desk.another(other)
    desk.chat.fault = RuntimeError("whatever")
    with pytest.raises(sayso.ConfirmationRequired) as held:
        pay(1)
    assert (desk.run(), second.deliver_due()) == (0, 1)
    sayso.Review(desk.store).approve(held.value.confirmation_id, by="bob")
    pay(1)
    assert calls == [1]


# -- who delivers -----------------------------------------------------------------------------------------------------


def test_what_cannot_be_read_holds_up_no_other_message(desk: Desk, tmp_path: Path) -> None:
    removed, altered, owed, fine = (desk.ask() for _ in range(4))
    with closing(sqlite3.connect(tmp_path / "sayso.db")) as file, file:
        file.execute("DELETE FROM request WHERE id = ?", (removed.id,))
        file.execute("UPDATE request SET state = 'lost' WHERE id = ?", (altered.id,))
    [record] = [one for one in desk.owed() if one.key == owed.id]
    desk.store.swap(record, replace(record, body={**record.body, "of another version": 1}))
    assert desk.run() == 1
    assert [one.request_id for one in desk.chat.said] == [fine.id]
    assert desk.deliverer.failed == 2
    assert sorted(one.key for one in desk.owed()) == sorted([altered.id, owed.id, fine.id])
    assert desk.run() == 0
    assert desk.deliverer.failed == 0  # each has its time
    desk.clock.tick("2h")
    desk.run()
    assert desk.deliverer.failed == 2


def test_of_two_deliverers_one_sends(desk: Desk) -> None:
    sent: list[str] = []

    class Slow(Chat):
        def send(self, notification: Notification) -> str | None:
            sent.append(notification.request_id)
            assert second.deliver_due() == 0  # while the first one is sending
            return None

    desk.ask()
    first, second = desk.another(Slow()), desk.another(Slow())
    assert first.deliver_due() == 1
    assert second.deliver_due() == 0
    assert len(sent) == 1


def test_eight_deliverers_at_once_send_each_message_once(desk: Desk) -> None:
    requests = [desk.ask() for _ in range(25)]
    chat = Chat()
    crowd = [desk.another(chat) for _ in range(8)]
    threads = [threading.Thread(target=one.deliver_due) for one in crowd]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(notification.request_id for notification in chat.said) == sorted(request.id for request in requests)


def test_a_message_whose_sender_never_said_how_it_went_is_sent_again_when_its_lease_has_ended(desk: Desk) -> None:
    class Dying(Chat):
        def send(self, notification: Notification) -> str | None:
            self.said.append(notification)
            raise KeyboardInterrupt  # as a process that is killed: nothing more is written

    desk.ask()
    dying = Dying()
    with pytest.raises(KeyboardInterrupt):
        desk.another(dying).deliver_due()
    assert desk.run() == 0
    desk.clock.tick(LEASE)
    assert desk.run() == 1
    assert desk.chat.said[0] == replace(dying.said[0], line=desk.chat.said[0].line)  # the same id, and less time left


def test_what_changes_while_it_is_sent_is_told_next(desk: Desk) -> None:
    class Quick(Chat):
        def send(self, notification: Notification) -> str | None:
            desk.decide("reject", request)  # before the announcement is recorded
            return super().send(notification)

    request = desk.ask()
    quick = Quick()
    assert desk.another(quick).deliver_due() == 1
    assert desk.another(quick).deliver_due() == 1
    assert (quick.events, [notification.outcome for notification, _ in quick.edits]) == (
        ["asked"],
        ["rejected by ada (browser)"],
    )


def test_what_changes_while_a_sent_message_is_recorded_is_told_next(clock: Clock, tmp_path: Path) -> None:
    class Between(SqliteStore):
        is_quiet = False

        def swap(self, before: Record, after: Record) -> bool:
            if "asked" in after.body.get("sent", ()) and not self.is_quiet:
                self.is_quiet = True
                desk.decide("reject", request)  # after the request was read, and before what was sent is written
            return super().swap(before, after)

    desk = Desk(Between(tmp_path / "between.db"), clock)
    request = desk.ask()
    assert (desk.run(), desk.run()) == (1, 1)
    assert [notification.outcome for notification, _ in desk.chat.edits] == ["rejected by ada (browser)"]
    desk.store.close()


def test_a_channel_that_is_gone_from_the_settings_is_told_nothing_more(desk: Desk) -> None:
    gone, own = Chat("gone"), Chat("own")
    registry.register(desk.store, [gone], by="settings")
    registry.register(desk.store, [own], by="program")
    desk.ask()
    assert len(list(desk.store.records(transaction.delivery_kind("gone")))) == 1
    registry.forget_removed(desk.store, {"ops"})
    assert [one.name for one in health(desk.store)] == ["ops", "own"]
    assert list(desk.store.records(transaction.delivery_kind("gone"))) == []
    assert forget(desk.store, "own")
    assert not forget(desk.store, "own")


def test_health_tells_when_nobody_delivers(desk: Desk) -> None:
    desk.run()
    desk.ask()
    assert health(desk.store)[0].problem is None
    desk.clock.tick("11m")
    (found,) = health(desk.store)
    assert (found.kind, found.waiting) == ("Chat", 1)
    assert "no process delivers" in str(found.problem)


# -- while a block runs -----------------------------------------------------------------------------------------------


def until(fact: Any, patience: float = 30) -> None:
    deadline = time.monotonic() + patience
    while not fact():
        assert time.monotonic() < deadline, "it did not come about"
        time.sleep(0.005)


def test_deliver_sends_while_its_block_runs_and_not_after() -> None:
    store, notifications = MemoryStore(), queue.Queue[Notification]()
    with deliver(store, [queue_channel(notifications)]):
        request = store.ask(sample_call())
        assert notifications.get(timeout=30).request_id == request.id
        sayso.Review(store).reject(request.id, by="bob")
        assert notifications.get(timeout=30).outcome == "rejected by bob (python)"
    later = store.ask(sample_call())
    assert notifications.empty()
    with deliver(store, [queue_channel(notifications)]):
        assert notifications.get(timeout=30).request_id == later.id


def test_an_asyncio_queue_gets_its_notices_in_its_own_loop() -> None:
    async def main() -> str:
        notifications = asyncio.Queue[Notification]()
        store = MemoryStore()
        with deliver(store, [queue_channel(notifications)]):
            request = store.ask(sample_call())
            notification = await asyncio.wait_for(notifications.get(), 30)
            assert notification.request_id == request.id
            return notification.event

    assert asyncio.run(main()) == "asked"


def test_a_channel_that_hangs_keeps_nobody_from_leaving_the_block() -> None:
    is_left, begun, ended = threading.Event(), threading.Event(), threading.Event()

    class Hanging(Chat):
        def send(self, notification: Notification) -> str | None:
            begun.set()
            is_left.wait(30)
            ended.set()
            return super().send(notification)

    store, quick = MemoryStore(), Chat("quick")
    with deliver(store, [Hanging("slow"), quick]):
        store.ask(sample_call())
        assert begun.wait(30)
        until(lambda: quick.said)
    assert not ended.is_set()  # it hung all the while
    is_left.set()
    assert ended.wait(30)


def test_a_store_that_fails_for_a_while_ends_no_deliverer(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    class Failing(SqliteStore):
        failures = 1

        def records(self, *args: Any, **options: Any) -> Any:
            if self.failures and options.get("due_by") is not None:
                self.failures -= 1
                raise errors.StoreBusyError("locked")
            return super().records(*args, **options)

    store, chat = Failing(tmp_path / "sayso.db"), Chat()
    with deliver(store, [chat]):
        until(lambda: not store.failures)
        store.ask(sample_call())  # which wakes it before its pause is over
        until(lambda: chat.said)
    assert "locked" in caplog.text
    store.close()


def test_two_channels_of_one_name_are_refused() -> None:
    for names in (("ops", "ops"), ("Ops",), ("",), ("a/b",)):
        with pytest.raises(errors.ConfigError), deliver(MemoryStore(), [Chat(name) for name in names]):
            pass


KILLED = """
import os, signal, sys
from sayso.channels.outbox import Deliverer
from sayso.stores.sqlite import SqliteStore

class File:
    name = "ops"
    def send(self, notification):
        with open(sys.argv[2], "a") as file:
            file.write(notification.id + " " + notification.event + "\\n")
        if sys.argv[3] == "die":
            os.kill(os.getpid(), signal.SIGKILL)
    def follow_up(self, notification, reference):
        self.send(notification)

store = SqliteStore(sys.argv[1])
deliverer = Deliverer(store, File())
deliverer.take_over()
print(deliverer.deliver_due())
"""


@pytest.mark.skipif(sys.platform == "win32", reason="SIGKILL")
def test_a_deliverer_that_is_killed_between_sending_and_recording_is_followed_by_one_that_sends_it_again(
    tmp_path: Path,
) -> None:
    store, told = SqliteStore(tmp_path / "sayso.db"), tmp_path / "told.txt"
    registry.register(store, [Chat()], by="program")
    request = store.ask(sample_call())
    store.close()

    def another(how: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", KILLED, str(tmp_path / "sayso.db"), str(told), how]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)

    assert another("die").returncode == -9
    assert another("live").stdout == "1\n"
    assert another("live").stdout == "0\n"
    first, second = told.read_text().splitlines()
    assert first == second  # the same id both times, so that a receiver can tell
    assert json.loads(json.dumps(store.get(request.id).state)) == "pending"
    store.close()
