"""Import paths for compatibility with the approval API; the code is in `sayso.runs` and `sayso.compat`."""

from sayso.runs.interaction import suspend

__all__ = ["suspend"]
