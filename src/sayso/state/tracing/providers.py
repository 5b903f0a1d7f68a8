"""Stores under the approval face's module path and names; they live in `sayso.compat`."""

from sayso.compat import InMemoryTracingProvider, JsonlTracingProvider, SqliteTracingProvider

__all__ = ["InMemoryTracingProvider", "JsonlTracingProvider", "SqliteTracingProvider"]
