"""A plan is approved where people are: in a browser, at the command line; and documents go in and out by command."""

from __future__ import annotations

import json
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import sayso as package
from sayso.model.edit import PLAN_TOOL
from sayso.mplp import Plan, create_confirm, read_confirm, read_plan, schema, start, submit_plan_for_approval
from sayso.mplp.history import find_confirm
from sayso.mplp.schema import id_of
from sayso.server import create_app
from sayso.stores.base import Store
from sayso.testing import sample_call
from tests.mplp.test_documents import EXAMPLE
from tests.support.browsing import browser, text_of
from tests.support.commands import sayso
from tests.support.submitting import plan_of_three, submitted


@pytest.fixture
def here(file_store: Store, monkeypatch: pytest.MonkeyPatch) -> Store:
    """The configured store, which commands find as well."""
    monkeypatch.setenv("SAYSO_STORE", file_store.url)
    return file_store


def written(path: Path, content: Any) -> str:
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return str(path)


# -- in a browser --------------------------------------------------------------------------------------------------


def test_a_plan_is_approved_in_a_browser(here: Store) -> None:
    plan, confirm, request = submitted()
    client = browser(create_app(here))
    page = text_of(client.get(f"/r/{request.id}").text)
    assert 'Plan "Move the data"' in page
    assert '"description": "step 2"' in page
    assert "No downtime" in page
    assert not any(word in page for word in ("PENDING", "None", "PlanStep"))
    client.decide(request.id, "approve", note="go")
    after = read_confirm(confirm.confirm_id)
    assert (after.status, after.decisions[0].decided_by_role, after.decisions[0].reason) == ("approved", "ada", "go")
    assert read_plan(plan.plan_id).status == "approved"


def test_a_step_is_added_in_a_browser_and_a_wrong_one_decides_nothing(here: Store) -> None:
    plan, _, request = submitted()
    client = browser(create_app(here))
    others = {f"f2.{at}.way": "absent" for at in range(3)}
    wrong = client.decide(request.id, "approve", **others, **{"f2.3.0": "Only this", "f2.3.1": "s1"})
    assert (wrong.status_code, "should be a UUID v4 in lower case" in text_of(wrong.text)) == (422, True)
    stale = client.decide(
        request.id, "approve", f2='[{"description": "Only this"}]'
    )  # of a page from before an upgrade
    assert (stale.status_code, "its form has changed" in text_of(stale.text)) == (422, True)
    assert read_plan(plan.plan_id).status == "proposed"
    client.decide(request.id, "approve", **others, **{"f2.3.0": "Only this"})
    assert start(plan, lambda given: [step.description for step in given.steps]) == ["Only this"]


def test_a_plan_is_edited_at_the_command_line_where_its_classes_are_not_loaded(here: Store) -> None:
    plan, _, request = submitted()
    steps = [{**step, "description": "as reviewed"} for step in request.call.arguments["steps"][:2]]
    done = sayso("approve", request.id, "--set", f"steps={json.dumps(steps)}", "--as", "ada")
    assert done.code == 0, done.err
    assert start(plan, lambda given: [step.description for step in given.steps]) == ["as reviewed"] * 2


def test_a_step_is_added_at_the_command_line_and_a_wrong_one_decides_nothing(here: Store) -> None:
    plan, _, request = submitted()
    bad, good = [{"step_id": "s1", "description": "Only this"}], [{"description": "Only this"}]
    done = sayso("approve", request.id, "--set", f"steps={json.dumps(bad)}", "--as", "ada")
    assert (done.code, "steps[0].step_id: should be a UUID v4 in lower case" in done.err) == (1, True), done.err
    assert read_plan(plan.plan_id).status == "proposed"
    done = sayso("approve", request.id, "--set", f"steps={json.dumps(good)}", "--as", "ada")
    assert done.code == 0, done.err
    assert start(plan, lambda given: [step.description for step in given.steps]) == ["Only this"]


def test_a_plan_without_a_title_is_headed_by_the_name_of_its_call(here: Store) -> None:
    sample = sample_call(None, {"amount": 1})
    request = here.ask(replace(sample, subject=replace(sample.call, tool=PLAN_TOOL, name="carry_out_plan")))
    page = browser(create_app(here)).get(f"/r/{request.id}").text
    assert '<h1 class="name">carry_out_plan</h1>' in page


