"""Requests as a gate would make them, for the tests of stores and pages: valid in every field, each one new."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from keyword import iskeyword
from typing import Any, cast

from sayso import clock
from sayso.model import canonical
from sayso.model.canonical.tags import dump
from sayso.model.ids import call_digest, fingerprint, new_request_id, new_run_id, question_digest
from sayso.model.redaction import Redaction
from sayso.model.request import Call, Question, Request
from sayso.model.reviewer import PROGRAM, Identity
from sayso.model.schema import Schema

_TOOL = "payments:pay"
_DAY = timedelta(hours=24)
_KINDS: dict[str, type] = {"amount": int, "to": str, "password": str}


def _taking(arguments: Mapping[str, Any]) -> Callable[..., object]:
    """Return a function of these arguments, as a gate binds all that its function takes, but for what is no name."""

    def pay() -> None: ...

    either = inspect.Parameter.POSITIONAL_OR_KEYWORD
    names = [name for name in arguments if name.isidentifier() and not iskeyword(name)]
    kinds = {name: _KINDS.get(name, Any) for name in names}
    pay.__annotations__ = {n: kind if type(arguments[n]) is kind else Any for n, kind in kinds.items()}
    cast("Any", pay).__signature__ = inspect.Signature([inspect.Parameter(name, either) for name in names])
    return pay


def _call(arguments: Mapping[str, Any], schema: Schema) -> Call:
    form = canonical.encode(arguments)
    tree = canonical.load(form.text)
    masked = Redaction().mask(tree)
    digest = call_digest(_TOOL, schema.digest, form.digest_input)
    shown = None if masked is tree else dump(masked)
    return Call(_TOOL, "pay", form.text, shown, digest, schema.text, schema.digest)


def sample_call(run_id: str | None = None, arguments: Mapping[str, Any] | None = None, **fields: Any) -> Request:
    """Return a new pending request to run `pay(amount, to, password)`; not in any store yet.

    Args:
        run_id: Its run; a new one when not given.
        arguments: By name; `{"amount": 10, "to": "alice"}` when not given.
        fields: Any other field of `Request`, in place of the sample's.
    """
    given = {"amount": 10, "to": "alice"} if arguments is None else arguments
    call = _call(given, Schema.of(_taking(given)))
    return _request("call", run_id or new_run_id(), call, fields)


def sample_edit(request: Request, **changes: Any) -> Call:
    """Return the call of a `sample_call` as a reviewer changed it."""
    before = request.effective
    return _call({**canonical.decode(before.form, {}), **changes}, Schema.from_text(before.schema))


def sample_question(run_id: str | None = None, text: str = "Which account?", **fields: Any) -> Request:
    """Return a new pending question whose answer is a text; not in any store yet."""
    schema = Schema.of_type(str)
    subject = Question(text, question_digest(text, schema.digest, 0), schema.text, schema.digest)
    return _request("question", run_id or new_run_id(), subject, fields)


def _request(kind: Any, run_id: str, subject: Call | Question, fields: Mapping[str, Any]) -> Request:
    now = clock.now()
    request = Request(
        id=new_request_id(),
        kind=kind,
        run_id=run_id,
        fingerprint=fingerprint(run_id, subject.digest, key=fields.get("key")),
        subject=subject,
        requester=Identity(PROGRAM, "tests"),
        created_at=now,
        expires_at=now + _DAY,
        approval_window=_DAY,
    )
    return replace(request, **fields) if fields else request
