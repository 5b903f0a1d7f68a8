"""Idempotency keys: a request that is sent twice with one key is asked once, and told of twice.

Asking is idempotent by itself, because the same call in the same run is found; a key is for programs that do not make
the same call twice. The invariant: a key that was used with another body asks nothing.
"""

from __future__ import annotations

import hashlib
import re
from datetime import timedelta

from pydantic import BaseModel

from sayso import clock
from sayso.model.request import Request
from sayso.server.api.endpoint import Context
from sayso.server.api.ownership import Ownership
from sayso.server.api.problems import Problem
from sayso.stores.records import Record

__all__ = ["HEADERS", "Once"]

HEADERS = {
    "Idempotency-Key": "One to 200 visible characters; kept for a day. The same key with another body is refused."
}

_RECORD, _KEPT, _FEW = "seen", timedelta(hours=24), 10
_KEY = re.compile(r"[\x21-\x7e]{1,200}")


class Once:
    """One request of a program, with the key that it was sent with, if any."""

    def __init__(self, asked: Context, own: Ownership, said: BaseModel) -> None:
        given = asked.http.headers.get("idempotency-key")
        if given is not None and _KEY.fullmatch(given) is None:
            raise Problem("invalid_input", "Idempotency-Key takes 1 to 200 visible ASCII characters; nothing was asked")
        self._own = own
        self._key = None if given is None else f"ask/{own.me.qualified}/{given}"
        self._digest = hashlib.sha256(said.model_dump_json().encode()).hexdigest()

    def before(self) -> Request | None:
        """Return what was asked with this key before, as it stands; None where it is new.

        Raises:
            Problem: It was another body.
        """
        record = None if self._key is None else self._own.store.record(_RECORD, self._key)
        if record is None or record.due is None or record.due <= clock.now():
            return None
        if record.body["digest"] != self._digest:
            raise Problem(
                "idempotency_key_reused", "this Idempotency-Key was sent with another body before; nothing was asked"
            )
        return self._own.request(record.body["request"])

    def after(self, request: Request) -> None:
        """Keep what was asked with this key; broken off before, the next try finds the same request by its call."""
        if self._key is None:
            return
        store, now = self._own.store, clock.now()
        store.keep(Record(_RECORD, self._key, {"digest": self._digest, "request": request.id}, now + _KEPT))
        for old in store.records(_RECORD, due_by=now, limit=_FEW):
            store.drop(_RECORD, old.key)