# -- export --------------------------------------------------------------------------------------------------------


def test_export_prints_the_confirm_of_any_id(here: Store) -> None:
    _, confirm, request = submitted()
    for wanted in (confirm.confirm_id, confirm.target_id, request.id, request.id[:9]):
        assert sayso("confirm", "export", wanted).data == confirm.export()


def test_export_writes_a_file_for_its_owner_alone(here: Store, tmp_path: Path) -> None:
    plan, confirm, _ = submitted()
    done = sayso("confirm", "export", confirm.confirm_id, "--plan", "-o", str(tmp_path / "plan.json"))
    assert (done.code, done.out) == (0, "")
    assert Plan.parse((tmp_path / "plan.json").read_bytes()).plan_id == plan.plan_id
    assert stat.S_IMODE((tmp_path / "plan.json").stat().st_mode) == 0o600


def test_export_of_what_is_not_there_says_so(here: Store) -> None:
    submitted()
    done = sayso("confirm", "export", id_of("nothing"))
    assert (done.code, "no Confirm, plan or request" in done.err) == (1, True)


def test_a_plan_is_exported_only_where_there_is_one(here: Store) -> None:
    from sayso.mplp import submit_for_approval

    confirm = submit_for_approval(create_confirm("trace", id_of("t"), "agent"))
    done = sayso("confirm", "export", "--plan", confirm.confirm_id)
    assert (done.code, "has no plan" in done.err) == (2, True)


# -- import --------------------------------------------------------------------------------------------------------


def test_import_opens_a_request_for_a_plan(here: Store, tmp_path: Path) -> None:
    file = written(tmp_path / "plan.json", plan_of_three().export())
    done = sayso("confirm", "import", file, "--by", "planner", "--json")
    assert done.code == 0, done.err
    request = package.Review().get(done.data["request"])
    assert (request.state, request.call.arguments["title"]) == ("pending", "Move the data")
    assert read_confirm(done.data["confirm_id"]).requested_by_role == "planner"
    again = sayso("confirm", "import", file, "--by", "planner", "--json")
    assert again.data == done.data


def test_import_takes_a_confirm_with_its_plan_and_no_decision(here: Store, tmp_path: Path) -> None:
    plan = plan_of_three()
    confirm = create_confirm("plan", plan.plan_id, "agent", "Please")
    forged = {**confirm.export(), "decisions": [decision()]}
    plan_file, file = written(tmp_path / "p", plan.export()), written(tmp_path / "c", forged)
    done = sayso("confirm", "import", file, "--plan", plan_file)
    assert done.code == 0, done.err
    assert f"Confirm {confirm.confirm_id} about plan" in done.out
    found = read_confirm(confirm.confirm_id)
    assert (found.status, found.decisions, found.reason) == ("pending", [], "Please")


def decision() -> dict[str, Any]:
    said = {"decided_by_role": "cfo", "decided_at": "2025-12-01T12:05:00.000Z"}
    return {"decision_id": id_of("d"), "status": "approved", "reason": "mine", **said}


@pytest.mark.parametrize("status", ["approved", "cancelled"])
def test_an_approval_cannot_be_imported(here: Store, tmp_path: Path, status: str) -> None:
    confirm = {**create_confirm("extension", id_of("x"), "agent").export(), "status": status}
    done = sayso("confirm", "import", written(tmp_path / "c", confirm))
    assert (done.code, "which only a decision can give" in done.err) == (1, True)
    assert package.Review().list(state="all").requests == ()


def test_import_needs_to_know_who_asks_and_for_what(here: Store, tmp_path: Path) -> None:
    plan, sample = plan_of_three().export(), {"sample_id": id_of("s"), "sample_family": "f", "input": {}, "output": {}}
    sample["created_at"] = "2025-12-01T12:05:00.000Z"
    confirm = create_confirm("plan", id_of("p"), "agent").export()
    for content, said in (
        (plan, "a plan needs --by ROLE"),
        (confirm, "which the reviewer has to see"),
        (sample, "only plans and"),
    ):
        done = sayso("confirm", "import", written(tmp_path / "f", content))
        assert (done.code, said in done.err) == (2, True), done.err
    file = written(tmp_path / "f", confirm)
    assert sayso("confirm", "import", file, "--plan", file).code == 2
    assert package.Review().list(state="all").requests == ()


