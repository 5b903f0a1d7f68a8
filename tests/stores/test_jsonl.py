"""The JSON-lines store beyond the contract: its file, its lock, and what a crash, a hand or a full disk does to it.

What every store must do is in `sayso.testing.StoreContract`.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import sayso
from sayso import audit, clock, config, errors
from sayso.model.lifecycle import Outcome
from sayso.model.request import State
from sayso.model.run import RunRecord, RunState, RunUpdate, Step
from sayso.stores import jsonl_file
from sayso.stores.base import Filter
from sayso.stores.jsonl import JsonlStore
from sayso.stores.jsonl_file import Lines
from sayso.stores.workers import Lease
from sayso.testing import sample_call
from sayso.testing.scene import Scene, refusal
from tests.stores.test_contract import KEY

fcntl = pytest.importorskip("fcntl")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "requests.jsonl"


@pytest.fixture
def scene(path: Path) -> Iterator[Scene]:
    class Here(Scene):
        def make_store(self) -> JsonlStore:
            return JsonlStore(path)

    here = Here()
    here.setup_method()
    yield here
    here.teardown_method()


def live(scene: Scene, n: int = 0) -> str:
    """Let a request go through its life: four lines."""
    request = scene.decide("approve", scene.store.ask(sample_call(f"run_{n}")))
    scene.store.start(request.id, "t")
    return scene.store.finish(request.id, "t", Outcome("done")).id


def ids_in(path: Path) -> list[str]:
    """Return what another process finds there."""
    return [request.id for request in JsonlStore(path).list(Filter(), limit=1000).requests]


# -- addresses -----------------------------------------------------------------------------------------------------


def test_an_address_names_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for address in ("jsonl:a.jsonl", f"jsonl:{tmp_path}/a.jsonl", f"jsonl://{tmp_path}/a.jsonl"):
        store = config.open_store(address)
        assert isinstance(store, JsonlStore)
        assert store.url == f"jsonl:{tmp_path}/a.jsonl"
        assert store is config.open_store(store.url)
    refusal(errors.ConfigError, lambda: config.open_store("jsonl:"))


def test_an_address_in_the_settings_file_is_meant_from_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sayso.toml").write_text('store = "jsonl:state/a.jsonl"\n')
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path / "below")
    monkeypatch.delenv("SAYSO_STORE", raising=False)
    assert config.address_nearby() == f"jsonl:{tmp_path}/state/a.jsonl"
    monkeypatch.setenv("SAYSO_STORE", "jsonl:b.jsonl")
    assert config.address_nearby() == f"jsonl:{tmp_path}/below/b.jsonl"


# -- the file ------------------------------------------------------------------------------------------------------


def test_only_its_owner_can_read_the_file_and_the_lock(path: Path) -> None:
    before = os.umask(0)
    try:
        JsonlStore(path).ask(sample_call())
    finally:
        os.umask(before)
    found = {entry.name: stat.S_IMODE(entry.stat().st_mode) for entry in path.parent.iterdir()}
    assert found == {"requests.jsonl": 0o600, "requests.jsonl.lock": 0o600}
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_who_only_reads_makes_no_file_and_no_folder(path: Path) -> None:
    store = JsonlStore(path)
    store.sweep()
    assert (store.journal(), store.list(Filter()).requests, store.count(Filter())) == ([], (), 0)
    assert not path.parent.exists()
    store.ask(sample_call("run_1"))
    assert len(store.journal()) == 1
    store.close()


def test_each_transaction_is_one_line_to_read(scene: Scene, path: Path) -> None:
    request_id = live(scene)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert len(lines) == 1 + 4
    assert lines[0]["kind"] == "sayso.jsonl"
    assert [line["journal"][0][4] for line in lines[1:]] == ["asked", "approved", "started", "done"]
    assert all(request_id in json.dumps(line) for line in lines[1:])


def test_a_refused_verb_writes_nothing(scene: Scene, path: Path) -> None:
    request_id = live(scene)
    before = path.read_bytes()
    refusal(errors.StartRefusedError, lambda: scene.store.start(request_id, "u"))
    scene.store.settle(request_id)
    assert path.read_bytes() == before


def test_a_line_is_as_long_however_long_the_file_is(scene: Scene, path: Path) -> None:
    run = RunRecord("run_x", "agent", "agent", RunState.RUNNING, Lease().holder, scene.clock(), scene.clock())

    def grown(work: Callable[[], object]) -> int:
        before = path.stat().st_size if path.exists() else 0
        work()
        return path.stat().st_size - before

    live(scene)
    early = [grown(lambda: live(scene)), grown(lambda: scene.store.save_run(RunUpdate(run, [Step("/", "{}")])))]
    early[1] = grown(lambda: scene.store.save_run(RunUpdate(run, [Step("/1", "{}")])))
    for n in range(200):
        live(scene, n)
        scene.store.save_run(RunUpdate(run, [Step(f"/{n}", "{}")]))
    late = [grown(lambda: live(scene)), grown(lambda: scene.store.save_run(RunUpdate(run, [Step("/1", "{}")])))]
    assert abs(early[0] - late[0]) < 50
    assert abs(early[1] - late[1]) < 10


def test_a_verb_reads_only_what_was_appended(scene: Scene, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for n in range(20):
        live(scene, n)
    other, read = JsonlStore(path), list[int]()
    real = os.pread
    monkeypatch.setattr(jsonl_file.os, "pread", lambda fd, n, at: read.append(at) or real(fd, n, at))
    assert other.count(Filter()) == 20
    size = path.stat().st_size
    read.clear()
    scene.ask()
    assert other.count(Filter()) == 21
    assert read
    assert min(read) >= size - 50  # and the end of the last line, which must still stand there


def test_a_key_seals_everything_that_is_said(path: Path) -> None:
    store = JsonlStore(path, key=KEY)
    request = store.ask(sample_call(arguments={"amount": 1, "to": "canary-to"}, prompt="canary-prompt"))
    lease, now = Lease(), sayso.Review(store, reviewer="ada").approve(request.id, comment="canary-said").created_at
    store.start(request.id, "t")
    store.finish(request.id, "t", Outcome("done", result='{"result":"canary-result"}'))
    run = RunRecord("run_x", "agent", "agent", RunState.RUNNING, lease.holder, now, now)
    store.save_run(RunUpdate(run, [Step("/", '{"value":"canary-step"}')]))
    assert b"canary" not in path.read_bytes()
    assert JsonlStore(path, key=KEY).get_run("run_x").steps[0].body == '{"value":"canary-step"}'
    for verb in (lambda: JsonlStore(path).get_run("run_x"), lambda: JsonlStore(path).get(request.id)):
        refusal(errors.StoreSealedError, verb)
    assert audit.verify(JsonlStore(path)).broken == ()


@pytest.mark.parametrize(("column", "given"), [(0, "run_y"), (2, "/b"), (3, "{}")])
def test_a_sealed_step_can_be_moved_nowhere_even_where_the_links_are_made_anew(
    path: Path, column: int, given: str
) -> None:
    store, now = JsonlStore(path, key=KEY), clock.now()
    for run_id, steps in (("run_x", [Step("/a", '{"value":1}')]), ("run_y", [])):
        run = RunRecord(run_id, "agent", "agent", RunState.RUNNING, Lease().holder, now, now)
        store.save_run(RunUpdate(run, steps))
    first, *others = path.read_bytes().splitlines(keepends=True)
    lines, text = Lines(path.name).first(), first
    for line in others:
        record = json.loads(line)
        del record["link"]
        for step in record.get("steps", ()):
            step[column] = given
        more, lines = lines.written(record)
        text += more
    assert text.count(b"\n") == len(path.read_bytes().splitlines())
    path.write_bytes(text)
    moved = JsonlStore(path, key=KEY)
    refusal(errors.StoreSealedError, lambda: [moved.get_run(run_id) for run_id in ("run_x", "run_y")])


# -- what a crash leaves -------------------------------------------------------------------------------------------


def test_a_torn_last_line_does_not_count_and_is_cut_off_wherever_it_was_torn(
    scene: Scene, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    live(scene)
    whole = path.read_bytes()
    request = scene.ask()
    torn = path.read_bytes()[len(whole) :]
    caplog.set_level(logging.WARNING, "sayso")
    for cut in [*range(1, len(torn), 97), len(torn) - 1]:
        path.write_bytes(whole + torn[:cut])
        caplog.clear()
        store = JsonlStore(path)
        refusal(errors.RequestNotFoundError, lambda store=store: store.get(request.id))
        assert [record.message.count("line 6 is incomplete") for record in caplog.records] == [1]
        assert path.read_bytes() == whole + torn[:cut]  # who only reads cuts nothing off
        asked = store.ask(sample_call())
        assert "they are removed" in caplog.records[-1].message
        assert path.read_bytes().startswith(whole + b'{"')
        assert ids_in(path)[1:] == [asked.id]
        store.close()


def test_a_last_line_whose_beginning_was_lost_is_torn_as_well(scene: Scene, path: Path) -> None:
    live(scene)
    whole = path.read_bytes()
    scene.store.ask(sample_call(arguments={"to": "x" * 9000}))  # longer than what is written over it
    torn = path.read_bytes()[len(whole) :]
    for lost in (b"\0" * len(torn), b"\0" * 300 + torn[300:], torn[:200] + b"\0" * 100 + torn[300:]):
        path.write_bytes(whole + lost)
        store = JsonlStore(path)
        assert store.count(Filter()) == 1
        asked = store.ask(sample_call())
        assert ids_in(path)[1:] == [asked.id]
        store.close()


def test_a_torn_first_line_is_a_new_store(path: Path) -> None:
    JsonlStore(path).ask(sample_call())
    first = path.read_bytes().splitlines(keepends=True)[0]
    for cut in (0, 1, 20, len(first) - 1):
        path.write_bytes(first[:cut])
        store = JsonlStore(path)
        assert store.count(Filter()) == 0
        asked = store.ask(sample_call())
        assert ids_in(path) == [asked.id]
        store.close()


def test_a_hole_in_what_was_written_first_is_a_new_store(path: Path) -> None:
    JsonlStore(path).ask(sample_call())
    first = path.read_bytes().splitlines(keepends=True)[0]  # on the disk before the second is written
    for begin, size, end in ((0, 20, None), (0, 70, None), (40, 20, 65), (40, 20, None), (0, len(first), None)):
        path.write_bytes((first[:begin] + bytes(size) + first[begin + size :])[:end])
        store = JsonlStore(path)
        assert store.count(Filter()) == 0
        asked = store.ask(sample_call())
        assert ids_in(path) == [asked.id]
        store.close()
    for foreign in (bytes(500), bytes(20) + b"the pictures of somebody else"):
        path.write_bytes(foreign)
        refusal(errors.StoreCorruptError, lambda: JsonlStore(path).count(Filter()))


def test_the_first_line_is_on_the_disk_before_a_second_is_written(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    monkeypatch.setattr(jsonl_file, "_sync", lambda fd: synced.append(os.fstat(fd).st_size))
    JsonlStore(path).ask(sample_call())
    first, second = path.read_bytes().splitlines(keepends=True)
    assert synced == [len(first), len(first) + len(second)]


def test_what_another_process_wrote_is_on_the_disk_before_it_counts(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    reader = JsonlStore(path)
    request = JsonlStore(path).ask(sample_call())  # as by a process that is killed after its write, before its sync
    monkeypatch.setattr(jsonl_file, "_sync", lambda _fd: synced.append("reader"))
    assert reader.get(request.id).id == request.id
    assert synced == ["reader"]
    reader.get(request.id)
    assert synced == ["reader"]  # once for what is new


WRITER = """
import sys
from sayso.stores.jsonl import JsonlStore
from sayso.testing import sample_call
store = JsonlStore(sys.argv[1])
while True:
    print(store.ask(sample_call(arguments={"amount": 1, "to": "x" * 3000})).id, flush=True)
