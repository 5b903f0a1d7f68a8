"""The folder of a demo: the files that are tidied, the store, the ledger of effects, and how lines are said.

Both the agent and the demo know it; neither knows the other. Invariant: a folder is made new, in a place where nothing
stood, and what is inside `files/` at the start was made here.
"""

from __future__ import annotations

import json
import tempfile
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from sayso.cli.output import out, paint
from sayso.errors import ConfigError

__all__ = ["FILES", "RUN", "Effect", "Place", "say"]

RUN = "demo-tidy-up"
FILES = {
    "app.log": "12:00 started\n12:01 stopped\n",
    "contract.txt": "This contract runs until 2031.\n",
    "old-backup.txt": "a copy of everything, three years old\n",
    "report-draft.md": "# Report\n\nto be written\n",
    "report-final.md": "# Report\n\nAll is well.\n",
}
_LABEL_WIDTH = 20
_COLOURS = {"agent": "cyan", "demo": "yellow"}


@dataclass(frozen=True)
class Effect:
    """One line of the ledger.

    Attributes:
        did: Which function wrote it.
        path: The file that is gone, or new.
        source: For a move, the file that is gone.
        request: Id of the request behind the call; None where a rule let it through.
    """

    did: str
    path: str
    source: str | None = None
    request: str | None = None


@dataclass(frozen=True)
class Place:
    """The folder of one demo."""

    root: Path

    @classmethod
    def made_in(cls, folder: Path | None) -> Place:
        """Make a new folder with the files, in `folder` or among the temporary files of this machine.

        Raises:
            ConfigError: It cannot be made there.
        """
        try:
            return cls._made_in(folder)
        except OSError as error:
            where = tempfile.gettempdir() if folder is None else folder
            raise ConfigError(
                f"the folder cannot be made in {where} ({error.strerror}); name another with --dir"
            ) from error

    @classmethod
    def _made_in(cls, folder: Path | None) -> Place:
        if folder is None:
            place = cls(Path(tempfile.mkdtemp(prefix="sayso-demo-")).resolve())
        else:
            folder.mkdir(parents=True, exist_ok=True)
            place = cls(_new_folder(folder.resolve()))
        place.files.mkdir()
        for name, text in FILES.items():
            (place.files / name).write_text(text, encoding="utf-8")
        return place

    @property
    def files(self) -> Path:
        """What the agent tidies."""
        return self.root / "files"

    @property
    def address(self) -> str:
        """Address of the store."""
        return f"sqlite:///{self.root / 'sayso.db'}"

    @property
    def ledger(self) -> Path:
        """What was really done, one line each, written by what did it."""
        return self.root / "effects.jsonl"

    def note(self, effect: Effect) -> None:
        """Write a line into the ledger."""
        with self.ledger.open("a", encoding="utf-8") as ledger:
            ledger.write(json.dumps(effect.__dict__) + "\n")

    def effects(self) -> list[Effect]:
        """Read the ledger."""
        if not self.ledger.exists():
            return []
        return [Effect(**json.loads(line)) for line in self.ledger.read_text(encoding="utf-8").splitlines()]

    def present(self) -> set[str]:
        """Look which files there are."""
        return {path.relative_to(self.files).as_posix() for path in self.files.rglob("*") if not path.is_dir()}


def _new_folder(parent: Path) -> Path:
    for number in count(1):
        folder = parent / ("sayso-demo" if number == 1 else f"sayso-demo-{number}")
        try:
            folder.mkdir()
        except FileExistsError:  # of an earlier demo, or somebody's own: it stays as it is
            continue
        return folder
    raise AssertionError("unreachable")


def say(who: str, what: str) -> None:
    """Print one line that begins with who acts; in colour on a terminal only."""
    out(paint(f"{who:<{_LABEL_WIDTH}}", _COLOURS.get(who, "green")) + what)
