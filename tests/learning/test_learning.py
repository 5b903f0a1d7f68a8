"""What is learned from decisions: samples, pairs, tables and the report, from decisions that people made."""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Callable
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import sayso
from sayso.cli.learn import _as_parquet, _csv_lines
from sayso.clock import written
from sayso.errors import ConfigError
from sayso.learning import COLUMNS, PAIR_COLUMNS, Proposal, Share, decided, label_of, pairs, report, samples, table
from sayso.model.lifecycle import Outcome
from sayso.model.request import Request, State
from sayso.model.reviewer import LOCAL, PROGRAM, Identity, Quorum
from sayso.mplp import LearningSample, NotConformantError, sample_of
from sayso.mplp.history import export_of
from sayso.policy import Policy
from sayso.server import create_app
from sayso.stores.base import Filter, Store
from sayso.stores.memory import MemoryStore
from sayso.testing import sample_call, sample_question
from sayso.testing.scene import Scene
from tests.conftest import Clock
from tests.support.acting import held
from tests.support.browsing import browser, text_of
from tests.support.canaries import Program, assert_clean
from tests.support.commands import HIDDEN
from tests.support.commands import sayso as run
from tests.support.submitting import submitted

SLOW = 40


def decide(
    store: Store, clock: Clock, verb: str = "approve", *words: Any, seconds: float = SLOW, by: str = "ada",
    arguments: dict[str, Any] | None = None, changes: dict[str, Any] | None = None, **fields: Any,
) -> Request:  # fmt: skip
    """Let somebody decide a call that was asked so many seconds ago."""
    given = {"amount": 10, "to": "alice", "password": "x"} if arguments is None else arguments
    request = store.ask(sample_call(None, given, **fields))
    clock.tick(seconds=seconds)
    review = sayso.Review(store, reviewer=by)
    return getattr(review, verb)(request.id, *words, **({} if changes is None else {"changes": changes}))


# -- which decisions ------------------------------------------------------------------------------------------------


def test_what_nobody_decided_and_what_was_purged_is_left_out(memory: Store, clock: Clock) -> None:
    memory.ask(sample_call())
    memory.ask(sample_call(expires_at=clock.at + timedelta(seconds=1)))
    gone = decide(memory, clock, "reject")
    kept = decide(memory, clock, "reject")
    memory.sweep()
    clock.tick(days=1)
    assert [request.id for request in decided(memory)] == [kept.id, gone.id]
    memory.purge(gone.id, Identity(LOCAL, "ada"), before=clock.at, channel="cli")
    assert [request.id for request in decided(memory)] == [kept.id]


def test_decisions_are_chosen_by_when_they_were_asked_and_by_function(memory: Store, clock: Clock) -> None:
    first = decide(memory, clock)
    clock.tick(days=1)
    since = clock.at
    second = decide(memory, clock)
    question = memory.ask(sample_question())
    sayso.Review(memory, reviewer="ada").answer(question.id, "main")
    assert [one.id for one in decided(memory, since=since)] == [question.id, second.id]
    assert [one.id for one in decided(memory, until=since)] == [first.id]
    for name in ("pay", "payments:pay"):
        assert [one.id for one in decided(memory, tool=name)] == [second.id, first.id]
    assert list(decided(memory, tool="other")) == []


