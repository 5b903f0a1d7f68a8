"""The inbox in a real browser, in a language that nobody speaks and that is written from right to left.

The invariant: what scripts write comes from the page's catalogue, and all is mirrored but what would run.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import uvicorn
from starlette.applications import Starlette

from sayso.model.reviewer import Reviewer
from sayso.server import create_app, login_path
from sayso.server.language import languages
from sayso.stores.base import Store
from tests.server.test_language import busy
from tests.support.pseudo import HEBREW, latin_in
from tests.support.surfing import WIDER, need

expect = need().expect
pytestmark = pytest.mark.slow

SEEN = """() => {
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT), found = [];
  while (walker.nextNode()) {
    const part = walker.currentNode.parentElement;
    const isOurs = !part.closest("script, style, kbd, body [lang], [translate=no]");
    if (isOurs && part.checkVisibility()) found.push(walker.currentNode.data);
  }
  return found.filter((text) => text.trim());
}"""
SIDES = """(selector) => {
  const box = document.querySelector(selector).getBoundingClientRect();
  return [box.left, innerWidth - box.right];
}"""


@contextmanager
def served(app: Starlette) -> Iterator[str]:
    """Serve an inbox in this process, so that it speaks the language of the test."""
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, access_log=False, lifespan="off"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = server.force_exit = True
        thread.join(30)
        listener.close()


def test_scripts_speak_the_pages_language_and_the_page_is_mirrored(
    chromium: Any, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(languages(), "he", HEBREW)
    addresses, app, left = busy(store), create_app(store), dict[str, list[str]]()
    with served(app) as base:
        page = chromium.new_page(locale="he-IL", viewport={"width": 1200, "height": 900}, service_workers="block")
        page.goto(base + login_path(app, Reviewer("άντα")))
        page.wait_for_url(f"{base}/")
        for address in addresses:
            page.goto(base + address)
            page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
            found = [text for text in page.evaluate(SEEN) if latin_in(text)]
            if found:
                left[address] = found
            assert page.evaluate(WIDER) <= 0, address
        assert left == {}

        page.goto(f"{base}{addresses[9]}")  # a request that waits, with fields
        start, end = page.evaluate(SIDES, ".brand")
        assert end < start, "the menu begins at the right"
        assert page.evaluate("getComputedStyle(document.querySelector('#call code')).direction") == "ltr"
        page.keyboard.press("Control+k")
        expect(page.locator("#palette li")).not_to_have_count(0)
        assert [text for text in page.locator("#palette li span").all_inner_texts() if latin_in(text)] == []
        page.close()
