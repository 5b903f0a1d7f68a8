"""The messages with which the programs' half of the API answers: their JSON and their ETags."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import sayso
from sayso.model.reviewer import Escalation
from sayso.server.api.endpoint import encoded
from sayso.server.api.program import message_of
from sayso.stores.base import Store
from sayso.stores.http_messages import RequestMessage
from sayso.testing import sample_call


def test_an_answer_is_ascii_that_says_what_pydantic_reads(store: Store) -> None:
    request = store.ask(sample_call(context={"plain": 1}, escalation=Escalation(timedelta(hours=1), roles=["lead"])))
    for context in ({"plain": [1.5, None, True]}, {"name": "M\u00fcller \u202e\U0001f600\x7f"}, {"large": 2**80}):
        message = message_of(replace(request, context=context))
        text = encoded(message)
        assert RequestMessage.model_validate_json(text) == message
        assert text.isascii()


def test_an_etag_differs_where_what_stands_does(store: Store) -> None:
    request, review = store.ask(sample_call()), sayso.Review(store, reviewer="ada")
    first, seen = message_of(request).etag, list[str]()
    for change in (store.get, review.claim, review.release, review.approve):
        change(request.id)
        seen.append(message_of(store.get(request.id)).etag)
    assert [one == first for one in seen] == [True, False, True, False]
    assert seen[1] != seen[3]
