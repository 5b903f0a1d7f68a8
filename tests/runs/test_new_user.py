"""What a newcomer types wrong at first: each is refused where it stands, in words that name what was typed."""

from __future__ import annotations

import functools
import warnings
from pathlib import Path
from typing import Any

import pytest

from sayso import ApprovalResolution, ReAct, Tool, Workflow, suspend
from sayso.errors import ConfigError
from sayso.runs.decisions import IgnoredDecisionWarning
from tests.support.commands import sayso
from tests.support.running import agent_of, awaited, ids, questions, started, yes

MADE: list[int] = []


def make(a: int) -> int:
    """Make one."""
    MADE.append(a)
    return a


@pytest.fixture(autouse=True)
def _nothing_made() -> None:
    MADE.clear()


# -- options ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("idempotent", "no", "idempotent= takes True or False, not 'no'"),
        ("verify", 3, "verify= takes a callable, not 3"),
        ("risk", 7, "risk= takes a string, not 7"),
        ("description", 5, "description= takes a string, not 5"),
        ("approval_prompt", 3, "approval_prompt= takes a string or a callable, not 3"),
        ("approval_description", 3, "approval_description= takes a string or a callable, not 3"),
        ("approval_redactor", "a", "approval_redactor= takes a callable, not 'a'"),
        ("approval_redact_keys", "a", "approval_redact_keys= takes a collection of names, not 'a'"),
        ("default_params", [("a", 1)], "default_params= takes a dict of arguments by name"),
        ("name", "", "name= takes 1 to 64 letters"),
        ("name", 5, "name= takes 1 to 64 letters"),
        ("requires_approval", lambda b: b, "requires_approval= has a parameter 'b', which is not an argument of make"),
        ("approval_prompt", lambda b: b, "approval_prompt= has a parameter 'b', which is not an argument of make"),
        ("verify", lambda b: b, "verify= has a parameter 'b', which is not an argument of make"),
        (
            "approval_description",
            lambda b: b,
            "approval_description= has a parameter 'b', which is not an argument of make",
        ),
        (
            "approval_redact_keys",
            ["iban"],
            "approval_redact_keys= names 'iban', but no argument or field of make has that name",
        ),
    ],
)
def test_an_option_that_cannot_be_used_is_refused_where_the_tool_is_declared(
    option: str, value: object, said: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        Tool(make, **{"requires_approval": True, option: value})
    assert said in str(refused.value).replace(f"{__name__}:make", "make")


def test_options_of_the_right_types_are_taken() -> None:
    tool = Tool(
        make, name="maker", description="Makes.", requires_approval=lambda a: a > 0, approval_prompt=lambda a: f"{a}?",
        approval_description=lambda a: f"makes {a}", approval_redact_keys={"a"}, approval_redactor=dict,
        default_params={"a": lambda: 3}, risk="low", idempotent=True, verify=lambda a: a in MADE,
    )  # fmt: skip
    assert len(ids(started(tool))) == 1


def test_a_rule_may_ask_for_anything_where_the_handler_takes_anything() -> None:
    def anything(**more: int) -> int:
        return sum(more.values())

    tool = Tool(anything, requires_approval=lambda b: b > 1)
    assert tool(b=1).run().output == 1
    assert len(ids(started(tool, b=2))) == 1


@pytest.mark.parametrize(("kind", "option", "hint"), [
    (Tool, "require_approval", "did you mean requires_approval=?"),
    (Tool, "aproval_prompt", "did you mean approval_prompt=?"),
    (Workflow, "zzz", "Workflow() has no zzz="),
])  # fmt: skip
def test_a_misspelt_option_is_refused_with_the_one_that_was_meant(kind: Any, option: str, hint: str) -> None:
    with pytest.raises(TypeError) as refused:
        Tool(make, **{option: True}) if kind is Tool else Workflow(**{option: True})
    assert hint in str(refused.value)
    assert kind.__name__ in str(refused.value)
    assert "__init__" not in str(refused.value)


def test_one_tool_in_place_of_a_list_is_refused() -> None:
    with pytest.raises(ConfigError, match="tools= takes a list"):
        agent_of(make)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="tools= takes a list"):
        ReAct("q -> answer", make, model="test")  # type: ignore[arg-type]


def test_a_step_that_is_given_what_it_does_not_take_is_refused() -> None:
    with pytest.raises(ConfigError, match="step 'make' is given 'amount', which it does not take"):
        Workflow(name="w").step(make, amount=3)
    assert Workflow(name="w").step(make, a=3)().run().output == {"make": 3}


# -- handlers --------------------------------------------------------------------------------------------------


def _counts(a: int) -> Any:
    yield a


async def _counts_async(a: int) -> Any:
    yield a


class _Caller:
    async def __call__(self, a: int) -> int:
        return a

    async def bound(self, a: int) -> int:
        return a


@pytest.mark.parametrize("handler", [_counts, _counts_async, functools.partial(_counts, 1)])
def test_a_generator_is_no_handler(handler: Any) -> None:
    with pytest.raises(TypeError, match="generator"):
        Tool(handler, name="counts", requires_approval=True)


