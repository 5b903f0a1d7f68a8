"""Keys, checkpoints, anchors, receipts, exports and purges at the command line, in processes of their own."""

from __future__ import annotations

import csv
import io
import json
import os
import sqlite3
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from sayso import clock, config
from sayso.cli import main
from sayso.model.lifecycle import Outcome
from sayso.model.request import Request
from tests.support.commands import HIDDEN, ask_question, ask_refund, sayso, start


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with a store in it, in which the commands are typed."""
    monkeypatch.chdir(tmp_path)
    address = f"sqlite:///{tmp_path / 'requests.db'}"
    monkeypatch.setenv("SAYSO_STORE", address)
    config.configure(store=address)
    yield tmp_path
    config.default_store().close()


def refunded(**arguments: object) -> Request:
    request = ask_refund(**arguments)  # pyright: ignore[reportArgumentType]
    assert sayso("approve", request.id, "--as", "ada", "-m", "goodwill").code == 0
    return start(request, Outcome("done"))


def a_key() -> str:
    made = sayso("key", "new", "signing.key")
    assert made.code == 0
    Path("public.key").write_text(made.out)
    return made.out.strip()


# -- keys ------------------------------------------------------------------------------------------------------------


def test_a_key_is_its_owners_alone_and_is_never_written_over() -> None:
    public = a_key()
    assert Path("signing.key").stat().st_mode & 0o777 == 0o600
    assert sayso("key", "show", "signing.key").out.strip() == public
    assert sayso("key", "show", SAYSO_SIGNING_KEY="signing.key").out.strip() == public
    again = sayso("key", "new", "signing.key")
    assert (again.code, "keys are not overwritten" in again.err) == (1, True)
    assert sayso("key", "show", "signing.key").out.strip() == public
    assert "PRIVATE" not in again.out + again.err


def test_a_key_stands_in_the_settings_and_is_meant_from_where_they_lie(here: Path) -> None:
    public = a_key()
    (here / "sayso.toml").write_text('[evidence]\nkey = "signing.key"\n')
    (here / "below").mkdir()
    os.chdir(here / "below")
    assert sayso("key", "show").out.strip() == public
    os.chdir(here)
    (here / "sayso.toml").write_text('[evidence]\nkeys = "signing.key"\n')
    assert "unknown setting 'keys'" in sayso("key", "show").err
    (here / "sayso.toml").write_text("[evidence]\nkey = 7\n")
    assert "as a string" in sayso("key", "show").err


def test_a_key_that_cannot_be_used_signs_nothing_and_nothing_is_written_unsigned(here: Path) -> None:
    a_key()
    ask_refund()
    Path("other.key").write_text("no key")
    Path("other.key").chmod(0o600)
    cases = {
        "none.key": "cannot be read",
        "other.key": "no usable private key",
        "public.key": "others can read",
    }
    Path("public.key").chmod(0o644)
    for name, reason in cases.items():
        for words in (["log", "--checkpoint"], ["log", "--anchor", "anchor.json"]):
            told = sayso(*words, SAYSO_SIGNING_KEY=name)
            assert (told.code, reason in told.err) == (1, True), told.err
            assert "nothing was signed" in told.err or "signs nothing" in told.err
    assert len(sayso("log", "--json").data["entries"]) == 1
    assert not (here / "anchor.json").exists()
    assert "no key is configured" in sayso("key", "show").err


@pytest.mark.parametrize(
    ("settings", "reason"), [('kee = "x"', "unknown setting 'kee'"), ('key = "x"', "cannot be read")]
)
def test_a_key_that_cannot_be_used_is_told_by_doctor_and_before_anything_is_served(
    here: Path, settings: str, reason: str
) -> None:
    ask_refund()
    (here / "sayso.toml").write_text(f"[evidence]\n{settings}\n")
    looked = sayso("doctor", "--json")
    assert looked.code == 1
    assert [(one["name"], reason in one["problem"]) for one in looked.data["wrong"]] == [("signing key", True)]
    assert looked.data["found"]["settings"] == str(here / "sayso.toml")
    served = sayso("--store", f"sqlite:///{here / 'new.db'}", "serve", "--port", "0")
    assert (served.code, served.out, reason in served.err) == (1, "", True)
    assert not (here / "new.db").exists()


# -- checkpoints and anchors -----------------------------------------------------------------------------------------


def test_a_checkpoint_is_written_where_something_happened() -> None:
    assert sayso("log", "--checkpoint").code == 1  # there is no store yet
    ask_refund()
    public = a_key()
    first = sayso("log", "--checkpoint", SAYSO_SIGNING_KEY="signing.key")
    assert first.out.startswith("checkpoint 1 of ")
    assert f"over 1 row in 1 chain, signed by {public}" in first.out
    assert sayso("log", "--checkpoint").out.startswith("nothing has changed since checkpoint 1 of ")
    ask_refund(order_id="B")
    told = sayso("log", "--checkpoint", "--json").data
    assert (told["is_new"], told["checkpoints"], told["newest"]["rows"], told["newest"]["key"]) == (True, 2, 3, None)


def test_a_journal_is_held_to_an_anchor() -> None:
    refunded()
    ask_refund(order_id="C", run="order-4722")
    public = a_key()
    made = sayso("log", "--anchor", "anchor.json", SAYSO_SIGNING_KEY="signing.key")
    assert (made.code, made.out.count(public)) == (0, 1)
    again = sayso("log", "--anchor", "anchor.json")
    assert (again.code, "already exists; nothing was written" in again.err) == (1, True)
    whole = sayso("log", "--verify", "--anchor", "anchor.json", "--key", "public.key")
    assert whole.code == 0
    assert "compared with the anchor of " in whole.out
    assert "Limit: rows written after the anchor of " in whole.out
    assert "That the end" not in whole.out
    with closing(sqlite3.connect("requests.db")) as connection:
        connection.execute("DROP TRIGGER journal_is_not_deleted")
        connection.execute("DELETE FROM journal WHERE run_id <> 'order-4722'")
        connection.execute("DELETE FROM request WHERE run_id <> 'order-4722'")
        connection.commit()
    assert sayso("log", "--verify").code == 0
    broken = sayso("log", "--verify", "--anchor", "anchor.json")
    assert broken.code == 1
    assert "none is here: the chain was lost, or an older copy of the store was restored" in broken.out
    told = sayso("log", "--verify", "--anchor", "anchor.json", "--json").data
    assert {one["run"] for one in told["broken"]} == {"order-4721", "sayso:checkpoints"}
    assert told["anchor"]["key"] == public


def test_what_cannot_be_known_is_said_each_time() -> None:
    ask_refund()
    alone = "Limit: the store alone cannot show that the end of a chain and its requests were deleted together."
    assert sayso("log", "--verify").out.splitlines()[-1] == alone
    sayso("log", "--checkpoint")
    *_, checked, unsigned = sayso("log", "--verify").out.splitlines()
    assert checked.startswith("Limit: the store alone cannot show that the newest checkpoints")
    assert unsigned.startswith("The newest checkpoint or anchor is not signed")
    sayso("log", "--anchor", "anchor.json")
    *_, anchored, unsigned = sayso("log", "--verify", "--anchor", "anchor.json").out.splitlines()
    assert anchored.startswith("Limit: rows written after the anchor of ")
    assert unsigned.startswith("The newest checkpoint or anchor is not signed")
    a_key()
    sayso("log", "--checkpoint", SAYSO_SIGNING_KEY="signing.key")
    assert "The newest checkpoint or anchor is not signed" not in sayso("log", "--verify").out


def test_a_key_that_must_have_signed_is_missed() -> None:
    ask_refund()
    public = a_key()
    none = sayso("log", "--verify", "--key", public)
    assert (none.code, "there is no checkpoint, but one signed by" in none.out) == (1, True)
    sayso("log", "--checkpoint")
    unsigned = sayso("log", "--verify", "--key", "public.key")
    assert (unsigned.code, "is not signed, and must be signed by" in unsigned.out) == (1, True)
    for key in ("ed25519:0", "none.key", "", HIDDEN):
        told = sayso("log", "--verify", "--key", key)
        assert told.code == 2
        assert "--key" in told.err


def test_the_configured_key_is_the_one_that_is_believed(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    public = a_key()
    refunded()
    assert sayso("log", "--checkpoint").code == 0  # by somebody without the key
    found = sayso("log", "--verify", SAYSO_SIGNING_KEY="signing.key")
    assert (found.code, f"is not signed, and must be signed by {public}" in found.out) == (1, True)
    assert sayso("log", "--checkpoint", SAYSO_SIGNING_KEY="signing.key").code == 0
    assert sayso("log", "--verify", SAYSO_SIGNING_KEY="signing.key").code == 0


def test_a_key_that_nobody_vouches_for_is_told_and_each_change_of_it() -> None:
    first = a_key()
    refunded()
    assert sayso("log", "--checkpoint", SAYSO_SIGNING_KEY="signing.key").code == 0
    alone = sayso("log", "--verify").out
    assert "can sign with another key" in alone
    assert "keys, in this order" not in alone
    assert "can sign with another key" not in sayso("log", "--verify", "--key", first).out
    second = sayso("key", "new", "another.key").out.strip()
    refunded(order_id="A-2")
    assert sayso("log", "--checkpoint", SAYSO_SIGNING_KEY="another.key").code == 0
    assert f"signed with 2 keys, in this order: {first}, {second}." in sayso("log", "--verify").out
    refunded(order_id="A-3")
    assert sayso("log", "--checkpoint").code == 0
    assert "The newest checkpoint or anchor is not signed" in sayso("log", "--verify").out


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "is not a sayso anchor"),
        (b"{}", "is not a sayso anchor"),
        (b'{\n"receipt": {}', "is not a sayso anchor"),
        (b'{\n"anchor": {', "is truncated, or was changed"),
        (
            b'{\n"anchor": {},\n"proof": {"digest": "", "key": null, "signature": null}\n}\n',
            "its digest does not match",
        ),
    ],
)
def test_a_file_that_is_no_anchor_is_told_so(content: bytes, reason: str) -> None:
    ask_refund()
    Path("anchor.json").write_bytes(content)
    told = sayso("log", "--verify", "--anchor", "anchor.json")
    assert (told.code, reason in told.err, told.out) == (1, True, "")


def test_an_anchor_of_another_store_is_told_so(here: Path) -> None:
    ask_refund(run="run of another store")
    sayso("log", "--anchor", "anchor.json")
    other = f"sqlite:///{here / 'other.db'}"
    config.configure(store=other)
    ask_refund(run="run of this one")
    told = sayso("--store", other, "log", "--verify", "--anchor", "anchor.json")
    assert (told.code, "the anchor is of another store" in told.err) == (1, True)


def test_a_checkpoint_is_refused_over_a_loss_and_doctor_says_so() -> None:
    ask_refund()
    public = a_key()
    key = {"SAYSO_SIGNING_KEY": "signing.key"}
    for letter in "BC":
        ask_refund(order_id=letter)
        assert sayso("log", "--checkpoint", **key).code == 0
    good = sayso("doctor", "--json", **key).data["found"]
    assert good["checkpoints"].startswith("2, the newest of ")
    assert (good["signing key"], good["settings"]) == (public, "no sayso.toml in this folder or above it")
    with closing(sqlite3.connect("requests.db")) as connection:
        connection.execute("DROP TRIGGER journal_is_not_deleted")
        connection.execute("DELETE FROM journal WHERE run_id = 'order-4721' AND seq > 1")
        connection.execute("DELETE FROM request WHERE link NOT IN (SELECT link FROM journal)")
        connection.commit()
    for words in (["log", "--checkpoint"], ["log", "--anchor", "anchor.json"]):
        refused = sayso(*words, **key)
        assert (refused.code, refused.out) == (1, "")
        assert "no checkpoint was written" in refused.err
        assert "run 'order-4721' has lost row 3, which checkpoint 2 of " in refused.err
    assert not Path("anchor.json").exists()
    broken = sayso("log", "--verify", "--key", "public.key")
    assert (broken.code, "has row 3: its end was cut off" in broken.out) == (1, True)
    (wrong,) = sayso("doctor", "--json", **key).data["wrong"]
    assert (wrong["name"], "has lost row 3" in wrong["problem"]) == ("checkpoints", True)


def test_to_look_and_to_write_are_said_apart() -> None:
    ask_refund()
    told = sayso("log", "--verify", "--checkpoint")
    assert (told.code, "give --verify or --checkpoint, not both" in told.err) == (2, True)
    assert len(sayso("log", "--json").data["entries"]) == 1


# -- receipts --------------------------------------------------------------------------------------------------------


def test_a_receipt_verifies_where_there_is_no_store(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    request = refunded()
    public = a_key()
    sayso("log", "--checkpoint", SAYSO_SIGNING_KEY="signing.key")
    for words in (["receipt", request.id[:11], "-o", "r.json"], ["receipt", "-o", "r.json", request.id]):
        made = sayso(*words, SAYSO_SIGNING_KEY="signing.key")
        assert (made.code, made.out, public in made.err) == (0, "", True)
    assert sayso("receipt", request.id, SAYSO_SIGNING_KEY="signing.key").out == Path("r.json").read_text()
    assert Path("r.json").stat().st_mode & 0o777 == 0o600
    (here / "elsewhere").mkdir()
    monkeypatch.chdir(here / "elsewhere")
    monkeypatch.setenv("SAYSO_STORE", "sqlite:///none.db")
    told = sayso("receipt", "verify", "../r.json", "--key", "../public.key")
    assert told.code == 0
    for said in (
        'refund(order_id="A-4721", amount=320.00, reason="", api_key=***)',
        "local:ada",
        '"goodwill"',
        public,
    ):
        assert said in told.out
    assert "compare it with the key you were given" in sayso("receipt", "verify", "../r.json").out
    data = sayso("receipt", "verify", "../r.json", "--json").data
    assert data["receipt"]["request"]["id"] == request.id
    assert list(Path().iterdir()) == []


def test_a_receipt_that_was_changed_or_is_none_is_refused() -> None:
    request = refunded()
    sayso("receipt", request.id, "-o", "r.json")
    unsigned = sayso("receipt", "verify", "r.json")
    assert (unsigned.code, "NOT SIGNED" in unsigned.out) == (0, True)
    text = Path("r.json").read_text()
    for new in (
        text.replace("goodwill", "badwill"),
        text[:-20],
        text + " ",
        "{}",
        text.replace("local:ada", "local:eve"),
    ):
        Path("r.json").write_text(new)
        told = sayso("receipt", "verify", "r.json")
        assert (told.code, told.out) == (1, "")
        assert told.err.startswith("error: ")
        as_data = sayso("receipt", "verify", "r.json", "--json")
        assert (as_data.code, as_data.data["ok"], as_data.err) == (1, False, "")
        assert as_data.data["reason"] in " ".join(told.err.split())
    assert "cannot be read" in sayso("receipt", "verify", "none.json").err


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes here")
def test_what_is_no_file_is_written_to_and_not_replaced() -> None:
    request = refunded()
    os.mkfifo("pipe")
    heard: list[str] = []
    reader = threading.Thread(target=lambda: heard.append(Path("pipe").read_text()))
    reader.start()
    assert sayso("receipt", request.id, "-o", "pipe").code == 0
    reader.join(30)
    assert (Path("pipe").is_fifo(), json.loads(heard[0])["receipt"]["request"]["id"]) == (True, request.id)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes here")
def test_a_pipe_is_no_key_and_nobody_waits_for_it() -> None:
    os.mkfifo("signing.key")
    told = sayso("key", "show", "signing.key")
    assert (told.code, "is not a file, so it signs nothing" in told.err) == (1, True)


@pytest.mark.parametrize(("column", "value"), [("detail", "[" * 5_000), ("seq", 1.5), ("at", "x"), ("by", b"x")])
def test_a_row_that_is_none_is_an_error_in_every_format_and_in_a_receipt(
    here: Path, column: str, value: object
) -> None:
    request = refunded()
    with closing(sqlite3.connect(here / "requests.db")) as connection:
        connection.execute("DROP TRIGGER journal_is_not_updated")
        connection.execute(f"UPDATE journal SET {column} = ? WHERE event = 'started'", (value,))  # noqa: S608  ours
        connection.commit()
    for words in (("receipt", request.id, "-o", "r"), *(("log", "export", "--format", f) for f in ("csv", "ocsf"))):
        told = sayso(*words)
        assert (told.code, "Traceback" in told.err, "error: " in told.err) == (1, False, True)


def test_there_is_no_receipt_of_what_waits_or_of_nothing() -> None:
    request = ask_refund()
    told = sayso("receipt", request.id)
    assert (told.code, "is pending: a receipt can be made once the request has ended" in told.err) == (1, True)
    assert sayso("receipt", "rq_none").code == 1
    assert "ID [-o FILE] | verify FILE" in sayso("receipt", "--help").out
    assert sayso("receipt").code == 2


def test_nothing_in_a_receipt_comes_out_raw() -> None:
    request = refunded(order_id=f"A{HIDDEN}B", reason=HIDDEN)
    sayso("receipt", request.id, "-o", "r.json")
    assert sayso("receipt", "verify", "r.json").code == 0
    question = ask_question(f"Which{HIDDEN}?")
    assert sayso("answer", question.id, "north", "-m", f"why{HIDDEN}").code == 0
    sayso("receipt", question.id, "-o", "q.json")
    assert 'question "Which' in sayso("receipt", "verify", "q.json").out


# -- export ----------------------------------------------------------------------------------------------------------


def test_the_journal_is_exported_in_each_format() -> None:
    refunded()
    lines = sayso("log", "export").out.splitlines()
    assert [json.loads(line)["event"] for line in lines] == ["asked", "approved", "started", "done"]
    told = sayso("log", "export", "--format", "csv", "-o", "journal.csv", "--since", "1d")
    assert (told.out, told.err) == ("", "5 lines written to journal.csv\n")
    with Path("journal.csv").open(newline="", encoding="utf-8") as file:
        assert [row[4] for row in csv.reader(file)] == ["event", "asked", "approved", "started", "done"]
    ocsf = [json.loads(line) for line in sayso("log", "export", "--format", "ocsf").out.splitlines()]
    assert {event["class_uid"] for event in ocsf} == {6003}
    assert sayso("log", "export", "--until", "2020-01-01").out == ""
    assert sayso("log", "export", "--run", "none").out == ""
    assert sayso("log", "export", "--since", "soon").code == 2
    assert sayso("log", "export", "-o", "none/journal.jsonl").code == 1


def test_the_journal_is_printed_as_it_was_before() -> None:
    refunded()
    ask_refund(order_id="B", run="other")
    assert len(sayso("log").out.splitlines()) == 5
    assert len(sayso("log", "--run", "other").out.splitlines()) == 1
    assert len(sayso("log", "--json").data["entries"]) == 5
    assert sayso("log", "--key", "ed25519:0").code == 2
    assert sayso("log", "everything").code == 2


# -- purge -----------------------------------------------------------------------------------------------------------


def test_a_purge_says_how_much_goes_and_wants_a_yes() -> None:
    request, waiting = refunded(reason="CANARY"), ask_refund(order_id="B")
    dry = sayso("purge", "--before", "1ms", "--dry-run")
    assert dry.out.startswith("would purge 1 request and 0 runs that ended before ")
    assert "1 row of the journal keeps comments" in dry.out
    assert "1 request kept: still open or running" in dry.out
    unsure = sayso("purge", "--before", "1ms")
    assert (unsure.code, "use --yes" in unsure.err) == (2, True)
    assert "CANARY" in sayso("show", request.id).out
    done = sayso("purge", "--before", "1ms", "--yes", "--as", "ada", "--json").data
    assert (done["requests"], done["live"], done["is_scrubbed"], done["dry_run"]) == (1, 1, True, False)
    assert done["before"].endswith("Z")
    assert "CANARY" not in sayso("show", request.id, "--full").out + sayso("ls", "--all").out
    day = f"{config.default_store().get(request.id).purged_at:%Y-%m-%d}"
    assert f"refund(removed on {day})" in sayso("ls", "--all").out
    assert f"    arguments were removed on {day}\n" in sayso("show", request.id).out
    assert "ada (cli)" in sayso("log", "--request", request.id).out.splitlines()[-1]
    assert sayso("log", "--verify").code == 0
    assert sayso("approve", waiting.id, "--as", "ada").code == 0


@pytest.mark.parametrize(("typed", "is_gone"), [("n\n", False), ("", False), ("y\n", True)])
def test_a_purge_that_was_not_wanted_says_that_nothing_was_removed(
    typed: str, is_gone: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    request = refunded()
    monkeypatch.setattr(sys, "stdin", Terminal(typed))
    assert main(["purge", "--before", clock.now().isoformat(), "--as", "ada"]) == (0 if is_gone else 1)
    told = capsys.readouterr()
    assert "permanently remove the content of 1 request and 0 runs" in told.err
    assert told.err.endswith("nothing was removed\n") is not is_gone
    assert (config.default_store().get(request.id).purged_at is not None) is is_gone
    monkeypatch.setattr(sys, "stdin", Terminal(""))
    assert main(["purge", "--before", "9d", "--as", "ada"]) == 0  # nobody is asked about nothing
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("before", ["2999-01-01", "soon", "", "99999999999d", "0s"])
def test_a_day_that_cannot_be_meant_purges_nothing(before: str) -> None:
    request = refunded()
    told = sayso("purge", "--before", before, "--yes")
    assert told.code == 2
    assert config.default_store().get(request.id).purged_at is None
    assert sayso("purge", "--yes").code == 2
