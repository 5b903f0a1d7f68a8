"""Whether a worker still lives: the one question on which `unknown` depends."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

from sayso.stores import processes
from sayso.stores.processes import _Worker

PRINT_NAME = (
    "from sayso.stores import processes as worker; print(worker.current(), flush=True); import sys; sys.stdin.read()"
)


def start() -> tuple[subprocess.Popen[str], str]:
    command = [sys.executable, "-c", PRINT_NAME]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    return child, child.stdout.readline().strip()


def test_this_process_is_not_gone() -> None:
    assert not processes.is_gone(processes.current())


def test_another_process_is_gone_only_after_its_end() -> None:
    child, name = start()
    assert not processes.is_gone(name)
    child.communicate()
    assert processes.is_gone(name)


def test_killed_process_is_gone_before_anybody_reaps_it() -> None:
    child, name = start()
    os.kill(child.pid, signal.SIGKILL)
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # it has ended, and stays a zombie
    try:
        assert processes.is_gone(name)
    finally:
        child.communicate()


def test_process_number_given_out_again_is_not_taken_for_the_dead_worker() -> None:
    me = _Worker(*processes.current().split("/"))
    assert processes.is_gone("/".join(me._replace(started="1")))
    assert processes.is_gone("/".join(me._replace(program="another")))
    assert not processes.is_gone("/".join(me._replace(started="1", time_namespace="1")))


# A process that tells its name, runs itself anew, and says of others whether they are gone.
ANSWERS = """
import os, sys
from sayso.stores import processes as worker
print(worker.current(), flush=True)
while line := os.read(0, 1000).decode().strip():
    if line == "again":
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])
    print(worker.is_gone(line), flush=True)
"""


class Other:
    """Another process, which answers."""

    def __init__(self, child: "subprocess.Popen[str]") -> None:
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
        assert not processes.is_gone(before)
        after = child.asked("again")
        assert after.split("/")[:6] == before.split("/")[:6]
        assert processes.is_gone(before)
        assert child.asked(before) == "True"
        assert not processes.is_gone(after)
        assert child.asked(after) == "False"


def test_process_of_another_time_namespace_lives_until_it_ends() -> None:
    with other(*needs_unshare("--fork", "--time", "--boottime", "100000")) as child:
        assert not processes.is_gone(child.name)
        assert child.asked(processes.current()) == "False"
        ended = child.name
    assert processes.is_gone(ended)


def test_process_of_a_namespace_that_has_no_proc_of_its_own_lives() -> None:
    starts_one = f"""
import subprocess, sys
from sayso.stores import processes as worker
child = subprocess.Popen([sys.executable, "-c", {ANSWERS!r}], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
child.stdout.readline()
child.stdin.write(worker.current())
child.stdin.close()
print(child.stdout.readline(), flush=True)
sys.stdin.read()
"""
    with other(*needs_unshare("--fork", "--pid"), program=starts_one) as child:
        assert child.name == "False"


MACHINE = f"host/boot-2/{processes._OUTERMOST}/{processes._OUTERMOST}/4711/99/program/machine-1/30"


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
    monkeypatch.setattr(processes, "current", lambda: mine)
    assert processes.is_gone(theirs) is gone


def test_container_of_the_same_name_on_another_kernel_is_not_taken_for_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Images often share a machine id, compose files a host name, and namespaces a number."""
    container = MACHINE.replace(processes._OUTERMOST, "4026532741")
    monkeypatch.setattr(processes, "current", lambda: container)
    assert not processes.is_gone(container.replace("boot-2", "boot-1"))


def test_nothing_is_concluded_about_another_host_or_namespace_or_a_malformed_name() -> None:
    me = _Worker(
        *processes.current().split("/"),
    )
    gone = me._replace(pid="999999999")
    assert processes.is_gone("/".join(gone))
    malformed = ("nonsense", "/".join(gone._replace(pid="x")), "/".join(gone[:-1]))
    foreign = ("/".join(gone._replace(host="other")), "/".join(gone._replace(pid_namespace="4711")))
    for name in (*malformed, *foreign):
        assert not processes.is_gone(name), name
