"""`sayso policy`: what check, explain, test and replay print, and their exit codes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import sayso
from sayso import errors
from sayso.cli import main
from sayso.config import requester
from sayso.stores.grants import GrantVerbs

pytest.importorskip("cel_expr_python")

RULES = """[[rules]]
name = "small"
tool = "refund"
when = "args.amount <= 50"
verdict = "allow"
[[rules.examples]]
args = { amount = 40 }
expect = "allow"
[[rules]]
tool = "refund"
when = "args.token == 'x'"
verdict = "deny"
reason = "no"
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SAYSO_STORE", f"sqlite:///{tmp_path / 'requests.db'}")
    write("sayso.toml", RULES)
    return tmp_path


def write(name: str, text: str) -> None:
    Path(name).write_text(text)
    Path(name).chmod(0o600)


def test_check_prints_every_mistake_and_ends_with_1(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["policy", "check"]) == 0
    write("bad.toml", RULES.replace("reason", "raison").replace("<= 50", "<="))
    assert main(["policy", "check", "bad.toml"]) == 1
    assert [line.split(": ")[0] for line in capsys.readouterr().out.splitlines()[1:]] == [
        "bad.toml:4:23", "bad.toml:9:1", "bad.toml:13:1",
    ]  # fmt: skip


def test_explain_names_the_rule_and_what_was_before_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["policy", "explain", "refund", '{"amount": 40}']) == 0
    assert capsys.readouterr().out.splitlines() == ["line 1, small: args.amount <= 50 is true", "allow: small"]
    assert main(["policy", "explain", "refund", "{}"]) == 1
    assert capsys.readouterr().out.splitlines()[-1] == "the call does not run"
    for arguments in ("[]", "amount=40"):
        assert main(["policy", "explain", "refund", arguments]) == 2
        assert """write '{"amount": 40}'""" in capsys.readouterr().err


BUDGET = """[[rules]]
name = "cheap gifts"
tool = "gift"
verdict = "allow"
budget = %s
quorum = 2
roles = ["finance"]
"""


