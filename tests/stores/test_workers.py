"""The processes that share a store: who has a run or a call in hand, and whether that process still lives."""

from __future__ import annotations

import ctypes
import gc
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest

import sayso
from sayso import errors
from sayso.model.request import State
from sayso.model.run import RunRecord, RunState, RunUpdate, Step
from sayso.stores import workers
from sayso.stores.base import Store
from sayso.stores.memory import MemoryStore
from sayso.stores.sqlite import SqliteStore
from sayso.stores.workers import Lease, _program, _started, _Worker, is_free, may_take
from sayso.testing import sample_call
from tests.support.acting import program, running


def test_what_nobody_holds_is_free() -> None:
    assert is_free(None)


def test_a_lease_holds_as_long_as_its_object_lives() -> None:
    lease = Lease()
    holder = lease.holder
    assert not is_free(holder)
    del lease
    gc.collect()
    assert is_free(holder)


def test_a_released_lease_is_free_at_once() -> None:
    lease = Lease()
    lease.release()
    lease.release()
    assert is_free(lease.holder)


def test_two_leases_of_one_process_are_two() -> None:
    one, other = Lease(), Lease()
    one.release()
    assert one.holder != other.holder
    assert is_free(one.holder)
    assert not is_free(other.holder)


def test_a_lease_of_another_process_is_free_when_that_has_surely_ended() -> None:
    with patch.object(workers, "current", return_value="host/boot/space/1/1"):
        lease = Lease()
    lease.release()  # there is nothing in this process's memory to go by
    assert lease.holder.startswith("host/boot/space/1/1#")
    assert not is_free(lease.holder)
    with patch.object(workers, "is_gone", side_effect=lambda name: name == "host/boot/space/1/1"):
        assert is_free(lease.holder)


def test_a_holder_that_nobody_writes_is_not_free() -> None:
    for text in ("", "x", "#", "a#b", "host/boot/space/1/1"):
        assert not is_free(text)


def test_a_holder_that_can_be_observed_keeps_its_run_however_long_it_says_nothing() -> None:
    mine = _Worker(*workers.current().split("/"))
    parent = mine._replace(pid=str(os.getppid()), started=_started(os.getppid()), program=_program(os.getppid()))
    began = datetime(2026, 1, 1, tzinfo=UTC)
    asked_at = {name: began + timedelta(seconds=seconds) for name, seconds in (("early", 44), ("late", 45))}
    taken = {
        (name, when): may_take("/".join(holder) + "#token", began, at)
        for name, holder in {
            "here": parent,
            "here, under another name": parent._replace(host="renamed"),
            "another machine": parent._replace(host="far", boot="far"),
            "another boot": parent._replace(boot="before", machine="another"),
            "another container": parent._replace(pid_namespace="1"),
            "without a lease": parent._replace(host="far", boot="far", lease=""),
            "ended, under another name": parent._replace(host="renamed", pid="999999999"),
        }.items()
        for when, at in asked_at.items()
    }
    assert [which for which, is_free_now in taken.items() if is_free_now] == [
        ("another machine", "late"), ("another boot", "late"), ("another container", "late"),
        ("ended, under another name", "late"),
    ]  # fmt: skip


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_lease_stays_its_parents_in_a_forked_child() -> None:
    lease = Lease()
    child = os.fork()
    if child == 0:
        os._exit(0 if not is_free(lease.holder) and Lease().holder.partition("#")[0] != lease.holder.partition("#")[0]
                 else 1)  # fmt: skip
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


# -- how a process keeps the leases of what it runs --------------------------------------------------------------------


def test_a_start_is_held_until_its_end_is_recorded(file_store: Store) -> None:
    held: list[list[str]] = []

    @sayso.gate(wait="raise")
    def pay(amount: int) -> str:
        held.append([one.id for one in workers._keepers[file_store].held.values()])
        return f"paid {amount}"

    with pytest.raises(sayso.ConfirmationRequired) as asked:
        pay(1)
    sayso.Review(reviewer="ada").approve(asked.value.confirmation_id)
    pay(1)
    assert held == [[asked.value.confirmation_id]]
    assert workers._keepers[file_store].held == {}


