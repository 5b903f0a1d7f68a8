"""What an agent's program can try with its token against the server, and what becomes of it.

The agent's machine is not trusted: here it sends what the client never would. The numbers are those of the threats:
argument swap (T1), replay (T2), guessed and foreign ids (T3, T5), and a view that lies to the reviewer.
"""

from __future__ import annotations

import copy
import json
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, PrivateAttr

from sayso import errors
from sayso.model import canonical
from sayso.model.canonical.json_tree import fields_of
from sayso.model.ids import call_digest, fingerprint, new_request_id, new_token
from sayso.model.lifecycle import Outcome
from sayso.model.redaction import FAILED, MASK, agrees
from sayso.model.request import Call, Request, State
from sayso.model.reviewer import LOCAL, Identity, Quorum
from sayso.model.run import RunRecord, RunState, RunUpdate, Step
from sayso.model.schema import Schema
from sayso.reviews import Review
from sayso.server.api.program import router
from sayso.server.api.validation import validate_arguments
from sayso.stores.base import Filter, Store
from sayso.stores.filter import RunFilter
from sayso.stores.http import HttpStore
from sayso.stores.http_messages import Changes, Get, GetRun, Journal, Note, Start, TakeRun, Wait
from sayso.stores.http_transport import encoded
from sayso.stores.memory import MemoryStore
from sayso.stores.records import Record
from sayso.stores.sqlite import SqliteStore
from sayso.stores.transaction import LEASE, waiting_kind
from sayso.testing import sample_call, sample_question
from sayso.testing.scene import outcomes_of, refusal
from sayso.view import full_text
from sayso.view.as_json import request_document
from tests.conftest import Clock
from tests.support.calling import asked_message
from tests.support.serving import Serving, serving
from tests.support.serving import new_token as token_for

NOBODYS = "rq_" + "0" * 32


@pytest.fixture(scope="module")
def server() -> Iterator[Serving]:
    with serving() as one:
        yield one


class Stage:
    """A server's store, and programs that reach it."""

    def __init__(self, server: Serving, store: Store) -> None:
        self.server, self.store = server, store
        server.of(store)
        self._programs: list[HttpStore] = []

    def program(self, name: str = "agent", kind: Any = "ask", **options: Any) -> HttpStore:
        made = HttpStore(self.server.url, token_for(self.store, kind, name, **options), patience=5)
        self._programs.append(made)
        return made

    def person(self, name: str = "ada") -> Review:
        return Review(self.store, reviewer=name, channel="web")

    def close(self) -> None:
        for program in self._programs:
            program.close()
        self.store.close()


@pytest.fixture
def stage(server: Serving) -> Iterator[Stage]:
    stage = Stage(server, MemoryStore())
    yield stage
    stage.close()


def send(program: HttpStore, request: dict[str, Any], **more: Any) -> Any:
    """Ask with a body that was tampered with."""
    body = json.dumps({"request": request, "update": None, **more}).encode()
    return json.loads(program._transport.post("/ask", body))["request"]


# -- T1: what is asked is what is shown, approved and run ------------------------------------------------------

SENT: dict[str, Any] = {
    "amount": 10, "to": "alice", "password": "hunter2", "lines": [1, 2.5, True, None, {"a": "b"}],
}  # fmt: skip


