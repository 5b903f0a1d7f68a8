"""Secrets of a call: the call runs with them, and no text that we make of it holds them.

Every secret here has the same word in it (see `canaries`), so that a surface is clean when the word is not in it. Files
and streams are in `test_secret_files`. A reviewer's own comments and the program's own exceptions are theirs and are
passed on as they are. The invariant: what is masked where it is shown is masked in what is said about it, too.
"""

from __future__ import annotations

import base64
import json
import pickle
from contextlib import nullcontext
from typing import Any

import pytest
from pydantic import SecretStr

import sayso
from sayso import errors
from sayso.stores.base import Store
from tests.support.acting import held
from tests.support.canaries import DEPTHS, WORD, Program, assert_clean, assert_clean_error, canary, secrets_in, told_of


def test_there_are_enough_canaries_at_every_depth(program: Program) -> None:
    texts = list(secrets_in(program.arguments))
    assert len(texts) >= 30
    for depth in range(1, DEPTHS + 1):
        assert sum(f"{depth}-it's" in text for text in texts) >= 6


# -- the call --------------------------------------------------------------------------------------------------------


def test_waiting_call_tells_no_secret_and_runs_with_all_of_them(store: Store, program: Program) -> None:
    act = program.gated()
    pause = held(act, **program.arguments)
    assert_clean_error(pause)
    assert_clean(pause.to_dict(), pause.tool_call, json.dumps(pause.to_dict()), sayso.ResumeState(pause).to_dict())
    assert pause.tool_call is not None
    assert (pause.tool_call.args["to"], pause.tool_call.args["tree"]["next"]["user"]) == ("alice", "plain")
    assert_clean(sayso.get_confirmation_context(), *told_of(pause.confirmation_id))
    sayso.Review().approve(pause.confirmation_id, by="ada")
    act(**program.arguments)
    assert program.ran == [program.arguments]
    assert_clean(*told_of(pause.confirmation_id))


@pytest.mark.parametrize("way", ["gate", "rule", "reason"])
def test_prompt_and_reason_that_quote_secrets_are_scrubbed(store: Store, program: Program, way: str) -> None:
    def quoting(**_: Any) -> str:
        return f"Use {program.everything()} for alice?"

    options: dict[str, Any] = {
        "gate": {"prompt": quoting},
        "rule": {"when": lambda: sayso.policy.hold(prompt=quoting())},
        "reason": {"when": lambda: sayso.policy.hold(quoting())},
    }[way]
    pause = held(program.gated(**options), **program.arguments)
    assert_clean_error(pause)
    assert_clean(*told_of(pause.confirmation_id))
    request = store.get(pause.confirmation_id)
    assert "for alice?" in str(request.prompt if way != "reason" else request.rule)


def test_what_a_program_says_of_a_call_that_it_holds_by_hand_is_scrubbed(store: Store) -> None:
    secret = canary("held")

    def hold(run: str) -> sayso.Held:
        arguments = {"user": "alice", "password": secret}
        return sayso.hold(
            "sign-in", arguments, key="1", run=run, description=f"signs alice in with {secret}",
            context={"by": [f"form of {secret}"], f"seen with {secret}": 1},
        )  # fmt: skip

    first, second = hold("first"), hold("second")
    first.withdraw(f"alice has changed {secret}")
    review = sayso.Review(by="ada")
    review.approve(second.id or "", changes={"user": "bob"})
    second.send_back(f"{secret} is not bob's")
    review.approve(second.id or "", changes={"password": canary("changed")})
    with pytest.raises(ValueError, match=WORD):
        second.once(lambda arguments: _raise(ValueError(f"bob has {arguments['password']} and not {secret}")))
    texts = [*told_of(first.id or ""), *told_of(second.id or "")]
    assert_clean(*texts, *store.journal())
    for words in ("signs alice in with", "alice has changed", "is not bob's", "bob has", "form of", "seen with"):
        assert any(words in str(text) for text in texts), words


def _raise(error: Exception) -> None:
    raise error


def test_denial_that_quotes_secrets_is_scrubbed(store: Store, program: Program) -> None:
    act = program.gated(when=lambda: sayso.deny(f"alice may not use {program.everything()}"))
    with pytest.raises(sayso.ConfirmationDenied, match="alice may not use") as caught:
        act(**program.arguments)
    assert_clean_error(caught.value)
    assert_clean(*store.journal())
    assert "alice may not use" in store.journal()[0].detail


@pytest.mark.parametrize("hook", ["when", "prompt", "verify"])
def test_error_of_a_hook_that_quotes_secrets_is_scrubbed_with_its_traceback(
    store: Store, program: Program, hook: str
) -> None:
    def fails() -> Any:
        raise ValueError("of alice") from KeyError(program.everything())

    act = program.gated(**{hook: fails})
    if hook == "verify":
        program.ends.append(KeyboardInterrupt())
        sayso.Review().approve(held(act, **program.arguments).confirmation_id, by="ada")
        with pytest.raises(KeyboardInterrupt):
            act(**program.arguments)
    with pytest.raises(errors.PolicyError, match="raised ValueError: of alice") as caught:
        act(**program.arguments)
    assert_clean_error(caught.value)


