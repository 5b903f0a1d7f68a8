"""The inbox as a program of a device: installed, without a connection, and what it keeps there, in a real browser.

The invariant: no page of the inbox, and nothing of a request, is kept on the device.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import sayso
from tests.support.gated import pay
from tests.support.surfing import Surf, held, need, serving

expect = need().expect
pytestmark = pytest.mark.slow

READY = """navigator.serviceWorker.ready.then(({active}) => active.state === "activated"
  || new Promise((done) => active.addEventListener("statechange", () => done(true))))"""
KEPT = """async () => {
  const kept = [];
  for (const name of await caches.keys()) {
    for (const one of await (await caches.open(name)).keys()) kept.push(new URL(one.url).pathname);
  }
  return kept;
}"""


def with_worker(surf: Surf, address: str = "/") -> Any:
    """Open a page whose service worker is at work."""
    page = surf.tab(address, service_workers="allow")
    page.evaluate(READY)
    page.reload()
    assert page.evaluate("navigator.serviceWorker.controller !== null")
    return page


def test_the_inbox_can_be_installed(surf: Surf) -> None:
    page = with_worker(surf)
    protocol = page.context.new_cdp_session(page)
    found = {one["errorId"] for one in protocol.send("Page.getInstallabilityErrors")["installabilityErrors"]}
    assert found <= {"in-incognito"}  # as every context of Playwright is
    assert protocol.send("Page.getAppManifest")["errors"] == []


def test_without_a_connection_a_page_says_so_and_shows_nothing_that_was_kept(
    chromium: Any, surf: Surf, command: Path
) -> None:
    request_id = held(pay, 4721)
    with serving(command, sayso.Review().store.url) as link:
        other = Surf(chromium, link)
        page = with_worker(other, f"/r/{request_id}")
        expect(page.get_by_role("heading", name="pay")).to_be_visible()
        page.goto(f"{other.base}/history")
        kept = page.evaluate(KEPT)
    for address in ("/", f"/r/{request_id}", "/history?state=done"):
        page.goto(other.base + address)
        expect(page.get_by_role("heading", name="No connection")).to_be_visible()
        assert "4721" not in page.content()
        assert page.url == other.base + address
    assert page.evaluate("getComputedStyle(document.querySelector('main')).maxWidth") != "none"  # it has its styles
    assert {path.rpartition("/")[2] for path in kept} == {"app.css", "icon.svg", "offline.html"}
    assert all(path.startswith("/static/") for path in kept)
    assert "no-store" in page.evaluate("fetch(location.href).then(() => '', () => 'no-store')")


def test_a_page_that_another_site_leads_to_is_asked_for_as_such(surf: Surf) -> None:
    # The server compresses a page only for who does not come from another site, which these headers tell.
    page = with_worker(surf)
    got: list[tuple[bool, str | None]] = []
    page.on("response", lambda one: one.url.endswith("/history") and got.append(
        (one.from_service_worker, one.headers.get("content-encoding"))
    ))  # fmt: skip
    page.goto(f"{surf.base}/history")
    page.get_by_role("link", name="Runs").click()
    page.get_by_role("link", name="History").click()
    expect(page.get_by_role("heading", name="History")).to_be_visible()
    page.route("http://elsewhere.example/", lambda route: route.fulfill(
        content_type="text/html", body=f'<a href="{surf.base}/history">there</a>',
    ))  # fmt: skip
    surf.expected = "elsewhere"
    page.goto("http://elsewhere.example/")
    page.get_by_role("link", name="there").click()
    expect(page.get_by_role("heading", name="History")).to_be_visible()
    assert got == [(True, "gzip"), (True, "gzip"), (True, None)]
