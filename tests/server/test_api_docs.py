"""The HTTP API against its own page and document: what they list, and many cases drawn by Schemathesis.

The page lists every operation with who may, and every code with its status. The same cases are drawn on every run. The
invariant: whatever is sent, the answer is one that the document tells of, none is a fault of the server, and without a
token nothing is done.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from starlette.applications import Starlette

from sayso.server import app as application
from sayso.server import create_app
from sayso.server.api import problems
from sayso.server.api.endpoint import Endpoint
from sayso.server.app import endpoints
from sayso.stores.base import Store
from sayso.testing import sample_call, sample_question
from tests.support.browsing import BASE
from tests.support.calling import bearer
from tests.support.rounds import rounds
from tests.support.running import paying, started

PAGE = "docs/reference/http-api.md"


def rows(root: Path, heading: str) -> list[list[str]]:
    """Return the cells of the table below a heading."""
    page = (root / PAGE).read_text(encoding="utf-8")
    part = page.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    return [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in part.splitlines()
        if "`" in line and line.startswith("|")
    ]


def test_every_operation_stands_on_the_page_with_who_may(root: Path) -> None:
    told = {
        (method, f"/api/v1/{path}"): kinds
        for kinds, cell in (row for row in rows(root, "What reviewers can do"))
        for method, path in re.findall(r"`([A-Z]+) ([^`]+)`", cell)
    }
    real = {
        (one.method, "/api" + re.sub(r":\w+}", "}", one.path)): "all" if len(one.kinds) == 3 else ", ".join(
            kind for kind in ("ask", "review", "admin") if kind in one.kinds
        )
        for one in endpoints()
        if not one.path.startswith("/v1/program/")
    }  # fmt: skip
    assert told == real
    assert all(set(one.kinds) == {"ask"} for one in endpoints() if one.path.startswith("/v1/program/"))


def test_every_code_stands_on_the_page_with_its_status(root: Path) -> None:
    told = {
        (status, code)
        for status, cell in re.findall(r"^\| (\d{3}) \| (.+?) \|", (root / PAGE).read_text("utf-8"), re.MULTILINE)
        for code in re.findall(r"`(\w+)`", cell)
    }
    codes = {code for one in endpoints() for code in application.codes_of(one)} | {"not_found", "method_not_allowed"}
    kinds = [problems.kinds()[code] for code in codes]
    assert told == {(str(kind.status), kind.code) for kind in kinds}


CASES, FEWEST = rounds(10, 28), rounds(700, 2_000)
KINDS = ("ask", "review", "admin")


@pytest.fixture
def app(memory: Store) -> Starlette:
    return create_app(memory, stranger_rate=None, hosts=["testserver"])


def ids_in(store: Store) -> list[str]:
    """Fill a store; return ids of requests in it, and of none."""
    asked = [store.ask(sample_call(risk="high")).id, store.ask(sample_question()).id, store.ask(sample_call()).id]
    started(paying([]), amount=5)
    return [*asked, "rq_" + "0" * 32]


def quick(case: Any) -> None:
    """Let nothing that can wait for a change wait for one: how long it waits is tested elsewhere."""
    if isinstance(case.body, dict) and "seconds" in case.body:
        case.body["seconds"] = 0


def fuzzed(app: Starlette, schema: Any, operation: Endpoint, counted: Counter[str], mode: Any) -> None:
    from schemathesis.specs.openapi import checks

    drawn = schema[operation.path.replace(":path", "")][operation.method]
    store: Store = app.state.settings.store
    ids, kinds = ids_in(store), [*sorted(operation.kinds) * 4, *KINDS]
    made = {kind: bearer(store, kind, "ada") for kind in KINDS}  # each new token looks at all
    tokens = [*(made[kind] for kind in kinds), {}]
    wanted = [
        schemathesis.checks.not_a_server_error, checks.status_code_conformance, checks.content_type_conformance,
        checks.response_schema_conformance,
    ]  # fmt: skip

    @seed(1)
    @settings(
        max_examples=CASES, derandomize=True, database=None, deadline=None, phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    # Who asks and for what is drawn first: what is drawn last is most often the simplest.
    @given(st.sampled_from(tokens), st.sampled_from(ids), drawn.as_strategy(generation_mode=mode))
    def one(token: dict[str, str], request_id: str, case: Any) -> None:
        if isinstance(case.path_parameters, dict) and "request_id" in case.path_parameters:
            case.path_parameters["request_id"] = request_id
        quick(case)
        case.headers = {
            name: value for name, value in (case.headers or {}).items() if name.casefold() != "authorization"
        }
        answer = case.call(base_url=f"{BASE}/api", headers=token)
        case.validate_response(answer, checks=wanted)
        assert token or answer.status_code == 401
        counted[str(answer.status_code)] += 1

    one()


@pytest.mark.slow
def test_every_answer_is_one_that_the_document_tells_of(app: Starlette, capsys: pytest.CaptureFixture[str]) -> None:
    counted, schema = Counter[str](), schemathesis.openapi.from_dict(application.document(endpoints()))
    schema.app = app
    for operation in endpoints():
        if operation.path == "/v1/events":
            continue  # it never ends; `test_api_events` listens to it
        for mode in ("positive", "negative"):
            fuzzed(app, schema, operation, counted, schemathesis.GenerationMode(mode))
    with capsys.disabled():
        print(f"\napi: {counted.total():,} cases, {dict(sorted(counted.items()))}")
    assert counted.total() >= FEWEST
    assert {"200", "401", "403", "404", "422"} <= set(counted)
    assert not [status for status in counted if status >= "500"]
