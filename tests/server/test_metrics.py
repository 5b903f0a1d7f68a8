"""`/metrics`: its numbers, who may read them, and what is never in them."""

from __future__ import annotations

import builtins
from datetime import timedelta
from typing import Any

import pytest

pytest.importorskip("opentelemetry.exporter.prometheus")

from prometheus_client.parser import text_string_to_metric_families
from starlette.applications import Starlette
from starlette.testclient import TestClient

import sayso
from sayso.errors import ConfigError, StoreUnavailableError
from sayso.model.ids import new_token
from sayso.model.lifecycle import Outcome
from sayso.model.reviewer import Quorum
from sayso.server import create_app
from sayso.server.auth.tokens import TokenKind, Tokens
from sayso.server.metrics import TOKEN
from sayso.stores.base import Store
from sayso.stores.records import Record
from sayso.testing import sample_call, sample_question
from tests.conftest import Clock
from tests.support.acting import held
from tests.support.browsing import BASE, browser
from tests.support.canaries import Program, assert_clean


def scraper(app: Starlette, host: str = "127.0.0.1", **headers: Any) -> TestClient:
    return TestClient(app, base_url=BASE, client=(host, 50_000), headers=headers)


def read(client: TestClient) -> dict[tuple[str, ...], float]:
    answer = client.get("/metrics")
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }


def decided(store: Store, clock: Clock, verb: str, seconds: float) -> None:
    request = store.ask(sample_question() if verb == "answer" else sample_call())
    clock.tick(seconds=seconds)
    getattr(sayso.Review(store, reviewer="ada"), verb)(request.id, *(["x"] if verb in {"answer", "feedback"} else []))


def test_what_people_decide_is_counted_from_the_first_look_on(memory: Store, clock: Clock) -> None:
    decided(memory, clock, "approve", 1)
    client = scraper(create_app(memory))
    assert read(client)["sayso_decisions_total", "approve"] == 0
    for verb, seconds in [("approve", 2), ("approve", 40), ("reject", 5), ("feedback", 9), ("cancel", 1)]:
        decided(memory, clock, verb, seconds)
    decided(memory, clock, "answer", 7_200)
    found = read(client)
    assert {verb: found["sayso_decisions_total", verb] for verb in ("approve", "reject", "answer", "cancel")} == {
        "approve": 2, "reject": 1, "answer": 1, "cancel": 1,
    }  # fmt: skip
    assert found["sayso_decision_duration_seconds_count",] == 6
    assert found["sayso_decision_duration_seconds_sum",] == 7_257
    assert found["sayso_decision_duration_seconds_bucket", "10"] == 4
    assert found["sayso_decision_duration_seconds_bucket", "+Inf"] == 6
    clock.tick(seconds=6)
    assert read(client)["sayso_decisions_total", "approve"] == 2


def test_a_vote_is_no_decision_yet(memory: Store, clock: Clock) -> None:
    client = scraper(create_app(memory))
    read(client)
    request = memory.ask(sample_call(quorum=Quorum(2)))
    sayso.Review(memory, reviewer="ada").approve(request.id)
    clock.tick(seconds=6)
    found = read(client)
    assert (found["sayso_decisions_total", "vote"], found["sayso_decisions_total", "approve"]) == (1, 0)
    assert ("sayso_decision_duration_seconds_count",) not in found


def test_what_waits_is_told_by_its_age(memory: Store, clock: Clock) -> None:
    for hours in (30, 2, 0.5, 0):
        at = clock.at - timedelta(hours=hours)
        memory.ask(sample_call(created_at=at, expires_at=clock.at + timedelta(hours=1)))
    memory.ask(sample_call(expires_at=clock.at))
    found = read(scraper(create_app(memory)))
    ages = {age: found["sayso_pending", age] for age in ("0s", "1m", "10m", "1h", "1d")}
    assert ages == {"0s": 4, "1m": 3, "10m": 3, "1h": 2, "1d": 1}
    assert (found["sayso_states", "pending"], found["sayso_states", "expired"]) == (4, 1)


def test_ends_and_channels_are_told(memory: Store, clock: Clock) -> None:
    client = scraper(create_app(memory))
    read(client)
    request, token = memory.ask(sample_call()), new_token()
    sayso.Review(memory, reviewer="ada").approve(request.id)
    memory.start(request.id, token)
    memory.finish(request.id, token, Outcome("unknown"))
    memory.keep(Record("channel", "ops", {"kind": "webhook", "by": "settings"}))
    memory.keep(Record("delivery/ops", "rq_1", {"changes": 0, "sent": [], "given_up": True}, clock.at))
    memory.keep(Record("delivery/ops", "rq_2", {"changes": 0, "sent": [], "tries": 3}, clock.at))
    memory.ask(sample_call(expires_at=clock.at + timedelta(seconds=1)))
    clock.tick(seconds=6)
    memory.sweep()
    found = read(client)
    assert (found["sayso_ends_total", "unknown"], found["sayso_ends_total", "expired"]) == (1, 1)
    assert found["sayso_states", "unknown"] == 1
    assert found["sayso_channel_messages", "ops", "given_up"] == 1
    assert found["sayso_channel_messages", "ops", "failing"] == 1