def test_error_of_a_rule_is_not_quoted_where_nobody_can_say_what_is_secret(store: Store, program: Program) -> None:
    def fails(password: str) -> Any:
        raise KeyError(password)

    act = program.gated(when=fails)
    with pytest.raises(errors.PolicyError, match="raised KeyError;") as caught:
        act(**{**program.arguments, "to": object()})
    assert_clean_error(caught.value)


def test_argument_without_a_form_is_refused_without_its_value(store: Store, program: Program) -> None:
    act = program.gated()
    for name, odd in {"password": "\udcff" + WORD, "tree": {"password": {WORD}}, "rows": [{WORD.encode(): 1}]}.items():
        with pytest.raises(errors.ArgumentError) as caught:
            act(**{**program.arguments, name: odd})
        assert_clean_error(caught.value)


# -- the outcome -----------------------------------------------------------------------------------------------------


def run_to_its_end(program: Program, end: Any, **options: Any) -> str:
    program.ends.append(end)
    act = program.gated(**options)
    request_id = held(act, **program.arguments).confirmation_id
    sayso.Review().approve(request_id, by="ada")
    if not isinstance(end, BaseException):
        assert act(**program.arguments) is end
        return request_id
    with pytest.raises(type(end)) as caught:
        act(**program.arguments)
    assert caught.value is end
    return request_id


@pytest.mark.parametrize("kind", [ValueError, KeyError, OSError, KeyboardInterrupt])
def test_error_of_the_call_that_quotes_secrets_is_scrubbed_in_the_record(
    store: Store, program: Program, kind: type[BaseException]
) -> None:
    request_id = run_to_its_end(program, kind(f"alice {program.everything()}"))
    assert_clean(*told_of(request_id))
    execution = store.get(request_id).execution
    assert execution is not None
    assert execution.error is not None
    assert execution.error.startswith(f"{kind.__name__}: ")
    assert "alice" in execution.error
    assert_clean(pickle.dumps(store.get(request_id).execution))


def test_result_that_holds_secrets_is_scrubbed_in_the_record_and_whole_for_the_caller(
    store: Store, program: Program
) -> None:
    result = {"said": program.everything(), "session_token": f"{WORD} of the result", "crate": {"pin": [WORD + " x"]}}
    result["crate"] = {"secret": result["crate"]}
    request_id = run_to_its_end(program, result)
    assert_clean(*told_of(request_id))
    execution = store.get(request_id).execution
    assert execution is not None
    assert execution.result is not None
    assert "***" in execution.result


@pytest.mark.parametrize("raises", [False, True], ids=["returns", "raises"])
def test_the_password_of_a_url_in_a_result_or_error_is_masked_in_the_record(store: Store, *, raises: bool) -> None:
    url = "postgres://me:hunter22@db/x"

    @sayso.gate(wait="raise")
    def connect(attempt: int) -> str:
        if raises:
            raise OSError(f"cannot connect to {url}")
        return url

    request_id = held(connect, attempt=1).confirmation_id
    sayso.Review().approve(request_id, by="ada")
    with pytest.raises(OSError, match="hunter22") if raises else nullcontext():
        assert connect(attempt=1) == url
    execution = store.get(request_id).execution
    assert execution is not None
    recorded = execution.error if raises else execution.result
    assert recorded is not None
    assert "postgres://me:***@db/x" in recorded


