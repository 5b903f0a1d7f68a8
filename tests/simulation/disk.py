"""A simulated disk below the real JSON-lines file: what was not synced may be lost, in part, when power fails.

`FakeOs` stands for the module `os` in `sayso.stores.jsonl_file`, and pauses at each call that others could see.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.simulation.kernel import Process, World

__all__ = ["Disk", "FakeOs", "SimPath"]


class File:
    """One file: what processes see, what is on the disk, and what was written since."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.data, self.durable = bytearray(), b""
        self.unsynced: list[tuple[int, bytes | None]] = []  # place and bytes; None cuts the file off there
        self.holder: Process | None = None
        self.epoch = 0  # another number after bytes that were seen went away

    def write(self, text: bytes, at: int) -> None:
        """Write into the page cache."""
        self.data[at : at + len(text)] = text
        self.unsynced.append((at, bytes(text)))

    def cut(self, size: int) -> None:
        """Cut the file off."""
        if size < len(self.data):
            self.epoch += 1
        del self.data[size:]
        self.unsynced.append((size, None))

    def sync(self) -> None:
        """Bring all of it onto the disk."""
        self.durable = bytes(self.data)
        self.unsynced.clear()


class Disk:
    """The files of one machine.

    Attributes:
        refuses: How many of the next writes fail because the disk is full.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self.files: dict[str, File] = {}
        self.named: set[str] = set()  # names that survive a power cut
        self.refuses = 0

    def path(self, name: str) -> SimPath:
        """Return a path on this disk."""
        return SimPath(self, name)

    def let_go(self, process: Process) -> None:
        """Release the locks of a process that has ended."""
        for file in self.files.values():
            if file.holder is process:
                file.holder = None

    def lose_power(self) -> None:
        """Keep what was synced, and of the rest as much as chance had written already."""
        rng = self._world.rng
        for name, file in list(self.files.items()):
            file.holder, file.epoch = None, file.epoch + 1
            if name not in self.named and rng.random() < 0.5:
                del self.files[name]
                continue
            kept = bytearray(file.durable)
            for at, text in file.unsynced:
                chance = rng.random()
                if chance < 0.4:
                    break  # nothing of it, nor of what came after
                if text is None:
                    del kept[at:]
                    continue
                if chance < 0.7:
                    kept[at : at + len(text)] = text
                    continue
                half = int(rng.random() * len(text))
                # The size may be on the disk before the bytes are: a hole reads as zeros.
                torn = text[:half] if chance < 0.85 else bytes(half) + text[half:]
                kept[at : at + len(torn)] = torn
                break
            file.data, file.durable = kept, bytes(kept)
            file.unsynced.clear()


class SimPath:
    """What `JsonlFile` asks of a path."""

    def __init__(self, disk: Disk, name: str) -> None:
        self.disk, self.name = disk, name

    def __str__(self) -> str:
        return f"/sim/{self.name}"

    def with_name(self, name: str) -> SimPath:
        """Return its neighbour."""
        return SimPath(self.disk, name)

    @property
    def parent(self) -> SimPath:
        """The folder."""
        return SimPath(self.disk, "")

    def mkdir(self, **_: object) -> None:
        """Be there already."""

    def stat(self) -> os.stat_result:
        """Return number and size."""
        file = self.disk.files.get(self.name)
        if file is None:
            raise FileNotFoundError(errno.ENOENT, "not there", str(self))
        return _stat(file)


def _stat(file: File) -> os.stat_result:
    return os.stat_result((stat.S_IFREG | 0o600, file.number, 1, 1, 0, 0, len(file.data), 0, 0, 0))


class FakeOs:
    """The calls of `os` that the JSON-lines file makes, on simulated disks."""

    O_RDWR, O_CREAT, O_CLOEXEC, O_RDONLY = os.O_RDWR, os.O_CREAT, os.O_CLOEXEC, os.O_RDONLY

    def __init__(self, world: Callable[[], World]) -> None:
        self._world = world
        self._open: dict[int, tuple[Disk, str, File | None]] = {}
        self._last = 100

    def forget(self) -> None:
        """Close all files, also those of processes that were killed: another schedule begins."""
        self._open.clear()

    def open(self, path: SimPath, flags: int, _mode: int = 0) -> int:
        """Open a file, or the folder."""
        disk, file = path.disk, path.disk.files.get(path.name)
        if path.name and file is None:
            if not flags & os.O_CREAT:
                raise FileNotFoundError(errno.ENOENT, "not there", str(path))
            self._world().pause("create")
            file = disk.files.setdefault(path.name, File(len(disk.files) + 1))
        self._last += 1
        self._open[self._last] = disk, path.name, file
        return self._last

    def close(self, fd: int) -> None:
        """Close it."""
        self._open.pop(fd, None)

    def fstat(self, fd: int) -> os.stat_result:
        """Return number and size."""
        return _stat(self._file(fd))

    def pread(self, fd: int, size: int, at: int) -> bytes:
        """Read from the page cache."""
        return bytes(self._file(fd).data[at : at + size])

    def pwrite(self, fd: int, text: bytes, at: int) -> int:
        """Write, perhaps only a part of it: then the caller writes the rest, unless it dies in between."""
        world, file, disk = self._world(), self._file(fd), self._open[fd][0]
        world.pause("write")
        if disk.refuses:
            disk.refuses -= 1
            raise OSError(errno.ENOSPC, "no room")
        part = text
        if world.rng.random() < 0.1 and not world.is_calm:
            part = text[: 1 + int(world.rng.random() * len(text))]
        file.write(part, at)
        world.pause("written")
        return len(part)

    def fdatasync(self, fd: int) -> None:
        """Bring a file onto the disk, or the names of a folder."""
        world, (disk, _, file) = self._world(), self._open[fd]
        if file is None:
            disk.named |= disk.files.keys()
            return
        if disk.refuses:
            disk.refuses -= 1
            raise OSError(errno.EIO, "not synced")
        file.sync()
        world.pause("synced")

    fsync = fdatasync

    def ftruncate(self, fd: int, size: int) -> None:
        """Cut a file off."""
        self._world().pause("cut")
        self._file(fd).cut(size)

    def flock(self, fd: int, what: int) -> None:
        """Take the lock, or let it go; who holds it keeps everybody else waiting."""
        world, file = self._world(), self._file(fd)
        if what & 8:
            if file.holder is world.running:
                file.holder = None
            return
        world.pause("lock")
        world.until(lambda: file.holder is None)
        file.holder = world.running

    def _file(self, fd: int) -> File:
        world = self._world()
        if world.running is not None and world.running.is_dead:
            world.pause("dead")
        file = self._open[fd][2]
        assert file is not None
        return file
