"""Real processes whose end others must tell: one that became another program, and one of another time namespace."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import sayso
from sayso.model.request import State
from sayso.stores.base import Store
from tests.support.acting import program, running

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
