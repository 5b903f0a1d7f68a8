"""A receipt proves one call to somebody who has no store, and one that differs in a byte proves nothing."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sayso import errors
from sayso.audit.checkpoint import checkpoint
from sayso.audit.export import receipt_of, receipt_text, verify_receipt
from sayso.audit.signing import Signer, document_text
from sayso.model.journal import chained
from sayso.model.lifecycle import Outcome
from sayso.model.request import FINAL, Request, State
from sayso.stores.memory import MemoryStore
from sayso.stores.sqlite import SqliteStore
from sayso.testing import sample_call
from sayso.testing.doubles import sample_edit
from sayso.testing.scene import ADA, BOB, Scene
from tests.support.evidence import MAKERS, a_signer, in_every_state, scene_on

NEVER = "ed25519:" + "0" * 64


@pytest.fixture
def scene() -> Iterator[Scene]:
    with scene_on(MemoryStore()) as scene:
        yield scene


def done(scene: Scene, run_id: str = "run_a", **arguments: Any) -> Request:
    """Let a call be asked, approved and run, among others of its run."""
    store = scene.store
    store.ask(sample_call(run_id, {"amount": 1}))
    request = store.ask(sample_call(run_id, arguments or {"amount": 80, "password": "hunter2-hunter2"}))
    other = store.ask(sample_call(run_id, {"amount": 2}))
    scene.decide("approve", request)
    scene.decide("reject", other, BOB)
    store.start(request.id, "t")
    store.finish(request.id, "t", Outcome("done", result='{"result":"paid"}'))
    store.ask(sample_call(run_id, {"amount": 3}))
    return store.get(request.id)


def written(scene: Scene, tmp_path: Path) -> tuple[bytes, Signer]:
    signer, request = a_signer(tmp_path), done(scene)
    done(scene, "run_b")
    checkpoint(scene.store, signer)
    return receipt_text(scene.store, request.id, signer).encode(), signer


@pytest.fixture(scope="module")
def by_the_page(root: Path) -> Callable[[bytes, str], Any]:
    """The program of the auditors' page, which knows nothing of this package."""
    program = (root / "examples/check_receipt.py").read_text(encoding="utf-8")
    code = program.split('"""')[2]
    assert "sayso" not in code
    assert len([line for line in code.splitlines() if line.strip()]) <= 32
    names: dict[str, Any] = {"__name__": "check_receipt"}
    exec(compile(program, "check_receipt.py", "exec"), names)  # noqa: S102  the example itself
    return names["checked"]


# -- what has one ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", MAKERS)
def test_every_call_that_was_run_or_refused_has_a_receipt_that_verifies(make: str, tmp_path: Path) -> None:
    signer = a_signer(tmp_path)
    with scene_on(MAKERS[make](tmp_path)) as scene:
        requests = in_every_state(scene)
        checkpoint(scene.store, signer)
        for request in requests:
            if request.state not in FINAL:
                with pytest.raises(errors.EvidenceError, match=f"is {request.state}"):
                    receipt_of(scene.store, request.id)
                continue
            content = receipt_text(scene.store, request.id, signer).encode()
            found = verify_receipt(content, trusted=signer.key)
            assert found.body["outcome"]["state"] == request.state
            assert found.body["request"]["fingerprint"] == request.fingerprint
            assert found.key == signer.key
        with pytest.raises(errors.RequestNotFoundError):
            receipt_of(scene.store, "rq_none")


def test_a_receipt_says_what_was_shown_who_decided_and_how_it_ended(scene: Scene, tmp_path: Path) -> None:
    content, signer = written(scene, tmp_path)
    body = verify_receipt(content, trusted=signer.key).body
    assert body["shown"]["arguments"] == {"amount": 80, "password": "***"}
    assert (body["decision"]["by"], body["decision"]["comment"]) == ("local:ada", "said so")
    assert (body["outcome"]["state"], body["outcome"]["returned"]) == ("done", "paid")
    assert {row[3] for row in body["chain"]["rows"]} > {body["request"]["id"]}
    assert "hunter2" not in content.decode()


def test_a_receipt_of_a_sealed_store_says_what_people_said(tmp_path: Path) -> None:
    key = base64.urlsafe_b64encode(b"k" * 32).decode()
    with scene_on(SqliteStore(tmp_path / "sealed.db", key=key)) as scene:
        request = done(scene)
        body = verify_receipt(receipt_text(scene.store, request.id).encode()).body
        assert body["decision"]["comment"] == "said so"
        assert '"comment":"sealed:' in body["chain"]["rows"][2][7]


def test_an_edited_call_is_shown_as_it_was_asked_and_as_it_ran(scene: Scene) -> None:
    request = scene.ask("run_a")
    edited = scene.decide("approve", request, edited=sample_edit(request, amount=9, password="hunter2"))
    scene.store.start(edited.id, "t")
    scene.store.finish(edited.id, "t", Outcome("failed", error="no money"))
    body = verify_receipt(receipt_text(scene.store, request.id).encode()).body
    assert body["shown"]["arguments"]["amount"] == 10
    assert body["edited"]["arguments"] == {"amount": 9, "to": "alice", "password": "***"}
    assert body["outcome"]["error"] == "no money"
    assert body["decision"]["fingerprint"] == edited.current_fingerprint