def test_of_many_looks_one_reads_the_store(memory: Store, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    client, looks = scraper(create_app(memory)), list[int]()
    count = memory.count

    def counted(wanted: Any) -> int:
        looks.append(1)
        return count(wanted)

    monkeypatch.setattr(memory, "count", counted)
    read(client)
    once = len(looks)
    read(client)
    assert len(looks) == once
    clock.tick(seconds=5)
    read(client)
    assert len(looks) > once


def test_events_that_were_lost_are_told(memory: Store, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    app = create_app(memory)
    client = scraper(app)
    read(client)
    monkeypatch.setattr(app.state.event_log, "since", lambda _: None)
    clock.tick(seconds=5)
    assert read(client)["sayso_events_lost_total",] == 1


def test_a_store_that_fails_gives_no_metrics_and_says_so(memory: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    client = scraper(create_app(memory))

    def gone(_: object) -> int:
        raise StoreUnavailableError("the disk is gone")

    monkeypatch.setattr(memory, "count", gone)
    answer = client.get("/metrics")
    assert (answer.status_code, "sayso_states" in answer.text) == (503, False)


def test_no_argument_is_in_the_metrics(memory: Store, clock: Clock, program: Program) -> None:
    client = scraper(create_app(memory))
    read(client)
    request_id = held(program.gated(), **program.arguments).confirmation_id
    sayso.Review(reviewer="ada").reject(request_id, program.everything())
    clock.tick(seconds=5)
    text = client.get("/metrics").text
    assert 'sayso_decisions_total{sayso_decision_verb="reject"} 1.0' in text
    assert_clean(text)


# -- who may --------------------------------------------------------------------------------------------------------


def status(client: TestClient) -> int:
    return client.get("/metrics").status_code


def test_a_server_for_this_machine_alone_tells_this_machine_alone(memory: Store) -> None:
    app = create_app(memory)
    assert [status(scraper(app, host)) for host in ("127.0.0.1", "::1", "192.0.2.7")] == [200, 200, 401]


def test_behind_a_proxy_nobody_sits_at_this_machine(memory: Store) -> None:
    assert status(scraper(create_app(memory, base_url=BASE))) == 401
    assert status(scraper(create_app(memory, who=lambda _: None))) == 401


def test_a_session_and_tokens_of_people_may_read_and_a_programs_may_not(memory: Store) -> None:
    app = create_app(memory, base_url=BASE)
    assert status(browser(app)) == 200
    wants: dict[TokenKind, int] = {"admin": 200, "review": 200, "ask": 403}
    for kind, wanted in wants.items():
        text = Tokens(memory).new(kind, "ada")[1]
        assert status(scraper(app, "192.0.2.7", authorization=f"Bearer {text}")) == wanted


def test_the_scrapers_token_opens_the_metrics_and_nothing_else(memory: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TOKEN, "s" * 32)
    app = create_app(memory, base_url=BASE)
    client = scraper(app, "192.0.2.7", authorization=f"Bearer {'s' * 32}")
    assert (status(client), client.get("/api/v1/requests").status_code, client.get("/history").status_code) == (
        200, 401, 401,
    )  # fmt: skip
    for wrong in ("s" * 31, "s" * 33, "é" * 32, ""):
        assert status(scraper(app, "192.0.2.7", authorization=f"Bearer {wrong}".encode())) == 401
    assert status(scraper(app, "192.0.2.7", authorization=f"Basic {'s' * 32}")) == 401


def test_a_scrapers_token_that_can_be_guessed_opens_nothing(memory: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TOKEN, "short")
    with pytest.raises(ConfigError, match="16 random ones"):
        create_app(memory, base_url=BASE)


def test_without_the_extra_it_says_what_is_missing(memory: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    load = builtins.__import__

    def missing(name: str, *args: Any, **more: Any) -> Any:
        if name.startswith("prometheus_client"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return load(name, *args, **more)

    monkeypatch.setattr(builtins, "__import__", missing)
    answer = scraper(create_app(memory)).get("/metrics")
    assert (answer.status_code, "sayso[metrics]" in answer.text) == (501, True)
