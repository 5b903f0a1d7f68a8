"""A Confirm's no has a reason, and an edit leaves what it is about: refused when it is decided, at every door."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from starlette.testclient import TestClient

import sayso
from sayso import aio, clock, errors
from sayso.channels import slack_review as show
from sayso.model import canonical
from sayso.model.edit import PLAN_TOOL, TARGET_TOOL
from sayso.model.request import Request, State
from sayso.mplp import create_confirm, submit_for_approval
from sayso.mplp.document import carry_out_plan, use_target
from sayso.mplp.schema import id_of
from sayso.server import create_app
from sayso.stores.base import Store
from sayso.testing import sample_call
from sayso.view.summary import short
from tests.server.test_hooks import KEYS, SECRET, body_of, signed
from tests.support.browsing import BASE, browser, text_of
from tests.support.calling import caller, code_of
from tests.support.commands import sayso as run
from tests.support.submitting import submitted

SAID = "needs a reason; nothing was decided"
ONE, OTHER = id_of("test", "one"), id_of("test", "other")


@pytest.fixture(params=["plan", "extension"])
def waiting(request: pytest.FixtureRequest, store: Store) -> Request:
    """A Confirm that waits: a plan, and another target."""
    if request.param == "plan":
        return submitted()[2]
    submit_for_approval(create_confirm(request.param, ONE, "agent", "why"))
    return sayso.Review().list().requests[0]


def refused(store: Store, request: Request) -> None:
    assert store.get(request.id) == request
    sayso.Review(store, reviewer="ada").reject(request.id, "no way back")
    assert store.get(request.id).state is State.REJECTED


def test_the_two_calls_have_the_names_by_which_a_decision_knows_them() -> None:
    assert canonical.function_name(carry_out_plan) == PLAN_TOOL
    assert canonical.function_name(use_target) == TARGET_TOOL


# -- a no without a reason ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("words", [None, "", "  \n", "\u200b", "\u2800\ufeff"])
@pytest.mark.parametrize("verb", ["reject", "feedback"])
def test_a_no_without_a_reason_is_refused(store: Store, waiting: Request, verb: str, words: Any) -> None:
    with pytest.raises(errors.ReasonMissingError, match=SAID):
        getattr(sayso.Review(store, reviewer="ada"), verb)(waiting.id, words)
    refused(store, waiting)


def test_whoever_cancels_needs_no_reason(store: Store, waiting: Request) -> None:
    assert sayso.Review(store, reviewer="ada").cancel(waiting.id).state is State.CANCELLED


def test_the_no_to_a_call_of_a_program_needs_no_reason(store: Store) -> None:
    request = store.ask(sample_call())
    assert sayso.Review(store, reviewer="ada").reject(request.id).state is State.REJECTED


def test_an_async_program_is_refused_as_well(store: Store, waiting: Request) -> None:
    with pytest.raises(errors.ReasonMissingError):
        asyncio.run(aio.Review(store, reviewer="ada").reject(waiting.id))


@pytest.mark.parametrize("store", ["sqlite"], indirect=True)
def test_the_command_line_says_what_to_type(store: Store, waiting: Request) -> None:
    done = run("--store", store.url, "reject", waiting.id, "--as", "ada")
    assert done.code == 1
    assert SAID in done.err
    assert f"reject {short(waiting.id)}" in done.err
    assert '-m "what is wrong with it"' in done.err
    refused(store, waiting)


def test_the_inbox_says_so_before_and_after(store: Store, waiting: Request) -> None:
    ada = browser(create_app(store))
    assert "To reject or send back a Confirm, say why in the note" in text_of(ada.get(f"/r/{waiting.id}").text)
    answer = ada.decide(waiting.id, "reject", note=" ")
    assert answer.status_code == 422
    assert "A reason is required: write it in the note. Nothing was decided." in text_of(answer.text)
    call = store.ask(sample_call())
    assert "say why" not in text_of(ada.get(f"/r/{call.id}").text)
    refused(store, waiting)


def test_the_page_of_several_says_so_before(store: Store, waiting: Request) -> None:
    ada, call = browser(create_app(store)), store.ask(sample_call())
    said = {
        (verb, one.id): "to reject a Confirm, say why" in text_of(ada.get(f"/bulk?verb={verb}&id={one.id}").text)
        for verb in ("approve", "reject")
        for one in (waiting, call)
    }
    assert [about for about, is_said in said.items() if is_said] == [("reject", waiting.id)]


@pytest.mark.parametrize(
    ("verb", "body"), [("reject", {}), ("reject", {"comment": " "}), ("feedback", {"comment": " "})]
)
def test_the_api_has_a_code_for_it(store: Store, waiting: Request, verb: str, body: dict[str, str]) -> None:
    answer = caller(create_app(store)).post(f"/api/v1/requests/{waiting.id}/{verb}", json=body)
    assert code_of(answer) == (422, "reason_missing")
    refused(store, waiting)


def test_a_hook_is_told(store: Store, waiting: Request, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JIRA_SECRET", SECRET)
    app = create_app(store, hooks={"jira": {"secret_env": "JIRA_SECRET", "reviewers": ["ada"]}})
    body = body_of(waiting, "reject")
    answer = TestClient(app, base_url=BASE).post("/hooks/decisions", content=body, headers=signed(body, keys=KEYS))
    assert code_of(answer) == (422, "reason_missing")
    refused(store, waiting)


def test_slack_says_so_before_and_after(store: Store, waiting: Request) -> None:
    view = show.modal(waiting, clock.now(), link=None)
    assert view is not None
    (note,) = [one for one in view["blocks"] if one.get("block_id") == "note"]
    assert "rejecting a Confirm needs a reason" in note["label"]["text"]
    chosen = {"verb": {"verb": {"selected_option": {"value": "reject"}}}}
    with pytest.raises(show._InvalidSubmission) as told:
        show._apply(sayso.Review(store, reviewer="ada"), waiting, chosen, waiting.current_fingerprint)
    assert told.value.problems == {
        "note": "Write a note with the reason; rejecting a Confirm needs one. Nothing was decided."
    }
    refused(store, waiting)


# -- what a Confirm is about ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value"), [("target_id", OTHER), ("target_type", "TRACE"), ("confirm_id", OTHER), ("plan_id", OTHER)]
)
def test_an_edit_of_an_id_is_refused_when_it_is_decided(store: Store, waiting: Request, name: str, value: str) -> None:
    review = sayso.Review(store, reviewer="ada")
    with pytest.raises(errors.InvalidChangesError) as told:
        review.approve(waiting.id, changes={name: value})
    (problem,) = told.value.problems
    assert name in problem
    assert store.get(waiting.id) == waiting
    answer = caller(create_app(store)).post(
        f"/api/v1/requests/{waiting.id}/approve", json={"seen": waiting.current_fingerprint, "changes": {name: value}}
    )
    assert code_of(answer) == (422, "invalid_changes")
    refused(store, waiting)


def test_the_same_ids_written_again_are_no_edit_of_them(store: Store) -> None:
    submit_for_approval(create_confirm("extension", ONE, "agent", "why"))
    (request,) = sayso.Review().list().requests
    changes = {"target_type": "EXTENSION", "target_id": ONE, "reason": "only once"}
    after = sayso.Review(store, reviewer="ada").approve(request.id, changes=changes)
    assert after.effective.arguments == changes
