"""Who has a run in hand, and when another may take it."""

from __future__ import annotations

import gc
import os
from unittest.mock import patch

import pytest

from sayso.stores import processes
from sayso.stores.processes import Lease, is_free


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
    with patch.object(processes, "current", return_value="host/boot/space/1/1"):
        lease = Lease()
    lease.release()  # there is nothing in this process's memory to go by
    assert lease.holder.startswith("host/boot/space/1/1#")
    assert not is_free(lease.holder)
    with patch.object(processes, "is_gone", side_effect=lambda name: name == "host/boot/space/1/1"):
        assert is_free(lease.holder)


def test_a_holder_that_nobody_writes_is_not_free() -> None:
    for text in ("", "x", "#", "a#b", "host/boot/space/1/1"):
        assert not is_free(text)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_lease_stays_its_parents_in_a_forked_child() -> None:
    lease = Lease()
    child = os.fork()
    if child == 0:
        os._exit(0 if not is_free(lease.holder) and Lease().holder.partition("#")[0] != lease.holder.partition("#")[0]
                 else 1)  # fmt: skip
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
