"""What `--json` prints: requests and rows of the journal as `sayso.view.document` writes them, and faults."""

from __future__ import annotations

from typing import Any

from sayso import errors
from sayso.view.document import entry_document, request_document

__all__ = ["entry_document", "fault_document", "request_document"]


def fault_document(request_id: str, fault: errors.SaysoError, code: int) -> dict[str, Any]:
    """Return what went wrong with one of the requests that a command was given."""
    return {"id": request_id, "ok": False, "error": {"kind": type(fault).__name__, "message": str(fault), "exit": code}}
