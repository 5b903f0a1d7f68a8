"""Whether a worker still lives: the one question on which `unknown` depends."""

import os
import signal
import subprocess
import sys

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
    host, boot, namespace, pid, _ = worker.current().split("/")
    assert worker.is_gone(f"{host}/{boot}/{namespace}/{pid}/1")


def test_worker_of_an_earlier_boot_is_gone() -> None:
    host, _, namespace, pid, started = worker.current().split("/")
    assert worker.is_gone(f"{host}/an-earlier-boot/{namespace}/{pid}/{started}")


def test_nothing_is_concluded_about_another_host_or_namespace_or_a_malformed_name() -> None:
    host, boot, namespace, _, _ = worker.current().split("/")
    malformed = ("nonsense", f"{host}/{boot}/{namespace}/x/1")
    for foreign in (f"other/{boot}/{namespace}/1/1", f"{host}/{boot}/4711/999999/1", *malformed):
        assert not worker.is_gone(foreign), foreign
