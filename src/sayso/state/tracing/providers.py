"""The approval API's stores under their original import path, for compatibility; the code is in `sayso.runs.compat`."""

from sayso.runs.compat import InMemoryTracingProvider, JsonlTracingProvider, SqliteTracingProvider

__all__ = ["InMemoryTracingProvider", "JsonlTracingProvider", "SqliteTracingProvider"]
