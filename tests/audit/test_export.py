"""The journal for other systems: every row, no argument, and nothing that a spreadsheet or a terminal would act on."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import pytest

from sayso import errors
from sayso.audit.checkpoint import checkpoint
from sayso.audit.export import FORMATS, Format, exported
from sayso.model.lifecycle import Outcome
from sayso.model.reviewer import LOCAL, PROGRAM, Identity
from sayso.stores import review
from sayso.stores.memory import MemoryStore
from sayso.stores.sqlite import SqliteStore
from sayso.testing import sample_call
from sayso.testing.scene import ADA, Scene
from tests.support.evidence import as_somebody_with_the_file, in_every_state, scene_on

# What OCSF 1.3.0 asks of an event of the class API Activity, with the kinds of its values.
REQUIRED = {
    "activity_id": int, "category_uid": int, "class_uid": int, "type_uid": int, "severity_id": int, "time": int,
    "metadata": dict, "actor": dict, "api": dict, "src_endpoint": dict,
}  # fmt: skip


@pytest.fixture
def scene() -> Iterator[Scene]:
    with scene_on(MemoryStore()) as scene:
        yield scene


def text(scene: Scene, form: Format, **options: object) -> str:
    return "".join(exported(scene.store, form, **options))  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("form", FORMATS)
def test_every_row_is_a_line(scene: Scene, form: Format) -> None:
    in_every_state(scene)
    checkpoint(scene.store)
    lines = list(exported(scene.store, form))
    assert len(lines) == len(scene.store.journal()) + (form == "csv")
    assert all(line.endswith("\n") and line.count("\n") == 1 for line in lines)


@pytest.mark.parametrize("form", FORMATS)
def test_no_argument_result_or_error_is_exported(scene: Scene, form: Format) -> None:
    canaries = {"amount": 7_215_893_461, "to": "CANARY-to", "password": "CANARY-secret"}
    request = scene.store.ask(sample_call("run_a", canaries, prompt="CANARY-prompt", context={"of": "CANARY-context"}))
    scene.decide("approve", request)
    scene.store.start(request.id, "t")
    scene.store.finish(request.id, "t", Outcome("failed", error="CANARY-error"))
    found = text(scene, form)
    assert "CANARY" not in found
    assert "7215893461" not in found


@pytest.mark.parametrize("begin", list("=+-@\t\r\n＝＋－＠"))  # noqa: RUF001  these very letters
def test_no_cell_is_a_formula(scene: Scene, begin: str) -> None:
    for name in (f"{begin}cmd|' /C calc'!A0", f" {begin}1+1"):
        scene.store.note(name, "denied", Identity(PROGRAM, "tests"), {"tool": f"{begin}HYPERLINK(1)", "rule": "no"})
    rows = list(csv.reader(io.StringIO(text(scene, "csv"))))
    assert len(rows) == 3
    for row in rows:
        assert len(row) == 10
        assert not any(cell.startswith(tuple("=+-@\t\r\n＝＋－＠")) for cell in row)  # noqa: RUF001  the same


@pytest.mark.parametrize("begin", ["=", "+", ' "=', "＝"])  # noqa: RUF001  these very letters
def test_no_cell_is_a_formula_where_semicolons_end_cells(scene: Scene, begin: str) -> None:
    scene.store.note(f"x;{begin}1", "denied", Identity(PROGRAM, "tests"), {"tool": f"a,b; {begin}HYPERLINK(1)"})
    for row in csv.reader(io.StringIO(text(scene, "csv")), delimiter=";"):
        assert not any(cell.strip(' "').startswith(tuple("=+-@＝")) for cell in row)  # noqa: RUF001  the same


@pytest.mark.parametrize("form", FORMATS)
def test_no_character_hides_in_an_export(scene: Scene, form: Format) -> None:
    scene.store.note(
        "run\u202e\u200b\x1b[31m", "denied", Identity(PROGRAM, "tests"), {"tool": "a\u2066:b\x00", "x": '"\n'}
    )
    found = text(scene, form)
    assert not any(mark in found for mark in "\u202e\u200b\x1b\u2066\x00")
    assert len(list(csv.reader(io.StringIO(found)))) == 2 if form == "csv" else json.loads(found)


def test_what_is_exported_as_json_is_what_the_journal_says(scene: Scene) -> None:
    request = scene.in_state(scene.ask().state)
    scene.decide("reject", request)
    found = [json.loads(line) for line in exported(scene.store, "jsonl", run_id=request.run_id)]
    assert [(one["event"], one["by"], one["tool"]) for one in found] == [
        ("asked", "program:tests", "payments:pay"), ("rejected", "local:ada", "payments:pay"),
    ]  # fmt: skip
    assert found[1]["detail"]["comment"] == "said so"
    assert [one["link"] for one in found] == [row.link for row in scene.store.journal(run_id=request.run_id)]


def test_what_is_exported_for_a_siem_is_of_its_class(scene: Scene) -> None:
    in_every_state(scene)
    scene.store.note("run_a", "denied", Identity(PROGRAM, "tests"), {"tool": "payments:pay", "rule": "no"})
    checkpoint(scene.store)
    for line in exported(scene.store, "ocsf"):
        event = json.loads(line)
        assert {name: type(event[name]) for name in REQUIRED} == REQUIRED
        assert (event["class_uid"], event["category_uid"]) == (6003, 6)
        assert event["type_uid"] == event["class_uid"] * 100 + event["activity_id"]
        assert event["metadata"]["version"] == "1.3.0"
        assert event["metadata"]["product"]["name"] == "sayso"
        assert event["api"]["operation"]
        assert event["actor"].keys() & {"user", "app_name"}
        assert event["src_endpoint"]["name"]
        assert event["time"] == 1_767_268_800_000 or event["time"] > 1_767_268_800_000


def test_who_did_it_and_how_it_ended_stand_where_a_siem_looks(scene: Scene) -> None:
    request = scene.ask("run_a")
    scene.decide("approve", request, Identity(LOCAL, "größer"))
    scene.store.start(request.id, "t")
    scene.store.finish(request.id, "t", Outcome("failed"))
    asked, approved, _, failed = (json.loads(line) for line in exported(scene.store, "ocsf"))
    assert asked["actor"] == {"app_name": "tests"}
    assert approved["actor"]["user"] == {"name": "größer", "domain": "local", "uid": "local:größer"}
    assert (asked["activity_name"], approved["activity_name"]) == ("Create", "Update")
    assert (failed["status_id"], failed["api"]["request"]["uid"]) == (2, request.id)


@pytest.mark.parametrize("form", FORMATS)
def test_only_the_span_and_the_run_that_were_asked_for_are_exported(scene: Scene, form: Format) -> None:
    begin, request = scene.clock(), scene.ask("run_a")
    scene.ask("run_b")
    scene.clock.tick(hours=1)
    scene.decide("reject", request)
    scene.clock.tick(hours=1)
    scene.store.withdraw(request.id, ADA)
    hour = timedelta(hours=1)
    head = form == "csv"

    def events(**options: object) -> int:
        return len(list(exported(scene.store, form, **options))) - head  # pyright: ignore[reportArgumentType]

    assert events() == 4
    assert events(since=begin + hour) == 2
    assert events(until=begin + hour) == 2
    assert events(since=begin + hour, until=begin + 2 * hour) == 1
    assert events(run_id="run_b") == 1
    assert "payments:pay" in text(scene, form, since=begin + hour)


def test_a_first_line_comes_before_the_whole_journal_was_read(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(review, "_PAGE", 1)
    for run_id in "abc":
        scene.ask(run_id)
    pages, read = list[object](), scene.store.journal
    monkeypatch.setattr(scene.store, "journal", lambda **options: (pages.append(options), read(**options))[1])
    next(exported(scene.store, "jsonl"))
    assert len(pages) == 1


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize(
    "altered",
    ["detail = '{'", "detail = '[]'", "at = 9223372036854775807", "at = 'then'", "by = x'ff'", "detail = x'00'"],
)
def test_a_row_that_was_altered_is_named_or_written_and_never_a_traceback(
    tmp_path: Path, form: Format, altered: str
) -> None:
    path = tmp_path / "requests.db"
    with scene_on(SqliteStore(path)) as scene:
        scene.ask("run_a")
        with as_somebody_with_the_file(path) as connection:
            connection.execute(f"UPDATE journal SET {altered}")  # noqa: S608  our own words
        with suppress(errors.StoreCorruptError):
            assert list(exported(scene.store, form))
