"""How requests are shown to people, the same in the terminal, the inbox and messages."""

from sayso.model.text import escape
from sayso.view.summary import Change, changes, line, lines, value, warnings

__all__ = ["Change", "changes", "escape", "line", "lines", "value", "warnings"]
