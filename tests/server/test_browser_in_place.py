"""Requests that open in the place of the one before, without a full load of a page, in a real browser.

The invariant: what is shown, asked and sent is the same as if the browser had loaded the page.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

import pytest

import sayso
from sayso.model.request import State
from tests.support.gated import pay, wipe
from tests.support.surfing import Surf, held, need, pressed, stands, state_is

expect = need().expect
pytestmark = pytest.mark.slow
DECIDED = """(id) => {
  const card = document.querySelector("[data-request]");
  return card && (card.dataset.request !== id || "decided" in card.dataset);
}"""


def marked(page: Any) -> None:
    """Mark the document, to see later whether it is still the same one."""
    page.evaluate("window.isSame = true")


def is_same(page: Any) -> bool:
    return bool(page.evaluate("window.isSame === true"))


def ready(page: Any, request_id: str) -> None:
    page.wait_for_url(f"**/r/{request_id}*")
    expect(page.locator("[data-soon-live]")).to_have_count(0)


def test_a_decision_opens_the_next_request_in_the_same_document(surf: Surf) -> None:
    first, second, third = held(pay, 5), held(pay, 6), held(pay, 7)
    page = surf.page(first)
    marked(page)
    ready(page, first)
    announcer = page.locator("body > [role=status]").first
    expect(announcer).to_have_text("")  # a screen reader announces only what changes in an element that it knows
    page.evaluate("(announcer) => { window.announcer = announcer; }", announcer.element_handle())
    page.keyboard.press("a")
    ready(page, second)
    assert stands(first).state is State.APPROVED
    expect(page).to_have_title('pending: pay(amount=6, to="alice") · sayso')
    expect(announcer).to_have_text(re.compile(r'approved by ada .*\. pending: pay\(amount=6, to="alice"\) · sayso$'))
    assert page.evaluate("window.announcer === document.querySelector('body > [role=status]')")
    expect(page.locator("[data-done]")).to_contain_text("amount=5")
    assert page.locator("noscript").count() == 0
    page.keyboard.press("j")
    ready(page, third)
    assert is_same(page)
    page.go_back()
    ready(page, second)
    state_is(page, "pending")
    assert not is_same(page)  # the address before is loaded, with what holds by now


def test_what_a_script_adds_to_a_card_is_on_the_page_that_takes_its_place_too(surf: Surf) -> None:
    @sayso.gate(wait="raise")
    def meet(at: datetime) -> None: ...

    first, second = (held(meet, datetime(2026, 3, 5, hour, tzinfo=UTC)) for hour in (7, 8))
    page = surf.tab(f"/r/{first}", timezone_id="Asia/Tokyo", locale="en-GB")
    marked(page)
    for request_id, local in ((first, "16:00"), (second, "17:00")):
        ready(page, request_id)
        expect(page.locator("#call .local")).to_have_text(f"for you Thu, 5 Mar 2026, {local} GMT+9")
        page.keyboard.press("a")
    state_is(page, "approved")
    assert is_same(page)


@pytest.mark.parametrize("has_scripts", [True, False])
def test_who_sends_a_comment_sees_it_on_the_next_page(surf: Surf, has_scripts: bool) -> None:
    request_id = held(pay, 5)
    for number in range(30):
        sayso.Review().comment(request_id, f"number {number}\n" * 5, by="bob")
    page = surf.tab(f"/r/{request_id}", java_script_enabled=has_scripts)
    page.locator("#comment").fill("is this the one?")
    pressed(page, "Comment")
    mine = page.locator("#newest-comment")
    expect(mine).to_contain_text("is this the one?")
    expect(mine).to_be_in_viewport(ratio=1)
    assert page.url.endswith(f"/r/{request_id}#newest-comment")


def test_the_question_about_a_high_risk_says_that_there_are_comments(surf: Surf) -> None:
    request_id = held(wipe, "/data")
    sayso.Review().comment(request_id, "wait for the backup", by="bob")
    page = surf.page(request_id)
    ready(page, request_id)
    page.keyboard.press("a")
    expect(page.locator("#sure")).to_contain_text("Reviewers wrote 1 comment on it")
    expect(page.locator("#sure")).to_contain_text("bob: wait for the backup")


def test_a_page_that_took_the_place_of_another_is_live_and_takes_each_key_once(surf: Surf) -> None:
    first, second = held(pay, 5), held(pay, 6)
    page = surf.page(first)
    marked(page)
    ready(page, first)
    pressed(page, "Approve")
    ready(page, second)
    sayso.Review().claim(second, by="bob")
    expect(page.locator(".standing")).to_contain_text("claimed by bob")
    expect(page.locator("[data-approve]")).to_be_disabled()
    sayso.Review().release(second, by="bob")
    expect(page.locator("[data-approve]")).to_be_enabled()
    page.keyboard.press("Control+k")  # twice would open and close it
    expect(page.get_by_role("combobox", name="Command, or words to search for")).to_be_focused()
    assert is_same(page)


def test_a_page_that_took_the_place_of_a_decided_one_is_live(surf: Surf) -> None:
    first, second = held(pay, 5), held(pay, 6)
    sayso.Review().reject(first, "no", by="bob")
    page = surf.page(first)  # without live updates, as nothing changes there any more
    marked(page)
    page.locator("[data-queued]").click()
    ready(page, second)
    sayso.Review().claim(second, by="bob")
    expect(page.locator(".standing")).to_contain_text("claimed by bob")
    assert is_same(page)


def test_decisions_stay_disabled_for_as_long_after_a_page_took_the_place_of_one_just_opened(surf: Surf) -> None:
    first, second = held(pay, 5), held(pay, 6)
    page = surf.tab("/")
    page.clock.install(time=0)
    page.clock.pause_at(1_000)
    page.goto(f"{surf.base}/r/{first}")
    marked(page)
    page.clock.run_for(400)
    page.keyboard.press("j")
    page.wait_for_url(f"**/r/{second}*")
    expect(page.locator("[data-soon-live][data-approve]")).to_be_disabled()
    page.clock.run_for(400)  # the time of the page before is over
    expect(page.locator("[data-soon-live][data-approve]")).to_be_disabled()
    page.clock.run_for(200)
    expect(page.locator("[data-approve]")).to_be_enabled()
    assert is_same(page)


def test_a_risky_call_in_the_place_of_another_is_confirmed_as_well(surf: Surf) -> None:
    first, second = held(wipe, "one"), held(wipe, "two")
    page = surf.page(first)
    marked(page)
    for request_id in (first, second):
        ready(page, request_id)
        page.keyboard.press("a")
        expect(page.locator("#sure-yes")).to_be_focused()
        assert stands(request_id).state is State.PENDING
        page.keyboard.press("Enter")
        page.wait_for_function(DECIDED, arg=request_id)
        assert stands(request_id).state is State.APPROVED
    assert is_same(page)


def test_a_held_key_decides_nothing_in_the_place_of_what_it_decided(surf: Surf) -> None:
    first, second = held(pay, 5), held(pay, 6)
    page = surf.page(first)
    ready(page, first)
    sent: list[str] = []
    page.on("request", lambda asked: sent.append(asked.url) if asked.method == "POST" else None)
    page.keyboard.press("r")
    page.keyboard.type("not this one")
    page.keyboard.down("Control")
    page.keyboard.down("Enter")
    ready(page, second)
    page.keyboard.down("Enter")  # held, it repeats
    page.evaluate("fetch(location)")  # what it had sent would be known by now
    assert len(sent) == 1
    assert [stands(first).state, stands(second).state] == [State.REJECTED, State.PENDING]
    page.keyboard.up("Enter")
    page.keyboard.press("Enter")
    page.wait_for_function(DECIDED, arg=second)
    assert stands(second).state is State.APPROVED


def test_a_refusal_is_shown_with_what_was_written_and_a_reload_shows_the_request(surf: Surf) -> None:
    request_id = held(pay, 5)
    page = surf.page(request_id)
    marked(page)
    ready(page, request_id)
    surf.expected = "422"
    page.locator("#f0").fill("x")
    pressed(page, "Approve with 1 change")
    expect(page.locator("[role=alert]").first).to_be_visible()
    assert page.locator("#f0").input_value() == "x"
    assert is_same(page)
    assert page.url.endswith(f"/r/{request_id}")
    page.reload()
    state_is(page, "pending")


def test_a_server_of_another_version_is_loaded_in_full(surf: Surf) -> None:
    first, second = held(pay, 5), held(pay, 6)
    page = surf.page(first)
    marked(page)
    ready(page, first)
    page.evaluate("document.querySelector('script[src*=\"inbox.js\"]').setAttribute('src', '/static/older/inbox.js')")
    with page.expect_navigation(url=f"**/r/{second}*", wait_until="load"):
        page.keyboard.press("a")
    assert stands(first).state is State.APPROVED
    assert not is_same(page)


def test_a_page_in_another_language_is_loaded_in_full(surf: Surf) -> None:
    first, second = held(pay, 5), held(pay, 6)
    page = surf.page(first)
    marked(page)
    ready(page, first)
    page.context.set_extra_http_headers({"accept-language": "de"})  # as if chosen in another tab
    page.keyboard.press("j")
    page.wait_for_url(f"**/r/{second}*")
    page.wait_for_function("() => window.isSame !== true")
    expect(page.locator("html")).to_have_attribute("lang", "de")


def test_a_decision_whose_answer_is_lost_shows_what_became_of_it(surf: Surf) -> None:
    first, _ = held(pay, 5), held(pay, 6)
    page = surf.page(first)
    marked(page)
    ready(page, first)
    page.evaluate(
        "((sent) => { window.fetch = async (...all) => { await sent(...all); throw new TypeError(); }; })(fetch)"
    )
    page.keyboard.press("a")
    page.wait_for_function("() => !window.isSame")  # live updates may show the state before the page is loaded again
    state_is(page, "approved")


def test_a_decision_that_is_on_its_way_is_shown_and_sent_once(surf: Surf) -> None:
    first, _ = held(pay, 5), held(pay, 6)
    page = surf.page(first)
    ready(page, first)
    page.evaluate("(() => { window.sent = 0; window.fetch = () => new Promise(() => { window.sent += 1; }); })()")
    page.keyboard.press("a")
    expect(page.locator("body")).to_have_attribute("aria-busy", "true")
    page.keyboard.press("a")
    page.keyboard.press("j")
    assert page.evaluate("window.sent") == 1
    assert page.url.endswith(f"/r/{first}")