"""


@pytest.mark.slow
def test_what_a_killed_writer_was_told_is_kept(path: Path) -> None:
    told = list[str]()
    for n in range(12):
        writer = subprocess.Popen([sys.executable, "-c", WRITER, path], stdout=subprocess.PIPE, text=True)
        assert writer.stdout is not None
        told += [writer.stdout.readline().strip() for _ in range(1 + n % 4)]
        writer.send_signal(signal.SIGKILL)
        told += writer.stdout.read().split()
        writer.wait()
        writer.stdout.close()
    kept = ids_in(path)
    assert len(told) >= 12
    assert [one for one in kept if one in set(told)] == told
    assert len(kept) <= len(told) + 12
    assert audit.verify(JsonlStore(path)).broken == ()


# -- what a hand does ----------------------------------------------------------------------------------------------


def refused(path: Path, kind: type[errors.StoreError]) -> str:
    """Show that a store on this file refuses to read and to write, and leaves every byte as it was."""
    before = path.read_bytes()
    messages = {str(refusal(kind, lambda: JsonlStore(path).get("rq_x")))}
    messages.add(str(refusal(kind, lambda: JsonlStore(path).ask(sample_call()))))
    assert path.read_bytes() == before
    assert len(messages) == 1
    return messages.pop()


def test_a_line_that_was_changed_moved_or_removed_is_refused_by_its_number(scene: Scene, path: Path) -> None:
    live(scene)
    scene.ask()
    whole = path.read_bytes()
    lines = whole.splitlines(keepends=True)
    for n in range(1, len(lines)):
        place = len(lines[n]) // 2
        flipped = lines[n][:place] + bytes([lines[n][place] ^ 1]) + lines[n][place + 1 :]
        path.write_bytes(b"".join([*lines[:n], flipped, *lines[n + 1 :]]))
        assert f"line {n + 1} " in refused(path, errors.StoreCorruptError)
    for n in range(1, len(lines) - 1):
        path.write_bytes(b"".join([*lines[:n], *lines[n + 1 :]]))
        assert f"line {n + 1} " in refused(path, errors.StoreCorruptError)
        path.write_bytes(b"".join([*lines[: n + 1], *lines[n:]]))
        assert f"line {n + 2} " in refused(path, errors.StoreCorruptError)
    path.write_bytes(whole)
    assert len(ids_in(path)) == 2


def test_a_change_of_lines_that_were_read_already_is_found_when_more_is_read(scene: Scene, path: Path) -> None:
    live(scene)
    other = JsonlStore(path)
    assert other.count(Filter()) == 1
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:2], lines[2].replace(b"approved", b"rejected"), *lines[3:], b"{}\n"]))
    assert "line 3 " in str(refusal(errors.StoreCorruptError, lambda: other.count(Filter())))


@pytest.mark.parametrize(
    "content", [b"a file of notes\n", b"a file of notes", b'{"x": 1}\n{"y": 2}\n', b"[]\n", b"\xff\xfe\n", b"SQLite\0"]
)
def test_a_file_that_is_not_ours_is_refused_and_left_as_it_was(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "notes.txt"
    path.write_bytes(content)
    assert "not a sayso store" in refused(path, errors.StoreCorruptError)


def test_a_newer_format_is_refused_and_left_as_it_was(path: Path) -> None:
    JsonlStore(path).ask(sample_call())
    path.write_bytes(path.read_bytes().replace(b'"version":1', b'"version":2'))
    assert "upgrade sayso" in refused(path, errors.StoreVersionError)


def test_a_newer_line_is_refused_and_left_as_it_was(path: Path) -> None:
    store = JsonlStore(path)
    store.ask(sample_call())
    text, _ = store._file._lines.written({"version": 2, "something": "new"})
    with path.open("ab") as file:
        file.write(text)
    assert "format 2" in refused(path, errors.StoreVersionError)


def test_a_file_that_was_replaced_or_removed_is_read_anew(scene: Scene, path: Path) -> None:
    other, request = JsonlStore(path), scene.ask()
    assert other.get(request.id) == request
    path.rename(path.with_name("old"))
    refusal(errors.RequestNotFoundError, lambda: other.get(request.id))
    refusal(errors.RequestNotFoundError, lambda: scene.decide("approve", request))
    asked = [scene.ask().id, other.ask(sample_call()).id]
    assert ids_in(path) == asked
    path.with_name("old").rename(path)
    assert other.get(request.id) == request
    path.write_bytes(b"")
    assert (other.count(Filter()), scene.store.count(Filter())) == (0, 0)


def test_a_lock_that_was_removed_keeps_nobody_apart_and_is_made_anew(scene: Scene, path: Path) -> None:
    other = JsonlStore(path)
    scene.ask()
    other.ask(sample_call())
    lock = path.with_name("requests.jsonl.lock")
    lock.unlink()
    inside = threading.Event()
    with scene.store._file.alone():  # makes the lock anew
        late = threading.Thread(target=lambda: (other.ask(sample_call()), inside.set()))
        late.start()
        assert not inside.wait(0.2)  # it holds a lock on a file that is gone, sees that, and waits
    late.join()
    assert inside.is_set()
    assert lock.exists()


# -- the lock ------------------------------------------------------------------------------------------------------


def test_who_reads_does_not_wait_for_who_writes_and_a_writer_is_told(
    scene: Scene, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = scene.ask()
    with path.with_name("requests.jsonl.lock").open("rb") as theirs:
        fcntl.flock(theirs, fcntl.LOCK_EX)
        assert scene.store.get(request.id) == request  # who waited would be told that it stays locked
        monkeypatch.setattr(jsonl_file, "_BUSY_SECONDS", 0.2)
        refusal(errors.StoreBusyError, scene.ask)
    assert scene.ask().state is State.PENDING


def test_a_forked_child_does_not_take_its_parents_lock_along(scene: Scene, path: Path) -> None:
    scene.ask()
    store = scene.store
    assert isinstance(store, JsonlStore)
    with store._file.alone():
        child = os.fork()
        if child == 0:
            try:
                jsonl_file._BUSY_SECONDS = 0.2
                store.ask(sample_call())  # the parent writes: it must wait, and gives up
            except errors.StoreBusyError:
                os._exit(3)
            finally:
                os._exit(4)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
        with path.with_name("requests.jsonl.lock").open("rb") as theirs, pytest.raises(BlockingIOError):
            fcntl.flock(theirs, fcntl.LOCK_EX | fcntl.LOCK_NB)
    assert scene.ask().state is State.PENDING


def test_a_forked_child_goes_on_by_itself_whatever_was_locked_in_its_parent(scene: Scene, path: Path) -> None:
    scene.ask()
    store = scene.store
    assert isinstance(store, JsonlStore)
    with store._write_lock, store._lock:
        child = os.fork()
        if child == 0:
            signal.alarm(20)
            store.ask(sample_call("run_child"))
            os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert store.count(Filter(run_id="run_child")) == 1
    assert len(ids_in(path)) == 2


# -- no room, no right, no disk ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (errno.ENOSPC, errors.StoreFullError),
        (errno.EDQUOT, errors.StoreFullError),
        (errno.EIO, errors.StoreUnavailableError),
        (errno.EROFS, errors.StoreReadOnlyError),
    ],
)
@pytest.mark.parametrize("when", ["written", "half written", "synced"])
def test_what_could_not_be_written_was_not(
    scene: Scene, path: Path, monkeypatch: pytest.MonkeyPatch, number: int, kind: type[errors.StoreError], when: str
) -> None:
    request, other = scene.ask(), JsonlStore(path)
    before, real, calls = path.read_bytes(), os.pwrite, list[int]()

    def fail(*_: object) -> int:
        raise OSError(number, os.strerror(number))

    def half(fd: int, text: bytes, at: int) -> int:
        calls.append(at)
        return real(fd, text[: len(text) // 2], at) if len(calls) == 1 else fail()

    def full(fd: int) -> None:
        with monkeypatch.context() as reading:
            reading.setattr(jsonl_file, "_sync", os.fsync)  # who reads it syncs it, too
            assert other.count(Filter(states=frozenset({State.APPROVED}))) == 1  # somebody has read it by then
        fail()

    with monkeypatch.context() as broken:
        if when == "synced":
            broken.setattr(jsonl_file, "_sync", full)
        else:
            broken.setattr(jsonl_file.os, "pwrite", fail if when == "written" else half)
        refusal(kind, lambda: scene.decide("approve", request))
        assert path.read_bytes() == before
    assert scene.store.get(request.id) == other.get(request.id) == request
    assert scene.decide("reject", request).state is other.get(request.id).state is State.REJECTED
    assert audit.verify(other).broken == ()


def test_what_was_read_and_taken_back_is_read_anew_although_something_as_long_stands_there(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, writer, size = JsonlStore(path), JsonlStore(path), list[int]()
    begun = writer.ask(sample_call("run_0")).id

    def fail(_fd: int) -> None:
        with monkeypatch.context() as reading:
            reading.setattr(jsonl_file, "_sync", os.fsync)
            size.append(reader.count(Filter()) and path.stat().st_size)
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as broken:
        broken.setattr(jsonl_file, "_sync", fail)
        refusal(errors.StoreUnavailableError, lambda: writer.ask(sample_call("run_1")))
    first = writer.ask(sample_call("run_2")).id
    assert size == [path.stat().st_size]
    second = reader.ask(sample_call("run_3")).id
    assert ids_in(path) == [begun, first, second]
    assert audit.verify(JsonlStore(path)).broken == ()


def test_a_file_that_may_not_grow_is_refused_and_heals(path: Path) -> None:
    program = f"""
