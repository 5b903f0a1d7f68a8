"""What the exceptions of the confirmation face carry, and how they travel: JSON, pickle, copies, a web framework.

The invariant: what comes back says the same as what was sent.
"""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Callable
from typing import Any

import pytest

import sayso
from sayso.confirmation import ConfirmationRejected, ConfirmationRequired, ToolCall, respond_to_confirmation
from tests.support.acting import held


def test_question_alone_makes_a_confirmation_with_an_id_of_its_own() -> None:
    first, second = ConfirmationRequired("Go on?"), ConfirmationRequired("Go on?")
    assert (first.question, str(first), first.tool_call, first.context) == ("Go on?", "Go on?", None, {})
    assert first.confirmation_id
    assert first.confirmation_id != second.confirmation_id


def test_confirmation_carries_the_call_that_it_is_about() -> None:
    call = ToolCall(name="delete_file", args={"path": "/tmp/a"})
    raised = ConfirmationRequired(question="Delete it?", confirmation_id="mine-1", tool_call=call)
    assert raised.tool_call is call
    assert raised.confirmation_id == "mine-1"
    assert (call.name, call.args, call.call_id) == ("delete_file", {"path": "/tmp/a"}, None)


def test_confirmation_carries_what_a_module_needs_to_resume() -> None:
    class Clerk:
        def forward(self, text: str) -> str:
            raise ConfirmationRequired("Which year?", context={"step": 5, "partial": ["a"], "input": text})

        def resume(self, answer: str, saved: ConfirmationRequired) -> str:
            return f"{saved.context['input']} {answer} after step {saved.context['step']}"

    clerk = Clerk()
    saved = held(clerk.forward, "report")
    assert clerk.resume("2026", saved) == "report 2026 after step 5"


def test_tool_call_keeps_the_providers_id_as_a_label() -> None:
    call = ToolCall(name="search", args={"query": "tutorials"}, call_id="call_abc123")
    assert (call.name, call.args, call.call_id) == ("search", {"query": "tutorials"}, "call_abc123")


def test_rejection_says_what_was_said_about_which_call(delete: Callable[..., str]) -> None:
    request_id = held(delete, "/tmp/a").confirmation_id
    respond_to_confirmation(request_id, approved=False, data="keep it until Friday")
    with pytest.raises(ConfirmationRejected, match="keep it until Friday") as caught:
        delete("/tmp/a")
    rejected = caught.value
    assert rejected.message == str(rejected)
    assert rejected.confirmation_id == request_id
    assert rejected.tool_call == {"name": "delete_file", "args": {"path": "/tmp/a", "force": False}, "call_id": None}


def test_a_pause_is_no_rejection_and_a_rejection_no_pause() -> None:
    assert not issubclass(ConfirmationRejected, ConfirmationRequired)
    assert not issubclass(ConfirmationRequired, ConfirmationRejected)
    assert issubclass(ConfirmationRequired, Exception)


ROUND_TRIPS: dict[str, Callable[[ConfirmationRequired], ConfirmationRequired]] = {
    "json": lambda pause: ConfirmationRequired.from_dict(json.loads(json.dumps(pause.to_dict()))),
    "pickle": lambda pause: pickle.loads(pickle.dumps(pause)),
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
}


@pytest.mark.parametrize("way", ROUND_TRIPS)
@pytest.mark.parametrize(
    "pause",
    [
        ConfirmationRequired("Go on?"),
        ConfirmationRequired("Größe ändern? \u202e", confirmation_id="x", context={"n": [1, {"a": None}]}),
        ConfirmationRequired("Delete?", tool_call=ToolCall("delete", {"path": "/a"}, "call_1"), fingerprint="f"),
    ],
    ids=["bare", "context", "call"],
)
def test_pause_survives(way: str, pause: ConfirmationRequired) -> None:
    back = ROUND_TRIPS[way](pause)
    assert type(back) is ConfirmationRequired
    assert (back.question, back.confirmation_id, back.context) == (pause.question, pause.confirmation_id, pause.context)
    assert (back.tool_call, back.fingerprint) == (pause.tool_call, pause.fingerprint)
    assert type(back.tool_call) is type(pause.tool_call)
    assert str(back) == str(pause)


@pytest.mark.parametrize("way", [lambda e: pickle.loads(pickle.dumps(e)), copy.copy, copy.deepcopy])
def test_refusal_survives(way: Callable[[Any], Any]) -> None:
    for kind in (ConfirmationRejected, sayso.ConfirmationFeedback, sayso.ConfirmationExpired, sayso.ConfirmationDenied):
        back = way(kind("not now", confirmation_id="x", tool_call=ToolCall("f", {"a": 1})))
        assert type(back) is kind
        assert (back.message, back.confirmation_id, back.tool_call) == ("not now", "x", ToolCall("f", {"a": 1}))


def test_tool_call_goes_into_a_json_response_as_it_is(delete: Callable[..., str]) -> None:
    pause = held(delete, "/a")
    body = {"status": "confirmation_required", "question": pause.question, "tool_call": pause.tool_call}
    sent = json.loads(json.dumps(body))
    assert sent["tool_call"] == {"name": "delete_file", "args": {"path": "/a", "force": False}, "call_id": None}


def test_tool_call_goes_into_a_frameworks_response(delete: Callable[..., str]) -> None:
    responses = pytest.importorskip("starlette.responses")
    body = responses.JSONResponse({"tool_call": held(delete, "/a").tool_call}).body
    assert json.loads(body)["tool_call"]["name"] == "delete_file"
