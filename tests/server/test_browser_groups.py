"""A group of alike calls in a real browser: what is ticked, what asks, and what Back shows.

The invariant: only a call that a person has ticked, or that the page ticked as it is now, is approved.
"""

from __future__ import annotations

from typing import Any

import pytest

import sayso
from sayso.model.request import State
from tests.server.test_group_texts import FILLED, LETTER, MAILS
from tests.support.gated import pay
from tests.support.surfing import Surf, held, need, stands

expect = need().expect
pytestmark = pytest.mark.slow


def mail(to: str, subject: str, body: str) -> None: ...


def mails(*texts: str) -> list[str]:
    function = sayso.gate(wait="raise", name="mail")(mail)
    return [held(function, f"c{at}@a.example", "Re: yours", text) for at, text in enumerate(texts)]


def ticked(page: Any) -> list[str]:
    values: list[str] = page.locator("[name=item]:checked").evaluate_all("found => found.map((one) => one.value)")
    return [one.partition(":")[0] for one in values]


def test_different_mails_are_approved_one_by_one_and_all_at_once_after_a_question(surf: Surf) -> None:
    ids = mails(*MAILS)
    page = surf.tab(f"/bulk?alike={ids[0]}")
    expect(page.locator("td .long .call")).to_have_count(4)
    for text in page.locator("td .long .call").all():
        expect(text).to_be_visible()
    approve = page.get_by_role("button", name="Approve")
    expect(page.locator("[data-soon-live]")).to_have_count(0)
    expect(approve).to_be_disabled()
    page.get_by_role("checkbox", name="all").check()
    page.keyboard.press("a")
    asks = page.get_by_role("dialog", name="4 texts are not like the others. Approve?")
    expect(asks.locator("#sure-what")).to_contain_text('mail(to="c3@a.example"')
    asks.get_by_role("button", name="Back").click()
    page.get_by_role("checkbox", name="all").uncheck()
    for key in "jxjx":
        page.keyboard.press(key)
    expect(approve).to_contain_text("Approve 2 of 4")
    page.keyboard.press("a")
    expect(page.get_by_role("heading", level=1)).to_have_text("2 of 2 approved")
    assert [stands(one).state for one in ids] == [State.APPROVED] * 2 + [State.PENDING] * 2


def test_letters_of_one_template_take_two_keys_from_the_list(surf: Surf) -> None:
    ids = mails(*(LETTER.format(**one) for one in FILLED))
    page = surf.tab("/")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_url("**/bulk?**")
    expect(page.locator("[data-decides]:disabled")).to_have_count(0)
    page.keyboard.press("a")
    expect(page.get_by_role("heading", level=1)).to_have_text("10 of 10 approved")
    assert {stands(one).state for one in ids} == {State.APPROVED}


def test_after_back_a_tick_is_at_the_call_that_it_was_at(surf: Surf) -> None:
    ids = [held(pay, amount) for amount in range(5)]
    page = surf.tab(f"/bulk?alike={ids[0]}")
    page.locator("[name=item]").nth(2).uncheck()
    page.goto(f"{surf.base}/history")
    sayso.Review(channel="cli").approve(ids[1], by="bob")
    page.go_back()
    expect(page.locator("[data-decides]").first).to_contain_text("Approve 3 of 4")
    assert ticked(page) == [ids[0], *ids[3:]]
    for key in ["j", "x"]:  # the first one is ticked out, and all but one are decided elsewhere
        page.keyboard.press(key)
    page.get_by_role("button", name="Approve").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("2 of 2 approved")
    page.go_back()
    expect(page.locator("[data-decides]").first).to_contain_text("Approve 0 of 2")


def test_without_scripts_back_ticks_what_the_page_ticks(surf: Surf) -> None:
    ids = mails(*MAILS)
    page = surf.tab(f"/bulk?alike={ids[0]}", java_script_enabled=False)
    page.locator("[name=item]").nth(1).check()
    page.get_by_role("button", name="Approve those that are ticked").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("1 of 1 approved")
    page.go_back()
    expect(page.locator("[name=item]")).to_have_count(3)
    expect(page.locator("[name=item]:checked")).to_have_count(0)


def test_back_to_a_decided_group_leads_to_the_inbox(surf: Surf) -> None:
    ids = [held(pay, amount) for amount in range(5)]
    page = surf.tab(f"/bulk?alike={ids[0]}")
    page.get_by_role("button", name="Reject").click()  # a no is final, and has a reason
    page.keyboard.type("too late")
    page.get_by_role("button", name="Reject").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("5 of 5 rejected")
    page.go_back()
    expect(page.get_by_role("heading", level=1)).to_have_text("There is nothing to decide here")
    expect(page.get_by_role("heading", level=2, name="5 rejected by ada")).to_be_visible()
    expect(page.locator(".results a")).to_have_count(5)
    page.get_by_role("link", name="To the inbox").click()
    page.wait_for_url(f"{surf.base}/")


def test_back_to_the_results_sends_no_form_again(surf: Surf) -> None:
    ids, others = [held(pay, amount) for amount in range(4)], mails(*(LETTER.format(**one) for one in FILLED))
    page, sent = surf.tab(f"/bulk?alike={ids[0]}"), list[str]()
    page.on("request", lambda request: request.method == "POST" and sent.append(request.url))
    page.get_by_role("button", name="Approve").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("4 of 4 approved")
    for link, address in (
        ("[data-queued]", f"**/bulk?alike={others[0]}"), ("a[href*=history]", "**/history?**"),
        (".results a", f"**/r/{ids[0]}"),
    ):  # fmt: skip
        page.locator(f"main {link}").first.click()
        page.wait_for_url(address)
        page.go_back()
        expect(page.get_by_role("heading", level=2, name="4 approved by ada")).to_be_visible()
    assert len(sent) == 1
