"""When pages of the inbox are live, in a real browser: also where a script came late, and behind another tab.

The invariant: a page that can be seen, if only its title, says how things stand, however it came to be open.
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


@pytest.mark.parametrize("late", ["htmx.min.js", "hx-sse.min.js", "app.js"])
def test_a_page_one_of_whose_scripts_comes_late_is_live(surf: Surf, late: str) -> None:
    request_id = held(pay, 5)
    page = surf.tab("/")
    waiting: list[Any] = []

    def hold(route: Any) -> None:
        waiting.append(route)

    page.route(f"**/{late}*", hold, times=1)
    page.goto(f"{surf.base}/", wait_until="commit")
    expect(page.locator(f"#at-{request_id}")).to_be_visible()
    while late != "htmx.min.js" and not page.evaluate("!!window.htmx"):
        page.wait_for_timeout(20)
    page.evaluate("new Promise((done) => setTimeout(done, 100))")  # for what would begin too early
    assert len(waiting) == 1
    waiting[0].continue_()
    sayso.Review().claim(request_id, by="bob")
    expect(page.locator(f"#at-{request_id}")).to_contain_text("bob is looking")


HIDE = """(is_hidden) => {
  Object.defineProperty(document, "hidden", {value: is_hidden, configurable: true});
  document.dispatchEvent(new Event("visibilitychange"));
}"""


def test_the_title_counts_on_behind_another_tab(surf: Surf) -> None:
    held(pay, 1)
    page = surf.tab("/")
    held(pay, 2)
    expect(page).to_have_title("Inbox (2) · sayso")  # it is live
    page.evaluate(HIDE, True)
    held(pay, 3)
    expect(page).to_have_title("Inbox (3) · sayso")


def live(surf: Surf, request_id: str) -> Any:
    """Open the page of a request, and wait until it is told of what happens."""
    page = surf.page(request_id)
    sayso.Review().claim(request_id, by="bob")
    expect(page.locator(".standing")).to_contain_text("bob is looking")
    return page


def test_a_request_that_was_decided_behind_another_tab_says_so_when_it_is_seen_again(surf: Surf) -> None:
    request_id = held(pay, 1)
    page = live(surf, request_id)
    page.evaluate(HIDE, True)
    sayso.Review(channel="cli").reject(request_id, by="bob")
    page.evaluate(HIDE, False)
    expect(page.locator(".standing")).to_contain_text("rejected by bob")


def test_a_page_that_is_not_told_any_more_says_so_until_it_is(surf: Surf) -> None:
    request_id = held(pay, 1)
    surf.expected = "ERR_FAILED|Failed to fetch"
    page = live(surf, request_id)
    not_live = page.get_by_text("Not live")
    expect(not_live).to_be_hidden()
    page.route("**/events?*", lambda route: route.abort())
    page.evaluate(HIDE, True)
    page.evaluate(HIDE, False)  # which takes the stream up again
    expect(not_live).to_be_visible()
    page.unroute("**/events?*")
    expect(not_live).to_be_hidden()
    sayso.Review(channel="cli").reject(request_id, by="bob")
    expect(page.locator(".standing")).to_contain_text("rejected by bob")


def test_a_page_that_was_never_told_anything_says_so(surf: Surf) -> None:
    held(pay, 1)
    surf.expected = "ERR_FAILED|Failed to fetch"
    page = surf.tab("/history")
    page.route("**/events?*", lambda route: route.abort())
    page.goto(f"{surf.base}/")
    expect(page.get_by_text("Not live")).to_be_visible()


def test_a_page_whose_server_ended_says_so(chromium: Any, surf: Surf, command: Path) -> None:
    held(pay, 1)
    with serving(command, sayso.Review().store.url) as link:
        other = Surf(chromium, link)
        page = other.tab("/")
        expect(page).to_have_title("Inbox (1) · sayso")
        held(pay, 2)
        expect(page).to_have_title("Inbox (2) · sayso")  # it is live
    expect(page.get_by_text("Not live")).to_be_visible()
