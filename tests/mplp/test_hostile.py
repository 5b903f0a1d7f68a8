"""What a program says of its Confirm by hand: it harms the documents of nobody else, and few of its own."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

import sayso
from sayso import errors, learning
from sayso.model import canonical
from sayso.model.canonical.json_tree import dumps
from sayso.model.ids import call_digest, fingerprint
from sayso.model.request import Request
from sayso.mplp import Confirm, NotConformantError, Plan, read_confirm, read_plan, start
from sayso.mplp.schema import id_of
from sayso.server import create_app
from sayso.stores.base import Store
from sayso.stores.memory import MemoryStore
from sayso.stores.sqlite import SqliteStore
from sayso.testing import sample_call
from sayso.view.summary import short
from tests.support.browsing import BASE
from tests.support.calling import bearer, code_of
from tests.support.commands import sayso as run
from tests.support.submitting import PLAN, plan_of_three, reviewer, submitted

HALF = "\ud800"


def saying(memory: MemoryStore, **context: Any) -> Request:
    """Let a plan wait with this in its context, as a program can that writes its own."""
    _, _, request = submitted()
    memory._tables().rows[request.id] = replace(request, context={**(request.context or {}), **context})
    return request


def shown_as(request: Request, arguments: Any, **fields: Any) -> Request:
    """Return a request whose call has other arguments, and the fingerprint that these give."""
    form = dumps(arguments)
    digest = call_digest(request.call.tool, request.call.schema_digest, canonical.digest_input(form))
    own = {"fingerprint": fingerprint(fields.get("run_id", request.run_id), digest, request.place)}
    return replace(request, subject=replace(request.call, form=form, digest=digest), **own, **fields)


# -- a context that is no part of a Confirm -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "told",
    [
        {"meta": {"protocol_version": "x", "schema_version": "1.0.0"}},
        {"meta": {"protocol_version": "1.0.0", "schema_version": "1.0.0", "tags": [HALF]}},
        {"governance": {"lifecyclePhase": HALF}},
        {"governance": {"x": 1}},
        {"trace": {"trace_id": PLAN, "span_id": "x"}},
    ],
)
def test_a_field_that_does_not_fit_is_left_out_of_a_confirm(memory: MemoryStore, told: dict[str, Any]) -> None:
    fits = {"governance": {"truthDomain": "plans"}} if "governance" not in told else {}
    request = saying(memory, confirm={**fits, **told})
    content = Confirm.parse(read_confirm(request.id).export()).export()
    assert content.get("governance") == fits.get("governance")
    assert content["reason"].startswith("Requesting approval for plan")


def test_words_with_half_of_a_character_are_written_out(memory: MemoryStore) -> None:
    content = read_confirm(saying(memory, requested_by_role=HALF, confirm={"reason": HALF}).id).export()
    assert (content["requested_by_role"], content["reason"]) == (r"\ud800", r"\ud800")


@pytest.mark.parametrize(
    "told",
    [
        {"meta": 7},
        {"meta": {"protocol_version": "1.0.0", "schema_version": "1.0.0", "created_at": "nope"}},
        {"trace": {"x": 1}},
        {"events": [{"a": 1}]},
        {"agents": 5},
        {"context_id": HALF},
        {"context_id": "x"},
        {"status": "approved", "steps": [], "title": "another"},
    ],
)
def test_a_field_that_does_not_fit_is_left_out_of_a_plan(memory: MemoryStore, told: dict[str, Any]) -> None:
    request = saying(memory, plan=told)
    reviewer().approve(request.id)
    read = read_plan(PLAN)
    assert (read.status, read.title, len(read.steps)) == ("approved", "Move the data", 3)
    assert Plan.parse(read.export()).context_id == read_plan(PLAN).context_id
    (sample,) = learning.samples(memory)
    assert sample["input"]["intent_id"] == PLAN
    assert start(plan_of_three(), lambda plan: len(plan.steps)) == 3


def test_a_kind_of_run_that_is_no_word_is_none(memory: MemoryStore) -> None:
    request = memory.ask(sample_call(context={"runnable_type": ["agent"]}))
    assert read_confirm(request.id).target_type == "other"


# -- a call that is no plan -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [
        {"x": 1},
        {"title": "t", "objective": "o", "steps": 5},
        {"title": "t", "objective": "o", "steps": [["description"]]},
        {"title": "t", "objective": "o", "steps": [{"step_id": PLAN}]},
        {"title": "t", "objective": "o", "steps": [{"description": 5}]},
        {"title": "t", "objective": "o", "steps": [{"description": "d", "agents": 1}]},
    ],
)
def test_what_is_no_plan_is_refused_as_one_and_left_out_of_samples(
    memory: MemoryStore, arguments: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    _, _, request = submitted()
    memory._tables().rows[request.id] = shown_as(request, arguments)
    reviewer().approve(request.id)
    paid = memory.ask(sample_call())
    reviewer().approve(paid.id)
    with pytest.raises(NotConformantError, match="does not have the title"):
        read_plan(PLAN)
    carried_out: list[Any] = []
    with pytest.raises(errors.SaysoError):
        start(plan_of_three(), carried_out.append)
    assert carried_out == []
    left_out: list[str] = []
    (sample,) = learning.samples(memory, unread=left_out)
    assert (sample["sample_family"], left_out) == ("confirm_decision", [request.id])
    with caplog.at_level(logging.WARNING, logger="sayso"):
        assert list(learning.samples(memory)) == [sample]
    assert [record.args[0] for record in caplog.records if isinstance(record.args, tuple)] == [request.id]


def test_an_export_says_what_it_left_out(file_store: Store, tmp_path: Path) -> None:
    _, _, asked = submitted()
    reviewer().cancel(asked.id)
    run_id = f"plan:{id_of('another')}"
    bad = file_store.ask(shown_as(replace(asked, id=f"rq_{'7' * 32}"), {"x": 1}, run_id=run_id))
    reviewer().approve(bad.id)
    reviewer().approve(file_store.ask(sample_call()).id)
    where = ("--store", f"sqlite:///{tmp_path / 'sayso.db'}")
    done = run(*where, "learn", "export")
    families = [json.loads(line)["sample_family"] for line in done.out.splitlines()]
    assert (done.code, families) == (0, ["confirm_decision", "intent_resolution"])
    assert f"1 request left out, because no sample can represent the content: {short(bad.id)}" in done.err
    assert "left out" not in run(*where, "learn", "export", "--table").err


def test_a_target_whose_id_is_none_is_not_found_over_http(tmp_path: Path) -> None:
    there = SqliteStore(tmp_path / "server.db")
    sayso.configure(store=there)
    _, _, asked = submitted()
    request = replace(asked, id=f"rq_{'7' * 32}", run_id="plan:x")
    there.ask(replace(request, fingerprint=fingerprint("plan:x", request.call.digest, request.place)))
    client = TestClient(create_app(there), base_url=BASE, raise_server_exceptions=False)
    answer = client.get(f"/api/v1/confirms/{request.id}", headers=bearer(there, name="bea"))
    assert code_of(answer) == (404, "not_found")
    assert "not a document of the Confirm protocol" in answer.json()["detail"]
    there.close()


# -- rows that somebody altered -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fields", [{"fingerprint": "x"}, {"fingerprint": b"\xff"}, {"run_id": b"\xff"}, {"id": b"\xff"}]
)
def test_a_row_that_was_altered_is_a_confirm_all_the_same(fields: dict[str, Any]) -> None:
    made = [Confirm.from_request(replace(sample_call(), **fields)).export() for _ in range(2)]
    assert made[0]["target_id"] != sample_call().fingerprint
    Confirm.parse(made[0])


def test_a_request_whose_fingerprint_was_altered_is_exported(memory: MemoryStore) -> None:
    request = memory.ask(sample_call())
    reviewer().approve(request.id)
    memory._tables().rows[request.id] = replace(memory._tables().rows[request.id], fingerprint="x")
    assert read_confirm(request.id).export()["status"] == "approved"
    (sample,) = learning.samples(memory)
    assert sample["output"]["final_status"] == "approved"
