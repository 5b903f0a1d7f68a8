"""A text as one cell of a table that spreadsheets open.

The invariant: no cell hides a character, and none is taken for a formula, whether the program that opens the table
ends its cells at commas or at semicolons.
"""

from __future__ import annotations

import re

from sayso.model.show.escape import escape

__all__ = ["cell"]

# What spreadsheets take for the beginning of a formula, also in the wide forms that they fold, and after blanks.
_FORMULA = tuple("=+-@|%\t\r\n＝＋－＠")  # noqa: RUF001  these very letters
# Where the comma is in numbers, spreadsheets end a cell at each semicolon, and take quotes there for their own.
_BEHIND = re.compile(rf';(?=[\s"]*[{re.escape("".join(_FORMULA))}])')


def cell(text: str) -> str:
    """Return a text that can be read and not be run: what hides is escaped, and an apostrophe stops a formula."""
    shown = _BEHIND.sub(";'", escape(text))
    return f"'{shown}" if shown.lstrip().startswith(_FORMULA) else shown