def test_votes_a_resolution_and_a_later_cancel_stand_in_a_receipt(scene: Scene) -> None:
    from sayso.model.reviewer import Quorum

    both = scene.ask("run_a", quorum=Quorum(2))
    scene.decide("approve", both)
    scene.decide("approve", scene.store.get(both.id), BOB)
    scene.decide("cancel", scene.store.get(both.id), BOB)
    body = verify_receipt(receipt_text(scene.store, both.id).encode()).body
    assert [vote["by"] for vote in body["votes"]] == ["local:ada"]
    assert (body["decision"]["verb"], body["outcome"]["state"]) == ("cancel", "cancelled")
    unknown = scene.unknown()
    scene.store.resolve(unknown.id, BOB, roles=(), happened=False, comment="looked", channel="test")
    body = verify_receipt(receipt_text(scene.store, unknown.id).encode()).body
    assert (body["outcome"]["state"], body["outcome"]["resolved_by"]) == ("failed", "local:bob")
    assert body["decision"]["by"] == "local:ada"


def test_what_the_program_took_back_and_what_nobody_answered_have_receipts(scene: Scene) -> None:
    back, late = scene.ask("run_a"), scene.ask("run_b")
    scene.store.withdraw(back.id, ADA, "asked for less")
    scene.clock.tick("25h")
    body = verify_receipt(receipt_text(scene.store, back.id).encode()).body
    assert (body["decision"]["verb"], body["outcome"]["state"]) == ("withdraw", "cancelled")
    body = verify_receipt(receipt_text(scene.store, late.id).encode()).body
    assert (body["decision"], body["outcome"]["state"]) == (None, "expired")


def test_a_receipt_without_a_key_holds_and_says_so(scene: Scene) -> None:
    request = done(scene)
    assert verify_receipt(receipt_text(scene.store, request.id).encode()).key is None


def test_a_receipt_holds_the_rows_from_the_first_of_its_request_to_the_last(scene: Scene) -> None:
    request = done(scene)
    scene.ask("run_a")
    assert [row[1] for row in receipt_of(scene.store, request.id)["chain"]["rows"]] == [2, 3, 4, 5, 6, 7]


# -- every byte counts -----------------------------------------------------------------------------------------------


def test_a_receipt_of_which_any_byte_was_changed_is_refused(scene: Scene, tmp_path: Path) -> None:
    content, signer = written(scene, tmp_path)
    verify_receipt(content, trusted=signer.key)
    for place in range(len(content)):
        for bit in (1, 32):
            spoilt = bytearray(content)
            spoilt[place] ^= bit
            with pytest.raises(errors.EvidenceError):
                verify_receipt(bytes(spoilt))
    print(f"{2 * len(content)} changes, all found")


def test_a_receipt_with_a_byte_put_in_or_taken_away_is_refused(scene: Scene, tmp_path: Path) -> None:
    content, _ = written(scene, tmp_path)
    for place in range(len(content) + 1):
        for new in (content[:place] + b" " + content[place:], content[:place] + content[place + 1 :]):
            if new == content:
                continue
            with pytest.raises(errors.EvidenceError):
                verify_receipt(new)


def test_an_unsigned_receipt_of_which_any_byte_was_changed_is_refused(scene: Scene) -> None:
    content = receipt_text(scene.store, done(scene).id).encode()
    verify_receipt(content)
    for place in range(len(content)):
        spoilt = bytearray(content)
        spoilt[place] ^= 1
        with pytest.raises(errors.EvidenceError):
            verify_receipt(bytes(spoilt))


def test_whoever_follows_the_page_finds_every_changed_byte(
    scene: Scene, tmp_path: Path, by_the_page: Callable[[bytes, str], Any]
) -> None:
    content, signer = written(scene, tmp_path)
    said, steps = by_the_page(content, signer.key)
    assert said == verify_receipt(content).body
    assert [step[0] for step in steps] == ["asked", "approved", "started", "done"]
    for place in range(len(content)):
        for bit in (1, 32):
            spoilt = bytearray(content)
            spoilt[place] ^= bit
            with pytest.raises(Exception):  # noqa: B017, PT011  whatever breaks first
                by_the_page(bytes(spoilt), signer.key)
    with pytest.raises(Exception):  # noqa: B017, PT011  the same
        by_the_page(document_text("receipt", said, None).encode(), signer.key)


