"""Secrets of a run's calls: the handlers get them, and nothing that a run shows, keeps or says holds them.

Every secret has the same word in it (see `canaries`). A run's output is what its handler returned, and is the caller's
own. The one invariant: a surface is clean when the word is not in it.
"""

from __future__ import annotations

import asyncio
import base64
import logging
import os
import traceback
import warnings
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretBytes, SecretStr

import sayso
from sayso import Agent, ApprovalPolicyDecision, OutputEvent, Tool, Workflow, load_run, suspend
from sayso.runs.runnable import Runnable
from sayso.stores.base import Store
from sayso.testing import ScriptedModel
from tests.support.canaries import (
    NUMBER,
    WORD,
    Box,
    Crate,
    Program,
    assert_clean,
    canary,
    rows,
    secrets_in,
    told_of,
    tree,
)
from tests.support.running import agent_of, answers, ids, reason, yes


@pytest.fixture(autouse=True)
def clean_log(caplog: pytest.LogCaptureFixture) -> Any:
    """Whatever a test does, nothing of it is in the log."""
    caplog.set_level(logging.DEBUG)
    yield
    for record in caplog.records:
        assert_clean(record.getMessage(), caplog.text)


def tool_of(program: Program, **options: Any) -> Tool:
    """Return a tool that takes all of the program's secrets."""

    def act(
        password: str, api_key: str, token: bytes, secret: int, pin: SecretStr, box: Box, crate: Crate,
        tree: dict[str, Any], rows: list[Any], pair: tuple[Any, ...], to: str,
    ) -> Any:  # fmt: skip
        """Do what needs many secrets."""
        program.ran.append(dict(locals()))
        del program.ran[-1]["program"]
        end = program.ends.pop(0) if program.ends else None
        if isinstance(end, BaseException):
            raise end
        return end

    return Tool(act, **{"requires_approval": True, **options})


def told(runnable: Runnable, *args: Any, **given: Any) -> tuple[OutputEvent, list[object]]:
    """Take a leg; return its output and everything that it told on the way."""

    async def heard() -> list[Any]:
        return [event async for event in runnable(*args, **given)]

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        events = asyncio.run(heard())
    texts: list[object] = [warning.message for warning in caught]
    for event in events:
        texts += [event, event.model_dump(), event.model_dump_json()]
    output = events[-1]
    try:
        run = load_run(output.run_id)
    except sayso.errors.RunNotFoundError:
        return output, texts
    texts += [run, vars(run), *run.spans, run.pending_approvals(), run.pending_interactions()]
    for request in sayso.Review().list(kind="call", limit=50).requests:
        texts += told_of(request.id)
    return output, texts


def test_a_waiting_call_tells_no_secret_and_runs_with_all_of_them(each_store: Store, program: Program) -> None:
    tool = tool_of(program)
    output, texts = told(tool, **program.arguments)
    assert reason(output) == ("cancelled", "approval_required")
    assert_clean(*texts)
    assert output.input is not None
    assert (output.input["to"], output.input["tree"]["next"]["user"]) == ("alice", "plain")
    output, texts = told(tool, resume=yes(output))
    assert reason(output) == ("success", None)
    assert_clean(*texts)
    assert program.ran == [program.arguments]


def test_a_free_call_tells_no_secret(each_store: Store, program: Program) -> None:
    _, texts = told(tool_of(program, requires_approval=False), **program.arguments)
    assert_clean(*texts)
    assert program.ran == [program.arguments]


def test_an_override_tells_no_secret(each_store: Store, program: Program) -> None:
    tool = tool_of(program)
    output, _ = told(tool, **program.arguments)
    override = {"password": canary("new"), "secret": NUMBER, "tree": tree(1), "rows": rows(2), "to": "bob"}
    resolution = sayso.ApprovalResolution(approved=True, approver_id="ada", override_input=override)
    output, texts = told(tool, resume=dict.fromkeys(ids(output), resolution))
    assert reason(output) == ("success", None)
    assert_clean(*texts)
    assert program.ran == [{**program.arguments, **override}]


@pytest.mark.parametrize(
    "override",
    [
        {"password": [canary("bad")]},
        {"secret": canary("bad")},
        {"crate": {"password": {"of": canary("bad")}}},
        {"passwort": canary("bad")},
        {"token": WORD},
        [canary("bad")],
    ],
)
def test_a_bad_override_is_refused_without_its_value(each_store: Store, program: Program, override: Any) -> None:
    tool = tool_of(program)
    output, _ = told(tool, **program.arguments)
    said = {"approved": True, "override_input": override}
    output, texts = told(tool, resume=dict.fromkeys(ids(output), said))
    assert (reason(output), program.ran) == (("cancelled", "approval_required"), [])
    assert any(isinstance(text, Warning) for text in texts)
    assert_clean(*texts)


HOOKS = ("requires_approval", "approval_prompt", "approval_description")


