"""What people see of a request, the same in the terminal, the inbox and messages."""

from __future__ import annotations

from sayso.view.summary import Change, changes, escape, has_hidden, line, lines, mixed_script, value, warnings

__all__ = ["Change", "changes", "escape", "has_hidden", "line", "lines", "mixed_script", "value", "warnings"]
