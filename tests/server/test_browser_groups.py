"""A group of alike calls in a real browser: what is ticked, what asks, and what Back shows.

The invariant: only a call that a person has ticked, or that the page ticked as it is now, is approved.
"""

from __future__ import annotations

from typing import Any

import pytest

import sayso
from tests.support.gated import pay
from tests.support.surfing import Surf, held, need

expect = need().expect
pytestmark = pytest.mark.slow


def ticked(page: Any) -> list[str]:
    values: list[str] = page.locator("[name=item]:checked").evaluate_all("found => found.map((one) => one.value)")
    return [one.partition(":")[0] for one in values]


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
