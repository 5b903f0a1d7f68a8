"""Secrets of a call: the call runs with them, and no text that we make of it holds them.

Every secret here has the same word in it, so that a surface is clean when the word is not in it. A reviewer's own
comments and the program's own exceptions are theirs and are passed on as they are. The invariant: what is masked where
it is shown is masked in what is said about it, too.
"""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import os
import pickle
import stat
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, SecretBytes, SecretStr

import sayso
from sayso import config, errors
from sayso.model.request import State
from sayso.stores.base import Store
from tests.integration.acting import held

WORD = "CANARY"
NUMBER = 7_215_893_461
FORMS = (WORD, base64.b64encode(WORD.encode()).decode(), str(NUMBER), WORD.encode().hex())
DEPTHS = 5


def canary(name: str) -> str:
    return f'{WORD}-{name}-it\'s "quoted" \\ and größer\n{WORD} second line of it'


@dataclass
class Box:
    token: str
    note: str = "plain"
    inner: Box | None = None


class Crate(BaseModel):
    password: str
    pin: SecretStr
    raw: SecretBytes = SecretBytes(b"")
    inner: Crate | None = None


def box(depth: int) -> Box:
    return Box(canary(f"box{depth}"), inner=box(depth + 1) if depth < DEPTHS else None)


def crate(depth: int) -> Crate:
    return Crate(
        password=canary(f"crate{depth}"),
        pin=SecretStr(canary(f"pin{depth}")),
        raw=SecretBytes(canary(f"raw{depth}").encode()),
        inner=crate(depth + 1) if depth < DEPTHS else None,
    )


def tree(depth: int) -> dict[str, Any]:
    here: dict[str, Any] = {"dbPassword": canary(f"tree{depth}"), "user": "plain"}
    return here | ({"next": tree(depth + 1)} if depth < DEPTHS else {})


def rows(depth: int) -> list[Any]:
    here: list[Any] = [{"API-Key": canary(f"rows{depth}")}, "plain"]
    return [*here, rows(depth + 1)] if depth < DEPTHS else here


def pair(depth: int) -> tuple[Any, ...]:
    here = ({"client_secret": {"of": [canary(f"pair{depth}")]}}, "plain")
    return (*here, pair(depth + 1)) if depth < DEPTHS else here


@dataclass
class Program:
    """A program with one gated call full of secrets."""

    ran: list[dict[str, Any]] = field(default_factory=list)
    ends: list[Any] = field(default_factory=list)
    arguments: dict[str, Any] = field(
        default_factory=lambda: {
            "password": canary("zero"), "api_key": canary("key"), "token": canary("bytes").encode(), "secret": NUMBER,
            "pin": SecretStr(canary("pin")), "box": box(1), "crate": crate(1), "tree": tree(1), "rows": rows(1),
            "pair": pair(1), "to": "alice",
        }
    )  # fmt: skip

    def gated(self, **options: Any) -> Callable[..., Any]:
        @sayso.gate(wait=options.pop("wait", "raise"), **options)
        def act(
            password: str, api_key: str, token: bytes, secret: int, pin: SecretStr, box: Box, crate: Crate,
            tree: dict[str, Any], rows: list[Any], pair: tuple[Any, ...], to: str,
        ) -> Any:  # fmt: skip
            """Do what needs many secrets."""
            self.ran.append({
                "password": password, "api_key": api_key, "token": token, "secret": secret, "pin": pin, "box": box,
                "crate": crate, "tree": tree, "rows": rows, "pair": pair, "to": to,
            })  # fmt: skip
            end = self.ends.pop(0) if self.ends else None
            if isinstance(end, BaseException):
                raise end
            return end

        return act

    def everything(self) -> str:
        """All the secrets in one text, quoted in every way that programs quote."""
        texts = list(secrets_in(self.arguments))
        return "\n".join([*texts, *map(repr, texts), *map(json.dumps, texts), str(NUMBER)])


def secrets_in(value: Any) -> Iterator[str]:
    if isinstance(value, str) and WORD in value:
        yield value
    elif isinstance(value, bytes):
        yield value.decode()
    elif isinstance(value, SecretStr | SecretBytes):
        yield from secrets_in(value.get_secret_value())
    elif isinstance(value, dict):
        for item in value.values():
            yield from secrets_in(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from secrets_in(item)
    elif isinstance(value, Box | Crate):
        yield from secrets_in(vars(value))


@pytest.fixture
def program() -> Program:
    return Program()


def assert_clean(*texts: object) -> None:
    for text in texts:
        for said in (str(text), repr(text)):
            for form in FORMS:
                assert form not in said, (
                    f"{form} at {said.index(form)}: …{said[max(0, said.index(form) - 80) :][:160]}…"
                )


def assert_clean_error(error: BaseException) -> None:
    """An error, its traceback, its facts and its pickle."""
    printed = "".join(traceback.format_exception(error))
    assert_clean(error, printed, vars(error), pickle.dumps(error))


def told_of(request_id: str) -> list[object]:
    """Everything that the doors tell of a request."""
    review = sayso.Review()
    request = review.get(request_id)
    said: list[object] = [request, request.prompt, request.rule, request.description, request.effective]
    said += [request.effective.arguments, request.effective.shown, request.call.arguments, request.execution]
    said += [None if request.execution is None else request.execution.result, request.decision]
    said += [review.list(state="all"), *review.store.journal()]
    return said


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
        "rule": {"when": lambda: sayso.hold(prompt=quoting())},
        "reason": {"when": lambda: sayso.hold(quoting())},
    }[way]
    pause = held(program.gated(**options), **program.arguments)
    assert_clean_error(pause)
    assert_clean(*told_of(pause.confirmation_id))
    request = store.get(pause.confirmation_id)
    assert "for alice?" in str(request.prompt if way != "reason" else request.rule)


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