def leaves(tree: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the paths of all leaves, those inside of JSON texts too (after `None` in the path)."""
    if isinstance(tree, dict):
        for key, value in tree.items():
            yield from leaves(value, (*path, key))
    elif isinstance(tree, list):
        for index, value in enumerate(tree):
            yield from leaves(value, (*path, index))
    elif isinstance(tree, str) and tree[:1] in "{[" and tree:
        yield path
        yield from leaves(json.loads(tree), (*path, None))
    else:
        yield path


def others(value: Any) -> list[Any]:
    match value:
        case bool():
            return [not value, 1, "true"]
        case int():
            return [value + 1, -1, 10**30, str(value), float(value)]
        case str():
            return [f"{value}x", value.swapcase() + " ", "", "\u202e", 7, value[:-1], "0" * 64]
        case None:
            return ["x", 0, {}]
        case _:
            return ["x", 0, None]


def mutated(tree: Any, path: tuple[Any, ...], value: Any) -> Any:
    """Return a copy in which one leaf is another one."""
    head, *rest = path
    if head is None:
        return canonical.dump(mutated(json.loads(tree), tuple(rest), value))
    tree = copy.copy(tree)
    tree[head] = value if not rest else mutated(tree[head], tuple(rest), value)
    return tree


def at(tree: Any, path: tuple[Any, ...]) -> Any:
    for step in path:
        tree = json.loads(tree) if step is None else tree[step]
    return tree


def is_sound(request: Request, me: Identity) -> bool:
    """Say whether what people are shown of a request, and who asked it, is what would run and who did."""
    call = request.call
    form = canonical.load(call.form)
    return (
        call.digest == call_digest(call.tool, call.schema_digest, canonical.digest_input(call.form))
        and request.fingerprint == fingerprint(request.run_id, call.digest, request.place)
        and Schema.from_text(call.schema).digest == call.schema_digest
        and agrees(call.shown, form)
        and call.shown["password"] == MASK
        and call.name in call.tool
        and (request.requester, request.state, request.decision, request.votes) == (me, State.PENDING, None, ())
        and request.execution is None
        and request.expires_at - request.created_at <= timedelta(days=30)
        and request.approval_window <= timedelta(days=30)
    )


def test_of_every_one_leaf_mutation_nothing_is_asked_that_lies(stage: Stage) -> None:
    program, told = stage.program(), Counter[str]()
    me = Identity("token", "agent")
    request = sample_call("run_1", SENT, prompt="Pay?", context={"order": ["A-1", 2]}, retries=1, risk="high")
    whole = asked_message(request)
    tried = [(path, value) for path in leaves(whole) for value in others(at(whole, path))]
    assert len(tried) >= 200
    for path, value in tried:
        # Another run each time, so that an earlier one is not found; a field of the run itself stays what it is made.
        fresh = {**whole, "id": new_request_id()}
        if path[0] == "id":
            fresh = whole
        try:
            row = send(program, mutated(fresh, path, value))
        except (errors.AskRefusedError, errors.StoreError, errors.RunNotFoundError) as fault:
            told[type(fault).__name__] += 1
            continue
        asked = stage.store.get(row["id"])
        assert is_sound(asked, me), (path, value)
        assert asked.call.form == request.call.form or path[0] != "form", (path, value)
        told["asked"] += 1
        stage.store.withdraw(asked.id, asked.requester)
    assert told["AskRefusedError"] >= 60, told
    assert told["StoreUnavailableError"] == 0, "something broke on the server, where it should have been refused"


def test_what_was_approved_for_one_amount_runs_no_other(stage: Stage) -> None:
    program = stage.program()
    request = program.ask(sample_call("run_1", {"amount": 5, "to": "alice"}))
    stage.person().approve(request.id)
    for amount in range(6, 206):
        swapped = program.ask(sample_call("run_1", {"amount": amount, "to": "alice"}))
        assert swapped.state is State.PENDING
        refusal(errors.NotApprovedError, lambda swapped=swapped: program.start(swapped.id, new_token()))
        program.withdraw(swapped.id, swapped.requester)
    assert program.start(request.id, new_token()).effective.arguments["amount"] == 5


def lying(request: Request, **changes: Any) -> dict[str, Any]:
    """Return what a program sends with some fields changed, those of its call or question included."""
    whole = asked_message(request)
    for name, value in changes.items():
        (whole["subject"] if name in whole["subject"] else whole)[name] = value
    return whole


def test_a_view_that_is_not_the_call_is_refused(stage: Stage) -> None:
    program = stage.program()
    request = sample_call("run_1", SENT)
    shown = canonical.load(request.call.masked or "")
    lies: list[dict[str, Any]] = [
        {**shown, "amount": 1},
        {**shown, "to": "bob"},
        {**shown, "lines": shown["lines"][:-1]},
        {**shown, "note": "approved by legal"},
        {name: value for name, value in shown.items() if name != "amount"},
        {**shown, "amount": "10"},
        {**shown, "amount": 10.0},
        {},
    ]
    for lie in lies:
        with pytest.raises(errors.AskRefusedError, match="must be what would run"):
            send(program, lying(request, masked=canonical.dump(lie)))
    assert stage.store.count(Filter()) == 0


def test_a_secret_that_the_program_does_not_mask_is_masked_by_the_server(stage: Stage) -> None:
    request = sample_call("run_1", SENT)
    row = send(stage.program(), lying(request, masked=None))
    assert stage.store.get(row["id"]).call.shown["password"] == MASK


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"tool": "weather:look"}, "is not the name of the tool"),
        ({"name": "look"}, "is not the name of the tool"),
        ({"tool": "payments:pa\u200by", "name": "pa\u200by"}, "is not the name of the tool"),
        ({"digest": "0" * 64}, "digest"),
        ({"fingerprint": "0" * 64}, "fingerprint"),
        ({"schema_digest": "0" * 64}, "schema_digest does not match the schema"),
        ({"run_id": "run_2"}, "fingerprint"),
    ],
)
def test_a_name_or_digest_that_does_not_fit_is_refused(stage: Stage, changes: dict[str, Any], said: str) -> None:
    with pytest.raises(errors.AskRefusedError, match=said):
        send(stage.program(), lying(sample_call("run_1"), **changes))
    assert stage.store.count(Filter()) == 0


def test_a_form_that_two_readers_would_read_differently_is_refused(stage: Stage) -> None:
    request = sample_call("run_1", {"amount": 10, "to": "alice"})
    for form in ('{"amount":1,"amount":10,"to":"alice"}', '{"amount": 10,"to":"alice"}', '{"amount":10,"to":"alice"} '):
        with pytest.raises(errors.AskRefusedError):
            send(stage.program(), lying(request, form=form))


def test_a_shape_cannot_be_swapped_for_that_of_another_function(stage: Stage) -> None:
    def other(amount: str, to: int) -> None: ...

    shape = Schema.of(other)
    with pytest.raises(errors.AskRefusedError, match="does not match the schema"):
        send(stage.program(), lying(sample_call("run_1"), schema=shape.text))


def test_a_program_says_nothing_of_state_decision_or_time(stage: Stage) -> None:
    request = sample_call("run_1")
    for name, value in {
        "state": "approved", "holds": False, "votes": [], "execution": None, "created_at": "2026-01-01T00:00:00Z",
        "requester": {"issuer": "local", "subject": "ada"}, "purged_at": None, "decision": None, "approved": True,
    }.items():  # fmt: skip
        with pytest.raises(errors.StoreError, match="is not valid"):
            send(stage.program(), lying(request, **{name: value}))
    for name in ("shown", "kind"):
        with pytest.raises(errors.StoreError, match="is not valid"):
            send(
                stage.program(),
                {**asked_message(request), "subject": {**asked_message(request)["subject"], name: "call"}},
            )


def test_nothing_waits_for_longer_than_the_server_lets_it(stage: Stage) -> None:
    long = replace(sample_call(), approval_window=timedelta(days=3_000))
    row = send(stage.program(), lying(long, lasts="P3000D"))
    asked = stage.store.get(row["id"])
    assert asked.expires_at - asked.created_at == asked.approval_window == timedelta(days=30)


def test_who_asks_is_the_token_whatever_the_program_says(stage: Stage) -> None:
    program = stage.program("ada")
    request = program.ask(sample_call(requester=Identity(LOCAL, "somebody-else")))
    assert request.requester == Identity("token", "ada")
    refusal(errors.OwnRequestError, lambda: stage.person("Ada").approve(request.id))
    assert stage.person("bob").approve(request.id).state is State.APPROVED


def test_what_cannot_be_drawn_is_refused_when_it_is_asked(stage: Stage) -> None:
    request = sample_call("run_1", {"amount": [], "to": "alice"})
    shape = json.loads(request.call.schema)
    shape["properties"]["amount"] = {"type": "array", "x-sayso-alias": 7}  # an empty list fits it
    told = Schema.from_text(json.dumps(shape))
    digest = call_digest(request.call.tool, told.digest, canonical.digest_input(request.call.form))
    call = Call("payments:pay", "pay", request.call.form, None, digest, json.dumps(shape), told.digest)
    broken = replace(request, subject=call, fingerprint=fingerprint("run_1", digest))
    with pytest.raises(errors.AskRefusedError, match="parsed or displayed"):
        send(stage.program(), asked_message(broken))


# -- what is shown is what runs --------------------------------------------------------------------------------


class Part(BaseModel):
    """A model as a program's arguments hold them."""

    model_config = ConfigDict(extra="allow")
    title: str
    count: int = 1
    _note: str = PrivateAttr("")


def work(part: Part, path: str, *, dry_run: bool = False, limit: float = 1, token: str = cast("str", None)) -> None:
    """Stand for a gated function."""


PLAIN: dict[str, Any] = {"part": None, "path": "/tmp", "dry_run": False, "limit": 1, "token": None}


def working(form: str | None = None, run_id: str = "run_1") -> Request:
    """Return a request to `work`, with the arguments as they are or as somebody wrote them."""
    part = Part(title="Export", more={"$ref": "x"})  # type: ignore[call-arg]
    part._note = "kept"
    shape, whole = Schema.of(work), canonical.encode({**PLAIN, "part": part}).text
    text = whole if form is None else form
    digest = call_digest("jobs:work", shape.digest, canonical.digest_input(text))
    call = Call("jobs:work", "work", text, None, digest, shape.text, shape.digest)
    return replace(sample_call(run_id), subject=call, fingerprint=fingerprint(run_id, digest))


def rewritten(change: Callable[[dict[str, Any]], object]) -> str:
    tree = canonical.load(working().call.form)
    change(tree)
    return canonical.dump(tree)


def rest_of(tree: dict[str, Any]) -> dict[str, Any]:
    return tree["part"]["$model"][2]


def test_a_model_whose_name_stands_for_two_values_is_refused(stage: Stage) -> None:
    lies: list[Callable[[dict[str, Any]], object]] = [
        lambda tree: rest_of(tree)["extra"].update(title="EVIL"),
        lambda tree: rest_of(tree)["extra"].update(_note="EVIL"),
    ]
    for lie in lies:
        with pytest.raises(errors.AskRefusedError, match="a name twice"):
            send(stage.program(), asked_message(working(rewritten(lie))))
    assert stage.store.count(Filter()) == 0


def test_a_tagged_value_that_no_gate_writes_is_refused(stage: Stage) -> None:
    lies: list[Callable[[dict[str, Any]], object]] = [
        lambda tree: rest_of(tree)["private"].update(title="EVIL"),
        lambda tree: rest_of(tree).update(other={"title": "EVIL"}),
        lambda tree: rest_of(tree).update(unset=["title", "count"]),
        lambda tree: tree.update(part={"$dict": {"title": "EVIL"}}),
        lambda tree: tree.update(path={"$path": "/tmp//x"}),
    ]
    for lie in lies:
        with pytest.raises(errors.AskRefusedError):
            send(stage.program(), asked_message(working(rewritten(lie))))
    assert stage.store.count(Filter()) == 0


def test_a_name_that_looks_like_a_tag_is_shown_as_a_name(stage: Stage) -> None:
    form = rewritten(lambda tree: rest_of(tree).update(extra={"$dict": {"title": "Import"}}))
    row = send(stage.program(), asked_message(working(form)))
    shown = "\n".join(full_text.subject_rows(stage.store.get(row["id"]), width=100, full=True))
    assert 'title="Export"' in shown
    assert '"$dict"={"title": "Import"}' in shown


TREES = st.sampled_from(
    ["$model", "$dataclass", "$dict", "$tuple", "$enum", "title", "count", "extra", "private", "_note"]
)
WHERE = list(leaves(canonical.load(working().call.form)))


@given(path=st.sampled_from(WHERE), cut=st.integers(0, 4), name=TREES, value=st.sampled_from(["EVIL", 1, None, [], {}]))
@settings(max_examples=300, deadline=None)
def test_of_every_changed_tree_what_is_shown_is_what_runs(
    path: tuple[Any, ...], cut: int, name: str, value: Any
) -> None:
    tree = canonical.load(working().call.form)
    held = at(tree, path[:cut])
    if isinstance(held, dict):
        held[name] = value
    elif isinstance(held, list):
        held.append({name: value})
    form, shape = canonical.dump(tree), Schema.of(work)
    try:
        validate_arguments(form, shape.text)
        values = canonical.decode(form, shape.classes)
    except (errors.AskRefusedError, errors.ArgumentError):
        return
    assert canonical.encode(values).text == form
    part: Any = values["part"]
    named = fields_of(canonical.load(form)["part"])
    if isinstance(part, Part):
        assert named is not None
        assert {key: canonical.dump(canonical.form_of(getattr(part, key))) for key in named} == {
            key: canonical.dump(item) for key, item in named.items()
        }


def test_arguments_that_are_not_all_the_functions_are_refused(stage: Stage) -> None:
    for change in (lambda tree: tree.pop("dry_run"), lambda tree: tree.update(force=True)):
        with pytest.raises(errors.AskRefusedError, match="all of them and no other"):
            send(stage.program(), asked_message(working(rewritten(change))))


@pytest.mark.parametrize(("name", "value"), [("dry_run", "False"), ("dry_run", 0), ("limit", "1"), ("limit", True)])
def test_a_text_in_the_place_of_a_number_or_of_true_is_refused(stage: Stage, name: str, value: Any) -> None:
    with pytest.raises(errors.AskRefusedError, match=f"'{name}' is encoded as another type|types .{name}: "):
        send(stage.program(), asked_message(working(rewritten(lambda tree: tree.update({name: value})))))


def test_arguments_that_no_type_of_the_function_takes_are_refused(stage: Stage) -> None:
    with pytest.raises(errors.AskRefusedError, match="do not match"):
        send(stage.program(), asked_message(working(rewritten(lambda tree: tree.update(dry_run="perhaps")))))


def test_what_a_gate_binds_is_taken_as_it_is(stage: Stage) -> None:
    """An int for a float, None for a default that the shape does not tell, names with `$` in a model's extra fields."""
    request = working()
    assert send(stage.program(), asked_message(request))["subject"]["form"] == request.call.form


def test_a_program_that_masks_what_there_is_to_judge_is_told_to_the_reviewer(stage: Stage) -> None:
    request = sample_call("run_1", SENT)
    row = send(stage.program(), lying(request, masked=canonical.dump(dict.fromkeys(SENT, MASK))))
    said = "the program hides 3 values that sayso would not mask by itself"
    assert full_text.cautions(stage.store.get(row["id"])) == [said]
    row = send(stage.program(), lying(sample_call("run_2", SENT), redact=["amount", "to", "lines"]))
    asked = stage.store.get(row["id"])
    assert full_text.cautions(asked) == [said]
    assert request_document(asked)["warnings"] == [said]
    assert full_text.cautions(replace(asked, requester=ADA)) == [], "a gate on this machine is the reviewer's own"


def test_a_view_in_which_a_redactor_failed_is_refused(stage: Stage) -> None:
    masked = canonical.dump(dict(FAILED))
    with pytest.raises(errors.AskRefusedError, match="redactor failed"):
        send(stage.program(), lying(sample_call("run_1"), masked=masked))


def test_a_call_that_would_hold_up_every_list_is_refused(stage: Stage) -> None:
    program = stage.program()
    with pytest.raises(errors.AskRefusedError, match="arguments: more than 65,536 bytes"):
        send(program, asked_message(sample_call("run_1", {"to": "é" * 33_000})))
    with pytest.raises(errors.AskRefusedError, match="other texts: more than 65,536 bytes"):
        send(program, asked_message(sample_call("run_1", description="x" * 66_000)))
    with pytest.raises(errors.AskRefusedError, match="more than 2,000 values"):
        send(program, asked_message(sample_call("run_1", {"rows": list(range(2_000))})))
    classes = {
        **json.loads(working().call.schema),
        "$defs": {f"C{n}": {"enum": ["a"]} for n in range(201)},
    }
    with pytest.raises(errors.AskRefusedError, match="more than 200 classes"):
        validate_arguments(working().call.form, json.dumps(classes))
    assert stage.store.count(Filter()) == 0
    assert program.ask(sample_call("run_1", {"rows": list(range(1_900)), "to": "x" * 50_000})).state is State.PENDING


# -- T2: one approval, one start -------------------------------------------------------------------------------


def test_of_fifty_who_start_at_once_one_runs(server: Serving, tmp_path: Path) -> None:
    stage = Stage(server, SqliteStore(tmp_path / "server.db"))
    program = stage.program()
    request = program.ask(sample_call())
    stage.person().approve(request.id)
    told = outcomes_of([lambda: program.start(request.id, new_token()) for _ in range(50)])
    assert Counter(type(one).__name__ for one in told) == {"Request": 1, "AlreadyStartedError": 49}
    stage.close()


def test_a_request_or_run_whose_row_cannot_be_read_costs_no_other_of_its_program_its_lease(
    server: Serving, tmp_path: Path
) -> None:
    stage = Stage(server, SqliteStore(tmp_path / "server.db"))
    program, starts = stage.program(), list[tuple[str, str]]()
    for n in range(3):
        request = program.ask(sample_call(f"run_{n}"))
        stage.person().approve(request.id)
        starts.append((request.id, f"token {n}"))
        program.start(*starts[-1])
    runs = [(run_id, "holder") for run_id in ("altered", "deleted", "sound")]
    for run_id, _ in runs:
        program.save_run(RunUpdate(record(run_id), [Step("/", "{}")]))
    (altered, _), (deleted, _), (sound, _) = starts
    with closing(sqlite3.connect(tmp_path / "server.db")) as file, file:
        file.execute("UPDATE request SET asked = '7' WHERE id = ?", (altered,))
        file.execute("DELETE FROM request WHERE id = ?", (deleted,))
        file.execute("UPDATE record SET body = '7' WHERE kind = 'run' AND key = 'altered'")
        file.execute("DELETE FROM record WHERE kind = 'run' AND key = 'deleted'")
    assert program.renew(starts, runs) == []
    assert [lease.key for lease in stage.store.records(LEASE)] == [sound]
    stage.close()


def test_a_start_that_is_sent_again_word_for_word_is_refused(stage: Stage) -> None:
    program = stage.program()
    request = program.ask(sample_call())
    stage.person().approve(request.id)
    start = Start.of(request_id=request.id, token=new_token(), worker="w")
    told = outcomes_of([lambda: program._transport.post("/start", encoded(start), request.id) for _ in range(50)])
    assert Counter(type(one).__name__ for one in told) == {"bytes": 1, "AlreadyStartedError": 49}


def test_only_the_fencing_token_ends_a_call(stage: Stage) -> None:
    program = stage.program()
    request = program.ask(sample_call())
    stage.person().approve(request.id)
    program.start(request.id, "mine")
    for token in ("", "yours", "min", "mine "):
        with pytest.raises((errors.StartRefusedError, errors.StoreError)):
            program.finish(request.id, token, Outcome("done"))
    assert program.finish(request.id, "mine", Outcome("done")).state is State.DONE


def test_an_outcome_that_cannot_be_shown_is_refused(stage: Stage) -> None:
    program = stage.program()
    request = program.ask(sample_call())
    stage.person().approve(request.id)
    program.start(request.id, "mine")
    for result in ("no JSON", "[1]", "{}", '{"result":NaN}', '{"result":' + "[" * 5_000 + "]" * 5_000 + "}"):
        with pytest.raises(errors.ArgumentError):
            program.finish(request.id, "mine", Outcome("done", result))
    assert program.get(request.id).state is State.RUNNING


# -- T3 and T5: what is another's is not there -----------------------------------------------------------------


def every_verb(program: HttpStore, request_id: str) -> dict[str, Any]:
    me = Identity("token", "x")
    return {
        "get": lambda: program.get(request_id),
        "settle": lambda: program.settle(request_id),
        "start": lambda: program.start(request_id, "t"),
        "finish": lambda: program.finish(request_id, "t", Outcome("done")),
        "withdraw": lambda: program.withdraw(request_id, me),
        "send_back": lambda: program.send_back(request_id, me, ["amount: is odd"]),
        "verify": lambda: program.resolve(request_id, me, roles=None, happened=True, comment=None, channel="verify"),
        "journal": lambda: program.journal(request_id=request_id),
    }


def test_every_verb_tells_a_foreign_request_and_none_in_the_same_words(stage: Stage) -> None:
    theirs = stage.program("theirs").ask(sample_call("run_theirs"))
    stage.person().approve(theirs.id)
    before = stage.store.get(theirs.id)
    mine = stage.program("mine")
    for name in every_verb(mine, theirs.id):
        told: list[str] = []
        for request_id in (theirs.id, NOBODYS):
            fault = refusal(errors.RequestNotFoundError, every_verb(mine, request_id)[name])
            told.append(str(fault).replace(request_id, "ID"))
        assert told[0] == told[1], name
    assert mine.find(theirs.fingerprint) is None
    assert list(mine.match("rq_")) == []
    assert list(mine.list(Filter()).requests) == []
    assert stage.store.get(theirs.id) == before


def whole_answer(program: HttpStore, path: str, body: bytes) -> tuple[Any, ...]:
    """Return status, headers and content of the answer to a message."""
    transport = program._transport
    connection = transport.connect()
    connection.request("POST", transport._path + path, body, transport._headers)
    response = connection.getresponse()
    headers = sorted((name.lower(), value) for name, value in response.getheaders() if name.lower() != "date")
    answer = response.status, headers, response.read()
    connection.close()
    return answer


def test_the_whole_answer_about_a_foreign_id_is_that_about_none(stage: Stage) -> None:
    theirs, mine = stage.program("theirs").ask(sample_call("run_theirs")), stage.program("mine")
    answers = [whole_answer(mine, "/get", encoded(Get.of(request_id=one))) for one in (theirs.id, NOBODYS)]
    assert answers[0] == answers[1]
    assert answers[0][0] == 404


def test_the_whole_answer_about_a_foreign_run_is_that_about_none(stage: Stage) -> None:
    stage.program("theirs").ask(sample_call("order-1"))
    mine, answers = stage.program("mine"), list[Any]()
    for run_id in ("order-1", "order-2"):
        for message in (GetRun.of(run_id=run_id), Journal.of(run_id=run_id), TakeRun.of(run_id=run_id, holder="me")):
            answers.append(whole_answer(mine, message.path(), encoded(message)))
            assert answers[-1][0] == 404
    assert answers[:3] == answers[3:]
    asked = json.dumps({"request": asked_message(sample_call("order-1"))}).encode()
    assert whole_answer(mine, "/ask", asked) == answers[0]


SAMPLES: dict[str, Any] = {
    "token": "t", "worker": "w", "holder": "me", "happened": True, "problems": ["odd"], "outcome": ["done"],
}  # fmt: skip
"""A value for each required field that does not name a request or a run."""


def test_a_message_that_names_what_another_program_has_is_answered_as_if_nobody_had_it(stage: Stage) -> None:
    # A loop over all endpoints, so that a new one that does not ask `Ownership` fails here.
    them = stage.program("theirs")
    theirs = them.ask(sample_call("run_theirs", key="k", effect="refund:A-1"))
    them.leave_run(RunUpdate(record("run_theirs"), [Step("/", "{}")]), RunState.BROKEN)
    stage.person().approve(theirs.id)
    before, mine, sent = stage.store.get(theirs.id), stage.program("mine"), list[str]()
    foreign = {
        "request_id": theirs.id, "run_id": "run_theirs", "fingerprint": theirs.fingerprint, "effect": "refund:A-1",
        "prefix": "rq_", "key": "k",
    }  # fmt: skip
    nobodys = {
        "request_id": NOBODYS, "run_id": "run_nobodys", "fingerprint": "0" * 64, "effect": "refund:A-2",
        "prefix": "rq_0000", "key": "k",
    }  # fmt: skip
    for endpoint in router.endpoints:
        assert endpoint.input is not None
        fields = endpoint.input.model_fields
        if endpoint.input is Note:  # a note begins a run that does not exist
            continue
        needed = {name for name, field in fields.items() if field.is_required()}
        for named in foreign.keys() & fields.keys():
            unknown = needed - SAMPLES.keys() - foreign.keys()
            assert not unknown, f"{endpoint.path}: give SAMPLES a value for {', '.join(sorted(unknown))}"
            answers = [
                whole_answer(mine, endpoint.path.removeprefix("/v1/program"), json.dumps(body).encode())
                for body in ({name: (SAMPLES | one)[name] for name in needed | {named}} for one in (foreign, nobodys))
            ]
            assert answers[0] == answers[1], f"{endpoint.path} tells {named} of another program; see `Ownership`"
            assert answers[0][0] in {200, 404}, answers[0]
            sent.append(f"{endpoint.path} {named}")
    assert len(sent) >= 16, sent
    assert stage.store.get(theirs.id) == before


def test_of_every_foreign_run_and_request_none_is_met(stage: Stage) -> None:
    programs = {f"p{n}": stage.program(f"p{n}") for n in range(4)}
    asked = {(name, n): programs[name].ask(sample_call(f"run_{name}_{n}")) for name in programs for n in range(5)}
    met = 0
    for name, program in programs.items():
        for (owner, n), request in asked.items():
            if owner == name:
                continue
            refusal(errors.RequestNotFoundError, lambda p=program, r=request: p.get(r.id))
            refusal(errors.RunNotFoundError, lambda p=program, o=owner, n=n: p.ask(sample_call(f"run_{o}_{n}")))
            refusal(errors.RunNotFoundError, lambda p=program, o=owner, n=n: p.journal(run_id=f"run_{o}_{n}"))
            refusal(errors.RunNotFoundError, lambda p=program, o=owner, n=n: p.note(f"run_{o}_{n}", "denied", ADA, {}))
            met += 1
    assert met == 60
    assert stage.store.count(Filter()) == 20


ADA = Identity(LOCAL, "ada")


def record(run_id: str) -> RunRecord:
    now = sample_call().created_at
    return RunRecord(run_id, "agent", "agent", RunState.RUNNING, "holder", now, now)


def test_a_run_that_another_began_is_neither_read_nor_written(stage: Stage) -> None:
    theirs, mine = stage.program("theirs"), stage.program("mine")
    saved = RunUpdate(record("order-1"), [Step("/", '{"secret":1}')])
    theirs.save_run(saved)
    theirs.ask(sample_call("order-2"))
    kept = stage.store.get_run("order-1")
    for run_id in ("order-1", "order-2"):
        other = RunUpdate(record(run_id), [Step("/x", "{}")])
        for verb in (
            lambda r=run_id: mine.get_run(r),
            lambda r=run_id: mine.take_run(r, "me"),
            lambda r=run_id: mine.take_run(r, "me", gone="holder"),
            lambda o=other: mine.save_run(o),
            lambda o=other: mine.leave_run(o, RunState.ENDED),
            lambda o=other: mine.ask(sample_call(), o),
        ):
            refusal(errors.RunNotFoundError, verb)
        assert mine.renew([], [(run_id, "holder")]) == []
    assert mine.runs(RunFilter())[0] == []
    assert list(mine.ready_runs(["agent"])) == []
    assert stage.store.get_run("order-1") == kept
    assert theirs.get_run("order-1") == kept


def test_a_run_that_nobody_holds_is_not_left_as_running(stage: Stage) -> None:
    program, update = stage.program(), RunUpdate(record("order-1"), [])
    for verb in (
        lambda: program.leave_run(update, RunState.RUNNING),
        lambda: program.save_run(update._replace(left=RunState.RUNNING)),
    ):
        with pytest.raises(errors.StoreError, match="paused, broken or ended"):
            verb()
    assert stage.store.runs(RunFilter())[0] == []


def test_a_run_with_a_name_that_fills_pages_is_refused(stage: Stage) -> None:
    for change in ({"id": "x" * 601}, {"name": ""}, {"kind": "x" * 601}, {"holder": "x" * 601}):
        with pytest.raises(errors.StoreError, match="1 to 600 characters"):
            stage.program().save_run(RunUpdate(replace(record("order-1"), **change), []))


def test_a_filter_that_no_store_can_search_for_is_refused(server: Serving, tmp_path: Path) -> None:
    stage = Stage(server, SqliteStore(tmp_path / "server.db"))
    for name in ("text", "run_id", "name", "risk"):
        with pytest.raises(errors.StoreError, match="at most 1,000 characters"):
            stage.program().list(replace(Filter(), **{name: "x" * 60_000}))
    with pytest.raises(errors.StoreError, match="at most 1,000 characters"):
        stage.program().runs(RunFilter(name="x" * 60_000))
    stage.close()


def test_a_run_of_a_program_on_the_servers_own_machine_is_nobodys(stage: Stage) -> None:
    stage.store.ask(sample_call("order-1"))
    stage.store.save_run(RunUpdate(record("order-2"), []))
    program = stage.program()
    for run_id in ("order-1", "order-2"):
        refusal(errors.RunNotFoundError, lambda r=run_id: program.ask(sample_call(r)))
        refusal(errors.RunNotFoundError, lambda r=run_id: program.get_run(r))


def test_a_step_cannot_wait_for_anothers_request_to_learn_what_became_of_it(stage: Stage) -> None:
    theirs = stage.program("theirs").ask(sample_call())
    mine = stage.program("mine")
    saved = RunUpdate(record("order-1"), [Step("/", "{}", theirs.id)])
    refusal(errors.RequestNotFoundError, lambda: mine.save_run(saved))
    refusal(errors.RequestNotFoundError, lambda: mine.leave_run(saved, RunState.PAUSED))


def test_an_id_that_is_taken_or_can_be_guessed_is_refused(stage: Stage) -> None:
    theirs = stage.program("theirs").ask(sample_call())
    program = stage.program("mine")
    with pytest.raises(errors.AskRefusedError, match="id is already used"):
        send(program, {**asked_message(sample_call()), "id": theirs.id})
    for bad in ("rq_1", "rq_" + "A" * 32, "rq_" + "0" * 33, "../x"):
        with pytest.raises(errors.StoreError, match="is not valid"):
            send(program, {**asked_message(sample_call()), "id": bad})


def test_watching_a_foreign_request_tells_nothing(stage: Stage) -> None:
    theirs = stage.program("theirs").ask(sample_call())
    seen = {theirs.id: None, NOBODYS: None}
    assert stage.program("mine")._transport.send(Wait.of(seen=seen), Changes).changed == {}


# -- who may ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["review", "admin"])
def test_no_other_kind_of_token_asks_starts_or_ends(stage: Stage, kind: str) -> None:
    request = stage.program().ask(sample_call())
    stage.person().approve(request.id)
    other = stage.program("agent", kind=kind)
    for verb in [*every_verb(other, request.id).values(), lambda: other.ask(sample_call())]:
        with pytest.raises(errors.StoreForbiddenError):
            verb()
    assert stage.store.get(request.id).state is State.APPROVED


# -- one that floods -------------------------------------------------------------------------------------------


def test_one_run_has_no_more_than_its_share_open_and_hinders_no_other(stage: Stage) -> None:
    program = stage.program()
    asked = [program.ask(sample_call("run_flood", {"amount": n})) for n in range(20)]
    fault = refusal(errors.TooManyOpenError, lambda: program.ask(sample_call("run_flood", {"amount": 20})))
    assert (fault.run_id, fault.limit) == ("run_flood", 20)
    assert program.ask(sample_call("run_flood", {"amount": 3})) == asked[3]  # it is found, and not asked
    assert program.ask(sample_call("run_other", {"amount": 20})).state is State.PENDING
    assert stage.program("other").ask(sample_call("run_third")).state is State.PENDING
    stage.person().reject(asked[0].id)
    assert program.ask(sample_call("run_flood", {"amount": 20})).state is State.PENDING


def test_one_program_has_no_more_than_its_share_open_over_all_runs_and_hinders_no_other(stage: Stage) -> None:
    stage.server.of(stage.store, open_per_token=6)
    program, again = stage.program("flood"), stage.program("flood")
    asked = [program.ask(sample_call(f"run_{n % 3}", {"amount": n})) for n in range(6)]
    for one in (program, again):  # tokens of one name are one program
        fault = refusal(errors.TooManyOpenForTokenError, lambda one=one: one.ask(sample_call("run_new")))
        assert (fault.name, fault.limit) == ("flood", 6)
        assert "decided some of them; nothing was asked" in str(fault)
    assert program.ask(sample_call("run_0", {"amount": 3})) == asked[3]  # it is found, and not asked
    assert stage.program("other").ask(sample_call("run_other")).state is State.PENDING
    assert stage.store.count(Filter()) == 7


@pytest.mark.parametrize("end", ["approve", "reject", "cancel", "feedback", "expire", "withdraw"])
def test_what_waits_no_more_leaves_its_program_room(stage: Stage, clock: Clock, end: str) -> None:
    stage.server.of(stage.store, open_per_token=1)
    program, person = stage.program(), stage.person()
    request = program.ask(sample_call("run_a"))
    refusal(errors.TooManyOpenForTokenError, lambda: program.ask(sample_call("run_b")))
    match end:
        case "expire":
            clock.tick(hours=25)
        case "withdraw":
            program.withdraw(request.id, request.requester)
        case "feedback":
            person.feedback(request.id, "less")
        case _:
            getattr(person, end)(request.id)
    assert program.ask(sample_call("run_b")).state is State.PENDING
    refusal(errors.TooManyOpenForTokenError, lambda: program.ask(sample_call("run_c")))


def test_a_vote_or_a_longer_span_leaves_no_room(stage: Stage, clock: Clock) -> None:
    stage.server.of(stage.store, open_per_token=1)
    program, person = stage.program(), stage.person()
    request = program.ask(sample_call("run_a", quorum=Quorum(2)))
    person.extend(request.id, timedelta(hours=48))
    person.claim(request.id)
    person.approve(request.id)
    clock.tick(hours=25)
    refusal(errors.TooManyOpenForTokenError, lambda: program.ask(sample_call("run_b")))


def test_what_waits_for_people_again_takes_room_again(stage: Stage) -> None:
    stage.server.of(stage.store, open_per_token=1)
    program, person = stage.program(), stage.person()
    request = program.ask(sample_call("run_a", {"amount": 90}))
    person.approve(request.id, changes={"amount": 7})
    assert program.send_back(request.id, program.get(request.id).requester, ["amount: is odd"]).state is State.PENDING
    refusal(errors.TooManyOpenForTokenError, lambda: program.ask(sample_call("run_b")))
    Review(stage.store, reviewer="ada", undo_within="10m").approve(request.id)
    person.undo(request.id)
    refusal(errors.TooManyOpenForTokenError, lambda: program.ask(sample_call("run_b")))
    person.reject(request.id)
    assert program.ask(sample_call("run_b")).state is State.PENDING


def test_what_programs_ask_without_a_server_is_counted_for_no_token(store: Store, clock: Clock) -> None:
    request = store.ask(sample_call())
    assert store.records(waiting_kind(request.requester)) == []


def test_a_share_is_counted_without_a_look_at_other_requests(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    program = stage.program()
    program.ask(sample_call("run_a"))
    looked = list[Filter]()
    real = type(stage.store).count

    def count(store: Store, wanted: Filter) -> int:
        looked.append(wanted)
        return real(store, wanted)

    monkeypatch.setattr(type(stage.store), "count", count)
    program.ask(sample_call("run_b"))
    assert not looked  # nothing stands in a run that begins
    program.ask(sample_call("run_b", {"amount": 31}))
    assert {one.run_id for one in looked} == {"run_b"}


class Slow(MemoryStore):
    """A store in which much can happen between a look and what follows from it."""

    def count(self, wanted: Filter) -> int:
        found = super().count(wanted)
        time.sleep(0.02)
        return found

    def records(self, kind: str, **options: Any) -> Sequence[Record]:
        found = super().records(kind, **options)
        time.sleep(0.02 if kind.startswith("waiting/") else 0)
        return found


def test_of_many_who_ask_at_once_no_more_find_room_than_there_is(server: Serving) -> None:
    stage = Stage(server, Slow())
    server.of(stage.store, open_per_run=5)
    program = stage.program()
    told = outcomes_of([lambda n=n: program.ask(sample_call("run_1", {"amount": n})) for n in range(16)])
    assert Counter(type(one).__name__ for one in told) == {"Request": 5, "TooManyOpenError": 11}
    server.of(stage.store, open_per_token=9)
    told = outcomes_of([lambda n=n: program.ask(sample_call(f"run_of_{n}")) for n in range(16)])
    assert Counter(type(one).__name__ for one in told) == {"Request": 4, "TooManyOpenForTokenError": 12}
    stage.close()


# -- waiting ---------------------------------------------------------------------------------------------------


def heard(program: HttpStore, request: Request, etag: str | None, seconds: float = 0.0) -> Changes:
    return program._transport.send(Wait.of(seen={request.id: etag}, seconds=seconds), Changes)


def test_a_request_is_told_again_only_when_it_differs(stage: Stage) -> None:
    program = stage.program()
    request = program.ask(sample_call())
    etag = program._etags[request.id]
    assert [one.request for one in heard(program, request, None).requests] == [request]
    assert heard(program, request, etag).changed == {}
    assert heard(program, request, etag, 0.05).changed == {}
    approved = stage.person().approve(request.id)
    changes = heard(program, request, etag, 25)
    assert [one.request for one in changes.requests] == [approved]
    assert changes.changed == {request.id: changes.requests[0].etag}
    assert changes.changed[request.id] != etag


def test_looking_and_waiting_write_nothing(server: Serving, tmp_path: Path) -> None:
    stage = Stage(server, SqliteStore(tmp_path / "server.db"))
    program = stage.program()
    request = program.ask(sample_call("run_1"))
    program.get(request.id)  # the token's day of use is written down once
    before = list(stage.store.journal()), stage.store.list(Filter()).requests, stage.store.records("token")
    program.get(request.id)
    program.find(request.fingerprint)
    program.list(Filter())
    program.match("rq_")
    program.journal(run_id="run_1")
    program.runs(RunFilter())
    heard(program, request, program._etags[request.id], 0.01)
    assert (list(stage.store.journal()), stage.store.list(Filter()).requests, stage.store.records("token")) == before
    stage.close()


def test_a_question_is_bound_to_its_words(stage: Stage) -> None:
    program = stage.program()
    question = sample_question("run_1")
    assert program.ask(question).question.text == "Which account?"
    for changes in ({"text": "Which one?"}, {"digest": "1" * 64}, {"schema_digest": "1" * 64}):
        with pytest.raises(errors.AskRefusedError):
            send(program, lying(sample_question("run_2"), **changes))
