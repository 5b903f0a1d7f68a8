"""The promises of the design, one test for each: the page to read before trusting sayso, or before changing it.

Programs, reviewers and kills are real processes where a promise speaks of them; effects are lines in a file that the
called function itself writes. How each promise is kept in every corner is tested beside the part that keeps it. The
one invariant: what ran is counted from the effects, never inferred from the record.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sqlite3
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

import sayso
from sayso import audit, config, errors
from sayso.model.entry import Entry, chained
from sayso.model.lifecycle import Outcome
from sayso.model.request import FINAL, Request, State
from sayso.stores.base import Filter, Store
from tests.conftest import Clock
from tests.integration.acting import concurrently, held, program, running, waiting_in
from tests.integration.commands import HIDDEN
from tests.integration.commands import sayso as command

RUN = "order-4721"
PAY = """
import os, sys, threading, time
import sayso
from decimal import Decimal

STORE, EFFECTS, MODE = sys.argv[1:4]
sayso.configure(store=STORE)

@sayso.gate(wait="raise")
def pay(amount: Decimal, to: list[str], note: str = "") -> str:
    with open(EFFECTS, "a") as ledger:
        ledger.write(f"{amount!r} {to!r} {note!r}\\n")
    if MODE == "die":
        os.kill(os.getpid(), 9)
    return "paid"

def call(note="rent"):
    with sayso.run("order-4721"):
        try:
            return pay(Decimal("10.00"), ["alice", "bob"], note)
        except sayso.ConfirmationRequired as pause:
            return pause.confirmation_id
        except sayso.errors.SaysoError as error:
            return type(error).__name__

