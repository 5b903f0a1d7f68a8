"""What reviewers are shown of a request whose effect another one has, and how they let it happen again."""

from __future__ import annotations

import pytest
from starlette.applications import Starlette

import sayso as package
from sayso import errors
from sayso.model.lifecycle import Outcome
from sayso.model.request import Request, State
from sayso.server import create_app
from sayso.stores.base import Store
from sayso.testing import sample_call
from sayso.view.summary import short
from tests.support.browsing import browser, text_of
from tests.support.calling import caller, code_of
from tests.support.commands import sayso

_EFFECT = "refund:A-4721"


def refunded(store: Store) -> tuple[Request, Request]:
    """Return a refund that was done, and one of the same order that waits."""
    first = store.ask(sample_call("run_1", effect=_EFFECT, summary="Refund 320 for A-4721"))
    package.Review(store).approve(first.id, by="bob")
    store.start(first.id, "t")
    done = store.finish(first.id, "t", Outcome("done"))
    return done, store.ask(sample_call("run_2", effect=_EFFECT))


@pytest.fixture
def app(store: Store) -> Starlette:
    return create_app(store)


def test_a_request_is_shown_with_those_that_have_its_effect(file_store: Store) -> None:
    store = file_store
    first, second = refunded(store)
    shown = sayso("show", second.id, SAYSO_STORE=store.url).out
    assert f"the same effect: {short(first.id)}" in shown
    assert "approved by bob" in shown
    assert _EFFECT in shown
    assert "Refund 320 for A-4721" in sayso("show", first.id, SAYSO_STORE=store.url).out


def test_a_command_lets_an_effect_happen_again_with_a_reason(file_store: Store) -> None:
    store = file_store
    _, second = refunded(store)
    assert sayso("approve", second.id, "--again", "--as", "ada", SAYSO_STORE=store.url).code == 1
    assert store.get(second.id).state is State.PENDING
    sayso("approve", second.id, "--again", "-m", "it bounced", "--as", "ada", SAYSO_STORE=store.url)
    decision = store.get(second.id).decision
    assert decision is not None
    assert (decision.again, decision.comment) == (True, "it bounced")


def test_the_page_of_a_request_shows_those_that_have_its_effect(app: Starlette, store: Store) -> None:
    _, second = refunded(store)
    page = text_of(browser(app).get(f"/r/{second.id}").text)
    assert "the same effect" in page
    assert "approved by bob" in page


def test_the_page_lets_an_effect_happen_again_with_a_reason(app: Starlette, store: Store) -> None:
    _, second = refunded(store)
    ada = browser(app, "ada")
    assert "A reason is required" in text_of(ada.decide(second.id, "approve", again="yes").text)
    assert store.get(second.id).state is State.PENDING
    ada.decide(second.id, "approve", again="yes", note="it bounced")
    decision = store.get(second.id).decision
    assert decision is not None
    assert (decision.again, decision.comment) == (True, "it bounced")
    assert 'name="again"' not in ada.get(f"/r/{store.ask(sample_call()).id}").text


def test_the_api_lets_an_effect_happen_again_with_a_reason(app: Starlette, store: Store) -> None:
    _, second = refunded(store)
    ada, address = caller(app), f"/api/v1/requests/{second.id}/approve"
    body = {"seen": second.fingerprint, "again": True}
    assert code_of(ada.post(address, json=body)) == (422, "reason_missing")
    decided = ada.post(address, json=body | {"comment": "it bounced"}).json()
    assert (decided["state"], decided["decision"]["again"], decided["effect"]) == ("approved", True, _EFFECT)
    assert store.start(second.id, "u").state is State.RUNNING


def test_again_is_a_bool_and_needs_a_reason_and_an_effect(store: Store) -> None:
    _, second = refunded(store)
    review = package.Review(store, by="ada")
    with pytest.raises(TypeError, match="again"):
        review.approve(second.id, again="no")  # type: ignore[arg-type]
    with pytest.raises(errors.ReasonMissingError, match="nothing was decided"):
        review.approve(second.id, again=True)
    with pytest.raises(errors.DecisionRefusedError, match="has no effect"):
        review.approve(store.ask(sample_call()).id, again=True, comment="why not")
    assert store.get(second.id).state is State.PENDING
