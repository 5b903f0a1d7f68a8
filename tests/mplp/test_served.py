"""A plan of a program on another machine: submitted with a token that can only ask, approved on the server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

import sayso
from sayso import config, errors
from sayso.model.request import State
from sayso.mplp import (
    ConfirmRefusedError,
    create_confirm,
    document_of,
    process_decision,
    read_confirm,
    refresh,
    schema,
    start,
    submit_plan_for_approval,
)
from sayso.server import create_app
from sayso.stores.base import Filter, Store
from sayso.stores.http import HttpStore
from sayso.stores.sqlite import SqliteStore
from tests.support.browsing import BASE
from tests.support.calling import bearer
from tests.support.serving import Serving, new_token, serving
from tests.support.submitting import plan_of_three, submitted, yes


@pytest.fixture(scope="module")
def server() -> Iterator[Serving]:
    with serving() as one:
        yield one


@pytest.fixture
def there(tmp_path: Path) -> Iterator[Store]:
    """The store on the server."""
    store = SqliteStore(tmp_path / "server.db")
    yield store
    store.close()


@pytest.fixture(autouse=True)
def here(server: Serving, there: Store) -> Iterator[Store]:
    """The same store, as the program's default one."""
    sayso.configure(store=server.of(there), token=new_token(there, name="support-bot"))
    store = config.default_store()
    assert isinstance(store, HttpStore)
    yield store
    store.close()


def test_a_plan_is_submitted_rejected_submitted_again_approved_and_carried_out(there: Store) -> None:
    plan, confirm, request = submitted()
    person = sayso.Review(there, reviewer="ada", channel="web")
    person.reject(request.id, "no way back")
    refresh(confirm)
    assert (plan.status, confirm.status) == ("draft", "rejected")
    confirm = submit_plan_for_approval(plan, "agent")
    person.approve(person.list().requests[0].id)
    assert read_confirm(confirm.confirm_id).status == "approved"
    assert document_of(there, confirm.confirm_id) == read_confirm(confirm.confirm_id).export()
    assert start(plan, lambda given: len(given.steps)) == 3
    assert plan.status == "completed"


def test_a_program_that_can_only_ask_does_not_process_decisions(there: Store) -> None:
    _, confirm, _ = submitted()
    with pytest.raises(errors.StoreForbiddenError):
        process_decision(confirm, yes())
    assert document_of(there, confirm.confirm_id)["status"] == "pending"


def test_a_program_cannot_give_a_persons_decision_another_role(here: Store, there: Store) -> None:
    from sayso.config import requester

    _, confirm, request = submitted()
    sayso.Review(there, reviewer="ada").approve(request.id)
    (decision,) = document_of(there, confirm.confirm_id)["decisions"]
    detail = {"of": decision["decision_id"], "decision_id": decision["decision_id"], "decided_by_role": "cfo"}
    for event in ("confirm.decision", "confirm.decided"):
        try:
            here.note(f"confirm:{confirm.confirm_id}", event, requester(), detail)
        except errors.SaysoError:
            assert event == "confirm.decision"
    assert document_of(there, confirm.confirm_id)["decisions"] == [decision]


def test_the_id_of_a_confirm_that_another_program_uses_leaves_nothing_waiting(
    server: Serving, here: Store, there: Store
) -> None:
    from sayso.config import requester

    plan = plan_of_three()
    brought = create_confirm("plan", plan.plan_id, "agent")
    other = HttpStore(server.url, new_token(there, name="other-bot"))
    other.note(f"confirm:{brought.confirm_id}", "denied", requester(), {"tool": "x"})
    other.close()
    with pytest.raises(ConfirmRefusedError, match=r"another program uses .* is no longer pending; submit it under"):
        submit_plan_for_approval(plan, "agent", confirm=brought, store=here)
    assert (plan.status, brought.status) == ("draft", "pending")
    assert there.list(Filter()).requests[0].state is State.CANCELLED
    assert sayso.Review(there).list().requests == ()
    confirm = submit_plan_for_approval(plan, "agent", store=here)
    assert (plan.status, confirm.status) == ("proposed", "pending")


def test_a_reviewer_reads_the_confirm_over_http_and_a_program_does_not(there: Store) -> None:
    _, confirm, request = submitted()
    sayso.Review(there, reviewer="ada").approve(request.id)
    client = TestClient(create_app(there), base_url=BASE)
    reads = bearer(there, name="bea")
    for wanted in (confirm.confirm_id, request.id):
        answer = client.get(f"/api/v1/confirms/{wanted}", headers=reads)
        assert (answer.status_code, answer.json()) == (200, document_of(there, confirm.confirm_id))
    assert client.get("/api/v1/confirms/nobody", headers=reads).json()["code"] == "not_found"
    assert client.get("/api/v1/schemas/confirm", headers=reads).json() == schema("confirm")
    assert client.get("/api/v1/schemas/no", headers=reads).status_code == 404
    asks = bearer(there, "ask", "other-bot")
    assert client.get(f"/api/v1/confirms/{request.id}", headers=asks).status_code == 403