def test_a_short_call_writes_nothing_for_its_lease(file_store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    verbs: list[str] = []
    transact = type(file_store)._transact

    def counted(self: Store, work: Any, *args: Any, **options: Any) -> Any:
        verbs.append(work.__name__)
        return transact(self, work, *args, **options)

    monkeypatch.setattr(type(file_store), "_transact", counted)

    @sayso.gate(wait="raise")
    def pay(amount: int) -> str:
        return f"paid {amount}"

    with pytest.raises(sayso.ConfirmationRequired) as held:
        pay(1)
    sayso.Review(reviewer="ada").approve(held.value.confirmation_id)
    verbs.clear()
    assert pay(1) == "paid 1"
    assert verbs == ["_started", "_finished"]
    assert file_store.records("lease") == []


def test_a_renewal_that_fails_is_tried_again_and_told_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = MemoryStore()
    keeper = workers._Keeper(store)
    held = workers._Held("rq_1", 0.0)
    keeper.held["token"] = held

    def away(*_: object) -> list[str]:
        raise errors.StoreUnavailableError("away")

    monkeypatch.setattr(store, "renew", away, raising=False)
    for now in (100.0, 200.0):
        keeper._renew({"token": held}, now)
        assert held.due < now + keeper._half / 2
    assert [record.message.count("away") for record in caplog.records] == [1]

    monkeypatch.setattr(store, "renew", lambda *_: [], raising=False)
    keeper._renew({"token": held}, 300.0)
    assert held.due == 300.0 + keeper._half

    monkeypatch.setattr(store, "renew", lambda *_: ["rq_1"], raising=False)
    keeper._renew({"token": held}, 400.0)
    assert keeper.held == {}
    assert "was lost" in caplog.records[-1].message


def test_a_failing_log_handler_does_not_end_the_renewals(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object, **__: object) -> None:
        raise OSError("the log server is away")

    store = MemoryStore()
    keeper = workers._Keeper(store)
    keeper.held |= {"token": workers._Held("rq_1", 0.0), "other": workers._Held("rq_2", 0.0)}
    monkeypatch.setattr(workers._log, "handle", fails)
    monkeypatch.setattr(store, "renew", fails, raising=False)
    keeper._renew(dict(keeper.held), 100.0)
    assert [held.due for held in keeper.held.values()] == [100.0 + keeper._half / 8] * 2
    monkeypatch.setattr(store, "renew", lambda *_: ["rq_1"], raising=False)
    keeper._renew(dict(keeper.held), 200.0)
    assert [(held.id, held.due) for held in keeper.held.values()] == [("rq_2", 200.0 + keeper._half)]


def test_a_lease_is_as_long_as_its_worker_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAYSO_LEASE", "2m")
    workers._named.cache_clear()
    try:
        assert str(workers.lease_of(workers.current())) == "0:02:00"
        assert workers.lease_of(f"{workers.current()}#token") == workers.lease_of(workers.current())
        assert workers.lease_of(workers.named(os.getppid())) is None
        for name in (None, "", "aap:shop", "host/boot/1/1", "////////x", "////////nan"):
            assert workers.lease_of(name) is None
        for text in ("0", "1ms", "2d", "soon"):
            monkeypatch.setenv("SAYSO_LEASE", text)
            workers._named.cache_clear()
            with pytest.raises(errors.ConfigError, match="SAYSO_LEASE"):
                workers.current()
    finally:
        monkeypatch.undo()
        workers._named.cache_clear()


# -- whether a worker still lives: the one question on which `unknown` depends -----------------------------------------


PRINT_NAME = (
    "from sayso.stores import workers as worker; print(worker.current(), flush=True); import sys; sys.stdin.read()"
)


def start() -> tuple[subprocess.Popen[str], str]:
    command = [sys.executable, "-c", PRINT_NAME]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    return child, child.stdout.readline().strip()


def test_this_process_is_not_gone() -> None:
    assert not workers.is_gone(workers.current())


def test_another_process_is_gone_only_after_its_end() -> None:
    child, name = start()
    assert not workers.is_gone(name)
    child.communicate()
    assert workers.is_gone(name)


def test_killed_process_is_gone_before_anybody_reaps_it() -> None:
    child, name = start()
    os.kill(child.pid, signal.SIGKILL)
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # it has ended, and stays a zombie
    try:
        assert workers.is_gone(name)
    finally:
        child.communicate()


def test_process_number_given_out_again_is_not_taken_for_the_dead_worker() -> None:
    me = _Worker(*workers.current().split("/"))
    assert workers.is_gone("/".join(me._replace(started="1")))
    assert workers.is_gone("/".join(me._replace(program="another")))
    assert not workers.is_gone("/".join(me._replace(started="1", time_namespace="1")))


# A process that tells its name, runs itself anew, and says of others whether they are gone.
ANSWERS = """
import os, sys
from sayso.stores import workers as worker
print(worker.current(), flush=True)
while line := os.read(0, 1000).decode().strip():
    if line == "again":
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])
    print(worker.is_gone(line), flush=True)
"""


class Other:
    """Another process, which answers."""

    def __init__(self, child: subprocess.Popen[str]) -> None:
        self._child = child
        self.name = self.hears()

    def hears(self) -> str:
        assert self._child.stdout is not None
        return self._child.stdout.readline().strip()

    def asked(self, line: str) -> str:
        assert self._child.stdin is not None
        self._child.stdin.write(line)
        self._child.stdin.flush()
        return self.hears()


@contextmanager
def other(*before: str, program: str = ANSWERS) -> Iterator[Other]:
    command = [*before, sys.executable, "-c", program]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        yield Other(child)
        child.communicate()


def needs_unshare(*options: str) -> Sequence[str]:
    """Return the command that runs another one in new namespaces; skip the test where that is forbidden."""
    command = [shutil.which("unshare") or "", *options]
    if not command[0]:
        pytest.skip("there is no unshare")
    tried = subprocess.run([*command, "true"], capture_output=True, text=True, check=False)
    if tried.returncode != 0:
        pytest.skip(f"the kernel makes no namespaces for this user: {tried.stderr.strip()}")
    return command


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells one program in a process from the next")
def test_program_that_was_replaced_in_its_process_is_gone() -> None:
    with other() as child:
        before = child.name
        assert not workers.is_gone(before)
        after = child.asked("again")
        assert after.split("/")[:6] == before.split("/")[:6]
        assert workers.is_gone(before)
        assert child.asked(before) == "True"
        assert not workers.is_gone(after)
        assert child.asked(after) == "False"


def test_process_of_another_time_namespace_lives_until_it_ends() -> None:
    with other(*needs_unshare("--fork", "--time", "--boottime", "100000")) as child:
        assert not workers.is_gone(child.name)
        assert child.asked(workers.current()) == "False"
        ended = child.name
    assert workers.is_gone(ended)


def test_process_of_a_namespace_that_has_no_proc_of_its_own_lives() -> None:
    starts_one = f"""
import subprocess, sys
from sayso.stores import workers as worker
child = subprocess.Popen([sys.executable, "-c", {ANSWERS!r}], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
child.stdout.readline()
child.stdin.write(worker.current())
child.stdin.close()
print(child.stdout.readline(), flush=True)
sys.stdin.read()
"""
    with other(*needs_unshare("--fork", "--pid"), program=starts_one) as child:
        assert child.name == "False"


MACHINE = f"host/boot-2/{workers._OUTERMOST}/{workers._OUTERMOST}/4711/99/program/machine-1/30"


@pytest.mark.parametrize(
    ("mine", "theirs", "gone"),
    [
        (MACHINE, MACHINE.replace("boot-2", "boot-1"), True),
        (MACHINE, MACHINE.replace("boot-2", "boot-1").replace("/4711/", "/1/"), True),
        (MACHINE, MACHINE.replace("boot-2", "boot-1").replace("machine-1", "machine-2"), False),
        (MACHINE, MACHINE.replace("boot-2", "boot-1").replace("machine-1", ""), False),
        (MACHINE.replace("machine-1", ""), MACHINE.replace("boot-2", "boot-1").replace("machine-1", ""), False),
        (MACHINE, MACHINE.replace("boot-2", "boot-1").replace("host/", "another/"), False),
        (MACHINE, MACHINE.replace("boot-2", ""), False),
    ],
)
def test_worker_of_an_earlier_boot_is_gone_where_it_is_surely_the_same_machine(
    monkeypatch: pytest.MonkeyPatch, mine: str, theirs: str, gone: bool
) -> None:
    monkeypatch.setattr(workers, "current", lambda: mine)
    assert workers.is_gone(theirs) is gone


def test_container_of_the_same_name_on_another_kernel_is_not_taken_for_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Images often share a machine id, compose files a host name, and namespaces a number."""
    container = MACHINE.replace(workers._OUTERMOST, "4026532741")
    monkeypatch.setattr(workers, "current", lambda: container)
    assert not workers.is_gone(container.replace("boot-2", "boot-1"))


@pytest.mark.parametrize("unknown", ["boot", "pid_namespace"])
def test_where_the_system_does_not_tell_which_machine_it_is_only_the_lease_decides(
    monkeypatch: pytest.MonkeyPatch, unknown: str
) -> None:
    """Two machines, or two containers, can have the same name."""
    if unknown == "pid_namespace" and sys.platform != "linux":
        pytest.skip("only Linux has namespaces")
    mine = _Worker(*workers.current().split("/"))._replace(**{unknown: ""})
    monkeypatch.setattr(workers, "current", lambda: "/".join(mine))
    began = datetime(2026, 1, 1, tzinfo=UTC)
    for other in (mine._replace(pid="999999999"), mine._replace(pid=str(os.getppid()), started="", program="")):
        name = "/".join(other)
        assert not workers.is_gone(name)
        assert workers.running_at("rq_1", name) is None
        assert not may_take(f"{name}#token", began, began + timedelta(seconds=44))
        assert may_take(f"{name}#token", began, began + timedelta(seconds=45))


def test_a_mac_has_its_boot_id_from_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    def sysctlbyname(name: bytes, text: Any, size: Any, *_: object) -> int:
        assert name == b"kern.bootsessionuuid"
        text.value, size._obj.value = b"5E6FFEBE-0000", 37
        return 0

    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(ctypes, "CDLL", lambda _: SimpleNamespace(sysctlbyname=sysctlbyname))
    assert workers._boot_id() == "5E6FFEBE-0000"
    monkeypatch.setattr(ctypes, "CDLL", lambda _: SimpleNamespace(sysctlbyname=lambda *_: -1))
    assert workers._boot_id() == ""
    monkeypatch.setattr(ctypes, "CDLL", lambda _: SimpleNamespace())
    assert workers._boot_id() == ""


@pytest.mark.skipif(sys.platform not in {"darwin", "linux"}, reason="other systems do not tell")
def test_this_machine_tells_its_boot_id() -> None:
    assert len(workers._boot_id()) == 36


def test_nothing_is_concluded_about_another_host_or_namespace_or_a_malformed_name() -> None:
    me = _Worker(
        *workers.current().split("/"),
    )
    gone = me._replace(pid="999999999")
    assert workers.is_gone("/".join(gone))
    malformed = ["nonsense", "/".join(gone[:-1])]
    malformed += [
        "/".join(gone._replace(pid=pid)) for pid in ("", "0", "-1", "x", "\u00b2", "9" * 10, "9" * 20, "9" * 500)
    ]
    foreign = ("/".join(gone._replace(host="other")), "/".join(gone._replace(pid_namespace="4711")))
    for name in (*malformed, *foreign):
        assert not workers.is_gone(name), name


# -- one that became another program, and one of another time namespace ------------------------------------------------


SHIP = """
import os, sys, sayso


@sayso.gate(wait="raise", idempotent="idempotent" in sys.argv)
def ship(order):
    with open("shipped.txt", "a") as ledger:
        ledger.write(f"{order}\\n")
    if "replace" in sys.argv:
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])
    if "stay" in sys.argv:
        print("inside", flush=True)
        sys.stdin.read()