def test_outcome_that_cannot_be_recorded_tells_no_secret(
    store: Store, program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    act = program.gated()
    program.ends.append("done")
    sayso.Review().approve(held(act, **program.arguments).confirmation_id, by="ada")

    def full(*_: Any) -> Any:
        raise errors.StoreFullError("no room left")

    monkeypatch.setattr(store, "finish", full)
    with pytest.raises(errors.OutcomeNotRecordedError) as caught:
        act(**program.arguments)
    assert_clean_error(caught.value)


# -- edits and answers -----------------------------------------------------------------------------------------------


def test_edit_with_new_secrets_tells_none_of_them(store: Store, program: Program) -> None:
    act = program.gated()
    request_id = held(act, **program.arguments).confirmation_id
    changes = {
        "password": canary("edit"), "token": base64.b64encode(canary("edit").encode()).decode(),
        "box": {"token": canary("b")},
        "tree": {"a": {"b": {"c": {"jwt": canary("deep")}}}}, "pin": canary("pin"),
    }  # fmt: skip
    request = sayso.Review().approve(request_id, by="ada", changes=changes)
    assert_clean(request, request.effective.arguments, *told_of(request_id))
    program.ends.append(ValueError(f"{canary('edit')} and {canary('deep')}"))
    with pytest.raises(ValueError, match=WORD):
        act(**program.arguments)
    assert program.ran[0]["password"] == canary("edit")
    assert program.ran[0]["tree"]["a"]["b"]["c"]["jwt"] == canary("deep")
    assert_clean(*told_of(request_id))


BAD = canary("bad")
BAD_EDITS: list[dict[str, Any]] = [
    {"password": [BAD]}, {"secret": BAD}, {"pin": {"of": BAD}}, {"token": BAD}, {"crate": {"password": BAD, "pin": 5}},
    {"box": {"token": 5, "note": BAD, "x": BAD}}, {"rows": BAD}, {"pair": BAD}, {"to": {BAD}}, {"tree": [BAD]},
]  # fmt: skip


@pytest.mark.parametrize("changes", BAD_EDITS, ids=",".join)
def test_refused_edit_does_not_quote_the_value(store: Store, program: Program, changes: dict[str, Any]) -> None:
    request_id = held(program.gated(), **program.arguments).confirmation_id
    with pytest.raises(errors.InvalidChangesError) as caught:
        sayso.Review().approve(request_id, by="ada", changes=changes)
    assert_clean_error(caught.value)
    assert_clean(*told_of(request_id))


def test_secret_answer_is_the_programs_alone(store: Store) -> None:
    pause = held(sayso.ask, "Password?", type=SecretStr, wait="raise")
    request = sayso.Review().answer(pause.confirmation_id, canary("answer"), by="ada")
    assert_clean(request, request.decision, request.answer, *store.journal(), sayso.get_confirmation_context())
    answer = sayso.ask("Password?", type=SecretStr, wait="raise")
    assert answer.get_secret_value() == canary("answer")


def test_refused_answer_is_not_quoted(store: Store) -> None:
    pause = held(sayso.ask, "How many?", type=int, wait="raise")
    with pytest.raises(errors.InvalidAnswerError) as caught:
        sayso.Review().answer(pause.confirmation_id, canary("answer"), by="ada")
    assert_clean_error(caught.value)


# -- the gate's own redactor -----------------------------------------------------------------------------------------


def test_what_the_redactor_takes_out_is_as_secret_as_the_rest(store: Store) -> None:
    note = canary("note")

    @sayso.gate(
        wait="raise",
        redactor=lambda arguments: {"note": "a note", "to": arguments["to"]},
        prompt=lambda note: f"Send {note}?",
    )
    def send(note: str, to: str) -> str:
        if to == "alice":
            raise ValueError(f"{note} for {to}")
        return f"{note} for {to}"

    for to in ("alice", "bob"):
        request_id = held(send, note, to).confirmation_id
        sayso.Review().approve(request_id, by="ada")
        if to == "alice":
            with pytest.raises(ValueError, match=WORD):
                send(note, to)
        else:
            assert send(note, to) == f"{note} for bob"
        assert_clean(*told_of(request_id))
        execution = store.get(request_id).execution
        assert execution is not None
        assert f"for {to}" in f"{execution.error} {execution.result}"


def fails(arguments: dict[str, Any]) -> Any:
    raise ValueError(arguments["note"])


async def later(arguments: dict[str, Any]) -> Any:
    return arguments


REDACTORS: list[Any] = [
    fails, later, lambda _: None, lambda arguments: arguments["note"], lambda arguments: [arguments],
    lambda _: {1: "x"}, lambda arguments: {"note": {arguments["note"]}}, object, int,
]  # fmt: skip


@pytest.mark.parametrize("redactor", REDACTORS)
def test_redactor_that_fails_yields_a_placeholder(store: Store, redactor: Any) -> None:
    ran: list[str] = []

    @sayso.gate(wait="raise", redactor=redactor)
    def send(note: str) -> None:
        ran.append(note)

    pause = held(send, canary("note"))
    assert_clean_error(pause)
    assert_clean(*told_of(pause.confirmation_id))
    assert "failed" in str(pause.tool_call)
    sayso.Review().approve(pause.confirmation_id, by="ada")
    send(canary("note"))
    assert ran == [canary("note")]


def test_redactor_cannot_change_what_runs(store: Store) -> None:
    ran: list[Any] = []

    def redactor(arguments: dict[str, Any]) -> dict[str, Any]:
        arguments["rows"].append("smuggled")
        arguments["to"] = "mallory"
        return arguments

    @sayso.gate(wait="raise", redactor=redactor)
    def send(rows: list[str], to: str) -> None:
        ran.append((rows, to))

    sayso.Review().approve(held(send, ["a"], "alice").confirmation_id, by="ada")
    send(["a"], "alice")
    assert ran == [(["a"], "alice")]
