"""Import paths for compatibility with the approval API; the code is in `sayso.runs` and `sayso.runs.compat`."""

from sayso.runs.decisions import suspend

__all__ = ["suspend"]