with sayso.run("order-4721"):
    try:
        print(ship("4721"))
    except sayso.ConfirmationRequired as held:
        print(held.confirmation_id)
    except sayso.SaysoError as error:
        print(type(error).__name__)
"""


def shipped(place: Path) -> int:
    return len((place / "shipped.txt").read_text().splitlines())


def approved(store: Store, *args: str) -> str:
    request_id = running(program(SHIP, *args, SAYSO_STORE=store.url))
    sayso.Review().approve(request_id, by="ada")
    return request_id


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells one program in a process from the next")
def test_call_whose_process_became_another_program_is_unknown(place: Path, file_store: Store) -> None:
    request_id = approved(file_store, "replace")
    # The same program begins again in the same process, and makes the same call.
    assert running(program(SHIP, "replace", SAYSO_STORE=file_store.url)) == "OutcomeUnknownError"
    assert sayso.Review().get(request_id).state is State.UNKNOWN
    assert shipped(place) == 1


def test_live_call_of_another_time_namespace_is_not_made_again(place: Path, file_store: Store) -> None:
    elsewhere = [shutil.which("unshare") or "false", "--fork", "--time", "--boottime", "100000"]
    tried = subprocess.run([*elsewhere, "true"], capture_output=True, text=True, check=False)
    if tried.returncode != 0:
        pytest.skip(f"no time namespace for this user here: {tried.stderr.strip()}")
    request_id = approved(file_store, "idempotent")
    command = [*elsewhere, "env", f"SAYSO_STORE={file_store.url}", sys.executable, "-c", SHIP, "idempotent", "stay"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "inside\n"
        assert running(program(SHIP, "idempotent", SAYSO_STORE=file_store.url)) == "AlreadyStartedError"
        assert sayso.Review().get(request_id).state is State.RUNNING
        assert other.communicate()[0] == "None\n"
    assert sayso.Review().get(request_id).state is State.DONE
    assert shipped(place) == 1


@pytest.mark.parametrize(
    "alteration",
    ["UPDATE run SET name = 'x' WHERE run_id = 'run_0'", "UPDATE request SET progress = 'x' WHERE run_id = 'run_0'"],
    ids=["a run", "a request"],
)
def test_a_row_that_was_altered_costs_no_other_its_lease(tmp_path: Path, alteration: str) -> None:
    path = tmp_path / "sayso.db"
    with closing(SqliteStore(path)) as store:
        now, lease = store.now(), Lease()
        requests = [store.ask(sample_call(f"run_{n}")) for n in range(2)]
        runs = [RunRecord(f"run_{n}", "agent", "agent", RunState.RUNNING, lease.holder, now, now) for n in range(2)]
        for run, request in zip(runs, requests, strict=True):
            store.save_run(RunUpdate(run, [Step("/", "{}")]))
            sayso.Review(store, reviewer="ada").approve(request.id)
            store.start(request.id, "token")
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute(alteration)
        with closing(SqliteStore(path)) as elsewhere:
            starts = [(request.id, "token") for request in requests]
            assert elsewhere.renew(starts, [(run.id, lease.holder) for run in runs]) == []
            assert elsewhere.get_run("run_1").run.updated_at > now
            assert elsewhere.record("lease", requests[1].id) is not None