@pytest.mark.parametrize("hook", HOOKS)
def test_a_hook_that_fails_and_quotes_secrets_is_not_quoted(each_store: Store, program: Program, hook: str) -> None:
    def fails(password: str = canary("zero")) -> Any:
        raise ValueError(password) from KeyError(program.everything())

    output, texts = told(tool_of(program, **{hook: fails}), **program.arguments)
    assert reason(output) == ("error", "approval_policy_error")
    assert_clean(*texts)


@pytest.mark.parametrize("gated", [False, True])
def test_an_error_of_the_handler_that_quotes_secrets_is_scrubbed(
    each_store: Store, program: Program, gated: bool
) -> None:
    program.ends.append(ValueError(f"alice may not use {program.everything()}"))
    tool = tool_of(program, requires_approval=gated)
    output, texts = told(tool, **program.arguments)
    if gated:
        output, texts = told(tool, resume=yes(output))
    assert output.status.code == "error"
    assert "alice may not use" in str(output.status.message)
    assert_clean(*texts)


def test_prompt_description_and_rule_that_quote_secrets_are_scrubbed(each_store: Store, program: Program) -> None:
    def rule(password: str) -> ApprovalPolicyDecision:
        return ApprovalPolicyDecision(required=True, prompt=f"Use {password} for alice?")

    tool = tool_of(
        program, requires_approval=rule,
        approval_description=lambda password, api_key, box: f"with {password} {api_key} {box}",
    )  # fmt: skip
    output, texts = told(tool, **program.arguments)
    assert_clean(*texts)
    assert "for alice?" in output.metadata["pending_approvals"][0]["prompt"]


def test_a_rule_that_puts_secrets_on_the_card_is_masked(each_store: Store, program: Program) -> None:
    def rule(password: str, tree: dict[str, Any]) -> ApprovalPolicyDecision:
        text = f"with {password}"
        return ApprovalPolicyDecision(
            required=True, description=text, kind=text, ui={"x": [text], "tree": tree}, metadata={"note": password}
        )

    output, texts = told(tool_of(program, requires_approval=rule), **program.arguments)
    assert reason(output) == ("cancelled", "approval_required")
    assert_clean(*texts)


@pytest.mark.parametrize("redactor", [lambda _: 1 / 0, lambda given: [given], lambda _: None])
def test_a_redactor_that_fails_shows_nothing(each_store: Store, program: Program, redactor: Any) -> None:
    tool = tool_of(program, approval_redactor=redactor)
    output, texts = told(tool, **program.arguments)
    assert_clean(*texts)
    output, texts = told(tool, resume=yes(output))
    assert program.ran == [program.arguments]
    assert_clean(*texts)


def hush(iban: str, note: str = "plain") -> str:
    """Take what only the tool's own options make a secret."""
    seen.append(iban)
    if iban.startswith("fail"):
        raise ValueError(f"no account {iban}")
    return "done"


seen: list[str] = []
OWN: list[dict[str, Any]] = [
    {"approval_redact_keys": ["iban"]},
    {"approval_redactor": lambda given: {**given, "iban": "DE**"}},
]


@pytest.mark.parametrize("options", OWN)
@pytest.mark.parametrize("kind", ["tool", "free", "agent", "workflow", "nested", "failing"])
def test_a_tools_own_secrets_are_masked_wherever_its_input_passes(each_store: Store, options: Any, kind: str) -> None:
    seen.clear()
    iban = f"fail{WORD}" if kind == "failing" else f"DE{WORD}"
    tool = Tool(hush, requires_approval=kind != "free", **options)
    call = ("hush", {"iban": iban})
    runnable: Runnable = {
        "agent": agent_of([tool], [call]),
        "workflow": Workflow(name="flow").step(tool),
        "nested": Workflow(name="outer").step(Workflow(name="flow").step(tool)),
    }.get(kind, tool)
    given = {"prompt": "go"} if kind == "agent" else {"iban": iban}
    output, texts = told(runnable, **given)
    assert_clean(*texts)
    if kind != "free":
        output, texts = told(runnable, resume=yes(output))
        assert_clean(*texts)
    assert output.status.code == ("error" if kind == "failing" else "success")
    assert seen == [iban]


def test_values_of_default_params_are_masked(each_store: Store) -> None:
    seen.clear()
    tool = Tool(hush, requires_approval=True, approval_redact_keys=["iban"], default_params={"iban": lambda: WORD})
    output, texts = told(tool)
    assert_clean(*texts)
    _, texts = told(tool, resume=yes(output))
    assert_clean(*texts)
    assert seen == [WORD]


@pytest.mark.parametrize("gated", [False, True])
def test_a_password_in_a_url_is_masked_whether_the_call_waits_or_not(each_store: Store, gated: bool) -> None:
    def fetch(url: str) -> None: ...

    output = Tool(fetch, requires_approval=gated)(url=f"https://ada:{WORD}@example.org/x").run()
    assert output.input == {"url": "https://ada:***@example.org/x"}


