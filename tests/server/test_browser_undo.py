"""Undo, the list of commands and several at once, by keyboard, in a real browser in front of the installed program.

The invariant: what is done by a name or a key is done by the button of the page, with its rules.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import sayso
from sayso.model.request import State
from tests.support.gated import pay
from tests.support.surfing import Surf, held, need, pressed, serving, shut, stands, state_is

expect = need().expect
pytestmark = pytest.mark.slow


@pytest.fixture
def surf(chromium: Any, command: Path, tmp_path: Path) -> Iterator[Surf]:
    store = f"sqlite:///{tmp_path / 'inbox.db'}"
    sayso.configure(store=store)
    with serving(command, store, undo="60s") as link:
        surfing = Surf(chromium, link)
        yield surfing
        shut(chromium)
        assert surfing.found() == []


def test_a_key_approves_the_next_one_takes_it_back_and_a_command_approves_again(surf: Surf) -> None:
    first, second = held(pay, 5), held(pay, 6)
    page = surf.page(first)
    expect(page.locator("[data-soon-live]")).to_have_count(0)
    page.keyboard.press("a")
    page.wait_for_url(f"**/r/{second}*")
    assert stands(first).held_until is not None
    page.keyboard.press("z")
    page.wait_for_url(f"**/r/{first}*")
    state_is(page, "pending")
    assert stands(first).state is State.PENDING
    expect(page.locator("[data-soon-live]")).to_have_count(0)
    page.keyboard.press("Control+k")
    expect(page.get_by_role("combobox", name="Command, or words to search for")).to_be_focused()
    page.keyboard.type("appr")
    expect(page.get_by_role("option")).to_contain_text(["Approve"])
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/r/{second}*")
    assert stands(first).state is State.APPROVED
    page.keyboard.press("Control+k")
    page.keyboard.type("no such")
    page.keyboard.press("Enter")
    page.wait_for_url("**/?q=no%20such")


def test_an_assignment_and_a_snooze_are_taken_back_by_the_same_key(surf: Surf) -> None:
    first, second = held(pay, 5), held(pay, 6)
    page = surf.page(first)
    for begin in (["i", *"bob", "Control+Enter"], ["s"]):
        expect(page.locator("[data-soon-live]")).to_have_count(0)
        for key in begin:
            page.keyboard.press(key)
        page.wait_for_url(f"**/r/{second}*")
        expect(page.locator("[data-done]")).to_contain_text(
            "assigned to bob" if begin[0] == "i" else "Hidden from your list"
        )
        page.keyboard.press("z")
        page.wait_for_url(f"**/r/{first}*")
        expect(page.get_by_text("Hidden from your list")).to_have_count(0)
        assert stands(first).claimed_by is None


def test_what_was_typed_outlives_the_time_for_undo_once_it_is_undone(surf: Surf) -> None:
    first, second = held(pay, 5), held(pay, 6)
    page = surf.page(first)
    page.clock.install()
    expect(page.locator("[data-soon-live]")).to_have_count(0)
    page.fill("#f0", "7")
    pressed(page, "Approve with 1 change")
    page.wait_for_url(f"**/r/{second}*")
    page.clock.run_for(1_000)
    page.keyboard.press("z")
    page.wait_for_url(f"**/r/{first}*")
    page.clock.run_for(61_000)
    page.reload()
    expect(page.locator("#f0")).to_have_value("7")


def test_the_button_counts_down_and_leaves_the_way_to_cancel(surf: Surf) -> None:
    first, second = held(pay, 5), held(pay, 6)
    page = surf.page(first)
    page.clock.install()
    expect(page.locator("[data-soon-live]")).to_have_count(0)
    page.clock.run_for(1_000)  # decisions are disabled at first
    pressed(page, "Approve")
    page.wait_for_url(f"**/r/{second}*")
    undo, cancel = page.get_by_role("button", name="Undo"), page.get_by_role("link", name="Cancel it")
    expect(undo.locator("[data-left]")).to_have_text(re.compile(r"^[56]\ds$"))
    expect(cancel).to_be_hidden()
    page.clock.run_for(30_000)
    expect(undo.locator("[data-left]")).to_have_text(re.compile(r"^[12]\ds$|^30s$"))
    page.clock.run_for(31_000)
    expect(undo).to_be_hidden()
    cancel.click()
    page.wait_for_url(f"**/r/{first}#cancel")
    expect(page.get_by_role("button", name="Cancel the run before the call starts")).to_be_visible()


def test_what_is_ticked_is_added_up_and_named_in_the_question_and_a_key_leads_to_the_next(surf: Surf) -> None:
    transfer = sayso.gate(wait="raise", risk="high", name="transfer")(lambda amount, to: f"{amount} {to}")
    ids = [held(transfer, Decimal(f"{1000 + at}.5"), f"kim{at}") for at in range(7)]
    page = surf.tab(f"/bulk?alike={ids[0]}&verb=approve")
    total, sum_of = page.locator("tfoot th"), page.locator("tfoot [data-total]")
    expect(total).to_have_text("total of 0 of 7")
    expect(sum_of).to_have_text("")
    approve = page.get_by_role("button", name="Approve")
    expect(approve).to_be_disabled()
    page.get_by_role("checkbox", name="all").check()
    expect(total).to_have_text("total of all 7")
    expect(sum_of).to_have_text("7,024.50")
    for key in "jx":
        page.keyboard.press(key)
    expect(total).to_have_text("total of 6 of 7")
    expect(sum_of).to_have_text("6,024.00")
    expect(approve).to_be_enabled()
    page.keyboard.press("a")
    asks = page.get_by_role("dialog", name="Risk high. Approve?")
    lines = [f'transfer(amount={1000 + at:,}.50, to="kim{at}")' for at in range(1, 6)]
    expect(asks.locator("#sure-what")).to_have_text(
        "\n".join(["Approve 6 of 7", *lines, "and 1 more", "amount 6,024.00 in total"]), use_inner_text=True
    )
    asks.locator("#sure-yes:enabled").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("6 of 6 approved")
    assert [stands(one).state for one in ids] == [State.PENDING, *[State.APPROVED] * 6]
    expect(page.get_by_role("button", name="Undo all")).to_be_visible()
    page.keyboard.press("j")
    page.wait_for_url(f"**/r/{ids[0]}")  # what was left of them comes first