def test_import_of_another_target_takes_its_confirm(here: Store, tmp_path: Path) -> None:
    file = written(tmp_path / "c", create_confirm("extension", id_of("x"), "agent", "Please").export())
    done = sayso("confirm", "import", file, "--json")
    assert find_confirm(here, done.data["confirm_id"]).last.call.arguments["reason"] == "Please"


# -- validate and schema -------------------------------------------------------------------------------------------


def test_validate_says_what_is_wrong_and_where(tmp_path: Path) -> None:
    good, bad = create_confirm("plan", id_of("p"), "agent").export(), {"status": "\x1b[31mx"}
    files = written(tmp_path / "good", good), written(tmp_path / "bad", bad)
    done = sayso("confirm", "validate", *files)
    assert done.code == 1
    assert f"{files[0]}: conforms (Confirm)\n{files[1]}: does not conform (Confirm)\n  /meta: is missing\n" in done.out
    assert "/status: '\\x1b[31mx' is not one of" in done.out
    told = sayso("confirm", "validate", "--json", *files)
    assert [(one["ok"], bool(one["problems"])) for one in told.data] == [(True, False), (False, True)]


def test_validate_reads_stdin_and_tells_what_it_read_otherwise() -> None:
    text = json.dumps(EXAMPLE)
    assert sayso("confirm", "validate", "-", stdin=text).code == 1
    done = sayso("confirm", "validate", "--lenient", "-", stdin=text)
    assert (done.code, "/meta/protocolVersion: read as protocol_version" in done.out) == (0, True)


def test_validate_reads_lines_one_by_one(tmp_path: Path) -> None:
    good, bad = json.dumps(create_confirm("plan", id_of("p"), "agent").export()), json.dumps({"status": "maybe"})
    files = [written(tmp_path / f"{name}.jsonl", "\n".join(lines) + "\n") for name, lines in (
        ("good", [good, "", good]), ("bad", [good, bad, "{"]), ("none", [""]), ("worse", [bad] * 200),
    )]  # fmt: skip
    done = sayso("confirm", "validate", "--json", *files)
    assert [(one["ok"], one["kind"], len(one["problems"]) > 0) for one in done.data] == [
        (True, "Confirm", False), (False, "Confirm", True), (False, "document", True), (False, "Confirm", True),
    ]  # fmt: skip
    assert "line 2: /meta: is missing" in done.data[1]["problems"]
    assert done.data[1]["problems"][-1].startswith("line 3: /: is not JSON")
    assert done.data[2]["problems"] == ["/: the file contains no document"]
    assert (len(done.data[3]["problems"]), done.code) == (101, 1)


def test_validate_takes_what_learning_exports(here: Store, tmp_path: Path) -> None:
    for _ in range(2):
        package.Review().approve(here.ask(sample_call(None, {"amount": 1})).id, by="ada")
    file = str(tmp_path / "samples.jsonl")
    assert sayso("learn", "export", "-o", file).code == 0
    done = sayso("confirm", "validate", "--kind", "learning-sample", file)
    assert (done.code, done.out) == (0, f"{file}: conforms (LearningSample)\n")


@pytest.mark.parametrize(("text", "said"), [("{", "is not JSON"), ("x" * 5_000_000, "larger"), ("[]", "a list")])
def test_what_is_no_document_is_said_to_be_none(text: str, said: str) -> None:
    done = sayso("confirm", "validate", "-", stdin=text)
    assert (done.code, said in done.out) == (1, True)


def test_a_file_that_is_not_there_is_said_not_to_be() -> None:
    done = sayso("confirm", "validate", "nothing.json")
    assert (done.code, "cannot be read" in done.err) == (1, True)


@pytest.mark.parametrize("kind", ["confirm", "plan", "learning-sample"])
def test_schema_prints_what_is_shipped(kind: str) -> None:
    assert sayso("confirm", "schema", kind).data == schema(kind)


def test_a_plan_that_was_exported_is_submitted_again_as_it_was(here: Store, tmp_path: Path) -> None:
    _, confirm, _ = submitted()
    file = written(tmp_path / "plan", sayso("confirm", "export", "--plan", confirm.confirm_id).out)
    assert submit_plan_for_approval(Plan.parse(Path(file).read_bytes()), "agent").confirm_id == confirm.confirm_id
