"""Names under the module path by which the approval face knows them; what is in them lives elsewhere."""

from sayso.runs.interaction import suspend

__all__ = ["suspend"]