def test_reading_stops_where_older_requests_begin(memory: Store, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sayso.stores.review._REQUESTS", 2)
    for _ in range(6):
        decide(memory, clock)
    since, pages, read = clock.at, list[int](), memory.list
    newest = [decide(memory, clock).id for _ in range(3)]

    def counted(*words: Any, **options: Any) -> Any:
        pages.append(1)
        return read(*words, **options)

    monkeypatch.setattr(memory, "list", counted)
    assert [one.id for one in decided(memory, since=since)] == newest[::-1]
    assert len(pages) == 3


def test_what_the_program_takes_back_is_nobodys_decision(memory: Store, clock: Clock) -> None:
    always(memory, clock)
    for _ in range(25):
        asked = memory.ask(sample_call())
        clock.tick(seconds=1)
        memory.withdraw(asked.id, Identity(PROGRAM, "tests"))
    found = report(memory)
    assert (found.decisions, found.reasons) == (30, ())
    assert [one.approved for one in found.candidates] == [Share(30, 30)]
    assert {stamp.reviewer.issuer for stamp in found.stamps} <= {LOCAL}
    assert len(list(samples(memory))) == len(table(memory)) == 30


def test_a_cancel_of_a_person_is_a_decision(memory: Store, clock: Clock) -> None:
    request = memory.ask(sample_call())
    sayso.Review(memory, reviewer="ada", channel="program").cancel(request.id, "not today")
    assert [one.id for one in decided(memory)] == [request.id]
    assert [one.words for one in report(memory).reasons] == ["not today"]


# -- samples --------------------------------------------------------------------------------------------------------


def test_each_final_decision_gives_a_sample(memory: Store, clock: Clock) -> None:
    decide(memory, clock, "approve", changes={"amount": 7}, arguments={"amount": 9, "to": "kim", "password": "hunter2"})
    decide(memory, clock, "reject", "too much")
    question = memory.ask(sample_question())
    sayso.Review(memory, reviewer="ada").answer(question.id, "main")
    asked, refused, paid = samples(memory)
    assert [one["sample_family"] for one in (asked, refused, paid)] == ["confirm_decision"] * 3
    assert paid["input"]["proposed"] == {"amount": 9, "to": "kim", "password": "***"}
    assert paid["output"]["approved"] == {"amount": 7, "to": "kim", "password": "***"}
    assert paid["meta"]["human_feedback_label"] == "approved"
    assert paid["meta"]["decision_latency_ms"] == SLOW * 1000
    assert paid["output"]["decision_rounds"] == 1
    assert (refused["meta"]["human_feedback_label"], refused["output"]["approved"]) == ("rejected", None)
    assert refused["feedback"]["details"] == "too much"
    assert asked["output"]["answer"] == "main"
    for one in (asked, refused, paid):
        LearningSample.parse(one)


def test_a_plan_gives_one_sample_for_all_its_rounds(memory: Store, clock: Clock) -> None:
    plan, confirm, _ = submitted()
    request = sayso.Review().list().requests[0]
    sayso.Review(reviewer="dba").reject(request.id, "no rollback")
    (first,) = samples(memory)
    assert (first["sample_family"], first["meta"]["human_feedback_label"]) == ("intent_resolution", "rejected")
    sayso.mplp.submit_plan_for_approval(plan, "agent")
    assert list(samples(memory)) == [first]
    sayso.Review(reviewer="dba").approve(sayso.Review().list().requests[0].id)
    (whole,) = samples(memory)
    assert (whole["meta"]["human_feedback_label"], whole["meta"]["clarification_rounds"]) == ("approved", 1)
    assert whole["input"]["intent_id"] == first["input"]["intent_id"] == plan.plan_id
    assert confirm.target_id == plan.plan_id


def test_a_round_that_the_program_took_back_hides_no_decision_about_a_plan(memory: Store, clock: Clock) -> None:
    plan, _, request = submitted()
    sayso.Review(reviewer="dba").reject(request.id, "no rollback")
    (before,) = samples(memory)
    sayso.mplp.submit_plan_for_approval(plan, "agent")
    memory.withdraw(sayso.Review().list().requests[0].id, Identity(PROGRAM, "tests"))
    assert list(samples(memory)) == [before]


def test_an_approval_that_ran_out_unused_is_an_approval(memory: Store, clock: Clock) -> None:
    _, _, plan = submitted()
    decide(memory, clock, "approve")
    sayso.Review(reviewer="dba").approve(plan.id, comment="fine")
    clock.tick(days=400)
    memory.sweep()
    assert [row["state"] for row in table(memory)] == ["expired", "expired"]
    assert [row["label"] for row in table(memory)] == ["approved", "approved"]
    for sample in samples(memory):
        assert (sample["meta"]["human_feedback_label"], sample["feedback"]["type"]) == ("approved", "approval")
        assert sample["meta"]["decision_latency_ms"] == SLOW * 1000
        LearningSample.parse(sample)


class TestLabels(Scene):
    def make_store(self) -> Store:
        return MemoryStore()

    @pytest.mark.parametrize("state", [state for state in State if state is not State.PENDING])
    def test_a_row_has_the_label_of_its_sample(self, state: State) -> None:
        request = self.in_state(state)
        if request.decision is not None:
            assert label_of(request) == str(sample_of(request).meta.human_feedback_label)

    @pytest.mark.parametrize("state", list(State))
    def test_a_sample_that_is_exported_at_once_is_the_document_to_the_letter(self, state: State) -> None:
        request = self.in_state(state)
        assert json.dumps(export_of(request)) == json.dumps(sample_of(request).export())

    def test_an_answer_no_is_a_rejection(self) -> None:
        asked = self.store.ask(sample_question())
        request = self.decide("answer", asked, answer='{"answer":false}')
        assert label_of(request) == "rejected" == str(sample_of(request).meta.human_feedback_label)


def test_a_number_that_the_protocol_does_not_take_ends_no_export(memory: Store, clock: Clock) -> None:
    decide(memory, clock, "reject", "odd \ud800", arguments={"amount": 2**2_000})
    decide(memory, clock, "reject", "too much")
    found = list(samples(memory))
    assert [one["feedback"]["details"] for one in found] == ["too much", "odd \\ud800"]
    assert found[1]["input"]["proposed"]["amount"] == 2**2_000
    assert len(table(memory)) == 2


def test_a_number_of_any_size_ends_no_report(memory: Store) -> None:
    for at in range(40):
        amount = Decimal("1e1000000") if at % 2 else Decimal(1)
        request_id = memory.ask(sample_call(None, {"amount": amount})).id
        review = sayso.Review(memory, by="ada" if at % 3 else "bob")
        review.reject(request_id, "too much") if at % 2 else review.approve(request_id)
    assert browser(create_app(memory), "ada").get("/insights").status_code == 200


def test_no_documents_are_made_for_samples_of_calls(
    memory: Store, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    decide(memory, clock, "approve", changes={"amount": 7})
    question = memory.ask(sample_question())
    sayso.Review(memory, reviewer="ada").answer(question.id, "main")
    whole = list(samples(memory))

    def slow(*_: Any, **__: Any) -> None:
        pytest.fail("an export of 100,000 decisions would take a minute")

    monkeypatch.setattr("sayso.mplp.history.LearningSample", slow)
    assert list(samples(memory)) == whole


@pytest.mark.parametrize("amount", [2**2_000, 2**1_024, json.loads("[" * 61 + "]" * 61)])
def test_what_the_protocol_does_not_take_is_found_without_documents(memory: Store, clock: Clock, amount: Any) -> None:
    assert exported(decide(memory, clock, arguments={"amount": amount}), export_of) == exported(
        decide(memory, clock, arguments={"amount": amount}), lambda request: sample_of(request).export()
    )
    for sample in samples(memory):
        LearningSample.parse(sample)


def exported(request: Request, export: Callable[[Request], Any]) -> Any:
    """Return what is proposed in an export, or why there is none."""
    try:
        return export(request)["input"]["proposed"]
    except NotConformantError as error:
        return error.problems


def test_a_secret_that_reads_like_a_label_or_a_year_leaves_both(memory: Store, clock: Clock) -> None:
    for secret in ("rejected", str(clock.at.year), "confirm"):
        decide(memory, clock, "reject", f"{secret}, no", arguments={"to": "kim", "password": secret})
    for sample in samples(memory):
        LearningSample.parse(sample)
        assert (sample["sample_family"], sample["meta"]["human_feedback_label"]) == ("confirm_decision", "rejected")
        assert sample["feedback"]["details"] == "***, no"


@pytest.mark.parametrize("text", ['She said "pay now"', "two\nlines", "back\\slash", "caf\u00e9", "a\0b", "\0"])
def test_an_argument_that_everybody_sees_is_no_secret(memory: Store, clock: Clock, text: str) -> None:
    decide(memory, clock, "reject", f"{text}?", arguments={"to": text, "password": "hunter2"})
    (sample,), (row,) = samples(memory), table(memory)
    assert sample["input"]["proposed"] == {"to": text, "password": "***"}
    assert sample["feedback"]["details"] == row["reason"] == f"{text}?"


@pytest.mark.parametrize("text", ["hunter2", "a hunter2 b", "\0hunter2\0", "hunter2\0"])
def test_a_secret_is_taken_out_of_each_text_that_quotes_it(memory: Store, clock: Clock, text: str) -> None:
    decide(memory, clock, "reject", text + "!", arguments={"to": text, "more": ["x", text], "password": "hunter2"})
    (sample,) = samples(memory)
    clean = text.replace("hunter2", "***")
    assert sample["input"]["proposed"] == {"to": clean, "more": ["x", clean], "password": "***"}
    assert sample["feedback"]["details"] == clean + "!"


def test_instants_are_written_as_all_programs_are_told_them(memory: Store, clock: Clock) -> None:
    decide(memory, clock, "approve", changes={"amount": 7})
    (row,), (pair,) = table(memory), pairs(memory)
    assert (row["decided_at"], pair["decided_at"]) == (written(clock.at), written(clock.at))
    assert row["asked_at"].endswith("Z")


# -- pairs and tables -----------------------------------------------------------------------------------------------


def test_a_pair_is_what_was_proposed_against_what_was_approved(memory: Store, clock: Clock) -> None:
    decide(memory, clock)
    decide(memory, clock, "approve", changes={"amount": 7}, prompt="Pay kim?")
    decide(memory, clock, "approve", changes={"password": "b"}, arguments={"amount": 1, "to": "kim", "password": "a"})
    (pair,) = pairs(memory)
    assert tuple(pair) == PAIR_COLUMNS
    assert json.loads(pair["chosen"]) == {"amount": 7, "to": "alice", "password": "***"}
    assert json.loads(pair["rejected"]) == {"amount": 10, "to": "alice", "password": "***"}
    assert (pair["prompt"], pair["tool"]) == ("Pay kim?", "payments:pay")


EDITED = '{"amount":7,"to":"alice","password":"***"}'


def a_table(store: Store, clock: Clock) -> list[dict[str, Any]]:
    """150 rows without a reason, and then one with: a column has one type all the same."""
    decide(store, clock, "reject", "too much", risk="high")
    question = store.ask(sample_question())
    sayso.Review(store, reviewer="ada").answer(question.id, "main")
    decide(store, clock, "approve", changes={"amount": 7})
    for _ in range(150):
        decide(store, clock)
    return table(store)


def test_every_row_has_every_column(memory: Store, clock: Clock) -> None:
    found = a_table(memory, clock)
    assert len(found) == 153
    assert {tuple(row) for row in found} == {COLUMNS}
    edited, answered, refused = found[-3:]
    assert (edited["is_edited"], edited["edited"], edited["approved"]) == (True, "amount", EDITED)
    assert (answered["question"], answered["answer"], answered["tool"]) == ("Which account?", '"main"', "")
    assert (refused["verb"], refused["label"], refused["reason"], refused["approved"]) == (
        "reject", "rejected", "too much", "",
    )  # fmt: skip
    assert {type(row["seconds"]) for row in found} == {float}


def test_pandas_reads_the_table(memory: Store, clock: Clock) -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(a_table(memory, clock))
    assert list(frame.columns) == list(COLUMNS)
    assert frame.groupby("verb")["seconds"].median().to_dict() == {"answer": 0.0, "approve": SLOW, "reject": SLOW}


def test_polars_reads_the_table(memory: Store, clock: Clock) -> None:
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame(a_table(memory, clock))
    assert frame.columns == list(COLUMNS)
    assert frame.filter(polars.col("reason") != "").height == 1


HOSTILE = ["=cmd|'/c calc'!A0", "+1", "-1", "@SUM(A1)", "\t=1", "  =1", "＝1", HIDDEN + "=1", 'a"b\n=1']  # noqa: RUF001


@pytest.mark.parametrize("words", HOSTILE)
def test_no_cell_is_a_formula_and_none_hides_a_character(memory: Store, clock: Clock, words: str) -> None:
    decide(memory, clock, "reject", words, risk=words)
    text = "".join(_csv_lines(table(memory), COLUMNS))
    assert not any(one in text for one in HIDDEN if one not in "[31m")
    _, row = csv.reader(io.StringIO(text))
    for cell in row:
        assert not cell.lstrip().startswith(("=", "+", "-", "@", "\t", "＝")), cell  # noqa: RUF001


@pytest.mark.parametrize("words", [*HOSTILE, '"=1', ' ""=1', ";=1"])
def test_no_cell_is_a_formula_where_semicolons_end_cells(memory: Store, clock: Clock, words: str) -> None:
    decide(memory, clock, "reject", f"ok;{words}", risk=f"a,b;{words}", arguments={"to": f"x; {words}"})
    text = "".join(_csv_lines(table(memory), COLUMNS))
    for row in csv.reader(io.StringIO(text), delimiter=";"):
        for cell in row:
            assert not cell.strip(' "').startswith(("=", "+", "-", "@", "\t", "＝")), cell  # noqa: RUF001


# -- secrets --------------------------------------------------------------------------------------------------------


def test_no_secret_is_in_anything_that_is_learned(memory: Store, clock: Clock, program: Program) -> None:
    act = program.gated(risk="high")
    for number in range(25):
        with sayso.run(f"order-{number}"):
            request_id = held(act, **program.arguments).confirmation_id
        clock.tick(seconds=SLOW)
        if number % 2:
            sayso.Review(reviewer="ada").approve(request_id, changes={"to": "bob"}, comment=program.everything())
        else:
            sayso.Review(reviewer="ada").reject(request_id, program.everything())
    found = report(memory)
    assert found.edits
    assert found.reasons
    assert_clean(list(samples(memory)), list(pairs(memory)), table(memory), found)


def test_what_a_gates_own_redactor_hides_is_not_told_by_a_reviewers_words(memory: Store) -> None:
    @sayso.gate(wait="raise", redactor=lambda arguments: {**arguments, "iban": "hidden"})
    def transfer(iban: str) -> None: ...

    request = sayso.Review().get(held(transfer, "DE89370400440532013000").confirmation_id)
    sayso.Review(reviewer="ada").reject(request.id, "DE89370400440532013000 is blocked")
    assert "DE8937" not in json.dumps([*samples(memory), *table(memory)])
    assert "is blocked" in table(memory)[0]["reason"]


# -- the report -----------------------------------------------------------------------------------------------------


def always(store: Store, clock: Clock, count: int = 30, **options: Any) -> None:
    for number in range(count):
        arguments = {"amount": 10 + number, "to": "kim", "password": "x"}
        decide(store, clock, arguments=arguments, by=("ada", "bob")[number % 2], **options)


def test_what_is_always_approved_unchanged_is_a_candidate(memory: Store, clock: Clock) -> None:
    always(memory, clock, risk="low")
    (found,) = report(memory).candidates
    assert (found.tool, found.risk, found.approved, found.reviewers) == ("payments:pay", "low", Share(30, 30), 2)
    assert found.fields == {
        "amount": "from 10 to 39", "to": 'always "kim"', "password": "masked, and not compared",
    }  # fmt: skip


@pytest.mark.parametrize(
    "spoil",
    [
        lambda store, clock: decide(store, clock, "reject"),
        lambda store, clock: decide(store, clock, "feedback", "no"),
        lambda store, clock: decide(store, clock, "approve", changes={"amount": 1}),
    ],
)
def test_one_refusal_or_change_and_it_is_no_candidate(memory: Store, clock: Clock, spoil: Callable[..., Any]) -> None:
    always(memory, clock)
    spoil(memory, clock)
    assert report(memory).candidates == ()


def test_few_decisions_say_nothing(memory: Store, clock: Clock) -> None:
    always(memory, clock, 19)
    found = report(memory)
    assert (found.candidates, found.stamps) == ((), ())
    always(memory, clock, 1)
    assert len(report(memory).candidates) == 1


def proposed(store: Store, **options: Any) -> Proposal:
    (found,) = report(store, **options).proposals
    return found


def verdict(found: Proposal, **arguments: Any) -> str:
    """Return what a policy file with the proposed rule says of a call."""
    return Policy.of_text(found.toml).verdict(found.tool, arguments).kind


def decide_held(clock: Clock, verb: str, tool: str, **arguments: Any) -> None:
    """Let somebody decide a call of a tool of another name."""
    request_id = sayso.hold(tool, arguments, when=True).id
    clock.tick(seconds=SLOW)
    getattr(sayso.Review(reviewer="ada"), verb)(request_id)


def test_a_rule_lets_through_what_was_seen_and_holds_the_rest(
    memory: Store, clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ran: list[Any]
) -> None:
    always(memory, clock)
    found = proposed(memory)
    assert (found.verdict, found.replayed, found.fits, found.against, found.undecided) == ("allow", 30, 30, (), 0)
    assert "It does not look at password (masked, and not compared)." in found.toml
    assert found.findings[0].startswith("30 of 30 (at least 88 %) were approved unchanged, by 2 people")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sayso.toml").write_text(found.toml.replace("payments:pay", "pay"))
    (tmp_path / "sayso.toml").chmod(0o600)

    @sayso.gate(wait="raise", name="pay")
    def pay(amount: int, to: str, password: str) -> None:
        ran.append((amount, to))

    pay(10, "kim", "y")
    pay(39, "kim", "y")
    for amount, to in ((9, "kim"), (40, "kim"), (20, "eve")):
        with pytest.raises(sayso.ConfirmationRequired):
            pay(amount, to, "y")
    assert ran == [(10, "kim"), (39, "kim")]


def test_a_bound_is_proposed_where_only_larger_calls_were_refused_or_changed(memory: Store, clock: Clock) -> None:
    for number in range(30):
        decide(memory, clock, arguments={"amount": 10 + number, "order_id": number, "to": "kim"})
    decide(memory, clock, "reject", arguments={"amount": 35, "order_id": 99, "to": "kim"})
    decide(memory, clock, "approve", changes={"amount": 1}, arguments={"amount": 50, "order_id": 1, "to": "kim"})
    found = proposed(memory)
    assert (found.verdict, found.replayed, found.fits, found.against) == ("allow", 32, 25, ())
    assert [verdict(found, amount=one, order_id=7, to="kim") for one in (10, 34, 35)] == ["allow", "allow", "hold"]
    assert found.not_compared == {"order_id": "from 0 to 24"}  # the number of an order is no amount


def test_calls_that_were_always_refused_propose_to_deny_them(memory: Store, clock: Clock) -> None:
    for number in range(20):
        decide(memory, clock, "reject", arguments={"amount": 100 + number})
        decide(memory, clock, "approve", seconds=1, arguments={"amount": number})  # too fast to allow any
    found = proposed(memory)
    assert (found.verdict, found.replayed, found.fits) == ("deny", 40, 20)
    assert [verdict(found, amount=amount) for amount in (99, 100, 10_000)] == ["hold", "deny", "deny"]
    for number in range(20):
        decide_held(clock, "reject", "shop:wipe", table=f"t{number}")
    wipe = next(one for one in report(memory).proposals if one.tool == "shop:wipe")
    assert (wipe.verdict, wipe.fits, verdict(wipe, table="x")) == ("deny", 20, "deny")


def test_the_replay_names_older_calls_that_people_refused_or_that_failed(memory: Store, clock: Clock) -> None:
    refused = decide(memory, clock, "reject", arguments={"amount": 20, "to": "kim"})
    changed = decide(memory, clock, "approve", changes={"amount": 1}, arguments={"amount": 21, "to": "kim"})
    memory.ask(sample_call(None, {"amount": 22, "to": "kim"}))
    clock.tick(seconds=60)
    began = clock.at
    for number in range(30):
        decide(memory, clock, arguments={"amount": 10 + number, "to": "kim"})
    failed = decide(memory, clock, arguments={"amount": 30, "to": "kim"})
    memory.start(failed.id, "t")
    memory.finish(failed.id, "t", Outcome("failed"))
    found = proposed(memory, since=began)
    assert set(found.against) == {refused.id, changed.id}
    assert (found.fits, found.undecided, found.went_wrong) == (34, 1, (failed.id,))
    assert "of which people refused or changed 2." in found.findings[1]
    assert f"# otherwise: {changed.id}, {refused.id}\n# wrong: {failed.id}\n" in found.toml


def test_hasty_approvals_propose_no_rule(memory: Store, clock: Clock) -> None:
    always(memory, clock, seconds=1)
    found = report(memory)
    assert (found.candidates[0].is_hasty, found.proposals) == (True, ())


def test_a_rule_that_would_let_everything_through_is_not_proposed(memory: Store, clock: Clock) -> None:
    for number in range(30):
        decide(memory, clock, arguments={"amount": f"{number} euros", "to": f"kim{number}"})
    found = report(memory)
    assert (found.candidates[0].fields["to"], found.proposals) == ("30 different values", ())


def test_without_the_cel_library_no_rule_is_proposed(
    memory: Store, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    always(memory, clock)

    def missing() -> None:
        raise ConfigError("needs the extra")

    monkeypatch.setattr("sayso.learning.proposals.library", missing)
    found = report(memory)
    assert (len(found.candidates), found.proposals, found.not_proposed) == (1, (), "needs the extra")


@pytest.mark.parametrize("words", [*HOSTILE, "'; import os #", '"""', "\\", "\u2028x", "a\nb", "'''", "\U0001f600"])
def test_hostile_values_stay_literals_in_a_rule(memory: Store, clock: Clock, words: str) -> None:
    arguments = {"to": words, words: 1, "in": 2, "true": 1}
    for number in range(20):
        decide(memory, clock, arguments=arguments | {words: number, "in": number, "true": number})
    found = proposed(memory)
    assert found.rule.isascii()
    assert verdict(found, **arguments) == "allow"
    assert verdict(found, **(arguments | {"to": words + "!"})) == "hold"


def test_no_rule_is_proposed_for_a_tool_whose_name_would_be_a_pattern(memory: Store, clock: Clock) -> None:
    for number in range(20):
        for tool in ("*", "fs/*", "a b", "fs/read"):  # a foreign server chooses the names of its tools
            decide_held(clock, "approve", tool, path="/etc/motd", number=number)
    assert [one.tool for one in report(memory).proposals] == ["fs/read"]


@pytest.mark.parametrize(
    ("value", "other"),
    [
        ({"dry": True, "to": ["a", 1]}, {"dry": False, "to": ["a", 1]}),
        ({"dry": True}, {"dry": True, "force": True}),
        ({}, {"force": True}),
        ((), ("x",)),
        (["a", [2.5, None]], ["a", [2.5, 3]]),
        ("x" * 200, "x" * 199),
        (Decimal("1.50"), Decimal("1.51")),
        ({"'];import os#\n": "\u2028"}, {}),
    ],
)
def test_a_rule_looks_at_whatever_never_varied(memory: Store, clock: Clock, value: Any, other: Any) -> None:
    for _ in range(20):
        decide(memory, clock, arguments={"mode": "a", "options": value})
    assert report(memory).candidates[0].fields["options"].startswith("always ")
    assert proposed(memory).rule.isascii()
    ended = clock.at
    decide(memory, clock, arguments={"mode": "a", "options": other})
    found = proposed(memory, until=ended)
    assert (found.replayed, found.fits, found.uncertain) == (21, 20, 0)


@pytest.mark.parametrize("value", [{"at": [date(2026, 1, 2)]}, "x" * 600, ["x"] * 200])
def test_no_rule_lets_through_what_it_cannot_look_at(memory: Store, clock: Clock, value: Any) -> None:
    for number in range(20):
        decide(memory, clock, arguments={"mode": "a", "amount": number, "options": value})
    found = report(memory)
    assert found.candidates[0].fields["options"].startswith("always ")
    assert found.proposals == () or "args.options ==" in found.proposals[0].rule


def test_a_rule_asks_for_no_argument_that_was_missing_once(memory: Store, clock: Clock) -> None:
    for number in range(20):
        decide(memory, clock, arguments={"amount": 1, **({"to": "kim"} if number else {})})
    found = proposed(memory)
    assert "args.to" not in found.rule
    assert list(found.not_compared) == ["to"]


def test_rules_for_two_tools_of_one_name_make_one_file(memory: Store, clock: Clock) -> None:
    for tool in ("a:pay", "b:pay"):
        for number in range(20):
            decide_held(clock, "approve", tool, amount=number)
    text = "\n".join(one.toml for one in report(memory).proposals)
    assert [rule.tools for rule in Policy.of_text(text).rules] == [("a:pay",), ("b:pay",)]


def test_the_arguments_that_people_change_are_counted(memory: Store, clock: Clock) -> None:
    for amount in (1, 2, 3, 40):
        decide(memory, clock, "approve", changes={"amount": amount})
    for to in ("x", "y"):
        decide(memory, clock, "approve", changes={"to": to})
    decide(memory, clock, "reject")
    (found,) = report(memory).edits
    assert (found.name, found.changed, found.lowered, found.raised) == ("amount", Share(4, 6), 3, 1)


def test_who_hardly_looks_is_warned_of(memory: Store, clock: Clock) -> None:
    for _ in range(20):
        decide(memory, clock, seconds=1, by="eve", risk="high")
        decide(memory, clock, seconds=SLOW, by="ada", risk="high")
    eve, ada = report(memory).stamps
    assert (eve.reviewer.subject, eve.risk, eve.is_warning, eve.median) == ("eve", "high", True, timedelta(seconds=1))
    assert (ada.reviewer.subject, ada.is_warning, ada.hasty) == ("ada", False, Share(0, 20))


def test_votes_count_for_who_gave_them(memory: Store, clock: Clock) -> None:
    for _ in range(20):
        request = memory.ask(sample_call(quorum=Quorum(2)))
        for by in ("ada", "bob"):
            clock.tick(seconds=10)
            sayso.Review(memory, reviewer=by).approve(request.id)
    medians = {stamp.reviewer.subject: stamp.median.total_seconds() for stamp in report(memory).stamps}
    assert medians == {"ada": 10, "bob": 20}
    assert report(memory).candidates[0].reviewers == 2


def test_reasons_of_refusals_are_grouped(memory: Store, clock: Clock) -> None:
    for words in ("Order 4711 is paid.", "order  99 is paid", "ORDER rq_7kd2 is paid!", "too much"):
        decide(memory, clock, "reject", words)
    decide(memory, clock, "cancel")
    newest, *others = report(memory).reasons
    assert (newest.count, newest.tools) == (3, ("payments:pay",))
    assert sorted((one.words, one.count) for one in others) == [("", 1), ("too much", 1)]


def test_a_report_says_when_it_did_not_read_everything(memory: Store, clock: Clock) -> None:
    always(memory, clock, 3)
    assert not report(memory, most=3).is_cut
    found = report(memory, most=2)
    assert (found.decisions, found.is_cut) == (2, True)


def test_a_submitted_plan_is_no_candidate_for_a_gates_rule(
    memory: Store, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sayso.learning.findings.FEWEST", 1)
    submitted()
    clock.tick(seconds=SLOW)
    sayso.Review(reviewer="dba").approve(sayso.Review().list().requests[0].id)
    found = report(memory)
    assert (found.decisions, found.candidates) == (1, ())


def test_reading_changes_nothing(memory: Store, clock: Clock) -> None:
    always(memory, clock)
    before = list(memory.list(Filter(), limit=1000).requests), list(memory.journal())
    report(memory)
    list(samples(memory))
    assert (list(memory.list(Filter(), limit=1000).requests), list(memory.journal())) == before


@pytest.mark.parametrize(
    ("part", "whole", "low"), [(0, 0, 0.0), (0, 10, 0.0), (10, 10, 0.7225), (50, 100, 0.4038), (1000, 1000, 0.9962)]
)
def test_the_lower_bound_is_wilsons(part: int, whole: int, low: float) -> None:
    assert round(Share(part, whole).low, 4) == low


# -- the command ----------------------------------------------------------------------------------------------------


@pytest.fixture
def shop(file_store: Store, clock: Clock) -> Store:
    """30 payments that were always approved, one with changes of another kind, and a refusal in hostile words."""
    clock.at = datetime.now(clock.at.tzinfo) - timedelta(days=1)
    for number in range(30):
        decide(file_store, clock, arguments={"amount": 10 + number, "to": "kim"})
    question = file_store.ask(sample_question())
    sayso.Review(reviewer="ada").reject(question.id, f"{HIDDEN}=why")
    return file_store


def test_the_report_is_printed_and_as_json(shop: Store) -> None:
    done = run("--store", shop.url, "learn", "report")
    assert done.code == 0, done.err
    assert "payments:pay: 30 of 30 (at least 88 %), by 1 reviewer" in done.out
    assert """when = 'args.amount >= 10 && args.amount <= 39 && args.to == "kim"'""" in done.out
    assert "<U+202E>" in done.out
    told = run("--store", shop.url, "learn", "report", "--json").data
    assert told["candidates"][0]["approved"] == {"part": 30, "whole": 30, "low": 0.8865}
    assert told["decisions"] == 31
    assert told["since"].endswith("Z")


@pytest.mark.parametrize(
    ("options", "count"),
    [([], 31), (["--table"], 31), (["--pairs"], 0), (["--tool", "pay"], 30), (["--since", "1h"], 0)],
)
def test_decisions_are_exported_as_lines(shop: Store, options: list[str], count: int) -> None:
    done = run("--store", shop.url, "learn", "export", *options)
    assert (done.code, len(done.out.splitlines())) == (0, count)
    for line in done.out.splitlines():
        json.loads(line)


def test_csv_is_written_to_a_file(shop: Store, tmp_path: Path) -> None:
    done = run("--store", shop.url, "learn", "export", "--format", "csv", "-o", str(tmp_path / "out.csv"))
    assert "31 records written" in done.err
    with (tmp_path / "out.csv").open(newline="") as file:
        assert len(list(csv.DictReader(file))) == 31


def test_parquet_is_written_where_pyarrow_is_installed(shop: Store, tmp_path: Path) -> None:
    words = ("--store", shop.url, "learn", "export", "--format", "parquet")
    nowhere = run(*words)
    assert (nowhere.code, "-o FILE" in nowhere.err) == (2, True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "pyarrow", None)
        with pytest.raises(ConfigError, match="pip install pyarrow"):
            _as_parquet([], COLUMNS, tmp_path / "none.parquet")
    assert not [*tmp_path.glob("none*")]
    parquet = pytest.importorskip("pyarrow.parquet")
    assert run(*words, "-o", str(tmp_path / "out.parquet")).code == 0
    found = parquet.read_table(tmp_path / "out.parquet")
    assert (found.num_rows, found.column_names) == (31, list(COLUMNS))


# -- the page -------------------------------------------------------------------------------------------------------


def test_the_page_of_insights_shows_what_decisions_teach(memory: Store, clock: Clock) -> None:
    always(memory, clock, risk="low")
    for _ in range(20):
        decide(memory, clock, "reject", f"{HIDDEN}<b>no</b>", by="eve", seconds=1, risk="high", arguments={"order": 1})
    with browser(create_app(memory)) as client:
        page = client.get("/insights").text
    assert "30 of 30" not in page  # eve refused calls of the same function
    assert "<U+202E>" in text_of(page)
    assert "<b>no</b>" not in page
    assert "too fast to have read what would run" in page


def test_the_page_of_insights_proposes_a_rule(memory: Store, clock: Clock) -> None:
    refused = decide(memory, clock, "reject", arguments={"amount": 20, "to": "kim", "password": "x"})
    clock.tick(seconds=8 * 86_400)
    always(memory, clock)
    with browser(create_app(memory)) as client:
        page = client.get("/insights?days=7").text
    text = text_of(page)
    assert "payments:pay: 30 of 30 (at least 88 %), by 2 reviewers, half within 40 s" in text
    assert """when = 'args.amount >= 10 && args.amount <= 39 && args.to == "kim"'""" in text
    assert "would have let through 31 of 31 past calls, of which people refused or changed 1" in text
    assert f'<a href="/r/{refused.id}">' in page