@pytest.mark.parametrize("make", MAKERS)
def test_whoever_follows_the_page_agrees_about_every_receipt(
    make: str, tmp_path: Path, by_the_page: Callable[[bytes, str], Any]
) -> None:
    signer = a_signer(tmp_path)
    with scene_on(MAKERS[make](tmp_path)) as scene:
        requests = [*in_every_state(scene), done(scene, "größer \U0001f600", amount=5)]
        checkpoint(scene.store, signer)
        for request in requests:
            if request.state in FINAL:
                content = receipt_text(scene.store, request.id, signer).encode()
                assert by_the_page(content, signer.key)[0] == verify_receipt(content).body


# -- what does not go together ---------------------------------------------------------------------------------------


def forged(body: dict[str, Any], where: str, value: Any) -> dict[str, Any]:
    found = json.loads(json.dumps(body))
    place, (*steps, last) = found, [int(step) if step.isdigit() else step for step in where.split(".")]
    for step in steps:
        place = place[step]
    place[last] = value
    return found


FORGED = {
    "request.id": "rq_other", "request.run": "run_b", "request.kind": "question", "request.fingerprint": "0" * 64,
    "request.tool": "payments:refund", "request.requester": "program:other",
    "request.asked_at": "2026-01-01T12:00:01Z",
    "request.on_behalf_of": "local:eve", "shown.text": '{"amount":8,"password":"***"}', "shown.arguments.amount": 8,
    "edited": {"arguments": {}, "text": "{}"}, "decision.verb": "reject", "decision.by": "local:eve",
    "decision.channel": "cli", "decision.at": "2026-01-01T12:00:01Z", "decision.comment": "said not",
    "decision.fingerprint": "0" * 64, "decision": None, "votes": [{}], "outcome.state": "failed", "outcome.at": "now",
    "outcome.started_at": None, "outcome.resolved_by": "local:eve", "chain.before": "0" * 64, "chain.rows.0.1": 3,
    "chain.rows.0.0": "run_b", "chain.rows.3.5": "local:eve", "chain.rows.5.8": "0" * 64, "chain.rows": [],
    "chain": 7,
}  # fmt: skip


@pytest.mark.parametrize("where", FORGED)
def test_a_receipt_that_does_not_go_together_is_refused_whoever_signed_it(
    where: str, scene: Scene, tmp_path: Path
) -> None:
    content, signer = written(scene, tmp_path)
    body = verify_receipt(content).body
    new = document_text("receipt", forged(body, where, FORGED[where]), signer)
    with pytest.raises(errors.EvidenceError):
        verify_receipt(new.encode())


def test_rows_that_begin_too_late_are_refused(scene: Scene, tmp_path: Path) -> None:
    content, signer = written(scene, tmp_path)
    body = verify_receipt(content).body
    rows = body["chain"]["rows"]
    late = forged(forged(body, "chain.rows", rows[1:]), "chain.before", rows[0][8])
    with pytest.raises(errors.EvidenceError, match="do not begin where its request was asked"):
        verify_receipt(document_text("receipt", late, signer).encode())
    request = scene.store.ask(sample_call("run_new"))
    scene.decide("reject", request)
    first = json.loads(json.dumps(receipt_of(scene.store, request.id)))
    assert first["chain"]["rows"][0][1] == 1
    row = chained("0" * 64, *first["chain"]["rows"][0][:8])
    other = forged(forged(first, "chain.before", "0" * 64), "chain.rows", [list(row)])
    with pytest.raises(errors.EvidenceError, match="beginning of their chain"):
        verify_receipt(document_text("receipt", other, signer).encode())


def test_a_receipt_must_be_signed_by_the_key_that_is_trusted(scene: Scene, tmp_path: Path) -> None:
    content, signer = written(scene, tmp_path)
    with pytest.raises(errors.EvidenceError, match="signed by another key"):
        verify_receipt(content, trusted=NEVER)
    body = verify_receipt(content).body
    with pytest.raises(errors.EvidenceError, match="not signed, and must be"):
        verify_receipt(document_text("receipt", body, None).encode(), trusted=signer.key)


def test_a_file_that_is_no_receipt_or_too_long_is_refused(scene: Scene, tmp_path: Path) -> None:
    path = tmp_path / "receipt.json"
    with path.open("wb") as file:
        file.truncate(100 << 20)
    with pytest.raises(errors.EvidenceError, match="is not a sayso receipt"):
        verify_receipt(path)
    with path.open("wb") as file:
        file.write(b'{\n"receipt": {')
        file.truncate(100 << 20)
    with pytest.raises(errors.EvidenceError, match="over 64 MB long"):
        verify_receipt(path)
    for content in (b"", b"{}", b'{\n"receipt": {', b'{\n"receipt": {},\n"proof": 7\n}\n', b"\xff\xfe"):
        with pytest.raises(errors.EvidenceError):
            verify_receipt(content)
    path.unlink()


def test_a_receipt_of_a_request_that_still_waits_is_not_made(scene: Scene) -> None:
    request = scene.in_state(State.PENDING)
    with pytest.raises(errors.EvidenceError, match="is pending: a receipt can be made once the request has ended"):
        receipt_text(scene.store, request.id)
