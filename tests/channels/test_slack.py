"""Slack, spoken by the real client to a workspace on this machine: messages, modals, who may, and once only."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from slack_sdk.socket_mode import SocketModeClient

import sayso
from sayso import errors
from sayso.channels import registry
from sayso.channels.outbox import deliver
from sayso.channels.registry import DeliveryError, Notification, UndeliverableError
from sayso.channels.slack import SlackChannel, _stop_client, make
from sayso.channels.slack_review import SlackReviews
from sayso.model.lifecycle import Outcome
from sayso.model.request import Request, State
from sayso.model.reviewer import Identity, Quorum, Reviewer
from sayso.stores.base import Store
from sayso.testing import sample_call, sample_question
from sayso.view.summary import short
from tests.channels.fake_slack import APP, BOT, CHANNEL, TEAM, FakeSlack, fake_slack, texts_in
from tests.conftest import Clock

BASE = "https://approvals.example.com"
PEOPLE = {"U1": "ada", "U2": {"name": "bob", "roles": ["finance"]}}
AT = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)


@pytest.fixture(scope="module")
def workspace() -> Iterator[FakeSlack]:
    with fake_slack() as slack:
        yield slack


@pytest.fixture
def slack(workspace: FakeSlack) -> FakeSlack:
    """The workspace with nothing in it."""
    for kept in (workspace.messages, workspace.ephemeral, workspace.views, workspace.calls, workspace.fails):
        kept.clear()
    workspace.opened = 0
    return workspace


def channel_of(slack: FakeSlack, monkeypatch: pytest.MonkeyPatch, **more: Any) -> SlackChannel:
    monkeypatch.setenv("SLACK_BOT", BOT)
    monkeypatch.setenv("SLACK_APP", APP)
    settings = {
        "type": "slack", "bot_token_env": "SLACK_BOT", "app_token_env": "SLACK_APP", "channel": CHANNEL,
        "people": PEOPLE, "api_url": slack.url,
    }  # fmt: skip
    return make("ops", settings | more)


@pytest.fixture
def ops(slack: FakeSlack, monkeypatch: pytest.MonkeyPatch) -> SlackChannel:
    return channel_of(slack, monkeypatch)


@pytest.fixture
def listening(ops: SlackChannel, slack: FakeSlack, memory: Store, clock: Clock) -> Iterator[None]:
    with ops.listening(memory, BASE):
        slack.connected()
        yield


def notification_for(request: Request, **more: Any) -> Notification:
    tool = request.call.tool if request.kind == "call" else ""
    fields: dict[str, Any] = {
        "id": f"{request.id}-asked", "event": "asked", "request_id": request.id, "run_id": request.run_id, "tool": tool,
        "kind": request.kind, "risk": request.risk, "state": str(request.state), "fingerprint": request.fingerprint,
        "title": "support-bot wants to run pay", "line": "pay, in a run", "link": f"{BASE}/r/{request.id}",
        "asked_at": request.created_at, "expires_at": request.expires_at, "arguments": None, "outcome": None,
    }  # fmt: skip
    return Notification(**fields | more)


def posted(slack: FakeSlack, ops: SlackChannel, request: Request, **more: Any) -> dict[str, Any]:
    reference = ops.send(notification_for(request, **more))
    return slack.messages[reference.partition("/")[2]]


def words(thing: Any) -> str:
    return "\n".join(text["text"] for text in texts_in(thing))


# -- the message -----------------------------------------------------------------------------------------------


def test_a_message_has_the_tool_a_button_and_a_link_and_no_arguments(
    slack: FakeSlack, ops: SlackChannel, memory: Store
) -> None:
    request = memory.ask(sample_call(arguments={"amount": 471_147_114_711, "to": "canary"}))
    message = posted(slack, ops, request)
    assert "support-bot wants to run pay" in words(message["blocks"])
    review, link = next(block for block in message["blocks"] if block["type"] == "actions")["elements"]
    assert (review["action_id"], review["value"]) == ("sayso_review", request.id)
    assert link["url"] == f"{BASE}/r/{request.id}"
    assert "canary" not in json.dumps(message)
    assert "471147114711" not in json.dumps(message)  # a short number can be a part of a random id
    assert (message["unfurl_links"], message["mrkdwn"], message["parse"]) == (False, False, "none")


def test_arguments_are_shown_where_the_notice_has_them_and_they_are_short(
    slack: FakeSlack, ops: SlackChannel, memory: Store
) -> None:
    request = memory.ask(sample_call())
    message = posted(slack, ops, request, arguments={"amount": 4711, "note": "<!channel> *hi*"})
    assert "amount: 4711" in words(message["blocks"])
    long = posted(slack, ops, request, arguments={"note": "x" * 5_000})
    assert "too long for a message" in words(long["blocks"])


def test_nothing_is_markup_but_our_own_words(slack: FakeSlack, ops: SlackChannel, memory: Store) -> None:
    bait = "<https://evil.example|Approve> <!channel> *b* `c` <@U1> :tada:"
    request = memory.ask(sample_call(arguments={"amount": 1, "to": bait}, prompt=bait, context={"x": bait}))
    message = posted(slack, ops, request, title=bait, line=bait, arguments={"to": bait})
    edited = posted(slack, ops, request, outcome=bait)
    for thing in (message, edited):
        assert {text["type"] for text in texts_in(thing)} == {"plain_text"}
        assert {text["emoji"] for text in texts_in(thing)} == {False}
        assert "evil" not in thing["text"]


@pytest.mark.parametrize(
    ("risk", "inline", "can_review"),
    [(None, False, True), ("low", False, True), ("medium", False, True), ("high", False, False),
     ("critical", False, False), ("whatever", False, False), ("high", True, True)],
)  # fmt: skip
def test_what_is_risky_has_a_link_only(
    slack: FakeSlack, memory: Store, monkeypatch: pytest.MonkeyPatch, risk: str | None, inline: bool, can_review: bool
) -> None:
    ops = channel_of(slack, monkeypatch, inline=inline)
    message = posted(slack, ops, memory.ask(sample_call(risk=risk)))
    assert ("sayso_review" in json.dumps(message)) is can_review
    assert f"{BASE}/r/" in json.dumps(message)


def test_a_message_is_edited_with_the_outcome(slack: FakeSlack, ops: SlackChannel, memory: Store) -> None:
    request = memory.ask(sample_call())
    reference = ops.send(notification_for(request))
    outcome = notification_for(request, event="outcome", state="approved", outcome="approved by ada (web)")
    ops.follow_up(outcome, reference)
    message = slack.messages[reference.partition("/")[2]]
    assert "approved by ada (web)" in words(message["blocks"])
    assert "sayso_review" not in json.dumps(message)
    assert len(slack.messages) == 1
    ops.follow_up(outcome, None)
    assert len(slack.messages) == 2


def test_what_slack_refuses_is_tried_again_unless_it_never_will_be(
    slack: FakeSlack, ops: SlackChannel, memory: Store
) -> None:
    notification = notification_for(memory.ask(sample_call()))
    slack.fails[:] = ["ratelimited", "channel_not_found", "invalid_auth"]
    for _ in range(3):
        with pytest.raises(DeliveryError):
            ops.send(notification)
    slack.fails[:] = ["invalid_blocks"]
    with pytest.raises(UndeliverableError):
        ops.send(notification)
    with pytest.raises(UndeliverableError, match="message_not_found"):
        ops.follow_up(notification, f"{CHANNEL}/1.1")


def test_tokens_stand_nowhere(
    slack: FakeSlack, ops: SlackChannel, memory: Store, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    slack.fails[:] = ["invalid_auth"]
    with pytest.raises(DeliveryError) as caught:
        ops.send(notification_for(memory.ask(sample_call())))
    assert "hunter2" not in f"{ops!r} {caught.value!r} {caught.value.__cause__!r} {caplog.text}"


def test_a_test_says_that_nothing_is_to_be_done(slack: FakeSlack, ops: SlackChannel) -> None:
    reference = ops.send(registry.test_notification("ops", BASE))
    message = slack.messages[reference.partition("/")[2]]
    assert "there is nothing to do" in words(message["blocks"])
    assert "sayso_review" not in json.dumps(message)


# -- the modal -------------------------------------------------------------------------------------------------


def test_review_opens_what_would_run_and_decide_decides(
    slack: FakeSlack, ops: SlackChannel, memory: Store, listening: None
) -> None:
    request = memory.ask(sample_call(arguments={"amount": 320, "to": "alice", "password": "hunter2"}))
    view = slack.opens("U1", posted(slack, ops, request))
    shown = words(view)
    assert "320" in shown
    assert "hunter2" not in json.dumps(view)
    assert {text["type"] for text in texts_in(view)} == {"plain_text"}
    reply = slack.submit("U1", view, "approve", note="fine")
    assert "approved by ada (slack" in words(reply["view"])
    decision = memory.get(request.id).decision
    assert decision is not None
    assert (decision.by, decision.channel, decision.comment) == (Identity("local", "ada"), "slack", "fine")


@pytest.mark.parametrize(
    ("verb", "note", "state"),
    [("reject", "", "rejected"), ("reject", "no", "rejected"), ("feedback", "less", "feedback")],
)
def test_each_decision_does_what_it_says(
    slack: FakeSlack, ops: SlackChannel, memory: Store, listening: None, verb: str, note: str, state: str
) -> None:
    request = memory.ask(sample_call())
    slack.submit("U1", slack.opens("U1", posted(slack, ops, request)), verb, note=note)
    assert memory.get(request.id).state == state


def test_nothing_is_chosen_beforehand_and_nothing_chosen_decides_nothing(
    slack: FakeSlack, ops: SlackChannel, memory: Store, listening: None
) -> None:
    request = memory.ask(sample_call())
    view = slack.opens("U1", posted(slack, ops, request))
    assert "initial_option" not in json.dumps(view)
    for verb, field in [(None, "verb"), ("feedback", "note")]:
        reply = slack.submit("U1", view, verb)
        assert reply["response_action"] == "errors"
        assert list(reply["errors"]) == [field]
    assert memory.get(request.id).state is State.PENDING


def test_an_effect_that_is_taken_may_happen_again_with_a_note(
    slack: FakeSlack, ops: SlackChannel, memory: Store, listening: None
) -> None:
    first = memory.ask(sample_call("run_1", effect="refund:A-4721"))
    request = memory.ask(sample_call("run_2", effect="refund:A-4721"))
    view = slack.opens("U1", posted(slack, ops, request))
    assert f"the same effect: {short(first.id)}" in words(view)
    assert list(slack.submit("U1", view, "approve", again="yes")["errors"]) == ["note"]
    assert memory.get(request.id).state is State.PENDING
    slack.submit("U1", view, "approve", again="yes", note="it bounced")
    decision = memory.get(request.id).decision
    assert decision is not None
    assert (decision.verb, decision.again, decision.comment) == ("approve", True, "it bounced")


def test_a_call_whose_effect_no_other_has_is_not_approved_again(
    slack: FakeSlack, ops: SlackChannel, memory: Store, listening: None
) -> None:
    for effect in (None, "refund:A-4721"):
        request = memory.ask(sample_call(f"run_{effect is None}", effect=effect))
        view = slack.opens("U1", posted(slack, ops, request))
        assert "again" not in {block.get("block_id") for block in view["blocks"]}
        slack.submit("U1", view, "approve")
        decision = memory.get(request.id).decision
        assert decision is not None
        assert decision.again is False


def test_the_programs_words_are_marked_as_its_own(slack: FakeSlack, ops: SlackChannel, memory: Store) -> None:
    said = {"program_title": "Refund an order", "summary": "Refund 320 for A-4721"}
    message = posted(slack, ops, memory.ask(sample_call()), **said)
    assert "The program says, unverified:\nRefund an order\nRefund 320 for A-4721" in words(message)


def test_a_value_can_be_changed_and_what_is_left_alone_stays(
    slack: FakeSlack, ops: SlackChannel, memory: Store, listening: None
) -> None:
    request = memory.ask(sample_call(arguments={"amount": 320, "to": "alice", "password": "hunter2"}))
    view = slack.opens("U1", posted(slack, ops, request))
    wrong = slack.submit("U1", view, "approve", argument_0="many")
    assert list(wrong["errors"]) == ["argument-0"]
    assert memory.get(request.id).state is State.PENDING
    reply = slack.submit("U1", view, "approve", argument_0="80")
    assert "320 -> 80" in words(reply["view"])
    after = memory.get(request.id)
    assert after.effective.shown == {"amount": 80, "to": "alice", "password": "***"}
    assert "hunter2" in after.effective.form


def test_values_that_cannot_stand_in_one_line_are_not_changed_in_slack(
    slack: FakeSlack, ops: SlackChannel, memory: Store, listening: None
) -> None:
    odd = {"amount": 1, "to": "two\nlines", "password": "x"}
    view = slack.opens("U1", posted(slack, ops, memory.ask(sample_call(arguments=odd))))
    assert [block["label"]["text"] for block in view["blocks"] if block.get("block_id", "").startswith("arg")] == [
        "amount"
    ]


def test_a_question_is_answered(slack: FakeSlack, ops: SlackChannel, memory: Store, listening: None) -> None:
    request = memory.ask(sample_question(text="Which *account*?"))
    view = slack.opens("U1", posted(slack, ops, request))
    assert "Which *account*?" in words(view)
    assert list(slack.submit("U1", view, "answer")["errors"]) == ["answer"]
    slack.submit("U1", view, "answer", answer="the second")
    assert memory.get(request.id).answer == "the second"


def test_what_is_too_long_for_a_modal_is_not_decided_there(
    slack: FakeSlack, ops: SlackChannel, memory: Store, listening: None
) -> None:
    for size in (40_000, 400_000):
        request = memory.ask(sample_call(arguments={"amount": 1, "to": "x" * size}))
        slack.press("U1", posted(slack, ops, request))
        said = slack.wait(lambda: slack.ephemeral and slack.ephemeral.pop())
        assert f"too long for Slack and must be decided in the inbox: {BASE}/r/{request.id}" in words(said)
    assert slack.views == {}


@pytest.mark.parametrize("size", [1_000, 5_000, 20_000])
def test_what_fits_is_shown_whole(
    slack: FakeSlack, ops: SlackChannel, memory: Store, listening: None, size: int
) -> None:
    for at in (0, size // 2, size - 8):
        text = "x" * at + "MARKER42" + "x" * (size - at - 8)
        request = memory.ask(sample_call(arguments={"amount": 1, "to": text}))
        view = slack.opens("U1", posted(slack, ops, request))
        assert "MARKER42" in words(view).replace("\n", "").replace(": ", "").replace("| ", "").replace(" ", "")
        slack.submit("U1", view, "approve")
        assert memory.get(request.id).state is State.APPROVED


# -- who -------------------------------------------------------------------------------------------------------


def test_somebody_who_is_not_known_is_told_so_and_decides_nothing(
    slack: FakeSlack, ops: SlackChannel, memory: Store, listening: None
) -> None:
    request = memory.ask(sample_call())
    message = posted(slack, ops, request)
    slack.press("U9", message)
    said = slack.wait(lambda: slack.ephemeral and slack.ephemeral[-1])
    assert (said["user"], said["channel"]) == ("U9", CHANNEL)
    assert "not a known reviewer" in words(said)
    assert slack.views == {}
    view = slack.opens("U1", message)
    assert "not a known reviewer" in words(slack.submit("U9", view, "approve")["view"])
    assert memory.get(request.id).state is State.PENDING


def test_a_member_of_another_workspace_decides_nothing(
    slack: FakeSlack, ops: SlackChannel, memory: Store, listening: None
) -> None:
    request = memory.ask(sample_call())
    message = posted(slack, ops, request)
    slack.press("U1", message, team="T2")
    assert "not a known reviewer" in words(slack.wait(lambda: slack.ephemeral and slack.ephemeral[-1]))
    view = slack.opens("U1", message)
    assert "not a known reviewer" in words(slack.submit("U1", view, "approve", team="T2")["view"])
    assert memory.get(request.id).state is State.PENDING


def test_roles_and_the_bar_for_requesters_count_in_slack(
    slack: FakeSlack, ops: SlackChannel, memory: Store, listening: None
) -> None:
    finance = memory.ask(sample_call(quorum=Quorum(1, frozenset({"finance"}))))
    own = memory.ask(sample_call(on_behalf_of=Identity("local", "ada")))
    for request, said in [(finance, "needs the role"), (own, "cannot decide it")]:
        view = slack.opens("U1", posted(slack, ops, request))
        assert said in words(slack.submit("U1", view, "approve")["view"])
        assert memory.get(request.id).state is State.PENDING
        slack.submit("U2", view, "approve")
        assert memory.get(request.id).state is State.APPROVED


def test_who_may_not_review_on_the_server_decides_nothing_in_slack(
    slack: FakeSlack, monkeypatch: pytest.MonkeyPatch, memory: Store, clock: Clock, place: Path
) -> None:
    request = memory.ask(sample_call())
    for rule in ('reviewers = ["bob"]', 'required_role = "finance"', 'reviewers = ["corp:bob", "local:bob"]'):
        (place / "sayso.toml").write_text(f"[serve]\n{rule}\n")
        (place / "sayso.toml").chmod(0o600)
        ops = channel_of(slack, monkeypatch)
        connected = slack.opened
        with ops.listening(memory, BASE):
            slack.connected(connected + 1)
            message = posted(slack, ops, request)
            slack.ephemeral.clear()
            slack.press("U1", message)
            said = slack.wait(lambda: slack.ephemeral and slack.ephemeral[-1])
            assert "may not review here" in words(said), rule
            view = slack.opens("U2", message)
            assert "may not review here" in words(slack.submit("U1", view, "approve")["view"]), rule
            assert memory.get(request.id).state is State.PENDING
            slack.submit("U2", view, "approve")
            assert memory.get(request.id).state is State.APPROVED
        request = memory.ask(sample_call())


def test_one_person_counts_once_by_slack_and_elsewhere(
    slack: FakeSlack, ops: SlackChannel, memory: Store, listening: None
) -> None:
    request = memory.ask(sample_call(quorum=Quorum(2)))
    sayso.Review(memory).approve(request.id, by="ada")
    view = slack.opens("U1", posted(slack, ops, request))
    assert "has approved" in words(slack.submit("U1", view, "approve")["view"])
    assert memory.get(request.id).missing_votes == 1
    slack.submit("U2", view, "approve")
    assert memory.get(request.id).state is State.APPROVED


# -- when something happened meanwhile -------------------------------------------------------------------------


def test_a_call_that_was_changed_since_it_was_shown_is_not_decided(
    slack: FakeSlack, ops: SlackChannel, memory: Store, listening: None
) -> None:
    request = memory.ask(sample_call(arguments={"amount": 1, "to": "alice", "password": "x"}, quorum=Quorum(2)))
    view = slack.opens("U1", posted(slack, ops, request))
    sayso.Review(memory).approve(request.id, by="kim", changes={"amount": 9_999})
    for verb in ("approve", "reject"):
        assert "was changed since you looked" in words(slack.submit("U1", view, verb)["view"])
    after = memory.get(request.id)
    assert (after.state, len(after.votes)) == (State.PENDING, 1)


def test_what_was_decided_elsewhere_is_told_and_stays(
    slack: FakeSlack, ops: SlackChannel, memory: Store, listening: None
) -> None:
    request = memory.ask(sample_call())
    message = posted(slack, ops, request)
    view = slack.opens("U1", message)
    sayso.Review(memory, channel="web").reject(request.id, by="kim")
    assert "already rejected by 'kim' (web" in words(slack.submit("U1", view, "approve")["view"])
    slack.press("U1", message)
    assert "rejected by kim (web" in words(slack.wait(lambda: slack.ephemeral and slack.ephemeral[-1]))
    assert memory.get(request.id).state is State.REJECTED


def test_an_expired_request_is_not_decided(
    slack: FakeSlack, ops: SlackChannel, memory: Store, listening: None, clock: Clock
) -> None:
    request = memory.ask(sample_call())
    view = slack.opens("U1", posted(slack, ops, request))
    clock.tick(hours=25)
    assert "expired" in words(slack.submit("U1", view, "approve")["view"])
    assert memory.get(request.id).state is State.EXPIRED


def test_a_risky_call_is_refused_in_slack_whatever_the_message_said(
    slack: FakeSlack, ops: SlackChannel, memory: Store, listening: None
) -> None:
    request, small = memory.ask(sample_call(risk="high")), memory.ask(sample_call())
    slack.press("U1", posted(slack, ops, request, risk=None))
    assert "decided in the inbox" in words(slack.wait(lambda: slack.ephemeral and slack.ephemeral[-1]))
    view = slack.opens("U1", posted(slack, ops, small))
    forged = view | {"private_metadata": json.dumps({"id": request.id, "seen": request.fingerprint})}
    assert "nothing was decided" in words(slack.submit("U1", forged, "approve")["view"])
    assert {memory.get(one.id).state for one in (request, small)} == {State.PENDING}


@pytest.mark.parametrize("metadata", ["", "{}", "[]", "null", '{"id": "rq_nothing", "seen": "f"}', "{"])
def test_a_modal_that_says_nothing_decides_nothing(
    slack: FakeSlack, ops: SlackChannel, memory: Store, listening: None, metadata: str
) -> None:
    request = memory.ask(sample_call())
    view = slack.opens("U1", posted(slack, ops, request))
    assert "view" in slack.submit("U1", view | {"private_metadata": metadata}, "approve")
    assert memory.get(request.id).state is State.PENDING


def test_a_request_of_another_store_is_told(slack: FakeSlack, ops: SlackChannel, listening: None) -> None:
    slack.press("U1", posted(slack, ops, sample_call()))
    assert "not in the store" in words(slack.wait(lambda: slack.ephemeral and slack.ephemeral[-1]))


# -- the connection --------------------------------------------------------------------------------------------


class Beginning:
    """A session that receives its first message while the client is closed."""

    sock, session_id = None, "s"

    def __init__(self, state: Any) -> None:
        self._state, self.is_asked = state, threading.Event()

    def is_active(self) -> bool:
        self.is_asked.set()
        while not self._state.terminated:
            threading.Event().wait(0.001)
        return True

    def run_until_completion(self, state: Any) -> None:
        while not state.terminated:
            threading.Event().wait(0.001)

    def check_state(self) -> None:
        pass

    def close(self) -> None:
        pass


def test_a_client_that_is_closed_while_its_session_begins_ends() -> None:
    client = SocketModeClient("xapp-1")
    session: Any = Beginning(client.current_session_state)
    client.current_session = session
    assert session.is_asked.wait(30)
    ending = threading.Thread(target=_stop_client, args=(client,), daemon=True)
    ending.start()
    ending.join(30)
    assert not ending.is_alive()


def test_an_envelope_that_comes_again_has_one_effect_and_one_answer(
    slack: FakeSlack, ops: SlackChannel, memory: Store, listening: None
) -> None:
    request = memory.ask(sample_call(quorum=Quorum(2)))
    view = slack.opens("U1", posted(slack, ops, request))
    replies = [slack.submit("U1", view, "approve", envelope_id="env-same", times=5) for _ in range(2)]
    assert replies[0] == replies[1]
    assert "has approved" not in words(replies[1]["view"])
    assert len(memory.get(request.id).votes) == 1


def test_a_press_that_comes_again_opens_one_modal(
    slack: FakeSlack, ops: SlackChannel, memory: Store, listening: None
) -> None:
    message = posted(slack, ops, memory.ask(sample_call()))
    trigger = slack.press("U1", message, times=3)
    slack.wait(lambda: slack.calls.count("views.open") == 3)
    assert list(slack.views).count(trigger) == 1


def test_other_envelopes_are_acknowledged_and_do_nothing(slack: FakeSlack, listening: None) -> None:
    odd: list[Any] = [
        {}, {"type": "block_actions"}, {"type": "block_actions", "actions": "x"}, {"type": "shortcut"},
        {"type": "block_actions", "actions": [None, {}, {"action_id": "sayso_open"}]},
        {"type": "view_submission"}, {"type": "view_submission", "view": []}, {"type": "view_closed"},
        {"type": "view_submission", "view": {"callback_id": "another"}}, {"type": "block_actions", "user": "U1"},
        {"type": "block_actions", "actions": [{"action_id": "sayso_review", "value": 7}]},
    ]  # fmt: skip
    assert [slack.send(one) for one in odd] == [{}] * len(odd)
    assert slack.views == {}


@pytest.fixture
def watchful(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the client look for a lost connection each second, not every five."""
    monkeypatch.setattr("sayso.channels.slack.SocketModeClient", partial(SocketModeClient, ping_interval=1))


