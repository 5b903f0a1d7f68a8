"""What a program and a person do in these tests, in one word each.

`held` and `aheld` make a call that must wait, `approved` lets a person agree to one, `program` runs another process.
The invariant: none of them passes when the call was not held.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import sayso

__all__ = ["Disk", "aheld", "approved", "concurrently", "held", "program", "running"]


class Disk:
    """Where the effects of a test's calls go, to be counted."""

    def __init__(self) -> None:
        self.deleted: list[str] = []

    def delete(self, path: str = "/tmp/scratch") -> str:
        self.deleted.append(path)
        return f"Deleted {path}"


def held(function: Callable[..., Any], *args: Any, **kwargs: Any) -> sayso.ConfirmationRequired:
    """Make a call that must wait, and return what it raised."""
    with pytest.raises(sayso.ConfirmationRequired) as caught:
        function(*args, **kwargs)
    return caught.value


async def aheld(function: Callable[..., Awaitable[Any]], *args: Any, **kwargs: Any) -> sayso.ConfirmationRequired:
    """Make an async call that must wait, and return what it raised."""
    with pytest.raises(sayso.ConfirmationRequired) as caught:
        await function(*args, **kwargs)
    return caught.value


def approved(function: Callable[..., Any], *args: Any, **kwargs: Any) -> str:
    """Make a call that must wait, let a person agree to it, and return the id of its request."""
    request_id = held(function, *args, **kwargs).confirmation_id
    sayso.Review().approve(request_id, by="ada")
    return request_id


def program(text: str, *args: str, **environment: str) -> subprocess.Popen[str]:
    """Start a program in a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-c", text, *args],
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def running(process: subprocess.Popen[str]) -> str:
    """Wait for a program to end well, and return what it printed."""
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    return out.strip()


def concurrently(count: int, work: Callable[[], Any]) -> list[Any]:
    """Do the same in that many threads at one moment; return what each returned or raised."""
    ready = threading.Barrier(count)
    results: list[Any] = []

    def one() -> None:
        ready.wait(30)
        try:
            results.append(work())
        except Exception as error:  # noqa: BLE001  the test looks at it
            results.append(error)

    threads = [threading.Thread(target=one) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(results) == count
    return results
