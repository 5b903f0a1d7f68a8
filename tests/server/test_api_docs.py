"""The HTTP API against its own page and document: what they list, and many cases drawn by Schemathesis.

The page names every operation; the document says who may, and what each code means. The same cases are drawn on every
run. The invariant: whatever is sent, the answer is one that the document tells of, none is a fault of the server, and
without a token nothing is done.
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


def test_every_operation_says_in_the_document_who_may_and_what_each_code_means() -> None:
    paths = application.document(endpoints())["paths"]
    for one in endpoints():
        said = paths[re.sub(r":\w+}", "}", one.path)][one.method.lower()]
        assert sorted(said["x-token-kinds"]) == sorted(one.kinds), one.path
        for code in application.codes_of(one):
            kind = problems.kinds()[code]
            assert f"`{code}`: " in said["responses"][str(kind.status)]["description"], (one.path, code)


def test_every_operation_stands_on_the_page(root: Path) -> None:
    page = (root / PAGE).read_text(encoding="utf-8").partition("\n## Operations\n")[2].partition("\n## ")[0]
    words = {word for text in re.findall(r"`([^`]+)`", page) for word in re.findall(r"[a-z]+", text)}
    words |= {*re.findall(r"\w+", page)}
    names = {one.path.removeprefix("/v1/").split("/")[-1 if "{" in one.path else 0] for one in endpoints()}
    lacking = sorted(name for name in names if re.fullmatch(r"[a-z]+", name) and name not in words)
    assert lacking == []


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
