"""Import paths for compatibility with the approval API; the code is in `sayso.runs` and `sayso.runs.compat`."""

from sayso.runs.interaction import suspend

__all__ = ["suspend"]