# -- streams, logs, files --------------------------------------------------------------------------------------------


def test_waiting_is_announced_without_secrets(
    store: Store, program: Program, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr("sayso.waiting.terminal.is_there", lambda: False)
    caplog.set_level(logging.DEBUG)
    act = program.gated(wait="block", timeout="1ms", prompt=program.everything)
    request_id = held(act, **program.arguments).confirmation_id
    sayso.Review().approve(request_id, by="ada")
    act(**program.arguments)
    out, err = capfd.readouterr()
    assert "act(" in err
    assert_clean(out, err, caplog.text, caplog.records)


def files_of(path: Path) -> list[Path]:
    return sorted(path.parent.glob(f"{path.name}*"))


def used_store(path: Path, program: Program) -> str:
    """Take a call with secrets through everything that writes, in a store of its own; return the request's id."""
    config.configure(store=f"sqlite:///{path}")
    review = sayso.Review()
    act = program.gated(prompt=program.everything, retries=1)
    with pytest.raises(sayso.ConfirmationDenied):
        program.gated(when=lambda: sayso.deny(program.everything()))(**program.arguments)
    request_id = held(act, **program.arguments).confirmation_id
    review.approve(request_id, by="ada", changes={"password": canary("edit")})
    program.ends += [ValueError(program.everything()), {"password": canary("result")}]
    with pytest.raises(ValueError, match=WORD):
        act(**program.arguments)
    act(**program.arguments)
    question = held(sayso.ask, "Password?", type=SecretStr, wait="raise").confirmation_id
    review.answer(question, canary("answer"), by="ada")
    assert review.get(request_id).state is State.DONE
    return request_id


def test_sealed_store_holds_no_secret_on_the_disk(
    program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SAYSO_KEY", base64.urlsafe_b64encode(os.urandom(32)).decode())
    path = tmp_path / "sealed" / "sayso.db"
    request_id = used_store(path, program)
    files = files_of(path)
    assert len(files) == 3
    for file in files:
        content = file.read_bytes()
        assert not any(form.encode() in content for form in FORMS), file
        assert b"alice" not in content
    config.default_store().close()
    assert all(not any(form.encode() in file.read_bytes() for form in FORMS) for file in files_of(path))
    assert_clean(*told_of(request_id))


def test_store_without_a_key_holds_arguments_in_a_file_of_its_owners_alone(program: Program, tmp_path: Path) -> None:
    path = tmp_path / "open" / "sayso.db"
    request_id = used_store(path, program)
    files = files_of(path)
    assert any(WORD.encode() in file.read_bytes() for file in files)
    assert [stat.S_IMODE(file.stat().st_mode) for file in files] == [0o600] * 3
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert_clean(*told_of(request_id))


DEFAULTS: tuple[Any, ...] = (canary("default"), canary("badge"), SecretStr(WORD))


def test_default_of_a_secret_parameter_is_not_written_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAYSO_KEY", base64.urlsafe_b64encode(os.urandom(32)).decode())
    config.configure(store=f"sqlite:///{tmp_path / 'sayso.db'}")
    seen: list[str] = []

    @sayso.gate(wait="raise", redact=["badge"])
    def login(password: str = DEFAULTS[0], badge: str = DEFAULTS[1], pin: SecretStr = DEFAULTS[2]) -> None:
        seen.append(password + badge + pin.get_secret_value())

    pause = held(login)
    assert_clean(*told_of(pause.confirmation_id))
    sayso.Review().approve(pause.confirmation_id, by="ada", arguments={})
    login()
    assert seen == [canary("default") + canary("badge") + WORD]
    assert all(WORD.encode() not in file.read_bytes() for file in files_of(tmp_path / "sayso.db"))


def test_async_call_keeps_its_secrets_the_same_way(store: Store, program: Program) -> None:
    @sayso.gate(wait="raise", prompt=lambda password: f"Use {password}?")
    async def act(password: str) -> str:
        raise ValueError(password)

    async def main() -> str:
        with pytest.raises(sayso.ConfirmationRequired) as caught:
            await act(canary("async"))
        assert_clean_error(caught.value)
        sayso.Review().approve(caught.value.confirmation_id, by="ada")
        with pytest.raises(ValueError, match=WORD):
            await act(canary("async"))
        return caught.value.confirmation_id

    assert_clean(*told_of(asyncio.run(main())))


def test_reviewers_own_words_are_passed_on_as_they_are(store: Store, program: Program) -> None:
    act = program.gated()
    request_id = held(act, **program.arguments).confirmation_id
    sayso.Review().reject(request_id, f"never type {canary('zero')}", by="ada")
    with pytest.raises(sayso.ConfirmationRejected, match=WORD):
        act(**program.arguments)
