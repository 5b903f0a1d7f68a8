"""When pages of the inbox are live, in a real browser: also where a script came late, and behind another tab.

The invariant: a page that can be seen, if only its title, says how things stand, however it came to be open.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import sayso
from tests.support.gated import pay
from tests.support.surfing import Surf, asked, held, need, serving

expect = need().expect
pytestmark = pytest.mark.slow


def test_a_page_whose_script_comes_late_is_live(surf: Surf) -> None:
    request_id = held(pay, 5)
    page = surf.tab("/settings")
    waiting: list[Any] = []
    page.route("**/inbox.js*", lambda route: waiting.append(route), times=1)  # noqa: PLW0108  Playwright takes no builtin
    with page.expect_request("**/inbox.js*"):
        page.goto(f"{surf.base}/", wait_until="commit")
    expect(page.locator(f"#at-{request_id}")).to_be_visible()
    sayso.Review().claim(request_id, by="bob")
    for route in waiting:
        route.continue_()
    expect(page.locator(f"#at-{request_id}")).to_contain_text("claimed by bob")


def test_a_page_is_live_although_another_script_fails_in_this_browser(surf: Surf) -> None:
    request_id = held(pay, 5)
    page = surf.tab("/settings")
    surf.expected = "no storage"
    page.add_init_script("Storage.prototype.getItem = () => { throw new Error('no storage'); }")
    page.goto(f"{surf.base}/r/{request_id}")
    sayso.Review().claim(request_id, by="bob")
    expect(page.locator(f"#until-{request_id}")).to_contain_text("claimed by bob")
    assert surf.faults


# Once the script has ended: a page that is seen again may load itself anew, which ends whoever still waits for it.
HIDE = """(is_hidden) => {
  setTimeout(() => {
    Object.defineProperty(document, "hidden", {value: is_hidden, configurable: true});
    document.dispatchEvent(new Event("visibilitychange"));
  });
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
    expect(page.locator(".standing")).to_contain_text("claimed by bob")
    return page


def test_a_vote_and_a_claim_that_come_while_a_page_is_open_are_shown_and_keep_what_is_written(surf: Surf) -> None:
    @sayso.gate(wait="raise", quorum=3)
    def wire(amount: int) -> None: ...

    request_id = held(wire, 5)
    page = surf.page(request_id)
    approve = page.locator("[data-approve]")
    expect(page.locator(".lead .votes")).to_have_text("0 of 3 approvals")
    page.fill("#note", "mine")
    sayso.Review().approve(request_id, by="bob")
    expect(page.locator(".lead .votes")).to_have_text("1 of 3 approvals")
    expect(approve).to_be_enabled()
    sayso.Review().claim(request_id, by="carol")
    expect(page.locator("[data-why-not]")).to_contain_text("carol has claimed it")
    expect(approve).to_be_disabled()
    sayso.Review().release(request_id, by="carol")
    expect(approve).to_be_enabled()
    expect(page.locator("[data-why-not]")).to_have_count(0)
    expect(page.locator("#note")).to_have_value("mine")


def test_what_comes_while_a_page_is_open_leaves_it_saying_what_happens_without_an_answer(surf: Surf) -> None:
    call, question = held(pay, 5), asked("How many?", type=int)
    for request_id, ending in ((call, "; no answer means no"), (question, "")):
        page = live(surf, request_id)
        sayso.Review().release(request_id, by="bob")
        expect(page.locator(".standing")).not_to_contain_text("bob")
        expires, _, left = page.locator(".standing .end").inner_text().partition(" in ")
        assert expires == "expires"
        assert left in {f"1d{ending}", f"23h 59m{ending}"}  # the former within the first second
        assert page.locator(".standing .end time").get_attribute("title")


def test_a_claim_that_comes_while_a_page_is_open_leaves_the_other_approval_to_its_reader(surf: Surf) -> None:
    @sayso.gate(wait="raise", quorum=2)
    def wire(amount: int) -> None: ...

    request_id = held(wire, 5)
    page = surf.page(request_id)
    sayso.Review().claim(request_id, by="bob")
    expect(page.locator("[data-why-not]")).to_contain_text("You can approve it as it is")
    expect(page.locator("[data-approve]")).to_be_enabled()
    expect(page.get_by_role("button", name="Reject")).to_be_disabled()


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
    not_live = page.get_by_text("Live updates have stopped")
    expect(not_live).to_be_hidden()
    page.route("**/events?*", lambda route: route.abort())
    page.evaluate("dispatchEvent(new Event('online'))")  # which takes the stream up again
    page.set_viewport_size({"width": 1280, "height": 400})
    page.evaluate("scrollTo(0, 9999)")
    expect(not_live).to_be_in_viewport()  # wherever on the page somebody reads
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
    expect(page.get_by_text("Live updates have stopped")).to_be_visible()


def test_a_page_whose_server_ended_says_so(chromium: Any, surf: Surf, command: Path) -> None:
    held(pay, 1)
    with serving(command, sayso.Review().store.url) as link:
        other = Surf(chromium, link)
        page = other.tab("/")
        expect(page).to_have_title("Inbox (1) · sayso")
        held(pay, 2)
        expect(page).to_have_title("Inbox (2) · sayso")  # it is live
    expect(page.get_by_text("Live updates have stopped")).to_be_visible()


def test_tabs_of_one_browser_share_one_stream_and_hand_it_on(surf: Surf) -> None:
    request_id = held(pay, 1)
    first = surf.tab("/")
    asked: list[str] = []
    first.context.on("request", lambda sent: asked.append(sent.url) if "/events" in sent.url else None)
    others = [first.context.new_page() for _ in range(7)]  # a browser has six connections to a server
    for page in others:
        page.goto(f"{surf.base}/")
    others[3].goto(f"{surf.base}/r/{request_id}")
    everybody = [first, *others]
    held(pay, 2)
    for page in (one for one in everybody if one is not others[3]):
        expect(page).to_have_title("Inbox (2) · sayso")
        expect(page.locator("#news")).to_have_text("1 new request, show")
    sayso.Review(channel="cli").claim(request_id, by="bob")
    expect(others[3].locator(".standing")).to_contain_text("claimed by bob")
    streams = first.evaluate("navigator.locks.query().then(({held}) => held.length)")
    assert streams == 1
    first.close()  # the one that has the stream
    held(pay, 3)
    for page in others:
        expect(page.locator("#pending")).to_have_text("3")
    surf.faults = [fault for fault in surf.faults if fault != "a window of its own"]


def test_the_other_tabs_of_who_signs_out_say_so_at_once(chromium: Any, surf: Surf, command: Path) -> None:
    held(pay, 1)
    with serving(command, sayso.Review().store.url) as link:
        other = Surf(chromium, link)
        other.expected = "401|a window of its own"
        page = other.tab("/")
        second = page.context.new_page()
        second.goto(f"{other.base}/runs")
        expect(page.get_by_text("You are signed out")).to_be_hidden()
        second.get_by_role("button", name="Sign out").click()
        expect(page.get_by_text("You are signed out")).to_be_visible()
        expect(page.get_by_text("Live updates have stopped")).to_be_hidden()
        page.get_by_role("link", name="Sign in again").click()
        expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
        assert other.found() == []


def test_a_tab_that_hears_nothing_for_a_while_says_so(surf: Surf) -> None:
    held(pay, 1)
    page = surf.tab("/settings")
    page.clock.install()
    page.route("**/events?*", lambda _: None)  # a stream that neither comes nor fails
    page.goto(f"{surf.base}/")
    expect(page.locator("[data-stream]")).to_have_count(1)
    page.clock.fast_forward(40_000)
    expect(page.get_by_text("Live updates have stopped")).to_be_hidden()
    page.clock.fast_forward(20_000)
    expect(page.get_by_text("Live updates have stopped")).to_be_visible()


def test_a_tab_takes_the_stream_over_from_one_that_says_nothing(surf: Surf) -> None:
    held(pay, 1)
    first = surf.tab("/")
    second = first.context.new_page()
    second.clock.install()
    second.goto(f"{surf.base}/")
    held(pay, 2)
    expect(second.locator("#pending")).to_have_text("2")  # it is told, by the other one
    first.evaluate("BroadcastChannel.prototype.postMessage = () => {}")  # as if it were frozen
    second.clock.fast_forward(60_000)
    held(pay, 3)
    expect(second.locator("#pending")).to_have_text("3")
    expect(second.get_by_text("Live updates have stopped")).to_be_hidden()
    held_locks = "navigator.locks.query().then(({held}) => held.length)"
    assert second.evaluate(held_locks) == 1
    surf.faults = [fault for fault in surf.faults if fault != "a window of its own"]
