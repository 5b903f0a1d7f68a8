"""What a store has committed, as the promises read it: the lines of a file, or the rows of a database."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from sayso.stores.jsonl_file import Lines

if TYPE_CHECKING:
    from tests.simulation.disk import Disk, File

__all__ = ["FileJournal", "Journal", "News"]


class News(NamedTuple):
    """What was committed since the last reading.

    Attributes:
        lines: Each as the JSON-lines store writes it, with its end.
        is_again: Whether all was read again, as a power cut may have taken something away.
    """

    lines: list[tuple[dict[str, Any], int]]
    is_again: bool


class Journal(Protocol):
    """What a store has committed.

    Attributes:
        end: Of the last line that was read.
    """

    end: int

    def read(self) -> News | None:
        """Return what is new; None if there is no store."""
        ...

    def is_durable(self, end: int) -> bool:
        """Return whether a power cut cannot take the lines until there away."""
        ...


class FileJournal:
    """The file of the JSON-lines store on a simulated disk."""

    def __init__(self, disk: Disk, name: str) -> None:
        self._disk, self._name = disk, name
        self._file: File | None = None
        self._epoch, self.end = -1, 0
        self._lines = Lines(name)

    def read(self) -> News | None:
        """Return the lines that were written since."""
        file = self._disk.files.get(self._name)
        if file is None:
            return None
        is_again = file is not self._file or file.epoch != self._epoch
        if is_again:
            self._file, self._epoch, self.end, self._lines = file, file.epoch, 0, Lines(self._name)
        elif len(file.data) <= self.end:
            return News([], is_again=False)
        found = list[tuple[dict[str, Any], int]]()
        *lines, _ = bytes(file.data[self.end :]).split(b"\n")
        for line in lines:
            if b"\0" in line:
                break  # what a power cut left of a line that nobody was promised
            self.end += len(line) + 1
            found.append((self._lines.read(line), self.end))
        return News(found, is_again)

    def is_durable(self, end: int) -> bool:
        """Return whether the file is on the disk until there."""
        return self._file is None or len(self._file.durable) >= end