@pytest.mark.parametrize("way", ["drop", "cut"])
def test_it_connects_anew_when_the_connection_ends(
    watchful: None, slack: FakeSlack, ops: SlackChannel, memory: Store, listening: None, way: str
) -> None:
    getattr(slack, way)()
    slack.connected(2)
    request = memory.ask(sample_call())
    slack.submit("U1", slack.opens("U1", posted(slack, ops, request)), "approve")
    assert memory.get(request.id).state is State.APPROVED


def test_it_connects_when_slack_is_there_again(
    slack: FakeSlack, ops: SlackChannel, memory: Store, caplog: pytest.LogCaptureFixture
) -> None:
    slack.fails[:] = ["internal_error"]
    with ops.listening(memory, BASE):
        slack.connected()
    assert "no connection to Slack, so the Review buttons do not work" in caplog.text
    assert "hunter2" not in caplog.text


def test_it_ends_at_once_also_while_nothing_answers(memory: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    nowhere = FakeSlack(url="http://127.0.0.1:9/api/")
    with channel_of(nowhere, monkeypatch).listening(memory, None):
        pass


def test_what_it_opens_while_it_is_ended_is_closed(
    slack: FakeSlack, ops: SlackChannel, memory: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[SocketModeClient] = []
    is_asked, may_go_on, real = threading.Event(), threading.Event(), SocketModeClient.issue_new_wss_url

    def slowly(client: SocketModeClient) -> str:
        made.append(client)
        is_asked.set()
        assert may_go_on.wait(30)
        return real(client)

    monkeypatch.setattr(SocketModeClient, "issue_new_wss_url", slowly)
    with ops.listening(memory, None):
        assert is_asked.wait(30)
    may_go_on.set()
    for thread in [one for one in threading.enumerate() if one.name == "sayso-slack-connect"]:
        thread.join(30)
    assert made[0].current_session is not None
    assert not made[0].is_connected()


# -- with the outbox -------------------------------------------------------------------------------------------


def said_of(slack: FakeSlack, request: Request) -> str:
    """Return what the message about a request says now; nothing while there is none."""
    return next((words(one) for one in slack.messages.values() if request.id in json.dumps(one)), "")


def test_a_request_comes_to_slack_and_is_decided_there_and_its_message_tells_the_end(
    slack: FakeSlack, ops: SlackChannel, memory: Store, clock: Clock
) -> None:
    with deliver(memory, [ops], base_url=BASE):
        slack.connected()
        request = memory.ask(sample_call())
        slack.wait(lambda: "wants to run pay" in said_of(slack, request))
        message = next(iter(slack.messages.values()))
        slack.submit("U1", slack.opens("U1", message), "approve")
        slack.wait(lambda: "approved by ada (slack), not run yet" in said_of(slack, request))
        memory.start(request.id, "token")
        memory.finish(request.id, "token", Outcome("done"))
        slack.wait(lambda: "approved by ada (slack), executed" in said_of(slack, request))
    assert len(slack.messages) == 1
    assert "sayso_review" not in json.dumps(slack.messages)


def test_what_is_decided_elsewhere_is_told_in_slack(
    slack: FakeSlack, ops: SlackChannel, memory: Store, clock: Clock
) -> None:
    with deliver(memory, [ops], base_url=BASE):
        request = memory.ask(sample_call())
        slack.wait(lambda: "wants to run pay" in said_of(slack, request))
        sayso.Review(memory, channel="web").reject(request.id, "no", by="kim")
        slack.wait(lambda: "rejected by kim (web)" in said_of(slack, request))
    assert len(slack.messages) == 1


# -- the three seconds -----------------------------------------------------------------------------------------


class _Slow:
    """The Web API, which notes what it was told."""

    def __init__(self) -> None:
        self.told = threading.Event()
        self.said: list[tuple[str, Any]] = []

    def __call__(self, method: str, content: Any) -> Any:
        self.said.append((method, content))
        self.told.set()


def submission(request: Request, seen: str) -> dict[str, Any]:
    option = {"verb": {"verb": {"selected_option": {"value": "approve"}}}}
    metadata = json.dumps({"id": request.id, "seen": seen})
    view = {"id": "V1", "callback_id": "sayso_decide", "private_metadata": metadata, "state": {"values": option}}
    return {"type": "view_submission", "user": {"id": "U1", "team_id": TEAM}, "view": view}


def test_a_store_that_takes_long_is_answered_in_time_and_told_later(
    memory: Store, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    request, go, real = memory.ask(sample_call()), threading.Event(), memory.decide

    def slow(*args: Any, **options: Any) -> Request:
        assert go.wait(30)
        return real(*args, **options)

    monkeypatch.setattr(memory, "decide", slow)
    call = _Slow()
    desk = SlackReviews(memory, call, {"U1": Reviewer("ada")}, team=TEAM, inline=False, base_url=None, in_time=0.01)
    first = desk.decide("env-1", submission(request, request.fingerprint))
    assert "takes longer than usual" in words(first["view"])
    go.set()
    assert call.told.wait(30)
    ((method, content),) = call.said
    assert (method, content["view_id"]) == ("views.update", "V1")
    assert "approved by ada" in words(content["view"])
    desk.close()


def test_a_store_that_fails_is_told_and_named_in_the_log(
    memory: Store, clock: Clock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: Any, **__: Any) -> Request:
        raise errors.StoreBusyError("it is locked")

    request = memory.ask(sample_call())
    monkeypatch.setattr(memory, "decide", fail)
    desk = SlackReviews(memory, _Slow(), {"U1": Reviewer("ada")}, team=TEAM, inline=False, base_url=None)
    reply = desk.decide("env-1", submission(request, request.fingerprint))
    assert "check in the inbox whether" in words(reply["view"])
    assert "it is locked" in caplog.text
    desk.close()


# -- settings --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("more", "said"),
    [({"channel": ""}, "channel is missing"), ({"bot_token_env": "NOT_SET"}, "NOT_SET"),
     ({"token": "xoxb"}, "token is not known"), ({"inline": "yes"}, "true or false"),
     ({"people": {"U1": 3}}, "must be a name"), ({"people": {"U1": {"roles": []}}}, "name is missing"),
     ({"people": {"U1": {"name": "ada", "admin": True}}}, "admin is not known"),
     ({"people": {"U1": "ada\u200b"}}, "cannot be used"), ({"people": "ada"}, "a table"),
     ({"api_url": "http://slack.example.com/api/"}, "https")],
)  # fmt: skip
def test_a_wrong_setting_is_refused(
    slack: FakeSlack, monkeypatch: pytest.MonkeyPatch, more: dict[str, Any], said: str
) -> None:
    with pytest.raises(errors.ConfigError, match=said):
        channel_of(slack, monkeypatch, **more)
