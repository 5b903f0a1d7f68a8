"""The file of a JSON-lines store: its lock, its hash chain, reading what was appended, and durable appends.

Each line is a JSON object whose last field, `link`, is a digest of the line and of the previous link; the first line
identifies the format. An incomplete last line is left by a crash during a write that was never confirmed; it is
ignored, and the next writer cuts it off. Invariant: a line is on disk when `append` returns, and a line that was
changed, removed, moved or inserted is rejected on reading.
"""

from __future__ import annotations

import errno
import hashlib
import json
import logging
import os
import stat
import time
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, cast

from sayso import errors
from sayso.model.canonical.json_tree import dumps

_VERSION = 1
_KIND = "sayso.jsonl"
_LINK = 32  # hexadecimal digits
_TAIL = len(',"link":""}') + _LINK


class Lines:
    """The position up to which a file was read.

    Args:
        name: The file's name, for errors.
        number: How many lines were read.
        link: The link of the last of them.
    """

    def __init__(self, name: str, number: int = 0, link: str = "") -> None:
        self._name, self.number, self._link = name, number, link

    @property
    def end(self) -> bytes:
        """The last bytes of the last line, which are unique in the file."""
        return _tail(self._link) + b"\n" if self.number else b""

    def read(self, line: bytes) -> dict[str, Any]:
        """Return the content of the next line.

        Raises:
            StoreCorruptError: It was altered, or does not follow the line before.
            StoreVersionError: A newer sayso wrote it.
        """
        if self.number == 0:
            try:
                found: Any = json.loads(line)
            except (ValueError, RecursionError):
                raise self._foreign() from None
            first = cast("dict[str, Any]", found) if isinstance(found, dict) else {}
            if first.get("kind") != _KIND:
                raise self._foreign()
            self._check_version(first)  # before its link, which a newer format may compute differently
        body, tail = line[:-_TAIL], line[-_TAIL:]
        link = _linked(self._link, body)
        if tail != _tail(link):
            raise errors.StoreCorruptError(
                f"{self._name}: line {self.number + 1} was altered, or lines before it are missing;"
                " nothing was changed, restore the file or name another one"
            )
        record: dict[str, Any] = json.loads(line.decode("ascii"))
        self._check_version(record)
        self._link = link
        self.number += 1
        return record

    def first(self) -> Lines:
        """Return the position after the first line."""
        return Lines(self._name, 1, _FIRST_LINK)

    def written(self, record: Mapping[str, Any]) -> tuple[bytes, Lines]:
        """Return the text of the next line, which is not the first, and the position after it."""
        body = dumps(record)[:-1].encode("ascii")
        link = _linked(self._link, body)
        return body + _tail(link) + b"\n", Lines(self._name, self.number + 1, link)

    def check_remnant(self, text: bytes) -> None:
        """Check that an incomplete line can be the result of a crash; raises `StoreCorruptError`."""
        # The first line is on disk before another is written; until then, any part of it may be missing.
        is_ours = len(text) <= len(_FIRST) and all(byte in {0, _FIRST[n]} for n, byte in enumerate(text))
        if self.number == 0 and not is_ours:
            raise self._foreign()

    def _check_version(self, record: Mapping[str, Any]) -> None:
        version = record.get("version", _VERSION)
        if version != _VERSION:
            raise errors.StoreVersionError(
                f"{self._name} was written by a newer sayso (format {version}, this one knows {_VERSION});"
                " upgrade sayso to open it"
            )

    def _foreign(self) -> errors.StoreCorruptError:
        return errors.StoreCorruptError(f"{self._name} is not a sayso store; nothing was changed, name another file")


def _linked(before: str, body: bytes) -> str:
    return hashlib.sha256(before.encode("ascii") + body).hexdigest()[:_LINK]


def _tail(link: str) -> bytes:
    return f',"link":"{link}"}}'.encode("ascii")


_BEGINS = dumps({"kind": _KIND, "version": _VERSION})[:-1].encode("ascii")
_FIRST_LINK = _linked("", _BEGINS)
_FIRST = _BEGINS + _tail(_FIRST_LINK) + b"\n"


try:
    import fcntl
except ImportError:  # Windows
    fcntl = None


_CHUNK = 1 << 20
_BUSY_SECONDS = 30.0
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_READ_ONLY = {errno.EACCES, errno.EPERM, errno.EROFS}

_log = logging.getLogger("sayso")
_sync = getattr(os, "fdatasync", os.fsync)