def test_a_question_that_quotes_a_secret_argument_is_scrubbed(each_store: Store) -> None:
    def rotate(api_key: str) -> str:
        return suspend({"question": f"Rotate {api_key}?", "card": {"api_key": api_key, "of": [f"key {api_key}"]}})

    for gated in (False, True):
        tool = Tool(rotate, requires_approval=gated)
        output, texts = told(tool, api_key=canary("key"))
        assert_clean(*texts)
        if gated:
            output, texts = told(tool, resume=yes(output))
            assert_clean(*texts)
        assert reason(output) == ("cancelled", "input_required")
        output, _ = told(tool, resume=answers(output, "yes"))
        assert output.output == "yes"


def test_arguments_that_do_not_fit_are_refused_without_their_values(each_store: Store, program: Program) -> None:
    tool = tool_of(program)
    for name, odd in {"password": [canary("x")], "secret": canary("x"), "crate": {"password": [canary("x")]}}.items():
        output, texts = told(tool, **{**program.arguments, name: odd})
        assert output.status.code == "error"
        assert_clean(*texts)
    output, texts = told(agent_of([tool], [("act", {"password": [WORD], "secret": WORD})]), prompt="go")
    assert output.status.code == "success"
    assert_clean(*texts)


def test_a_tool_called_directly_raises_without_secrets(each_store: Store, program: Program) -> None:
    tool = tool_of(program)
    with pytest.raises(sayso.ConfirmationRequired) as caught:
        tool.call(**program.arguments)
    assert_clean(caught.value, "".join(traceback.format_exception(caught.value)), vars(caught.value))


# -- files -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["sqlite", "jsonl"])
def test_sealed_files_hold_no_secret_of_a_run(
    program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setenv("SAYSO_KEY", base64.urlsafe_b64encode(os.urandom(32)).decode())
    folder = tmp_path / "files"
    folder.mkdir()
    sayso.configure(store=f"sqlite:///{folder}/runs.db" if kind == "sqlite" else f"jsonl:{folder}/runs.jsonl")
    act = tool_of(program)
    plain = Tool(hush, requires_approval=True, approval_redact_keys=["iban"])
    calls = [("hush", {"iban": WORD}), ("hush", {"iban": f"fail {WORD}"})]
    inner = Agent(name="inner", model=ScriptedModel([calls, f"said {WORD}"]), tools=[plain])
    flow = Workflow(name="flow").step(plain).step(inner, prompt=f"use {WORD}", depends_on=["hush"])
    for runnable, given in ((act, program.arguments), (flow, {"iban": WORD})):
        output, _ = told(runnable, **given)
        while output.status.reason == "approval_required":
            output, _ = told(runnable, parent_id=output.run_id, resume=yes(output))
        assert output.status.code == "success"
    assert program.ran == [program.arguments]
    files = [path for path in folder.iterdir() if path.is_file()]
    assert files
    for path in files:
        content = path.read_bytes()
        assert WORD.encode() not in content, path
        assert str(NUMBER).encode() not in content, path


def test_there_are_thirty_canaries(program: Program) -> None:
    assert len(list(secrets_in(program.arguments))) >= 30
    assert SecretBytes(b"x").get_secret_value() == b"x"


def test_what_one_step_masks_is_masked_in_every_step_of_a_loaded_run(store: Store) -> None:
    def look(iban: str, password: str) -> dict[str, str]:
        return {"iban": iban, "text": f"account {iban} with {password}", "city": "Berlin"}

    def fails(look: dict[str, str]) -> None:
        raise ValueError(look["text"])

    flow = sayso.Workflow(name="flow").step(Tool(look, approval_redact_keys={"iban"}))
    flow = flow.step(Tool(lambda: None, name="pay", requires_approval=True)).step(fails, depends_on=["look", "pay"])
    secrets = {"iban": "DE02-secret-iban", "password": "secret-password"}
    paused = flow(**secrets).run()
    run = load_run(paused.run_id)
    assert [span.output for span in run.spans if span.name == "look"] == [
        {"iban": "***", "text": "account *** with ***", "city": "Berlin"}
    ]
    assert flow(parent_id=paused.run_id, resume=yes(paused)).run().status.code == "error"
    shown = repr(load_run(paused.run_id).spans)
    assert "account *** with ***" in shown
    assert [secret for secret in secrets.values() if secret in shown] == []


@pytest.mark.parametrize("changes", [{}, {"iban": "edited-secret"}], ids=["default", "edit"])
def test_a_masked_argument_that_no_model_gave_is_masked_in_a_loaded_run(store: Store, changes: dict[str, str]) -> None:
    def send(to: str, iban: str = "default-secret") -> str:
        return f"sent to {to} with {iban}"

    tool = Tool(send, requires_approval=True, approval_redact_keys={"iban"})
    paused = tool(to="bob").run()
    (request,) = sayso.Review().list(state="pending")
    sayso.Review().approve(request.id, by="ada", changes=changes)
    output = tool(parent_id=paused.run_id).run().output
    assert output.endswith("-secret")
    assert "sent to bob with ***" in repr(load_run(paused.run_id).spans)