import resource
from sayso import errors
from sayso.stores.jsonl import JsonlStore
from sayso.testing import sample_call
store = JsonlStore({str(path)!r})
soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (32 * 1024, hard))
refused = 0
for n in range(20):
    try:
        print(store.ask(sample_call(arguments={{"amount": n, "to": "x" * 2000}})).id)
    except errors.StoreFullError:
        refused += 1
resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
print(store.ask(sample_call()).id)
print(refused)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    *told, refused_count = done.stdout.split()
    assert int(refused_count) >= 5
    assert ids_in(path) == told


def test_who_is_broken_off_while_writing_finds_what_the_file_says(
    scene: Scene, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = scene.ask()

    def interrupt(_: int) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as broken:
        broken.setattr(jsonl_file, "_sync", interrupt)
        refusal(KeyboardInterrupt, lambda: scene.decide("approve", request))
    assert scene.store.get(request.id).state is State.APPROVED  # it was written, and happened once
    assert scene.events(request) == ["asked", "approved"]
    assert JsonlStore(path).get(request.id) == scene.store.get(request.id)


def test_a_folder_or_a_pipe_in_place_of_the_file_is_refused(tmp_path: Path) -> None:
    refusal(errors.StoreUnavailableError, lambda: JsonlStore(tmp_path).ask(sample_call()))
    os.mkfifo(tmp_path / "pipe")
    refusal(errors.StoreUnavailableError, lambda: JsonlStore(tmp_path / "pipe").ask(sample_call()))
    (tmp_path / "file").touch()
    refusal(errors.StoreUnavailableError, lambda: JsonlStore(tmp_path / "file" / "x").ask(sample_call()))


def test_a_file_that_must_not_be_written_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(*_: object) -> int:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(jsonl_file.os, "open", denied)
    refusal(errors.StoreReadOnlyError, lambda: JsonlStore(path).ask(sample_call()))
    refusal(errors.StoreReadOnlyError, lambda: JsonlStore(path).list(Filter()))
