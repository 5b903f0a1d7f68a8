"""The programs in `examples/`, each run as its reader runs it: as a process, decided from a second one.

Every example is named here; a new one without a test turns `test_every_example_is_run` red.
"""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from queue import Queue
from threading import Thread

import pytest

from sayso.stores.base import Store
from sayso.testing import StoreContract
from tests.support import warm
from tests.support.person import Person

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
ADAPTERS = EXAMPLES.parent / "tests" / "integrations" / "adapters"  # they run the examples that need a framework
PATIENCE = 60.0


@pytest.fixture(autouse=True)
def _store(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAYSO_STORE", f"sqlite:///{place / 'sayso.db'}")


def run(*words: str) -> subprocess.CompletedProcess[str]:
    code, out, err = warm.run(list(words), dict(os.environ))
    return subprocess.CompletedProcess(words, code, out.decode(), err.decode())


def sayso(*words: str) -> str:
    done = run("-m", "sayso", *words)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


class Program:
    """An example that waits for a person."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self._said: Queue[str] = Queue()
        Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self._said.put(line)

    def asks(self) -> tuple[str, str]:
        """Wait until it says what it waits for; return the id and the line."""
        while True:
            line = self._said.get(timeout=PATIENCE)
            found = re.search(r"waiting for a person .*\b(rq_\w+)", line)
            if found:
                return found[1], line

    def ends(self) -> tuple[int, str]:
        """Wait for its end; return its exit code and what it printed."""
        assert self._process.stdout is not None
        code = self._process.wait(PATIENCE)
        return code, self._process.stdout.read()


@contextmanager
def started(name: str, *words: str) -> Iterator[Program]:
    process = subprocess.Popen(
        [sys.executable, str(EXAMPLES / name), *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield Program(process)
    finally:
        process.kill()
        process.communicate()


def test_every_example_is_run() -> None:
    tests = [Path(__file__), *ADAPTERS.glob("test_*.py")]
    run_here = {name for test in tests for name in re.findall(r'"(\w+\.py)"', test.read_text(encoding="utf-8"))}
    assert run_here == {path.name for path in EXAMPLES.glob("*.py")}


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.name)
def test_example_says_how_it_is_run(path: Path) -> None:
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    assert text is not None
    assert f"python examples/{path.name}" in text


# -- refund ----------------------------------------------------------------------------------------------------


def test_refund_goes_on_with_the_amount_that_was_approved() -> None:
    with started("refund.py") as program:
        request_id, line = program.asks()
        assert 'refund(order_id="A-4721", amount=320.00, reason="")' in line
        assert request_id in sayso("ls")
        sayso("approve", request_id, "--set", "amount=80", "-m", "half, as goodwill")
        assert program.ends() == (0, "refunded 80.00 for A-4721\n")


@pytest.mark.slow
def test_refund_is_not_paid_after_a_no() -> None:
    with started("refund.py") as program:
        request_id, _ = program.asks()
        sayso("reject", request_id, "-m", "ask the shop first", "--as", "ada")
        assert program.ends() == (0, "not refunded: the call refund was rejected by ada: ask the shop first\n")


@pytest.mark.slow
def test_refund_asks_on_the_terminal(place: Path) -> None:
    with Person(str(EXAMPLES / "refund.py"), env=dict(os.environ), cwd=place, is_forked=True) as person:
        person.sees("refund")
        person.sees("d detach   (then enter)\n> ")
        person.types("a")
        assert person.ends() == (0, "refunded 320.00 for A-4721\n")


# -- a foreign tool --------------------------------------------------------------------------------------------


def test_foreign_tool_is_called_once_with_what_was_approved() -> None:
    with started("hold_foreign_tool.py") as program:
        request_id, line = program.asks()
        assert 'shop/refund(order_id="A-4721", amount=320.00)' in line
        refused = run("-m", "sayso", "approve", request_id, "--set", "amount=900")
        assert "amount" in refused.stdout + refused.stderr
        assert refused.returncode != 0
        sayso("approve", request_id, "--set", "amount=80")
        sent = "sent to the shop: {'order_id': 'A-4721', 'amount': 80}\n"
        assert program.ends() == (0, f"{sent}refunded 80.00 for A-4721\n")
    again = run(str(EXAMPLES / "hold_foreign_tool.py"))
    assert (again.returncode, again.stdout) == (0, "refunded 80.00 for A-4721\n")


def test_mcp_gateway_runs_the_refund_once_with_what_was_approved() -> None:
    ended = run(str(EXAMPLES / "mcp_gateway.py"))
    assert ended.returncode == 0, ended.stderr
    waits, done = ended.stdout.splitlines()
    assert waits.startswith("Not run yet: a person must approve rq_")
    assert done.endswith("| refunded 80")


def test_a_session_of_a_coding_agent_is_played_and_its_command_runs_as_a_person_changed_it() -> None:
    with started("coding_agent.py") as program:
        request_id, line = program.asks()
        assert 'Bash(command="rm -rf build"' in line
        sayso("approve", request_id, "--set", "command=rm -rf build/tmp")
        code, printed = program.ends()
    assert code == 0
    assert "Read: left to the agent's own rules" in printed
    assert '"command": "rm -rf build/tmp"' in printed
    assert " done " in sayso("ls", "--all")


# -- raise and resume ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("response", "printed"),
    [
        ("yes", "deleted /srv/old\n"),
        ('{"path": "/srv/older"}', "deleted /srv/older\n"),
        ("no", "the call delete was rejected by ada\n"),
    ],
)
def test_pause_is_resumed_in_another_process(
    place: Path, monkeypatch: pytest.MonkeyPatch, response: str, printed: str
) -> None:
    monkeypatch.setenv("SAYSO_REVIEWER", "ada")
    asked = run(str(EXAMPLES / "raise_and_resume.py"))
    assert (asked.returncode, asked.stdout) == (0, 'Confirm execution of delete(path="/srv/old")?\n')
    saved = json.loads((place / "session.json").read_text())
    assert saved["tool_call"] == {"name": "delete", "args": {"path": "/srv/old"}, "call_id": None}

    resumed = run(str(EXAMPLES / "raise_and_resume.py"), response)

    assert (resumed.returncode, resumed.stdout) == (0, printed), resumed.stderr


@pytest.mark.slow
def test_asking_twice_is_one_request(place: Path) -> None:
    ids = set[str]()
    for _ in range(2):
        run(str(EXAMPLES / "raise_and_resume.py"))
        ids.add(json.loads((place / "session.json").read_text())["confirmation_id"])
    assert len(ids) == 1
    assert len(json.loads(sayso("ls", "--json"))["requests"]) == 1


@pytest.mark.slow
def test_pause_alone_gives_no_right(place: Path) -> None:
    run(str(EXAMPLES / "raise_and_resume.py"))
    (place / "sayso.db").unlink()
    resumed = run(str(EXAMPLES / "raise_and_resume.py"), "yes")
    assert resumed.returncode == 1
    assert "deleted" not in resumed.stdout
    assert "ConfirmationRequired" in resumed.stderr


# -- ask -------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_answers_come_back_as_values_of_their_types() -> None:
    with started("ask.py") as program:
        for answer in ("lyon", "3", "2026-08-03", "true"):
            sayso("answer", program.asks()[0], answer)
        assert program.ends() == (0, "a van with 3 boxes leaves lyon on Monday, 03 August 2026\n")


@pytest.mark.slow
def test_answer_that_does_not_fit_is_refused_and_the_question_still_waits() -> None:
    with started("ask.py") as program:
        request_id, _ = program.asks()
        refused = run("-m", "sayso", "answer", request_id, "rome")
        assert refused.returncode == 1
        sayso("answer", request_id, "berlin")
        sayso("reject", program.asks()[0], "-m", "no boxes left", "--as", "ada")
        assert program.ends() == (0, "no plan: the question was rejected by ada: no boxes left\n")


# -- idempotent ------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_second_try_of_a_failed_call_needs_no_second_approval(place: Path) -> None:
    with started("idempotent.py") as program:
        sayso("approve", program.asks()[0])
        code, printed = program.ends()
    assert code == 0
    assert printed.splitlines() == [
        "failed: the service is down; trying again needs no second approval",
        "paid 2026-118",
        "payments taken: 1",
    ]
    assert list(json.loads((place / "service.json").read_text()).values()) == [950]


@pytest.mark.slow
def test_payment_that_nobody_saw_end_is_found_and_not_made_again(place: Path) -> None:
    with started("idempotent.py", "--crash") as program:
        sayso("approve", program.asks()[0])
        assert program.ends()[0] == -signal.SIGKILL
    taken = (place / "service.json").read_text()
    assert len(json.loads(taken)) == 1

    again = run(str(EXAMPLES / "idempotent.py"))

    assert (again.returncode, again.stderr) == (0, "")
    assert again.stdout.splitlines() == ["paid 2026-118 (the service knew)", "payments taken: 1"]
    assert (place / "service.json").read_text() == taken


# -- agents that reason and act --------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("typed", "last"),
    [
        ("yes", "refunded 320.00 for A-4721"),
        ('{"amount": 80}', "refunded 80.00 for A-4721"),
        ("only half, please\nyes", "refunded 160.00 for A-4721"),
        ("no", "not done: the call refund was rejected by ada"),
    ],
)
def test_agent_at_a_terminal_does_what_the_person_types(typed: str, last: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAYSO_REVIEWER", "ada")
    words = [sys.executable, str(EXAMPLES / "react_cli.py")]
    done = subprocess.run(words, input=typed, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1].endswith(last)
    assert 'Confirm execution of refund(order_id="A-4721", amount=320.00)?' in done.stdout


@pytest.mark.slow
def test_agent_behind_a_web_api_goes_on_from_saved_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAYSO_REVIEWER", "ada")
    done = run("-W", "error", str(EXAMPLES / "react_web.py"))
    assert (done.returncode, done.stderr) == (0, "")
    ends = [line.strip() for line in done.stdout.splitlines() if line.startswith("  ")]
    assert ends[0] == "yes -> completed: deleted /srv/old-0"
    assert ends[1].startswith('{"pth": 1} -> error: pth: there is no such argument')
    assert ends[2] == '{"path": "/srv/older"} -> completed: deleted /srv/older'
    assert ends[3] == "no -> rejected: the call delete_file was rejected by ada"


@pytest.mark.slow
def test_batch_leaves_to_a_person_what_is_not_small() -> None:
    done = run("-W", "error", str(EXAMPLES / "react_batch.py"))
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[:2] == ["paid 12.00 for paper", "paid 60.00 for coffee"]
    assert lines[3] == "  Pay for server: paid 4000.00 for server"
    assert 'ada rejected it, in these words: "ask for an invoice first"' in lines[5]
    decided = [one["decision"] for one in json.loads(sayso("ls", "--all", "--json"))["requests"]]
    assert sorted(one["channel"] for one in decided) == ["python", "python", "rule", "rule"]


@pytest.mark.slow
def test_ten_agents_at_once_are_decided_one_by_one() -> None:
    done = run("-W", "error", str(EXAMPLES / "react_ten.py"))
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert [line for line in lines if line.endswith("refused")] == [
        "0: refused",
        "3: refused",
        "6: refused",
        "9: refused",
    ]
    assert lines[-1] == "published 6 times"


# -- agents and workflows --------------------------------------------------------------------------------------------


def lines_of(name: str) -> list[str]:
    done = run("-W", "error", str(EXAMPLES / name))
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


@pytest.mark.slow
def test_agent_pays_what_is_small_at_once_and_half_of_what_is_large_after_a_yes() -> None:
    assert lines_of("agent_refund.py") == [
        "Two orders, two refunds.",
        "support.refund: approval_required",
        "support.refund: refunded 15.00 for A-4722",
        "support: approval_required",
        "waits: Refund 320.00 for A-4721?",
        "I refunded 160.00 for A-4721, and refunded 15.00 for A-4722.",
    ]


@pytest.mark.slow
def test_agent_goes_on_in_a_second_process_and_does_nothing_twice() -> None:
    lines = lines_of("agent_durable.py")
    assert [line for line in lines if not line.startswith("  rq_")] == [
        "first worker:",
        "  looks the invoice up",
        "ada approves: refund {'order_id': 'A-4721', 'amount': 320.0}",
        "second worker:",
        "  pays",
        "  refunded 320.00 for A-4721",
    ]
    assert len(lines) == 7


@pytest.mark.slow
def test_agent_that_was_decided_by_command_goes_on_by_the_name_of_its_run() -> None:
    first = run(str(EXAMPLES / "agent_durable.py"), "ticket-17")
    (request_id,) = set(re.findall(r"rq_\w+", first.stdout))
    sayso("reject", request_id, "-m", "paid already")
    second = run(str(EXAMPLES / "agent_durable.py"), "ticket-17")
    assert "  pays" not in second.stdout
    assert '"paid already". This is final' in second.stdout


@pytest.mark.slow
def test_workflow_advances_only_the_steps_that_were_decided() -> None:
    assert lines_of("workflow_release.py") == [
        "  build 2.1",
        "waits: Migrate to 2.1?",
        "waits: Put app-2.1.tar into production?",
        "approved: migrate",
        "  migrate to 2.1",
        "waits: Put app-2.1.tar into production?",
        "approved: deploy",
        "  deploy app-2.1.tar",
        "  announce",
        "success: app-2.1.tar is live, database is at 2.1",
    ]


@pytest.mark.slow
def test_pause_inside_an_inner_agent_surfaces_outside_and_its_no_goes_in() -> None:
    lines = lines_of("nested_agents.py")
    assert lines[0] == "waits: desk.billing.refund {'order_id': 'A-4721', 'amount': 320.0}"
    assert lines[1].startswith('billing is told: refund was not run: ada rejected it, in these words: "vouchers')
    assert lines[2:] == ["desk says: a voucher of 320.00 for A-4721", "counted: 1 denied"]


@pytest.mark.slow
def test_answer_that_does_not_fit_its_schema_is_refused_and_the_next_one_counts() -> None:
    lines = lines_of("ask_user.py")
    assert lines[:2] == ["Which account? ada", "The code for 40.00 to ada? 12-34"]
    assert re.match(r"The code for 40\.00 to ada\? \(answer: Input does not match .*\) 123456$", lines[2])
    assert lines[3:] == ["wired 40.00 to ada with code 12****"]


# -- pizza: a person as a tool --------------------------------------------------------------------------------


@pytest.mark.slow
def test_pizza_is_ordered_at_the_console_by_answering_questions() -> None:
    typed = "I need a pizza with rocks on it\nmeatballs crumbled to resemble rocks\nsmall\nquit\n"
    words = [sys.executable, "-W", "error", str(EXAMPLES / "pizza_console.py")]
    done = subprocess.run(words, input=typed, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, done.stderr
    order = [{"size": "small", "toppings": ["meatballs"], "special_instructions": "small"}]
    assert done.stdout == f"Order: {order}\n"
    assert [line for line in done.stderr.splitlines() if "Which" in line] == [
        "Which topping would you like? We have cheese, ham, meatballs, mushrooms.",
        "Which size: small, medium, large?",
    ]


@pytest.mark.slow
def test_pizza_is_ordered_by_a_person_at_the_console_and_one_elsewhere(place: Path) -> None:
    with Person(str(EXAMPLES / "pizza_console.py"), env=dict(os.environ), cwd=place, is_forked=True) as person:
        person.sees("What is your order? (Type 'quit' to exit)\n> ")
        person.types("ham")
        person.sees("Which size: small, medium, large?\n> ")
        (request,) = json.loads(sayso("ls", "--json"))["requests"]
        sayso("answer", request["id"], "large")
        person.sees("answered")
        person.sees("What is your order? (Type 'quit' to exit)\n> ")
        person.types("quit")
        code, out = person.ends()
    assert (code, out) == (0, "Order: [{'size': 'large', 'toppings': ['ham'], 'special_instructions': 'large'}]\n")


@pytest.mark.slow
def test_pizza_is_ordered_on_a_web_page_by_many_at_once_and_no_event_is_lost() -> None:
    lines = lines_of("pizza_web.py")
    assert lines[:7] == ["question", "200 and 409", "answered", "question", "200 and 409", "answered", "order"]
    assert json.loads(lines[7]) == [{"size": "small", "toppings": ["meatballs"], "special_instructions": None}]
    assert lines[8:] == [
        "30 orders, 150 events, none lost, none twice",
        "404 {'error': 'there is no such order'}",
        "404 {'error': 'this order has no such question'}",
    ]


# -- evidence --------------------------------------------------------------------------------------------------------


def test_a_receipt_is_checked_without_sayso(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    public = place / "public.key"
    public.write_text(sayso("key", "new", str(place / "signing.key")))
    monkeypatch.setenv("SAYSO_SIGNING_KEY", str(place / "signing.key"))
    with started("refund.py") as program:
        request_id, _ = program.asks()
        sayso("approve", request_id, "--as", "ada")
        assert program.ends()[0] == 0
    sayso("log", "--checkpoint")
    receipt = place / "receipt.json"
    sayso("receipt", request_id, "-o", str(receipt))
    done = run(str(EXAMPLES / "check_receipt.py"), str(receipt), str(public))
    assert done.stdout.splitlines()[-1] == "['done', 'program:refund.py']", done.stderr
    receipt.write_text(receipt.read_text().replace("ada", "bob"))
    assert run(str(EXAMPLES / "check_receipt.py"), str(receipt), str(public)).returncode == 1


def test_chains_are_checked_without_sayso_and_a_changed_row_is_named(place: Path) -> None:
    run("-c", 'import sayso; sayso.hold("pay", {"amount": 80}, run="order-4721")')
    words = (str(EXAMPLES / "check_journal.py"), str(place / "sayso.db"))
    assert run(*words).stdout == "1 rows, broken runs: []\n"
    with closing(sqlite3.connect(place / "sayso.db")) as file, file:
        for (name,) in file.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            file.execute(f"DROP TRIGGER {name}")
        file.execute("UPDATE journal SET by = 'program:other.py'")
    assert run(*words).stdout == "1 rows, broken runs: ['order-4721']\n"


# -- a store of one's own --------------------------------------------------------------------------------------------


def test_a_call_is_asked_decided_and_run_in_the_json_store(place: Path) -> None:
    done = run(str(EXAMPLES / "json_store.py"), str(place / "requests.json"))
    assert (done.returncode, done.stdout) == (0, "paid 80\n"), done.stderr


_specification = importlib.util.spec_from_file_location("json_store", EXAMPLES / "json_store.py")
assert _specification is not None
assert _specification.loader is not None
json_store = importlib.util.module_from_spec(_specification)
_specification.loader.exec_module(json_store)


@pytest.mark.slow
class TestJsonStore(StoreContract):
    def make_store(self) -> Store:
        return json_store.FileStore(Path(tempfile.mkdtemp()) / "requests.json")

    def elsewhere(self, store: Store) -> Store:
        assert isinstance(store, json_store.FileStore)
        return json_store.FileStore(store.path)
