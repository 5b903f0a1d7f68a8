"""How requests are shown to people, the same in the terminal, the inbox and messages.

`summary` has the parts of one row, `card` shows one request in full, `differences` tells similar requests apart, and
`document` writes requests as JSON. Single values as text are in `sayso.model.rendering`.
"""

from sayso.model.text import escape
from sayso.view.summary import Change, changes, line, lines, value, warnings

__all__ = ["Change", "changes", "escape", "line", "lines", "value", "warnings"]
