"""What a person is shown of a request, drawn by us and the same on every surface."""

from __future__ import annotations

from sayso.view.summary import Change, changes, escape, has_hidden, line, lines, mixed_script, value, warnings

__all__ = ["Change", "changes", "escape", "has_hidden", "line", "lines", "mixed_script", "value", "warnings"]
