"""`sayso scan`: what it finds, what is behind a gate, and its three forms of output."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import unquote

import jsonschema_rs
import pytest

import sayso
from sayso.cli import main
from sayso.cli.scan import _data, files, patterns, scan_text


def agent(adapter: str, *lines: str) -> str:
    """Return a program with a tool that deletes a file, and an adapter."""
    first = f"import os\nfrom sayso.integrations.some import {adapter}\ndef f(): os.remove('x')"
    return "\n".join([first, *lines])


FOUND = {
    "import stripe\nstripe.Refund.create(charge='c')": "payment",
    "import stripe\nclient = stripe.StripeClient('k')\nclient.refunds.create()": "payment",
    "import stripe\nasync def f():\n    await stripe.Refund.create_async(charge='c')": "payment",
    "import stripe\nstripe.Subscription.cancel('s')": "payment",
    "def f(ec2):\n    ec2.terminate_instances(InstanceIds=['i'])": "deletion",
    "import aiohttp\nasync def f():\n    async with aiohttp.ClientSession() as c:\n"
    "        await c.delete(url)": "http-delete",
    "from shutil import rmtree as gone\ngone('/data')": "deletion",
    "import boto3\nboto3.client('s3').delete_object(Key='k')": "deletion",
    "def f(s3):\n    s3.delete_object(Key='k')": "deletion",
    "import os\nos.remove('x')": "file-deletion",
    "from pathlib import Path\nPath('x').unlink()": "file-deletion",
    "import smtplib\nwith smtplib.SMTP('h') as server:\n    server.send_message(m)": "mail",
    "import subprocess as sp\nsp.run(['rm'])": "shell",
    "eval(text)": "code",
    "def f(db):\n    db.execute('DELETE FROM orders')": "sql-write",
    "def f(db):\n    db.execute(f'update orders set n = {n}')": "sql-write",
    "import requests\nrequests.post('https://api.stripe.com/v1/refunds')": "http-write",
    "import httpx\nasync def f():\n    async with httpx.AsyncClient() as c:\n"
    "        await c.post('https://slack.com/api/chat')": "http-write",
    "class A:\n    def __init__(self):\n        import stripe\n        self.client = stripe.StripeClient('k')\n"
    "    def pay(self):\n        self.client.charges.create()": "payment",
    # a gate of another function, a function of one name of which one has no gate, and one that is used besides
    "import os, sayso\n@sayso.gate\ndef g(): pass\ndef f(): os.remove('x')": "file-deletion",
    "import os, sayso\nclass A:\n    @sayso.gate\n    def f(self): os.remove('x')\nclass B:\n    def f(self): pass":
        "file-deletion",
    "import os, sayso\ndef f(): os.remove('x')\nsafe = sayso.gate(f)\nf()": "file-deletion",
    "import os, sayso\n@sayso.gate\ndef g(): f()\ndef f(): os.remove('x')\nf()": "file-deletion",
    "import os\ndef f(x):\n    x.once(lambda a: os.remove('x'))": "file-deletion",
    # a tool that the adapter does not name, one that is called besides, one that is no tool, and what holds nothing
    agent("ApprovalMiddleware", "a = make(tools=[f], middleware=[ApprovalMiddleware(['g'])])"): "file-deletion",
    agent("ApprovalMiddleware", "a = make(tools=[f], middleware=[ApprovalMiddleware(['f'])])", "f()"): "file-deletion",
    agent("ApprovalMiddleware", "a = make(middleware=[ApprovalMiddleware(['g'], roles=['f'])])"): "file-deletion",
    agent("Gate", "a = Agent(m, capabilities=[Gate()])"): "file-deletion",
    agent("ModelWords", "a = Agent(tools=[f])", "run(a, hooks=ModelWords())"): "file-deletion",
    # a gate above a decorator that takes the function
    **{
        f"import sayso\n{bound}\n@sayso.gate\n@{decorator}\nasync def f(): pass": "gate-order"
        for bound, decorator in [
            ("app = FastAPI()", "app.post('/x')"), ("from web import router", "router.get('/x')"),
            ("agent = Agent(m)", "agent.tool"), ("mcp = FastMCP('m')", "mcp.tool()"), ("import airflow.decorators",
            "airflow.decorators.task"), ("from airflow.decorators import task", "task"), ("import agents",
            "agents.function_tool"), ("from celery import shared_task as later", "later(bind=True)"),
        ]
    },
}  # fmt: skip
NOT_FOUND = [
    "import os, sayso\n@sayso.gate\ndef f(): os.remove('x')",
    "import os\nfrom sayso import gate\n@gate(quorum=2)\nasync def f(): os.remove('x')",
    "import os\nfrom sayso.confirmation import confirm_first\n@confirm_first\ndef f(): os.remove('x')",
    "import os, sayso\n@sayso.tool\ndef f(): os.remove('x')",
    "import os, sayso\ndef f(): os.remove('x')\nsafe = sayso.gate(f)",
    "import os, sayso\nsafe = sayso.gate(quorum=2)(lambda: os.remove('x'))",
    "import os, sayso\nheld = sayso.hold('rm', {})\nheld.once(lambda a: os.remove('x'))",
    "import os, sayso\ndef f(a): os.remove('x')\nsayso.hold('rm', {}).once(f)",
    "import os\nfrom sayso.integrations.dspy import gate\ndef f(): os.remove('x')\ntool = gate(f)",
    "import os, sayso\n@sayso.gate\ndef g(): f()\ndef f(): h()\ndef h(): os.remove('x')",
    "import sayso, functools\napp = FastAPI()\n@app.post('/x')\n@sayso.gate\n@functools.lru_cache\ndef f(): pass",
    "import sayso, tenacity, slow\n@sayso.gate\n@tenacity.retry()\n@slow.down\n@staticmethod\ndef f(): pass",
    # decorators below the gate that only wrap the function
    "import sayso\nlimiter = Limiter()\n@sayso.gate\n@limiter.limit('5/m')\n@cache.memoize()\n@timed\ndef f(): pass",
    "import sayso\nfrom traceloop.sdk.decorators import tool\n@sayso.gate\n@tool(name='f')\ndef f(): pass",
    "import sayso\nfrom opentelemetry import trace\nt = trace.get_tracer('a')\n@sayso.gate\n@t.tool\ndef f(): pass",
    # tools that an adapter holds by their names, by a pattern, or all of them
    agent("ApprovalMiddleware", "a = make(tools=[f], middleware=[ApprovalMiddleware(['f'])])"),
    agent("ApprovalMiddleware", "tools = [f]", "a = make(tools=tools, middleware=[ApprovalMiddleware(tools=(f,))])"),
    agent("ApprovalMiddleware", "a = make(tools=[f], middleware=[ApprovalMiddleware()])"),
    agent("Gate", "a = Agent(m, capabilities=[Gate(['rm_*'])])", "@a.tool\ndef rm_file(): f()"),
    agent("Gate", "a = Agent(m, capabilities=[Gate(wait='pause')])", "@a.tool_plain\ndef g(): f()"),
    "def f(db):\n    db.execute('SELECT 1')",
    "import requests\nrequests.post('https://example.com')",
    "import requests\nrequests.get('https://api.stripe.com/v1/refunds')",
    "def remove(x): x.remove(1)",
]  # fmt: skip


def test_it_finds_what_is_behind_no_gate() -> None:
    found = {text: [one.pattern.id for one in scan_text(text, "a.py")] for text in FOUND}
    assert found == {text: [kind] for text, kind in FOUND.items()}
    assert {one.id for one in patterns()} == set(FOUND.values())


def test_the_adapters_that_hold_all_tools_are_there() -> None:
    text = "".join(path.read_text("utf-8") for path in (Path(sayso.__file__).parent / "integrations").glob("*.py"))
    names = _data()["adapters"]["hold_all"]
    assert [name for name in names if f"class {name}(" not in text and f"def {name}(" not in text] == []


def test_it_finds_nothing_behind_a_gate_or_harmless() -> None:
    assert {text: found for text in NOT_FOUND if (found := scan_text(text, "a.py"))} == {}


def test_what_a_gate_does_not_reach_counts_as_ungated_and_is_said_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "a.py"
    page.write_text("import os, sayso\n@sayso.gate\n@app.post('/x')\ndef f():\n    os.remove('x')\n")
    assert main(["scan", str(page), "--fail-on", "high"]) == 1
    said = capsys.readouterr().out
    assert ":3:2: high gate-order: app.post in f stands below the gate and takes the bare function" in said
    assert ":5:5: medium file-deletion: os.remove" in said
    assert "1 call without a gate in 1 file, 1 gate above a decorator that takes the function" in said


def test_a_comment_with_a_reason_leaves_a_call_out() -> None:
    lines = ["import os", "os.remove('a')  # sayso: ignore[a lock file]", "# sayso: ignore[a cache]", "os.remove('b')"]
    bare = ["os.remove('c')  # sayso: ignore", "os.remove('d')  # sayso: ignore[ ]"]
    found = scan_text("\n".join([*lines, *bare]), "a.py")
    assert [one.ignored for one in found] == ["a lock file", "a cache", None, None]


def test_it_leaves_out_environments_and_hidden_folders(tmp_path: Path) -> None:
    for name in ("a.py", ".git/b.py", "env/c.py", "node_modules/d.py", "p/e.py", "f.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "env/pyvenv.cfg").touch()
    assert [one.relative_to(tmp_path).as_posix() for one in files(tmp_path)] == ["a.py", "p/e.py"]


@pytest.fixture
def code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "a.py").write_text("import os\nos.remove('x')\nos.remove('y')  # sayso: ignore[a lock file]\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_exit_code_is_for_ci(code: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert [main(["scan", "a.py", *more]) for more in ([], ["--fail-on", "high"], ["--fail-on", "medium"])] == [0, 0, 1]
    assert capsys.readouterr().out.splitlines()[:2] == [
        "a.py:2:1: medium file-deletion: os.remove deletes a file",
        "1 call without a gate in 1 file, 1 ignored with a reason",
    ]


def test_a_file_that_cannot_be_read_is_told_and_fails(code: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (code / "b.py").write_text("def (")
    assert main(["scan", "."]) == 1
    assert "b.py cannot be read (SyntaxError)" in capsys.readouterr().err


def test_json_has_the_ignored_ones_too(code: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["scan", "--json", "."]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [(one["line"], one["ignored"]) for one in found["findings"]] == [(2, None), (3, "a lock file")]


def test_sarif_names_its_rules_and_suppresses_the_ignored_ones(code: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["scan", "--sarif", "."]) == 0
    log = json.loads(capsys.readouterr().out)
    run = log["runs"][0]
    assert log["version"] == "2.1.0"
    assert {one["ruleId"] for one in run["results"]} <= {one["id"] for one in run["tool"]["driver"]["rules"]}
    assert [one["suppressions"] for one in run["results"]] == [
        [], [{"kind": "inSource", "justification": "a lock file"}],
    ]  # fmt: skip
    assert main(["scan", "--sarif", "--json", "."]) == 2


def test_sarif_is_valid_by_the_schema_of_sarif_also_for_hostile_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    schema = (Path(__file__).parent / "sarif" / "sarif-2.1.0-rtm.5.json").read_text("utf-8")
    # The pattern of `language`, which we do not write, has a bracket that only JavaScript reads as a character.
    valid = jsonschema_rs.validator_for(json.loads(schema.replace("{2}]?$", "{2}\\\\]?$")), validate_formats=True)
    monkeypatch.chdir(tmp_path)
    for name in ("a b#c?.py", "größe%41.py", "x:y.py", "\u202e\\.py"):
        text = "import os\ndef f():\n  os.remove('é')\n  os.remove('y')  # sayso: ignore[\u202e '\"]\n"
        (tmp_path / name).write_text(text, "utf-8")
    assert main(["scan", "--sarif", "."]) == 0
    log = json.loads(capsys.readouterr().out)
    valid.validate(log)
    places = [one["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] for one in log["runs"][0]["results"]]
    assert {unquote(place) for place in places} == {"a b#c?.py", "größe%41.py", "x:y.py", "\u202e\\.py"}
    assert all(place.isascii() for place in places)
    (tmp_path / "empty").mkdir()
    assert main(["scan", "--sarif", "empty"]) == 0
    valid.validate(json.loads(capsys.readouterr().out))
    log["runs"][0]["results"][0]["level"] = "high"
    assert not valid.is_valid(log)  # so that a schema that takes anything is noticed
