"""Undo and the list of commands, by keyboard, in a real browser in front of the installed program.

The invariant: what is done by a name or a key is done by the button of the page, with its rules.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
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
        expect(page.locator("[data-done]")).to_contain_text("bob has it" if begin[0] == "i" else "Out of your list")
        page.keyboard.press("z")
        page.wait_for_url(f"**/r/{first}*")
        expect(page.get_by_text("Out of your list")).to_have_count(0)
        assert stands(first).claimed_by is None


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