if MODE == "threads":
    open(f"{EFFECTS}.ready.{os.getpid()}", "w").close()
    while not os.path.exists(f"{EFFECTS}.go"):
        time.sleep(0.001)
    told = []
    threads = [threading.Thread(target=lambda: told.append(call())) for _ in range(5)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    print(" ".join(told))
else:
    print(call(), flush=True)
"""


@dataclass
class World:
    """A store in a file, a file of effects, and the words for what happens between them."""

    store: Store
    path: Path
    effects: Path

    def start(self, mode: str = "once") -> subprocess.Popen[str]:
        return program(PAY, self.store.url, str(self.effects), mode)

    def pays(self) -> str:
        """Run the program to its end in a process of its own; return what its call gave or raised."""
        return running(self.start())

    def ran(self) -> list[str]:
        return self.effects.read_text().splitlines() if self.effects.exists() else []

    def by_hand(self, statement: str, *values: Any) -> None:
        """Change the file as somebody with a database tool would, past everything that guards it."""
        with closing(sqlite3.connect(self.path)) as connection, connection:
            for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
                connection.execute(f"DROP TRIGGER {name}")
            connection.execute(statement, values)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    path = tmp_path / "sayso.db"
    config.configure(store=f"sqlite:///{path}")
    monkeypatch.setenv("SAYSO_STORE", f"sqlite:///{path}")
    return World(config.default_store(), path, tmp_path / "effects")


@pytest.fixture(autouse=True)
def run_of_its_own() -> Iterator[None]:
    with sayso.run():
        yield


def test_1_what_runs_is_what_was_shown_and_approved(world: World) -> None:
    """What runs is what was shown and approved: bound at ask time, in a typed form; the executor runs from that."""
    ran: list[Any] = []

    @sayso.gate(wait="raise")
    def send(to: list[str], amount: Decimal) -> None:
        ran.append((to, amount))

    people = ["alice"]
    first = held(send, people, Decimal("1.50")).confirmation_id
    assert sayso.Review().approve(first, by="ada").call.arguments == {"to": ["alice"], "amount": "1.50"}
    people.append("mallory")
    held(send, people, Decimal("1.50"))  # another call, which nobody has approved
    held(send, ["alice"], Decimal("1.5"))
    assert ran == []
    send(["alice"], Decimal("1.50"))
    assert ran == [(["alice"], Decimal("1.50"))]

    edited = world.pays()
    assert world.pays() == edited
    assert command("approve", edited, "--as", "ada", "--set", "amount=7.25").code == 0
    assert world.pays() == "paid"  # asks for 10.00 and gets what was approved
    assert world.ran() == ["Decimal('7.25') ['alice', 'bob'] 'rent'"]

    altered = world.pays()
    sayso.Review().approve(altered, by="ada")
    form = world.store.get(altered).call.form
    world.by_hand("UPDATE request SET form = ? WHERE id = ?", form.replace("alice", "mallory"), altered)
    assert [world.pays(), world.pays()] == ["AlteredRequestError"] * 2  # as often as it is asked
    assert world.store.get(altered).execution is None
    assert len(world.ran()) == 1


def test_2_one_approval_starts_its_call_at_most_once(world: World) -> None:
    """One approval starts its call at most once, over threads, tasks, processes and machines."""
    request_id = world.pays()
    sayso.Review().approve(request_id, by="ada")
    racers = [world.start("threads") for _ in range(4)]
    deadline = time.monotonic() + 30
    while len(list(world.effects.parent.glob("effects.ready.*"))) < len(racers):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    world.effects.with_suffix(".go").touch()
    told = [outcome for racer in racers for outcome in running(racer).split()]
    assert len(told) == 20
    assert told.count("paid") == 1
    assert {one for one in told if not one.startswith("rq_")} <= {"paid", "AlreadyStartedError"}
    assert len(world.ran()) == 1
    assert world.store.get(request_id).state is State.DONE

    ran: list[int] = []

    @sayso.gate(wait="raise")
    async def pay(amount: int) -> str:
        ran.append(amount)
        await asyncio.sleep(0)
        return "paid"

    async def tasks() -> list[Any]:
        pause = (await asyncio.gather(pay(10), return_exceptions=True))[0]
        sayso.Review().approve(pause.confirmation_id, by="ada")
        return await asyncio.gather(*(asyncio.create_task(pay(10)) for _ in range(20)), return_exceptions=True)

    with sayso.run("order-1"):
        outcomes = asyncio.run(tasks())
    assert (outcomes.count("paid"), len(outcomes), ran) == (1, 20, [10])


def test_3_an_outcome_that_cannot_be_known_is_unknown_and_not_retried(world: World) -> None:
    """When the outcome cannot be known the record says `unknown` and nothing is retried by itself."""
    request_id = world.pays()
    sayso.Review().approve(request_id, by="ada")
    killed = world.start("die")
    killed.communicate(timeout=60)
    assert killed.returncode == -signal.SIGKILL
    assert len(world.ran()) == 1
    for _ in range(3):
        assert world.pays() == "OutcomeUnknownError"
    assert sayso.Review().get(request_id).state is State.UNKNOWN
    assert len(world.ran()) == 1
    resolved = sayso.Review().resolve(request_id, happened=True, by="ada", comment="it is on the bank's list")
    assert (resolved.state, world.pays() != request_id, len(world.ran())) == (State.DONE, True, 1)


def test_4_the_requester_cannot_decide_its_own_request(world: World) -> None:
    """The requester cannot decide its own request."""

    @sayso.gate(wait="raise")
    def pay(amount: int) -> None:
        raise AssertionError

    with sayso.run(RUN, on_behalf_of="carol"):
        request = sayso.Review().get(held(pay, 1).confirmation_id)
    itself = sayso.Reviewer(request.requester.subject, issuer=request.requester.issuer)
    for who in ("carol", "CAROL", "\uff43arol", itself):
        review = sayso.Review(reviewer=who, channel="chat")
        for decides in (review.approve, review.reject, review.cancel, review.claim):
            with pytest.raises(errors.OwnRequestError):
                decides(request.id)
        with pytest.raises(errors.OwnRequestError):
            review.approve(request.id, changes={"amount": 2})
    assert command("approve", request.id, "--as", "Carol").code == 1
    assert world.store.get(request.id) == request
    assert [entry.event for entry in world.store.journal(request_id=request.id)] == ["asked"]
    assert sayso.Review().approve(request.id, by="ada").state is State.APPROVED


def test_5_a_quorum_counts_distinct_people(world: World) -> None:
    """A quorum counts distinct people."""
    ran: list[int] = []
    pay = sayso.gate(wait="raise", name="pay", quorum=3)(ran.append)
    request_id = held(pay, 10).confirmation_id
    one_person = ("ada", "Ada", "ADA", "\uff41da", "\u24d0da")
    sayso.Review(channel="web").approve(request_id, by=one_person[0])
    for name in one_person:
        for channel in ("chat", "terminal"):
            with pytest.raises(errors.AlreadyVotedError):
                sayso.Review(channel=channel).approve(request_id, by=name)
    assert command("approve", request_id, "--as", "ADA").code != 0
    sayso.Review().approve(request_id, by="bob")
    held(pay, 10)
    assert ran == []
    sayso.Review().approve(request_id, by="bob", changes={"object": 7})  # what ada agreed to is not this
    assert sayso.Review().approve(request_id, by="ada").missing_votes == 1
    held(pay, 10)
    assert sayso.Review().approve(request_id, by="carol").state is State.APPROVED
    pay(10)
    assert ran == [7]


def test_6_everything_expires_and_nothing_into_an_approval(world: World, clock: Clock) -> None:
    """Everything expires, nothing expires into an approval."""
    ran: list[int] = []
    pay = sayso.gate(wait="raise", name="pay")(ran.append)
    pending, approved = (held(pay, n).confirmation_id for n in (1, 2))
    sayso.Review().approve(approved, by="ada")
    clock.tick(hours=24, microseconds=-1)
    assert {sayso.Review().get(one).state for one in (pending, approved)} == {State.PENDING, State.APPROVED}
    clock.tick(microseconds=1)
    with pytest.raises(errors.RequestExpiredError):
        sayso.Review().approve(pending, by="ada")
    with pytest.raises(errors.RequestExpiredError):
        sayso.Review().approve(approved, by="bob")
    with pytest.raises(errors.ApprovalExpiredError):
        world.store.start(approved, "token")
    assert {held(pay, n).confirmation_id for n in (1, 2)} & {pending, approved} == set()
    clock.tick(days=-2)  # a clock that is set back revives nothing
    for one in (pending, approved):
        assert world.store.settle(one).state is State.EXPIRED
    clock.tick(days=40)
    states = {request.state for request in sayso.Review().list(state="all").requests}
    assert (ran, states) == ([], {State.EXPIRED})


def test_7_decided_is_decided(world: World) -> None:
    """Decided is decided: a second decision is refused with who decided, when and through which channel."""
    ways: dict[str, Callable[[sayso.Review, str], Request]] = {
        "approve": lambda review, one: review.approve(one),
        "edit": lambda review, one: review.approve(one, changes={"to": "eve"}),
        "reject": lambda review, one: review.reject(one, "no"),
        "feedback": lambda review, one: review.feedback(one, "less"),
        "cancel": lambda review, one: review.cancel(one),
    }
    pay = sayso.gate(wait="raise")(transfer)
    for first, decide in ways.items():
        request_id = held(pay, first).confirmation_id
        decided = decide(sayso.Review(reviewer="ada", channel="chat"), request_id)
        for second, decide_again in ways.items():
            if (first, second) in {("approve", "cancel"), ("edit", "cancel")}:
                continue  # an approval may be taken back until its call has started
            with pytest.raises(errors.AlreadyDecidedError) as refused:
                decide_again(sayso.Review(reviewer="bob", channel="web"), request_id)
            assert (refused.value.by, refused.value.channel) == ("ada", "chat")
            assert decided.decision is not None
            assert refused.value.at == decided.decision.at
        late = command("reject", request_id, "--as", "bob", "-m", "too late")
        assert (late.code, "ada" in late.err) == (3, True)
        assert world.store.get(request_id) == decided
        assert decided.state is State.APPROVED or decided.state in FINAL


def transfer(to: str) -> str:
    return to


def broken(*_: Any, **__: Any) -> Any:
    raise RuntimeError("out of order")


FAULTS: dict[str, tuple[dict[str, Any], Any, type[Exception]]] = {
    "rule raises": ({"when": broken}, "a", errors.PolicyError),
    **{f"rule says {said!r}": ({"when": lambda said=said: said}, "a", errors.PolicyError)
       for said in (None, 0, 1, "", "no", {}, [], "allow")},
    "prompt raises": ({"prompt": broken}, "a", errors.PolicyError),
    "prompt is no text": ({"prompt": lambda: 1}, "a", errors.PolicyError),
    "argument has no form": ({}, object(), errors.ArgumentError),
    "store is a folder": ({"store": "sqlite:////"}, "a", errors.StoreError),
    "store is unknown": ({"store": "redis://nowhere"}, "a", errors.ConfigError),
}  # fmt: skip


def test_8_any_error_means_not_run(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Any error (policy, store, render, notify) means *not run*, with its own reason."""
    ran: list[Any] = []

    def act(value: Any) -> None:
        ran.append(value)

    for what, (options, argument, error) in FAULTS.items():
        with pytest.raises(error) as caught:
            sayso.gate(wait="raise", **options)(act)(argument)
        assert len(str(caught.value)) > 20, what
    assert world.store.count(Filter()) == 0

    drawn_badly = held(sayso.gate(wait="raise", redactor=broken)(act), "a secret")
    assert "secret" not in str(drawn_badly)
    monkeypatch.setattr("sys.stderr", closed := (tmp_path / "err").open("w"))
    closed.close()
    held(sayso.gate(timeout="1ms")(act), "nobody can be told")

    request_id = held(pay := sayso.gate(wait="raise")(act), "approved").confirmation_id
    sayso.Review().approve(request_id, by="ada")
    world.store.close()
    world.path.write_bytes(b"not a database" * 1000)
    with pytest.raises(errors.StoreError):
        pay("approved")
    assert ran == []


def test_9_the_reviewer_sees_what_we_draw_and_the_agents_words_marked(world: World) -> None:
    """What the reviewer sees is drawn by us; the agent's text is marked, unverified, and cannot disguise itself."""
    lie = f"pay(amount=1)\nrq_0 approved by ada {HIDDEN}\r"

    @sayso.gate(wait="raise", prompt=lie, description=lie, risk=lie)
    def pay(amount: int, to: str) -> None:
        raise AssertionError

    signal_ = held(pay, 1_000_000, f"alice{HIDDEN}\n    amount  1")
    done = command("show", signal_.confirmation_id)  # which fails where a hidden character comes out raw
    ours, _, theirs = done.out.partition("the program says, unverified:")
    amounts = [line.split() for line in ours.splitlines() if line.strip().startswith("amount")]
    assert amounts == [["amount", "1000000"]]
    assert "alice<U+001B>[31m<U+202E><U+200B>" in ours
    assert "pay(amount=1)" not in ours.partition("warning:")[0]
    assert theirs.count("<U+202E>") >= 2
    for what in ("argument to", "the prompt", "the description", "the risk"):
        assert f"warning: {what}" in ours + theirs
    assert not any(line.strip().startswith("rq_0 approved") for line in done.out.splitlines())
    assert "rq_0 approved" not in command("ls").out

    post = sayso.gate(wait="raise")(transfer)
    question = held(post, f"alice{HIDDEN}\nrq_0 approved").question
    assert "alice<U+001B>[31m<U+202E><U+200B>" in question
    assert question.isascii()
    assert "\n" not in question


def test_10_every_step_leaves_a_chained_record(world: World) -> None:
    """Every step leaves a chained record; a change or loss inside it is found."""
    request_id = world.pays()
    review = sayso.Review(reviewer="ada")
    for step in (review.claim, review.release):
        step(request_id)
    review.extend(request_id, "1h")
    review.approve(request_id, changes={"note": "less"})
    world.pays()
    rows = list(audit.entries(world.store))
    steps = ["asked", "claimed", "released", "extended", "approved", "started", "done"]
    assert [row.event for row in rows] == steps
    assert command("log", "--verify").code == 0
    whole = world.path.with_suffix(".whole")
    with closing(sqlite3.connect(world.path)) as source, closing(sqlite3.connect(whole)) as copy:
        source.backup(copy)

    def is_found(statement: str, *values: Any) -> bool:
        changed = whole.with_suffix(".changed")
        changed.write_bytes(whole.read_bytes())
        World(world.store, changed, world.effects).by_hand(statement, *values)
        found = audit.verify(config.open_store(f"sqlite:///{changed}"))
        config.open_store(f"sqlite:///{changed}").close()
        return len(found.broken) == 1

    assert not is_found("UPDATE journal SET event = event")
    for row in rows[:-1]:
        assert is_found("DELETE FROM journal WHERE seq = ?", row.seq), f"{row.event} was lost"
        assert is_found("UPDATE journal SET link = ? WHERE seq = ?", forged(row).link, row.seq)
    for row in rows:
        for column in set(Entry._fields) - {"run_id", "seq"}:
            new = row.at + 1 if column == "at" else f"{getattr(row, column)} "
            assert is_found(f"UPDATE journal SET {column} = ? WHERE seq = ?", new, row.seq), column  # noqa: S608  our own
    # A row that was written anew, with a link that fits it, does not fit the row behind it.
    fake = forged(rows[4])
    assert is_found("UPDATE journal SET by = ?, link = ? WHERE seq = ?", fake.by, fake.link, fake.seq)
    world.by_hand("UPDATE journal SET by = 'local:mallory' WHERE seq = 5")
    done = command("log", "--verify")
    assert (done.code, "5" in done.out + done.err) == (1, True)


def forged(row: Entry) -> Entry:
    return chained("0" * 64, *row._replace(by="local:mallory")[:-1])


def test_11_secrets_are_masked_wherever_something_is_shown(world: World, capfd: pytest.CaptureFixture[str]) -> None:
    """Secrets are masked at every depth wherever something is shown, logged, sent or traced; the call gets the real."""
    bait, got = "canary-7f3a91-secret", []

    @sayso.gate(wait="raise", redact=["iban"], prompt=f"with {bait}?", retries=1)
    def connect(url: str, password: str, deep: dict[str, Any], held_back: SecretStr, iban: str) -> dict[str, str]:
        got.append((password, deep, held_back.get_secret_value(), iban))
        if len(got) == 1:
            raise ConnectionError(f"refused with {bait}")
        return {"token": bait, "note": f"logged in with {bait}"}

    def call() -> Any:
        return connect("db", bait, {"a": [{"b": ({"api_key": bait},)}]}, SecretStr(bait), iban=bait)

    shown: list[object] = []
    pause = held(call)
    shown += [pause.question, repr(pause), json.dumps(pause.to_dict())]
    request_id = pause.confirmation_id
    edited = sayso.Review().approve(request_id, by="ada", changes={"url": "db2", "iban": bait}, comment="fine")
    shown += [repr(edited), edited.effective.arguments, edited.effective.shown]
    with pytest.raises(ConnectionError):
        call()
    assert call()["token"] == bait
    final = world.store.get(request_id)
    shown += [repr(final), repr(final.execution), final.execution and (final.execution.result, final.execution.error)]
    shown += [list(world.store.journal()), sayso.get_confirmation_context()]
    for words in (["ls", "--json"], ["show", request_id, "--full"], ["show", request_id, "--json"], ["log", "--json"]):
        shown.append(command(*words).out)

    @sayso.gate(wait="raise", when=lambda password: 1 / len(password[99:]))
    def other(password: str) -> None: ...

    @sayso.gate(wait="raise", when=lambda password: {}[password])
    def third(password: str) -> None: ...

    for gated in (other, third):
        with pytest.raises(errors.PolicyError) as refused:
            gated(bait)
        shown += [str(refused.value), repr(refused.value), repr(refused.value.__cause__)]
    shown += capfd.readouterr()
    assert [bait in str(one) for one in shown] == [False] * len(shown)
    assert got == [(bait, {"a": [{"b": ({"api_key": bait},)}]}, bait, bait)] * 2


def test_12_ids_are_random_and_knowing_one_gives_no_right(world: World) -> None:
    """Ids are random and knowing one gives no right."""
    ran: list[str] = []
    pay = sayso.gate(wait="raise", name="pay")(ran.append)
    ids: list[str] = []
    for _ in range(64):
        ids.append(held(pay, "alice").confirmation_id)
        sayso.clear_confirmation(ids[-1])
    bits = [int(one.removeprefix("rq_"), 16) for one in ids]
    assert len(set(ids)) == 64
    assert all(len(one) >= len("rq_") + 32 for one in ids)
    for place in range(128):  # each of 128 bits is drawn: none of them stood still
        assert len({number >> place & 1 for number in bits}) == 2

    with sayso.run(RUN, on_behalf_of="carol"):
        known = held(pay, "alice").confirmation_id
        with pytest.raises(errors.OwnRequestError):
            sayso.Review().approve(known, by="carol")
    with pytest.raises(errors.StartRefusedError):
        world.store.start(known, "token")
    sayso.Review().approve(known, by="ada")
    token = "guessed"
    with pytest.raises(errors.StartRefusedError):
        world.store.finish(known, token, Outcome("done"))
    elsewhere = concurrently(1, lambda: pay("alice"))  # who knows the id, and has not its run
    assert type(elsewhere[0]) is sayso.ConfirmationRequired
    with sayso.run("order-4722"):
        assert held(pay, "alice").confirmation_id != known
        sayso.respond_to_confirmation("rq_" + "0" * 32, approved=True)
        held(pay, "alice")
    with sayso.run(RUN):
        held(pay, "bob")  # in its run, but another call
        assert ran == []
        pay("alice")
    assert ran == ["alice"]


def test_16_a_decision_reaches_only_the_call_that_asked_for_it_and_still_waits(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A decision reaches only the call that asked for it; a call that nobody waits for any more does not start."""
    monkeypatch.setattr("sayso.waiting.terminal.is_there", lambda: False)
    ran: list[str] = []
    pay = sayso.gate(name="pay")(ran.append)
    review = sayso.Review(reviewer="ada")

    def conversation() -> None:
        with sayso.run():
            pay("alice")

    async def main() -> None:
        left = asyncio.create_task(asyncio.to_thread(conversation))
        (first,) = await asyncio.to_thread(waiting_in, world.store)
        left.cancel()  # nobody waits for what its thread does
        await asyncio.wait([left])
        following = asyncio.create_task(asyncio.to_thread(conversation))
        await asyncio.to_thread(waiting_in, world.store)
        with suppress(errors.AlreadyDecidedError):
            review.approve(first.id)
        (second,) = await asyncio.to_thread(waiting_in, world.store)
        assert (second.id != first.id, ran) == (True, [])
        review.reject(second.id)
        with pytest.raises(sayso.ConfirmationRejected):
            await following

    asyncio.run(main())  # it ends when all of its threads have
    assert ran == []
    with ThreadPoolExecutor(1) as pool:  # the thread that serves the next one, too
        for _ in range(2):
            call = pool.submit(pay, "bob")
            (request,) = waiting_in(world.store)
            review.approve(request.id)
            call.result(30)
    assert ran == ["bob", "bob"]