class JsonlFile:
    """An open file and the lock beside it. The store ensures that only one thread at a time uses each."""

    def __init__(self, path: Path) -> None:
        self._path, self._lock_path = path, path.with_name(f"{path.name}.lock")
        self._fd: int | None = None
        self._lock_fd: int | None = None
        self.rewind()

    def rewind(self) -> None:
        """Read from the beginning next time."""
        self._lines = Lines(str(self._path))
        self._offset = self._remnant = 0

    def close(self) -> None:
        """Close the file; the next read opens whatever file is at the path then, and begins at its start."""
        if self._fd is not None:
            os.close(self._fd)
        self._fd = None
        self.rewind()

    def close_all(self) -> None:
        """Close the file and the lock file; nobody in this process may hold the lock."""
        self.close()
        if self._lock_fd is not None:
            os.close(self._lock_fd)
        self._lock_fd = None

    @property
    def number(self) -> int:
        """How many lines have been read or written."""
        return self._lines.number

    def version(self) -> int:
        """Return a number that differs after every change of the file."""
        try:
            found = self._path.stat()
        except FileNotFoundError:
            return 0
        return found.st_ino * 1_000_003 + found.st_size

    # -- being alone -------------------------------------------------------------------------------------------

    @contextmanager
    def alone(self) -> Generator[None]:
        """Lock the file, so that no other process writes.

        Raises:
            StoreBusyError: Other processes kept it locked for too long.
        """
        try:
            fd = self._locked()
        except OSError as error:
            raise self._fault(error) from error
        try:
            yield
        finally:
            fcntl.flock(fd, fcntl.LOCK_UN)  # pyright: ignore[reportOptionalMemberAccess]  # it was there to lock

    def _locked(self) -> int:
        if fcntl is None:
            raise errors.StoreUnavailableError("jsonl: needs the file locks of a POSIX system; use sqlite:/// here")
        deadline, pause = time.monotonic() + _BUSY_SECONDS, 0.0005
        while True:
            if self._lock_fd is None:
                self._lock_fd, _ = _opened(self._lock_path)
            try:
                fcntl.flock(self._lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise errors.StoreBusyError(
                        f"{self._path} stayed locked by another process; nothing was recorded, try again"
                    ) from None
                time.sleep(pause)
                pause = min(pause * 1.5, 0.01)
                continue
            if _is_there(self._lock_fd, self._lock_path):
                return self._lock_fd
            # Somebody removed the lock file, so others may hold a new one.
            os.close(self._lock_fd)
            self._lock_fd = None

    # -- reading -----------------------------------------------------------------------------------------------

    def is_replaced(self) -> bool:
        """Return whether the path now has another file than the one that was read, or a part that was read is gone."""
        if self._fd is None:
            return False
        if not _is_there(self._fd, self._path, self._offset):
            return True
        # A writer may have truncated a line that was read here, and written another one of the same length.
        end = self._lines.end
        return os.pread(self._fd, len(end), self._offset - len(end)) != end

    def more(self) -> Iterator[dict[str, Any]]:
        """Yield the content of each complete line that was not read yet; sync it to disk at the end, whoever wrote it.

        Reading never creates the file.

        Raises:
            StoreCorruptError: A line was altered.
            StoreVersionError: A newer sayso wrote it.
        """
        try:
            fd = self._open(may_make=False)
            size = os.fstat(fd).st_size
            if size > self._offset:
                before = self._offset
                yield from self._read(fd, size)
                if self._offset > before:
                    # Its writer may have been killed before the sync: do not act on what a power cut could undo.
                    _sync(fd)
            else:
                self._remnant = 0
        except FileNotFoundError:
            return
        except OSError as error:
            raise self._fault(error) from error

    def _read(self, fd: int, size: int) -> Iterator[dict[str, Any]]:
        at, rest, is_first = self._offset, b"", self.number == 0
        while chunk := os.pread(fd, _CHUNK, at):
            at += len(chunk)
            *lines, rest = (rest + chunk).split(b"\n")
            for n, line in enumerate(lines):
                if b"\0" in line and (self._offset + len(line) + 1 == size or self.number == 0):
                    # After a crash, the end of an append can be on disk without its beginning.
                    self._stop_at(b"\n".join((*lines[n:], rest)), is_first=is_first)
                    return
                record = self._lines.read(line)
                self._offset += len(line) + 1
                yield record
        self._stop_at(rest, is_first=is_first)

    def _stop_at(self, rest: bytes, *, is_first: bool) -> None:
        self._remnant = len(rest)
        self._lines.check_remnant(rest)
        if rest and is_first:
            text = "%s: line %d is incomplete after a crash and is ignored; its operation had not returned"
            _log.warning(text, self._path, self.number + 1)

    # -- writing -----------------------------------------------------------------------------------------------

    def append(self, record: Mapping[str, Any]) -> None:
        """Append a line; it is on disk on return. The caller holds the lock and has read everything.

        Raises:
            StoreError: It was not written; the file is unchanged.
        """
        try:
            fd = self._open()
            if self._remnant:
                text = "%s: a crash left %d bytes of an incomplete line after line %d; they are removed"
                _log.warning(text, self._path, self._remnant, self.number)
                os.ftruncate(fd, self._offset)
                self._remnant = 0
            if self.number == 0:
                self._write(fd, _FIRST, self._lines.first())
            self._write(fd, *self._lines.written(record))
        except OSError as error:
            raise self._fault(error) from error

    def rewrite(self, records: Iterable[Mapping[str, Any]]) -> None:
        """Replace the file by one with these lines. The caller holds the lock and has read everything.

        Raises:
            StoreError: It was not written; the file is unchanged.
        """
        new = self._path.with_name(f"{self._path.name}.new")
        lines = self._lines.first()
        try:
            with suppress(FileNotFoundError):
                new.unlink()  # left by a crash during an earlier rewrite
            with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
                file.write(_FIRST)
                for record in records:
                    text, lines = lines.written(record)
                    file.write(text)
                file.flush()
                _sync(file.fileno())
            new.replace(self._path)
            _sync_folder(self._path.parent)
        except OSError as error:
            raise self._fault(error) from error
        self.close()

    def _write(self, fd: int, text: bytes, after: Lines) -> None:
        written = 0
        try:
            while written < len(text):
                written += os.pwrite(fd, text[written:], self._offset + written)
            _sync(fd)
        except OSError:
            # Nothing of it was confirmed; a reader that has already seen it reads everything again.
            with suppress(OSError):
                os.ftruncate(fd, self._offset)
            raise
        self._lines = after
        self._offset += len(text)

    def _open(self, *, may_make: bool = True) -> int:
        if self._fd is None:
            self._fd, is_made = _opened(self._path, may_make=may_make)
            if is_made:
                _sync_folder(self._path.parent)
        return self._fd

    def _fault(self, error: OSError) -> errors.StoreError:
        why = f"({error.strerror}); nothing was recorded"
        if error.errno in _FULL:
            return errors.StoreFullError(f"no room left to write {self._path} {why}, free some space")
        if error.errno in _READ_ONLY:
            return errors.StoreReadOnlyError(f"{self._path} cannot be written {why}")
        return errors.StoreUnavailableError(f"{self._path} cannot be opened, read or written {why}")


def _opened(path: Path, *, may_make: bool = True) -> tuple[int, bool]:
    """Open the file for reading and writing; create it and its folder, for their owner only, if it does not exist."""
    try:
        fd, is_made = os.open(path, os.O_RDWR | os.O_CLOEXEC), False
    except FileNotFoundError:
        if not may_make:
            raise
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        # Without O_EXCL, so that two processes that create it at once both succeed.
        fd, is_made = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600), True
    found, why = os.fstat(fd), None
    if not stat.S_ISREG(found.st_mode):
        why = "is not a regular file; nothing was recorded, name another one"
    elif found.st_nlink > 1:  # each name has its own lock, so users of two names would overwrite each other's lines
        why = f"has {found.st_nlink} names (hard links); nothing was recorded, remove all names but one"
    if why is not None:
        os.close(fd)
        raise errors.StoreUnavailableError(f"{path} {why}")
    return fd, is_made


def _is_there(fd: int, path: Path, least: int = 0) -> bool:
    """Return whether the open file is the one at this path, and has at least this many bytes."""
    try:
        there = path.stat()
    except FileNotFoundError:
        return False
    mine = os.fstat(fd)
    return (there.st_dev, there.st_ino) == (mine.st_dev, mine.st_ino) and mine.st_size >= least


def _sync_folder(folder: Path) -> None:
    # The name of a new file is on disk only after its folder is synced.
    fd = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        with suppress(OSError):  # some file systems refuse it and do not need it
            os.fsync(fd)
    finally:
        os.close(fd)
