"""Every command, as a real process on a real store: what it prints, what it changes, and its exit code."""

from __future__ import annotations

import os
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import sayso as package
from sayso import clock as sayso_clock
from sayso import config, errors
from sayso.cli.context import exit_code
from sayso.model.lifecycle import Outcome
from sayso.model.request import State
from sayso.stores.base import Store
from sayso.stores.sqlite_file import newest_schema
from sayso.testing import sample_call
from tests.support.acting import flaky, held, unknown
from tests.support.commands import HIDDEN, ask_question, ask_refund, get, refund, sayso, start
from tests.support.person import Person

COMMANDS = (
    "ls", "show", "next", "approve", "reject", "feedback", "answer", "cancel", "claim", "release",
    "extend", "resolve", "log", "doctor", "demo",
)  # fmt: skip


@pytest.fixture(autouse=True)
def store(file_store: Store, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    """A store that the commands find by the environment, and a reviewer."""
    monkeypatch.setenv("SAYSO_STORE", file_store.url)
    monkeypatch.setenv("SAYSO_REVIEWER", "ada")
    return file_store


# -- see -------------------------------------------------------------------------------------------------------


def test_help_names_every_command() -> None:
    done = sayso("--help")
    assert done.code == 0
    assert all(f"\n  {name} " in done.out for name in COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(command: str) -> None:
    from click.testing import CliRunner

    from sayso.cli import _sayso

    result = CliRunner().invoke(_sayso, [command, "--help"])
    assert result.exit_code == 0, result.output
    assert result.output.startswith("Usage: ")


def test_version_is_the_package_s() -> None:
    assert package.__version__ in sayso("--version").out


def test_ls_shows_title_and_summary_as_the_programs_words(file_store: Store) -> None:
    file_store.ask(sample_call("run_1", title=f"Refund{HIDDEN}", summary="320 for A-4721"))
    file_store.ask(sample_call("run_2"))
    rows = sayso("--store", file_store.url, "ls").out.splitlines()
    assert rows[2].strip().startswith('the program says "Refund')
    assert rows[2].endswith(': 320 for A-4721"')
    assert "the program says" not in rows[3]


def test_ls_lists_pending_ones_first_and_then_what_needs_attention() -> None:
    approved = ask_refund("first-asked")
    sayso_review = package.Review()
    sayso_review.approve(approved.id, by="bob")
    lost = ask_refund("lost")
    sayso_review.approve(lost.id, by="bob")
    start(lost, Outcome("unknown"))
    waiting, question = ask_refund("waiting"), ask_question(choices=["berlin", "lyon"])
    done = sayso("ls")
    rows = done.out.splitlines()
    assert [row.split()[0] for row in rows[:5]] == ["ID", *(one.id[:11] for one in (waiting, question, approved, lost))]
    assert "  pending, in " in rows[1]
    assert 'refund(order_id="waiting"' in rows[1]
    assert "/order-4721" in rows[1]
    assert '"Which warehouse?"' in rows[2]
    assert "approved" in rows[3]
    assert "UNKNOWN" in rows[4]
    assert rows[5].startswith("2 pending - oldest ")
    assert rows[6].startswith("1 outcome unknown: ")
    assert "sayso resolve ID --happened" in rows[6]


def test_ls_leaves_out_what_is_decided_unless_asked() -> None:
    decided = ask_refund("decided")
    package.Review().reject(decided.id, by="bob")
    assert sayso("ls").out == "no open requests\n"
    assert decided.id[:11] in sayso("ls", "--all").out
    assert decided.id[:11] in sayso("ls", "--state", "rejected").out
    assert sayso("ls", "--state", "pending").out == "no requests\n"
    assert sayso("ls", "--state", "all", "-q").out == sayso("ls", "--all", "-q").out == f"{decided.id}\n"


def test_ls_goes_on_where_a_page_ended_and_misses_none() -> None:
    asked = [ask_refund(f"A-{number}").id for number in range(5)]
    package.Review().approve(asked[0], by="bob")
    seen: list[str] = []
    cursor: list[str] = []
    for _ in range(4):
        page = sayso("ls", "--json", "--limit", "2", *cursor).data
        seen += [request["id"] for request in page["requests"]]
        if page["cursor"] is None:
            break
        cursor = ["--cursor", page["cursor"]]
    assert seen == [*asked[1:], asked[0]]


def test_ls_filters() -> None:
    first, second = ask_refund("A-1", run="run-one"), ask_refund("A-2", run="run-two")
    question = ask_question("Where is the blue box?", run="run-two")
    package.Review().claim(second.id, by="ada")

    def listed(*words: str) -> list[str]:
        return [request["id"] for request in sayso("ls", "--json", *words).data["requests"]]

    assert listed("--run", "run-one") == [first.id]
    assert listed("--tool", "refund") == [first.id, second.id]
    assert listed("--risk", "high", "--newest") == [second.id, first.id]
    assert listed("--search", "BLUE box") == [question.id]
    assert listed("--mine") == [second.id]
    assert listed("--mine", "--as", "bob") == []


def test_json_of_a_request_has_its_documented_keys() -> None:
    call, question = ask_refund(), ask_question()
    common = {
        "id", "kind", "state", "run", "fingerprint", "prompt", "description", "risk", "rule", "context", "unverified",
        "program_gone", "retries", "idempotent", "warnings", "key", "effect", "title", "summary",
        "requester", "on_behalf_of", "quorum", "escalation", "created_at", "expires_at", "approval_expires_at",
        "claimed_by", "claimed_at", "returned", "votes", "decision", "execution",
    }  # fmt: skip
    shown = {request["id"]: request for request in sayso("ls", "--json").data["requests"]}
    assert set(shown[call.id]) == common | {"function", "tool", "arguments", "proposed", "changes"}
    assert set(shown[question.id]) == common | {"question", "answer"}
    assert shown[call.id]["arguments"] == {"order_id": "A-4721", "amount": 320.0, "reason": "", "api_key": "***"}
    assert shown[call.id]["requester"].startswith("program:")
    assert "hunter2" not in sayso("show", "--json", call.id).out


def test_show_tells_the_whole_story() -> None:
    request = ask_refund()
    review = package.Review(channel="chat")
    review.approve(request.id, by="bob", changes={"amount": 80, "api_key": "another-secret"}, comment="half, goodwill")
    start(request, Outcome("done", result='{"result":"refunded 80.00"}'))
    done = sayso("show", request.id)
    assert done.code == 0
    assert request.id in done.out
    assert "approved with changes by bob (chat, " in done.out
    assert '"half, goodwill"' in done.out
    assert "amount  320.00 -> 80.00" in done.out
    assert "api_key  *** -> *** (changed)" in done.out
    assert "another-secret" not in done.out
    assert 'returned "refunded 80.00"' in done.out
    events = [line.split()[2] for line in done.out.splitlines() if line.startswith("  20")]
    assert events == ["asked", "approved", "started", "done"]
    assert f"fingerprint {get(request.id).current_fingerprint}" in done.out


def test_show_says_what_can_be_done_next() -> None:
    call, question = ask_refund(), ask_question(type=int)
    lost = ask_refund("lost")
    package.Review().approve(lost.id, by="bob")
    start(lost, Outcome("unknown"))
    shown = sayso("show", call.id[:9]).out
    assert f"next: sayso approve {call.id[:11]}\n" in shown
    assert "    amount: number, at most 500" in shown
    assert f"next: sayso answer {question.id[:11]} VALUE" in sayso("show", question.id).out
    unknown = sayso("show", lost.id).out
    assert "OUTCOME UNKNOWN" in unknown
    assert f"next: sayso resolve {lost.id[:11]} --happened" in unknown


def test_commands_that_are_shown_name_the_store_where_the_environment_would_not() -> None:
    request = ask_refund()
    del os.environ["SAYSO_STORE"]
    url = config.default_store().url
    assert f"next: sayso --store {url} approve {request.id[:11]}" in sayso("--store", url, "show", request.id).out


# -- decide ----------------------------------------------------------------------------------------------------


def test_approve_lets_the_call_run_once() -> None:
    request = ask_refund()
    done = sayso("approve", request.id[3:11], "-m", "fine")
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith(f'{request.id[:11]} approved   refund(order_id="A-4721"')
    assert "waiting for the program to run it" in done.out
    decision = get(request.id).decision
    assert decision is not None
    assert (decision.by.subject, decision.channel, decision.comment) == ("ada", "cli", "fine")
    with package.run("order-4721"):
        assert refund("A-4721") == "refunded 320.00 for A-4721"


def test_set_changes_arguments_by_their_types() -> None:
    request = ask_refund()
    done = sayso("approve", request.id, "--set", "amount=80", "--set", "reason=1")
    assert done.code == 0
    assert "  amount  320.00 -> 80.00" in done.out
    assert '  reason  "" -> "1"' in done.out
    with package.run("order-4721"):
        assert refund("A-4721") == "refunded 80.00 for A-4721"


def test_one_change_stands_in_the_line_of_the_approval() -> None:
    request = ask_refund()
    done = sayso("approve", request.id, "--set", "amount=80")
    assert done.out.splitlines()[0] == f"{request.id[:11]} approved   amount  320.00 -> 80.00"


def test_several_requests_are_each_reported_and_the_worst_code_counts() -> None:
    first, second = ask_refund("A-1"), ask_refund("A-2")
    package.Review().reject(first.id, by="bob")
    done = sayso("approve", first.id, "rq_nowhere", second.id)
    assert done.code == 3
    assert "was already rejected by 'bob'" in done.err
    assert "no request 'rq_nowhere'" in done.err
    assert f"this is {package.Review().store.url}; if the program uses another store" in done.err
    assert get(second.id).state is State.APPROVED


def test_json_of_decisions_reports_each_request() -> None:
    request = ask_refund()
    done = sayso("reject", request.id, "rq_nowhere", "--json", "-m", "no")
    good, bad = done.data
    assert (good["ok"], good["request"]["state"], good["request"]["decision"]["comment"]) == (True, "rejected", "no")
    assert (bad["ok"], bad["error"]["kind"], bad["error"]["exit"]) == (False, "RequestNotFoundError", 1)
    assert done.code == 1


def test_reject_and_feedback_carry_their_words_to_the_program() -> None:
    rejected, sent_back = ask_refund("A-1"), ask_refund("A-2")
    assert sayso("reject", rejected.id, "-m", "too much").code == 0
    assert sayso("feedback", sent_back.id, "-m", "ask the customer first").code == 0
    with package.run("order-4721"):
        with pytest.raises(package.ConfirmationRejected, match="too much"):
            refund("A-1")
        with pytest.raises(package.ConfirmationFeedback, match="ask the customer first"):
            refund("A-2")


@pytest.mark.parametrize(
    ("options", "typed", "answer"),
    [
        ({"choices": ["berlin", "lyon"]}, "lyon", "lyon"),
        ({"type": int}, "7", 7),
        ({"type": bool}, "yes", True),
        ({}, "7", "7"),
        ({"type": list[int]}, "[1, 2]", [1, 2]),
    ],
)
def test_answer_is_read_by_the_question_s_type(options: dict[str, object], typed: str, answer: object) -> None:
    request = ask_question(**options)
    assert sayso("answer", request.id, typed).code == 0
    with package.run("order-4721"):
        given = package.ask("Which warehouse?", **options)  # type: ignore[arg-type]
    assert (given, type(given)) == (answer, type(answer))


def test_cancel_ends_the_run_also_after_an_approval() -> None:
    request = ask_refund()
    package.Review().approve(request.id, by="bob")
    assert sayso("cancel", request.id, "-m", "wrong customer").code == 0
    with package.run("order-4721"), pytest.raises(package.ConfirmationCancelled, match="wrong customer"):
        refund("A-4721")


def test_claim_keeps_others_out_until_it_is_released() -> None:
    request = ask_refund()
    assert "claimed by bob" in sayso("claim", request.id, "--as", "bob").out
    refused = sayso("approve", request.id)
    assert (refused.code, "was claimed by 'bob'" in refused.err) == (1, True)
    assert sayso("release", request.id).code == 1
    assert sayso("release", request.id, "--force").code == 0
    assert sayso("approve", request.id).code == 0


def test_comments_and_who_stood_in_are_shown_with_what_happened() -> None:
    request, ada = ask_refund(), package.Review(by="ada")
    ada.comment(request.id, "is it A-4721, @bob?")
    ada.claim(request.id)
    ada.delegate("bob", "3d")
    assert sayso("approve", request.id, "--as", "bob").code == 0
    shown = sayso("show", request.id).out
    assert "is it A-4721, @bob?" in shown
    assert "on behalf of local:ada" in shown


def test_extend_moves_the_end() -> None:
    request = ask_refund()
    assert sayso("extend", request.id, "7d").out.endswith("expires in 7d\n")
    assert get(request.id).expires_at - request.created_at > timedelta(days=6)


@pytest.mark.parametrize(("flag", "state"), [("--happened", State.DONE), ("--did-not", State.FAILED)])
def test_resolve_settles_an_unknown_outcome(flag: str, state: State) -> None:
    request = ask_refund()
    package.Review().approve(request.id, by="bob")
    start(request, Outcome("unknown"))
    done = sayso("resolve", request.id, flag, "-m", "asked the bank")
    assert (done.code, str(state) in done.out) == (0, True)
    assert get(request.id).state is state


def test_resolve_settles_the_start_that_was_examined_only() -> None:
    act = flaky([], [KeyboardInterrupt(), KeyboardInterrupt()], idempotent=True)
    request_id = unknown(act)
    with pytest.raises(KeyboardInterrupt):
        act(1)
    late = sayso("resolve", request_id, "--did-not")
    assert (late.code, "saw start 1, now start 2" in late.err, get(request_id).state) == (3, True, State.UNKNOWN)
    assert "(start 2), OUTCOME UNKNOWN" in sayso("show", request_id).out
    assert sayso("resolve", request_id, "--did-not", "--start", "2").code == 0


def test_a_quorum_is_counted_in_the_output() -> None:
    @package.gate(wait="raise", quorum=2, roles=["finance"])
    def wire(amount: int) -> int:
        return amount

    with package.run("order-4721"):
        request_id = held(wire, 10).confirmation_id
    first = sayso("approve", request_id, "--role", "finance")
    assert (first.code, "1 more reviewer must approve" in first.out) == (0, True)
    again = sayso("approve", request_id, "--role", "finance")
    assert (again.code, "has approved" in again.err) == (1, True)
    assert "approved by    ada (cli, " in sayso("show", request_id).out
    assert "waiting for the program" in sayso("approve", request_id, "--role", "finance", "--as", "Bob B.").out


# -- edit ------------------------------------------------------------------------------------------------------


def editor(tmp_path: Path, program: str) -> str:
    """Return a value for EDITOR: a program that works on the file's text as `text`."""
    script = tmp_path / "editor.py"
    script.write_text(
        "import sys, pathlib, os, time\n"
        "file = pathlib.Path(sys.argv[1])\n"
        "text = file.read_text(encoding='utf-8')\n"
        f"{program}\n"
        "file.write_text(text, encoding='utf-8')\n"
        "os.utime(file, (time.time() + 60, time.time() + 60))\n",  # saved, also within one tick of the disk's clock
        encoding="utf-8",
    )
    return f"{sys.executable} {script}"


def test_edit_opens_the_masked_arguments_with_their_types(tmp_path: Path) -> None:
    request = ask_refund(reason="a\u202eb")
    kept = tmp_path / "seen"
    program = f"pathlib.Path({str(kept)!r}).write_text(text); text = text.replace('320.0', '44')"
    done = sayso("approve", request.id, "--edit", EDITOR=editor(tmp_path, program))
    assert (done.code, done.err) == (0, "")
    seen = kept.read_text(encoding="utf-8")
    assert "//   amount: number, at most 500" in seen
    assert '"api_key": "***"' in seen
    assert "hunter2" not in seen
    assert "a\\u202eb" in seen
    with package.run("order-4721"):
        assert refund("A-4721", reason="a\u202eb") == "refunded 44.00 for A-4721"
    assert "hunter2-hunter2" in (get(request.id).edited or get(request.id).call).form


@pytest.mark.parametrize(
    ("program", "said"),
    [
        ("text = text.replace('320.0', '900')", "the maximum of 500"),
        ("text = text.replace('320.0', '')", "not valid JSON"),
        ("text = '[1]'", "a JSON object"),
        ("text = text.replace('reason', 'order_id')", "has a duplicate key"),
        ("sys.exit()", "nothing was saved"),
    ],
)
def test_a_bad_edit_decides_nothing(tmp_path: Path, program: str, said: str) -> None:
    request = ask_refund()
    done = sayso("approve", request.id, "--edit", EDITOR=editor(tmp_path, program))
    assert (done.code, said in done.err, "nothing was decided" in done.err) == (1, True, True), done.err
    assert get(request.id).state is State.PENDING


def test_on_a_terminal_a_bad_edit_is_opened_again(tmp_path: Path) -> None:
    request = ask_refund()
    program = "text = text.replace('900', '44') if '900' in text else text.replace('320.0', '900')"
    edit = {**os.environ, "EDITOR": editor(tmp_path, program)}
    with Person(
        "-m", "sayso", "approve", request.id, "--edit", env=edit, cwd=tmp_path, all_three=True, is_forked=True
    ) as person:
        assert "the maximum of 500" in person.sees("edit again? [Y/n]: ")
        assert get(request.id).state is State.PENDING
        person.types("y")
        assert person.ends()[0] == 0
        assert "amount  320.00 -> 44.00" in person.screen


def test_an_edit_that_is_given_up_decides_nothing(tmp_path: Path) -> None:
    request = ask_refund()
    edit = {**os.environ, "EDITOR": editor(tmp_path, "text = '['")}
    with Person(
        "-m", "sayso", "approve", request.id, "--edit", env=edit, cwd=tmp_path, all_three=True, is_forked=True
    ) as person:
        person.sees("edit again? [Y/n]: ")
        person.types("n")
        assert person.ends()[0] == 1
    assert get(request.id).state is State.PENDING


# -- long values -----------------------------------------------------------------------------------------------


def test_a_call_too_long_for_one_view_is_approved_only_by_who_read_it_to_the_end() -> None:
    request = ask_refund(reason="x" * 3_000 + "MARKER" + "y" * 3_000)
    refused = sayso("approve", request.id)
    assert (refused.code, "too long for one view" in refused.err) == (1, True)
    brief = sayso("show", request.id).out
    assert "MARKER" not in brief
    assert "of 6,006 characters not shown" in brief
    assert "fingerprint" not in brief
    whole = sayso("show", "--full", request.id).out
    assert "MARKER" in whole.replace("\n                 : ", "").replace("\n              : ", "")
    assert get(request.id).state is State.PENDING
    fingerprint = whole.partition("\nfingerprint ")[2].split()[0]
    assert sayso("approve", request.id, "--seen", fingerprint[:12]).code == 0


def test_what_was_seen_must_be_what_stands() -> None:
    request = ask_refund()
    done = sayso("approve", request.id, "--seen", "0" * 64)
    assert (done.code, "was changed since you looked" in done.err) == (3, True)
    assert get(request.id).state is State.PENDING


def test_a_call_that_another_reviewer_changed_is_approved_only_by_who_names_what_they_saw(tmp_path: Path) -> None:
    @package.gate(wait="raise", quorum=3)
    def wire(amount: int, note: str = "") -> None: ...

    request_id = held(wire, 10).id
    assert sayso("approve", request_id, "--as", "ada", "--set", "amount=99").code == 0
    for words in ((), ("--set", "note=late"), ("--alike", "--count", "2", "--for", "1h")):
        done = sayso("approve", request_id, "--as", "bob", *words)
        assert (done.code, "was changed since you looked" in done.err) == (3, True)
        assert f"show {request_id[:11]}" in done.err
    shown = sayso("show", request_id).out
    assert shown.count("--seen FINGERPRINT") == 2
    fingerprint = shown.partition("\nfingerprint ")[2].split()[0]
    assert sayso("approve", request_id, "--as", "bob", "--seen", fingerprint[:12]).code == 0
    assert [vote.by.subject for vote in get(request_id).votes] == ["ada", "bob"]
    program = editor(tmp_path, "text = text.replace('99', '98')")  # which shows the call as it is now
    assert sayso("approve", request_id, "--as", "carol", "--edit", EDITOR=program).code == 0
    assert get(request_id).effective.arguments["amount"] == 98


# -- the journal and the store ---------------------------------------------------------------------------------


def test_log_prints_what_happened_in_order_of_time() -> None:
    first, second = ask_refund("A-1", run="z-run"), ask_refund("A-2", run="a-run")
    package.Review().reject(first.id, by="bob", comment="no")
    rows = sayso("log").out.splitlines()
    assert [row.split()[0] for row in rows] == [first.id[:11], second.id[:11], first.id[:11]]
    assert 'rejected    bob (python)  "no"  run z-run' in rows[2]
    assert len(sayso("log", "--run", "a-run").out.splitlines()) == 1
    assert len(sayso("log", "--request", first.id[:9]).out.splitlines()) == 2
    last = sayso("log", "--limit", "1", "--json").data
    assert ([entry["event"] for entry in last["entries"]], last["left_out"]) == (["rejected"], 2)
    assert "2 of 3 rows" in sayso("log", "--limit", "1").out


def test_verify_finds_a_changed_row(store: Store) -> None:
    request = ask_refund()
    package.Review().reject(request.id, by="bob")
    whole = sayso("log", "--verify")
    assert (whole.code, "2 rows in 1 chain" in whole.out) == (0, True)
    assert "Limit: the store alone cannot show" in whole.out
    store.close()
    with closing(sqlite3.connect(store.url.removeprefix("sqlite:///"))) as connection, connection:
        connection.execute("DROP TRIGGER journal_is_not_updated")
        connection.execute("UPDATE journal SET by = 'local:mallory' WHERE seq = 2")
    broken = sayso("log", "--verify")
    assert (broken.code, "run order-4721: row 2 does not follow" in broken.out) == (1, True)
    as_data = sayso("log", "--verify", "--json")
    assert (as_data.code, as_data.data["broken"][0]["seq"]) == (1, 2)


def test_doctor_is_content_with_a_good_store() -> None:
    ask_refund()
    done = sayso("doctor")
    assert (done.code, done.out.splitlines()[-1]) == (0, "everything is in order")
    assert "0600" in done.out
    assert "pending 1" in done.out
    assert "SAYSO_KEY         not set, arguments are readable in the store\n" in done.out
    assert "rules             none; a gate without when= holds every call\n" in done.out
    found = sayso("doctor", "--json").data
    assert found["found"]["newest record"].endswith("Z")
    assert (found["ok"], found["found"]["requests"], found["found"]["schema"]) == (
        True,
        {"pending": 1},
        newest_schema(),
    )


def test_doctor_says_what_is_wrong(store: Store) -> None:
    with sayso_clock.use(lambda: datetime.now(UTC) + timedelta(hours=2)):
        ask_refund("from the future")
    request = ask_refund("lost")
    package.Review().approve(request.id, by="bob")
    start(request, Outcome("unknown"))
    Path(store.url.removeprefix("sqlite:///")).chmod(stat.S_IRUSR | stat.S_IWUSR | stat.S_IROTH)
    done = sayso("doctor", "--json")
    assert done.code == 1
    assert {wrong["name"] for wrong in done.data["wrong"]} == {"mode", "unknown outcomes", "newest record"}


def test_doctor_says_which_settings_file_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ask_refund()
    file = tmp_path / "service.toml"
    monkeypatch.setenv("SAYSO_CONFIG", str(file))
    gone = sayso("doctor")
    assert (gone.code, f"SAYSO_CONFIG names {file}, which does not exist" in gone.out) == (1, True)
    file.write_text('[[rules]]\ntool = "*"\nverdict = "hold"\n')
    file.chmod(0o600)
    found = sayso("doctor", "--json").data["found"]
    assert (found["settings"], found["rules"]) == (f"{file}, from SAYSO_CONFIG", f"1, {file}")


def test_doctor_does_not_mind_a_place_where_nothing_was_asked_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SAYSO_STORE")
    done = sayso("doctor")
    assert (done.code, "no program has made a request there yet" in done.out) == (0, True)


# -- streams ---------------------------------------------------------------------------------------------------


def test_a_reader_that_goes_away_makes_no_noise() -> None:
    for number in range(30):
        ask_refund(f"A-{number}")
    listing = subprocess.Popen([sys.executable, "-m", "sayso", "ls"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert listing.stdout is not None
    listing.stdout.close()
    assert listing.stderr is not None
    assert (listing.stderr.read(), listing.wait(30)) == (b"", 0)
    listing.stderr.close()


def test_what_was_decided_stays_decided_when_nobody_reads_the_report() -> None:
    requests = [ask_refund(f"A-{number}") for number in range(3)]
    read, write = os.pipe()
    os.close(read)
    ids = [request.id for request in requests]
    done = subprocess.run([sys.executable, "-m", "sayso", "reject", *ids], stdout=write, check=False, timeout=60)
    os.close(write)
    assert done.returncode == 0
    assert all(get(request.id).state is State.REJECTED for request in requests)


def test_colour_is_for_terminals_that_want_it_and_for_our_own_words() -> None:
    request = ask_refund("lost")
    package.Review().approve(request.id, by="bob")
    start(request, Outcome("unknown"))
    assert "\x1b" not in sayso("ls").out + sayso("show", request.id).out
    with Person(
        "-m", "sayso", "ls", env={**os.environ, "TERM": "xterm"}, cwd=Path.cwd(), all_three=True, is_forked=True
    ) as person:
        person.ends()
        assert "\x1b[31m\x1b[1mUNKNOWN" in person.screen
    for plain in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
        with Person(
            "-m", "sayso", "ls", env={**os.environ, **plain}, cwd=Path.cwd(), all_three=True, is_forked=True
        ) as person:
            person.ends()
            assert "UNKNOWN" in person.screen
            assert "\x1b" not in person.screen


def test_exit_codes_are_told_apart() -> None:
    assert exit_code(errors.NotUnknownError("rq_1", state="done", hint="")) == 3
    assert exit_code(errors.SaysoError()) == 1
