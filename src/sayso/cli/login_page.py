"""A browser is led to a login link through a file that only its owner can read.

What stands in a browser's command line can be read by every user of the machine (`ps`), and whoever opens a login link
first is the reviewer. The invariant: the link stands in no command line, and the file is gone when the link was used,
has ended, or the server ends.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
import webbrowser
from contextlib import suppress
from html import escape
from pathlib import Path
from types import TracebackType
from typing import Self

__all__ = ["LoginPage"]

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="referrer" content="no-referrer">
<meta http-equiv="refresh" content="0;url={link}"><title>sayso</title></head>
<body><p><a href="{link}">Open the inbox</a></p></body></html>
"""


class LoginPage:
    """A file that leads to a link, inside a block.

    Args:
        link: The address that signs in, once.
        lasts: After how many seconds it opens nothing any more.
    """

    def __init__(self, link: str, lasts: float) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="sayso-"))  # mode 0700
        self._file = self._folder / "open.html"
        with os.fdopen(os.open(self._file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
            file.write(_PAGE.format(link=escape(link)))
        self._timer = threading.Timer(lasts, self.remove)
        self._timer.daemon = True

    def open(self) -> None:
        """Have a browser open it; in a thread, because some browsers end only when they are closed."""
        threading.Thread(target=webbrowser.open, args=[self._file.as_uri()], daemon=True).start()

    def remove(self) -> None:
        """Remove it."""
        with suppress(OSError):
            shutil.rmtree(self._folder)

    def __enter__(self) -> Self:
        self._timer.start()
        return self

    def __exit__(self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None) -> None:
        self._timer.cancel()
        self.remove()
