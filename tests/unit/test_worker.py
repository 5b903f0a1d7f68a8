"""Whether a worker still lives: the one question on which `unknown` depends."""

import os
import signal
import subprocess
import sys

import pytest

from sayso.stores import worker

PRINT_NAME = "from sayso.stores import worker; print(worker.current(), flush=True); import sys; sys.stdin.read()"


def start() -> tuple[subprocess.Popen[str], str]:
    command = [sys.executable, "-c", PRINT_NAME]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    return child, child.stdout.readline().strip()


def test_this_process_is_not_gone() -> None:
    assert not worker.is_gone(worker.current())


def test_another_process_is_gone_only_after_its_end() -> None:
    child, name = start()
    assert not worker.is_gone(name)
    child.communicate()
    assert worker.is_gone(name)


def test_killed_process_is_gone_before_anybody_reaps_it() -> None:
    child, name = start()
    os.kill(child.pid, signal.SIGKILL)
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # it has ended, and stays a zombie
    try:
        assert worker.is_gone(name)
    finally:
        child.communicate()


def test_process_number_given_out_again_is_not_taken_for_the_dead_worker() -> None:
    host, boot, namespace, pid, _, machine = worker.current().split("/")
    assert worker.is_gone(f"{host}/{boot}/{namespace}/{pid}/1/{machine}")


MACHINE = f"host/boot-2/{worker._OUTERMOST}/4711/99/machine-1"


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
    monkeypatch.setattr(worker, "current", lambda: mine)
    assert worker.is_gone(theirs) is gone


def test_container_of_the_same_name_on_another_kernel_is_not_taken_for_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Images often share a machine id, compose files a host name, and namespaces a number."""
    container = MACHINE.replace(worker._OUTERMOST, "4026532741")
    monkeypatch.setattr(worker, "current", lambda: container)
    assert not worker.is_gone(container.replace("boot-2", "boot-1"))


def test_nothing_is_concluded_about_another_host_or_namespace_or_a_malformed_name() -> None:
    host, boot, namespace, _, _, machine = worker.current().split("/")
    malformed = ("nonsense", f"{host}/{boot}/{namespace}/x/1/{machine}", f"{host}/{boot}/{namespace}/999999/1")
    for foreign in (f"other/{boot}/{namespace}/1/1/{machine}", f"{host}/{boot}/4711/999999/1/{machine}", *malformed):
        assert not worker.is_gone(foreign), foreign
