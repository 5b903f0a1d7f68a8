"""Requests as documents of the Confirm protocol, and the schemas that these fit; `sayso.mplp` makes both.

The invariant: a document is read from the record when it is asked for, and nothing here changes it.
"""

from __future__ import annotations

from starlette.responses import JSONResponse

from sayso import mplp
from sayso.server.api.look import READERS
from sayso.server.api.operation import Asked, Operation
from sayso.server.api.problem import Problem

__all__ = ["OPERATIONS"]


def _confirm(asked: Asked) -> JSONResponse:
    try:
        return JSONResponse(mplp.document_of(asked.settings.store, asked.path("confirm_id")))
    except mplp.ConfirmNotFoundError:
        raise Problem("not_found", "there is no Confirm, plan or request of this id here; nothing was done") from None
    except mplp.NotConformantError:
        words = "what a program asked for by this id is no document of the protocol; nothing was done"
        raise Problem("not_found", words) from None


def _schema(asked: Asked) -> JSONResponse:
    try:
        return JSONResponse(mplp.schema(asked.path("kind")))
    except KeyError as error:
        raise Problem("not_found", f"{error.args[0]}; nothing was done") from None


OPERATIONS = (
    Operation(
        "GET", "/v1/confirms/{confirm_id}", "Show a request, or all rounds of a plan, as a Confirm", _confirm,
        kinds=READERS, problems=("not_found",),
    ),
    Operation(
        "GET", "/v1/schemas/{kind}", "A schema of the Confirm protocol: confirm, plan or learning-sample", _schema,
        problems=("not_found",),
    ),
)  # fmt: skip
