"""An inbox in which 10,000 requests wait, in a real browser.

The invariant: a page has as many rows as with fifty, and what is far down is found, decided and followed by the next.
"""

from __future__ import annotations

from typing import Any

import pytest

import sayso
from sayso.model.request import State
from sayso.model.reviewer import Reviewer
from sayso.server import login_path
from sayso.stores.memory import MemoryStore
from sayso.testing import sample_call
from tests.support.serving import Serving
from tests.support.surfing import need, shut

expect = need().expect
pytestmark = pytest.mark.slow

MANY = 10_000


def test_of_10_000_that_wait_any_is_found_decided_and_followed_by_the_next(chromium: Any) -> None:
    store = MemoryStore()
    sayso.configure(store=store)
    ids = [store.ask(sample_call(f"run_{at}", {"amount": at, "to": f"kim{at}"})).id for at in range(MANY)]
    server = Serving(store=store)
    try:
        page = chromium.new_page(service_workers="block")
        page.goto(server.url + login_path(server.app, Reviewer("ada")))
        page.wait_for_url(f"{server.url}/")
        expect(page.locator("#pending")).to_have_text("10000")
        page.goto(f"{server.url}/?fold=no")
        expect(page.locator("[data-row]")).to_have_count(50)
        page.get_by_role("link", name="More requests").click()
        expect(page.locator("[data-row]").first).to_contain_text("amount=50")
        page.goto(f"{server.url}/?fold=no&q=kim7042")
        page.locator("[data-row] a.what").click()
        page.wait_for_url(f"**/r/{ids[7042]}?*")
        page.goto(f"{server.url}/r/{ids[1500]}")
        expect(page.locator(".queue h2")).to_contain_text("10,000")
        expect(page.locator("[data-queued]")).to_have_count(50)
        expect(page.locator("[data-soon-live]")).to_have_count(0)
        page.keyboard.press("a")
        page.wait_for_url(f"**/r/{ids[1501]}?*")
        assert store.get(ids[1500]).state is State.APPROVED
        expect(page.locator("#pending")).to_have_text("9999")
    finally:
        shut(chromium)
        server.end()
