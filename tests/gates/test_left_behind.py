"""What nobody comes back for is said: a request of a program that is gone."""

from __future__ import annotations

import asyncio
import json

import pytest

import sayso
from sayso import aio
from sayso.server import create_app
from sayso.stores.base import Store
from tests.support import commands
from tests.support.acting import forked, held, payer, running
from tests.support.browsing import browser
from tests.support.calling import caller

ASK = """
import sayso

def go() -> None:
    try:
        pay(5)
    except sayso.ConfirmationRequired as pause:
        print(pause.confirmation_id)

@sayso.gate(wait="raise")
def pay(amount: int) -> None: ...

"""
WITHOUT_A_NAME = ASK + "go()"
IN_A_RUN = ASK + 'with sayso.run("order-1"): go()'
QUESTION = """
import sayso
try:
    sayso.ask("Go on?", type=bool, wait="raise")
except sayso.ConfirmationRequired as pause:
    print(pause.confirmation_id)
"""


def asked_elsewhere(store: Store, text: str) -> str:
    """Ask in a process that is gone afterwards, and return the id of the request."""
    return running(forked(text, SAYSO_STORE=store.url)).split()[-1]


@pytest.mark.parametrize(("text", "is_gone"), [(WITHOUT_A_NAME, True), (QUESTION, True), (IN_A_RUN, False)])
def test_request_without_a_named_run_says_that_its_program_is_gone(file_store: Store, text: str, is_gone: bool) -> None:
    review = sayso.Review(reviewer="ada")
    request = review.get(asked_elsewhere(file_store, text))
    assert review.program_is_gone(request) is is_gone
    assert asyncio.run(aio.Review().program_is_gone(request)) is is_gone
    rejected = review.reject(request.id)
    assert review.program_is_gone(rejected) is False


def test_program_that_is_gone_is_marked_in_the_browser(file_store: Store) -> None:
    waiting, named = asked_elsewhere(file_store, WITHOUT_A_NAME), asked_elsewhere(file_store, IN_A_RUN)
    ada = browser(create_app(file_store), "ada")
    assert ada.get("/").text.count('<span class="warn">program ended</span>') == 1
    run_id = file_store.get(waiting).run_id
    assert "program ended" in ada.get(f"/runs/{run_id}").text
    asked = ada.get("/bulk", params={"id": [waiting, named], "verb": "approve"}).text
    assert asked.count("nothing will come back for the decision") == 1


@pytest.mark.parametrize(("text", "is_gone"), [(WITHOUT_A_NAME, True), (IN_A_RUN, False)])
def test_program_that_is_gone_is_marked_in_json(
    file_store: Store, monkeypatch: pytest.MonkeyPatch, text: str, is_gone: bool
) -> None:
    monkeypatch.setenv("SAYSO_STORE", file_store.url)
    request_id = asked_elsewhere(file_store, text)
    (listed,) = json.loads(commands.sayso("ls", "--json").out)["requests"]
    shown = json.loads(commands.sayso("show", request_id, "--json").out)
    assert (listed["program_gone"], shown["program_gone"]) == (is_gone, is_gone)
    ada = caller(create_app(file_store))
    (told,) = ada.get("/api/v1/requests").json()["requests"]
    assert told["program_gone"] is is_gone
    assert ada.get(f"/api/v1/requests/{request_id}").json()["program_gone"] is is_gone


def test_program_that_lives_is_not_gone(store: Store) -> None:
    review = sayso.Review(reviewer="ada")
    request = review.get(held(payer(), 5).confirmation_id)
    assert request.process is not None
    assert review.program_is_gone(request) is False
    assert review.program_is_gone(review.approve(request.id)) is False
