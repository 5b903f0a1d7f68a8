"""`sayso policy`: what check, explain, test and replay print, and their exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import sayso
from sayso.cli import main

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
    assert main(["policy", "explain", "refund", "[]"]) == 2


def test_the_examples_of_a_file_are_tested(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["policy", "test"]) == 0
    write("wrong.toml", RULES.replace("amount = 40", "amount = 40.5").replace('expect = "allow"', 'expect = "hold"'))
    assert main(["policy", "test", "wrong.toml"]) == 1
    write("none.toml", "")
    assert main(["policy", "test", "none.toml"]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "1 example, 0 wrong", "wrong.toml:6: refund: hold was expected, and it is allow (small)",
        "1 example, 1 wrong", "no examples: nothing was tested",
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
