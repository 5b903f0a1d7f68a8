"""How requests are shown to people, the same in the terminal, the inbox and messages.

`summary` has the parts of one row, `full_text` shows one request in full, `similar` tells similar requests apart, and
`as_json` writes requests as JSON. Single values as text are in `sayso.model.rendering`.
"""

from sayso.model.rendering import Change, changes, value
from sayso.model.text import escape
from sayso.view.summary import line, warnings

__all__ = ["Change", "changes", "escape", "line", "value", "warnings"]