def test_an_object_that_is_called_async_is_refused_and_its_method_is_taken() -> None:
    with pytest.raises(TypeError, match="async __call__"):
        Tool(_Caller(), name="caller")
    tool = Tool(_Caller().bound, name="caller", requires_approval=True)
    paused = started(tool, a=2)
    assert tool(parent_id=paused.run_id, resume=yes(paused)).run().output == 2


def test_a_handler_whose_arguments_python_cannot_tell_is_refused() -> None:
    with pytest.raises(ConfigError, match="cannot be determined"):
        Tool(dict)


def test_a_coroutine_that_nobody_awaits_is_no_result() -> None:
    async def later(a: int) -> int:
        return a

    output = Tool(lambda a: later(a + 1), name="soon")(a=1).run()
    assert output.status.code == "error"
    assert "make it an `async def`" in output.error["message"]


# -- decisions -------------------------------------------------------------------------------------------------


def test_a_misspelt_field_of_a_decision_is_named_and_nothing_runs() -> None:
    tool = Tool(make, requires_approval=True)
    paused = started(tool, a=1)
    (request_id,) = ids(paused)
    with pytest.warns(IgnoredDecisionWarning, match="overide_input: Extra inputs are not permitted"):
        output = tool(
            parent_id=paused.run_id, resume={request_id: {"approved": True, "overide_input": {"a": "s3cr3t"}}}
        ).run()
    assert output.status.reason == "approval_required"
    assert MADE == []
    refused = output.metadata["pending_approvals"][0]["metadata"]["approval"]["refused"]
    assert "overide_input" in refused
    assert "s3cr3t" not in refused


def test_a_yes_and_a_no_to_one_request_in_one_call_decide_nothing() -> None:
    tool = Tool(make, requires_approval=True)
    paused = started(tool, a=1)
    (request_id,) = ids(paused)
    with pytest.raises(ValueError, match="decided twice"):
        tool(parent_id=paused.run_id, resume={request_id: True}, approval_decisions={request_id: False})
    assert tool(parent_id=paused.run_id).run().status.reason == "approval_required"
    both = {request_id: ApprovalResolution(approved=True)}
    assert tool(parent_id=paused.run_id, resume=both, approval_decisions=both).run().output == 1


def test_a_shortened_id_decides_nothing_and_is_told_that_ids_are_whole() -> None:
    tool = Tool(make, requires_approval=True)
    paused = started(tool, a=1)
    with pytest.warns(IgnoredDecisionWarning, match="a prefix is not enough here"):
        output = tool(parent_id=paused.run_id, resume={ids(paused)[0][:11]: True}).run()
    assert output.status.reason == "approval_required"
    assert MADE == []


# -- what is said ----------------------------------------------------------------------------------------------


def test_a_pause_says_how_many_wait_beside_the_one_that_it_names() -> None:
    def other(a: int) -> int:
        return a

    flow = Workflow(name="w")
    for step in (make, other):
        flow.step(Tool(step, requires_approval=True))
    paused = started(flow, a=1)
    assert str(paused.status.message).endswith("waits for a person: make (and 1 more)")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        paused = flow(parent_id=paused.run_id, resume={ids(paused)[0]: True}).run()
    assert str(paused.status.message).endswith("waits for a person: other")


def test_a_pause_of_a_question_says_the_question() -> None:
    def where() -> str:
        return suspend({"question": "Which warehouse?"})

    assert str(started(Tool(where)).status.message).endswith("waits for a person: Which warehouse?")


@awaited
async def test_a_run_that_was_not_begun_says_how_to_begin_it() -> None:
    tool = Tool(make)
    run = tool(a=1)
    assert repr(run) == "<Run of 'make', not started: .run(), await .collect() or async for>"
    await run.collect()
    assert repr(run) == "<Run of 'make'>"
    assert repr(tool) == "<Tool 'make'>"


# -- on the command line ---------------------------------------------------------------------------------------


def test_a_worker_that_is_given_a_file_name_is_told_the_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = sayso("worker", "shop.py:clerk", "--once")
    assert done.code == 1
    assert "did you mean 'shop'?" in done.err


def test_a_module_with_a_syntax_error_is_told_by_its_own_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broken_shop.py").write_text("x = 1\ny = (\n")
    monkeypatch.chdir(tmp_path)
    done = sayso("worker", "broken_shop:clerk", "--once")
    assert done.code == 1
    assert "(broken_shop.py, line 2)" in done.err
    assert "importlib" not in done.err


def test_words_in_place_of_a_list_are_told_how_a_list_is_written() -> None:
    def extras() -> list[str]:
        return suspend({"question": "Which extras?"}, response_schema={"type": "array", "items": {"type": "string"}})

    paused = started(Tool(extras))
    done = sayso("answer", questions(paused)[0], "a,c")
    assert done.code == 1
    assert """a list is written as JSON, '["a", "b"]'""" in done.err
    assert sayso("answer", questions(paused)[0], '["a", "c"]').code == 0


def test_a_fault_in_a_script_says_nothing_of_a_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAYSO_STORE", "nonsense://x")
    with pytest.raises(ConfigError) as caught:
        Tool(make)(a=1).run()
    assert caught.value.__context__ is None