def test_explain_says_whether_a_call_has_room_in_its_budget(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    total, of_a_run = "sum(args.price) <= 100 per 24h", "count() <= 1 per 1h per run"
    of_an_agent = "count() <= 9 per 1h per agent"
    write("sayso.toml", BUDGET % json.dumps([total, of_a_run, of_an_agent]))

    def last(price: Any, *options: str) -> str:
        assert main(["policy", "explain", "gift", json.dumps({"price": price}), *options]) == 0
        *_, said, needs = capsys.readouterr().out.splitlines()
        assert needs == "if the budget is exceeded, 2 must approve it with one of the roles finance"
        return said

    assert f"{total} (0 used: 70 fits)" in last(70)  # and no store is made for that
    assert not (folder / "requests.db").exists()
    sayso.configure(store=f"sqlite:///{folder / 'requests.db'}")
    sayso.hold("gift", {"price": 70}, run="r1").start()
    agent = "usage not checked; add --agent"
    assert last(45, "--run", "r1") == (
        f"allow: cheap gifts, within the budget {total} (70 used: 45 does not fit, so the call would be held) and"
        f" the budget {of_a_run} (1 used: it does not fit, so the call would be held) and the budget"
        f" {of_an_agent} ({agent})"
    )
    found = last(30.0, "--run", "r2", "--agent", requester().subject)
    assert all(text in found for text in ("70 used: 30.0 fits", "0 used: it fits", "1 used: it fits"))
    assert "args.price is not a number from 0, so the call would be held" in last("x")
    assert main(["policy", "explain", "gift", '{"price": 45}', "--json"]) == 0
    verdict = json.loads(capsys.readouterr().out)["verdict"]
    assert (verdict["quorum"], verdict["roles"]) == (2, ["finance"])
    rooms = verdict["budgets"]
    assert [(one["used"], one["has_room"]) for one in rooms] == [(70, False), (None, None), (None, None)]
    store = sayso.Review().store
    (account,) = [one for one in store.records("budget") if one.body["budget"] == total]
    store.keep(replace(account, body={**account.body, "takings": []}))
    assert "its record does not match the journal, so the call would be held" in last(45)

    def refuse(*_: object) -> None:
        raise errors.StoreForbiddenError("it stays on the server")

    monkeypatch.setattr(GrantVerbs, "budget_used", refuse)
    assert "usage not checked, because this store cannot be read" in last(45)


def test_the_examples_of_a_file_are_tested(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["policy", "test"]) == 0
    write("wrong.toml", RULES.replace("amount = 40", "amount = 40.5").replace('expect = "allow"', 'expect = "hold"'))
    assert main(["policy", "test", "wrong.toml"]) == 1
    write("none.toml", "")
    assert main(["policy", "test", "none.toml"]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "1 example, 0 wrong", "wrong.toml:6: refund: expected hold, got allow (small)",
        "1 example, 1 wrong", "the file has no examples; nothing was tested",
    ]  # fmt: skip


def test_replay_counts_what_would_have_been_decided_otherwise(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sayso.configure(store=f"sqlite:///{folder / 'requests.db'}")
    ids = [
        sayso.hold("refund", {"amount": amount, "token": "x"}, when=True, run=f"r{amount}").id
        for amount in (10, 60, 70)
    ]
    assert main(["policy", "replay", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["asked"], found["verdicts"], found["masked"]) == (3, {"uncertain": 2, "allow": 1}, {"token": 2})
    assert {"from": "hold", "to": "allow", "count": 1, "ids": [ids[0]]} in found["changes"]
    write("new.toml", RULES.replace("<= 50", "<= 65"))
    assert main(["policy", "replay", "--policy", "new.toml", "--json"]) == 0
    changes = json.loads(capsys.readouterr().out)["changes"]
    assert [(one["from"], one["to"], one["ids"]) for one in changes] == [("uncertain", "allow", [ids[1]])]
    write("new.toml", "version = 1")
    for words in (
        ["replay", "--policy", "new.toml"],
        ["test", "new.toml"],
        ["explain", "refund", "--policy", "new.toml"],
    ):
        assert main(["policy", *words]) == 1
        said = capsys.readouterr().err
        assert ("new.toml:1:1: unknown key" in said, "not run" in said) == (True, False)


def test_what_a_budget_allowed_was_not_held(capsys: pytest.CaptureFixture[str]) -> None:
    write("sayso.toml", BUDGET % '"sum(args.price) <= 100 per 24h"')
    sayso.hold("gift", {"price": 70}, run="r1").start()
    held = sayso.hold("gift", {"price": 45}, run="r2")
    assert held.state == "pending"
    assert main(["policy", "replay", "--json"]) == 0
    changes = json.loads(capsys.readouterr().out)["changes"]
    assert [(one["from"], one["to"], one["ids"]) for one in changes] == [("hold", "allow", [held.id])]


def asked(tool: str, *names: str) -> None:
    fields = {name: {"type": "number"} for name in names}
    schema = {"type": "object", "properties": fields, "additionalProperties": False}
    sayso.hold(tool, dict.fromkeys(names, 1), when=True, run=tool, schema=schema)


def test_check_compares_the_field_of_a_budget_and_the_names_of_tools(capsys: pytest.CaptureFixture[str]) -> None:
    asked("gift", "price", "count")
    for text, found in (
        ('["count() <= 3 per 1h", "sum(args.prize) <= 100 per 24h"]', "args.price?"),
        ('"sum(args.prize) <= 100 per 24h"', "args.price?"), ('"sum(args.x) <= 100 per 24h"', "price, count"),
    ):  # fmt: skip
        write("sayso.toml", BUDGET % text)
        assert main(["policy", "check"]) == 1, text
        first = capsys.readouterr().out.splitlines()[0]
        assert first.startswith("sayso.toml:5:" + ("1:" if text[0] == "[" else "15:")), first
        assert f"which is not an argument of gift (asked by {requester().subject})" in first
        assert found in first
    write("sayso.toml", (BUDGET % '"sum(args.price) <= 100 per 24h"').replace('"gift"', '"gfit"'))
    assert main(["policy", "check"]) == 0
    assert "sayso.toml:1: note: no tool in this store matches 'gfit'; did you mean gift?" in capsys.readouterr().out


def test_a_tool_of_another_project_is_named_and_refuses_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    asked("other:refund", "amount")
    text = "[[rules]]\ntool = '%s'\nverdict = 'hold'\nsummary = 'Refund {order}'\n"
    write("sayso.toml", text % "refund")
    misfit = f"summary names 'order', which other:refund (asked by {requester().subject}) does not take"
    assert main(["policy", "check"]) == 0
    assert f"sayso.toml:4: note: {misfit}" in capsys.readouterr().out
    assert main(["policy", "explain", "refund", '{"order": 1}']) == 0
    first, *_, last = capsys.readouterr().out.splitlines()
    assert first.startswith(f"note: the arguments were not checked with the schema of other:refund (asked by {requester().subject})")  # fmt: skip  # noqa: E501
    assert last.startswith("hold: rule 1")
    write("sayso.toml", text % "other:refund")
    assert main(["policy", "check"]) == 1
    assert misfit in capsys.readouterr().out
