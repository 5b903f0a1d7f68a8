"""What people see of a call: drawn by us from its bound arguments, the same for every surface."""

from sayso.model.show.call import (
    Change,
    changes,
    escape,
    has_hidden,
    line,
    lines,
    mixed_script,
    value,
    warnings,
)

__all__ = [
    "Change",
    "changes",
    "escape",
    "has_hidden",
    "line",
    "lines",
    "mixed_script",
    "value",
    "warnings",
]
