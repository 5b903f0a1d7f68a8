"""The inbox by touch, without JavaScript, and at 200 % zoom, in a real browser in front of the installed program.

The invariants: whatever a key does, a finger does, and a form without scripts does too; and with letters twice as large
nothing is cut off or covered.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import sayso
from sayso.model.request import State
from tests.support.gated import FIELDS, pay, taking
from tests.support.surfing import (
    Surf,
    asked,
    every_page,
    held,
    is_wide,
    need,
    pressed,
    serving,
    shut,
    stands,
    state_is,
)  # fmt: skip

expect = need().expect
pytestmark = pytest.mark.slow

FINGER: dict[str, Any] = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}
# What a browser makes of a window of 1280 by 800 at 200 %: half of the points, each twice as large.
ZOOMED: dict[str, Any] = {"viewport": {"width": 640, "height": 400}, "device_scale_factor": 2}


@pytest.fixture(scope="module")
def inbox(chromium: Any, command: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Surf, str]]:
    """A server at which there is a minute to undo."""
    store = f"sqlite:///{tmp_path_factory.mktemp('touch')}/inbox.db"
    with serving(command, store, undo="60s") as link:
        yield Surf(chromium, link), store


@pytest.fixture
def surf(chromium: Any, inbox: tuple[Surf, str]) -> Iterator[Surf]:
    surfing, store = inbox
    sayso.configure(store=store)
    surfing.faults, surfing.expected = [], ""
    for request in sayso.Review().list(state=State.PENDING, limit=1000).requests:
        sayso.Review().cancel(request.id, by="nobody")
    sayso.clear_all_confirmations()
    yield surfing
    shut(chromium)
    assert surfing.found() == []


def test_a_finger_opens_approves_takes_it_back_and_rejects_with_a_reason(surf: Surf) -> None:
    first, second = held(pay, 5), held(pay, 6)
    page = surf.tab("/", **FINGER)
    page.get_by_role("link", name="amount=5").tap()
    page.wait_for_url(f"**/r/{first}")
    page.locator("[data-approve]:enabled").tap()
    page.wait_for_url(f"**/r/{second}*")
    assert stands(first).held_until is not None
    page.get_by_role("button", name="Undo").tap()
    page.wait_for_url(f"**/r/{first}*")
    state_is(page, "pending")
    assert stands(first).state is State.PENDING
    expect(page.locator("[data-soon-live]")).to_have_count(0)
    page.get_by_role("button", name="Reject").tap()
    expect(page.locator("#note")).to_be_focused()
    expect(page.get_by_placeholder("Why? Press Reject again to reject it", exact=True)).to_be_visible()  # it fits
    assert stands(first).state is State.PENDING
    page.locator("#note").fill("not today")
    page.locator("button.aimed:enabled").tap()
    page.wait_for_url(f"**/r/{second}*")
    decision = stands(first).decision
    assert decision is not None
    assert (decision.verb, decision.comment, decision.channel) == ("reject", "not today", "web")


def test_a_finger_opens_a_request_anywhere_on_its_row_but_on_its_box_and_its_links(surf: Surf) -> None:
    first, _ = held(pay, 5), held(pay, 6)
    page = surf.tab("/", **FINGER)
    row = page.locator(".row").first
    row.get_by_role("checkbox").tap()
    expect(row.get_by_role("checkbox")).to_be_checked()
    row.locator(".end").tap()
    page.wait_for_url(f"**/r/{first}")
    page.go_back()
    row.locator(".about a").tap()
    page.wait_for_url("**/runs/*")


def test_a_mouse_opens_a_request_anywhere_on_its_row_unless_it_selects_text(surf: Surf) -> None:
    first, _ = held(pay, 5), held(pay, 6)
    page = surf.tab("/")
    row = page.locator(".row").first
    about = row.locator(".about").bounding_box()
    assert about is not None
    middle = about["y"] + about["height"] / 2
    page.mouse.move(about["x"] + 2, middle)
    page.mouse.down()
    page.mouse.move(about["x"] + 60, middle, steps=5)
    page.mouse.up()
    assert page.evaluate("getSelection().toString()") != ""
    assert page.url == f"{surf.base}/"
    page.mouse.click(about["x"] + 2, middle)
    page.wait_for_url(f"**/r/{first}")


def test_a_finger_edits_an_argument_approves_what_is_risky_and_answers(surf: Surf) -> None:
    risky = taking({"amount": int}, [], risk="high")
    request_id, question = held(risky, 5), asked("Which warehouse?", choices=["berlin", "lyon"])
    page = surf.tab(f"/r/{request_id}", **FINGER)
    page.locator("[data-edit] > summary").tap()
    page.locator("#f0").fill("4")
    expect(page.locator("[data-approve] > span")).to_have_text("Approve with 1 change")
    page.locator("[data-approve]:enabled").tap()
    page.locator("#sure-yes:enabled").tap()
    page.wait_for_url(f"**/r/{question}*")
    edited = stands(request_id).edited
    assert edited is not None
    assert edited.shown == {"amount": 4}
    page.get_by_text("lyon").tap()
    page.get_by_role("button", name="Answer").and_(page.locator(":enabled")).tap()
    page.wait_for_url(f"**/r/{question}*")
    state_is(page, "answered")
    assert sayso.ask("Which warehouse?", wait="raise", choices=["berlin", "lyon"]) == "lyon"


def test_on_a_telephone_the_bar_has_one_line_for_several_changes_that_opens(surf: Surf) -> None:
    request_id = held(taking(dict.fromkeys("abcd", int), []), 1, 2, 3, 4)
    for options, is_open in ((FINGER, False), ({}, True)):
        page = surf.page(request_id, **options)
        bar, line = page.locator(".bar"), page.locator("[data-live-diff] li").first
        for at in range(3):
            page.locator(f"#f{at}").fill("9")
        fold = page.locator("[data-live-diff] summary")
        expect(fold).to_have_text("3 changes")
        expect(line).to_be_visible(visible=is_open)
        if not is_open:
            assert bar.bounding_box()["height"] < 250  # two lines of buttons, the note, and the line
            fold.tap()
            expect(line).to_be_visible()
            page.locator("#f3").fill("9")
            expect(fold).to_have_text("4 changes")
            expect(line).to_be_visible()  # a person opened it


def test_a_finger_ticks_several_and_decides_them(surf: Surf) -> None:
    ids = [held(pay, amount) for amount in range(3)]
    page = surf.tab("/?fold=no", **FINGER)
    for at in (0, 2):
        page.locator("label.pick").nth(at).tap()
    page.get_by_role("button", name="Approve…").tap()
    page.get_by_role("button", name="Approve 2").and_(page.locator(":enabled")).tap()
    expect(page.get_by_role("heading", level=1)).to_have_text("2 of 2 approved")
    assert [stands(one).state for one in ids] == [State.APPROVED, State.PENDING, State.APPROVED]


def test_without_scripts_a_person_decides_undoes_and_answers(surf: Surf) -> None:
    surf.expected = "status of 422"
    first, second, third = (held(pay, amount) for amount in (5, 6, 7))
    question = asked("Which warehouse?", choices=["berlin", "lyon"])
    page = surf.tab("/?fold=no", java_script_enabled=False)
    page.get_by_role("link", name="amount=5").click()
    pressed(page, "Approve")
    assert stands(first).held_until is not None
    page.wait_for_url(f"**/r/{second}*")
    with page.expect_navigation():
        page.get_by_role("button", name="Undo").click()
    assert stands(first).state is State.PENDING
    pressed(page, "Send back")  # it needs words
    expect(page.get_by_role("alert")).to_contain_text("write in the note")
    page.locator("#note").fill("ask the customer")
    pressed(page, "Send back")
    page.locator("#note").fill("not this one")
    pressed(page, "Reject")
    page.wait_for_url(f"**/r/{third}*")
    found = [(stands(one).state, stands(one).decision) for one in (first, second)]
    assert [(state, None if made is None else made.comment) for state, made in found] == [
        (State.FEEDBACK, "ask the customer"), (State.REJECTED, "not this one"),
    ]  # fmt: skip
    page.goto(f"{surf.base}/r/{question}")
    page.get_by_text("lyon").click()
    pressed(page, "Answer")
    assert stands(question).answer == "lyon"


def test_without_scripts_a_person_takes_care_of_a_request_and_ticks_several(surf: Surf) -> None:
    risky = taking({"amount": int}, [], risk="high")
    alone, one, other = held(risky, 5), held(pay, 6), held(pay, 7)
    page = surf.tab(f"/r/{alone}", java_script_enabled=False)
    care = page.get_by_role("region", name="Claim, assign, snooze and extend")
    for press in ("Claim", "Unclaim", "Snooze", "Bring it back", "Extend"):
        with page.expect_navigation():
            care.get_by_role("button", name=press, exact=True).click()
        page.goto(f"{surf.base}/r/{alone}")
    page.locator("#comment").fill("look at this, @bob")
    pressed(page, "Comment")
    expect(page.locator(".talk li")).to_contain_text("look at this, @bob")
    events = [entry.event for entry in sayso.Review().store.journal(request_id=alone)]
    assert events == ["asked", "claimed", "released", "extended", "commented"]
    page.get_by_text("Approve, and the next ones like it").first.click()
    page.get_by_label("Its risk is high, and I am sure").check()
    pressed(page, "Approve, and the next ones like it")
    assert [grant.request_id for grant in sayso.Review().grants()] == [alone]
    page.goto(f"{surf.base}/?fold=no&q=pay")
    for box in page.locator("label.pick input").all():
        box.check()
    pressed(page, "Reject…")
    page.get_by_role("textbox").last.fill("neither")
    pressed(page, "Reject those that are ticked")
    expect(page.get_by_role("heading", level=1)).to_have_text("2 of 2 rejected")
    assert [stands(request_id).state for request_id in (one, other)] == [State.REJECTED] * 2


# What has the focus, and whether the middle of it is on the screen with nothing in front of it.
FOCUSED = """() => {
  const at = document.activeElement, box = at.getBoundingClientRect();
  const [left, right] = [Math.max(box.left, 0), Math.min(box.right, innerWidth)];
  const [top, bottom] = [Math.max(box.top, 0), Math.min(box.bottom, innerHeight)];
  const part = right > left && bottom > top && document.elementFromPoint((left + right) / 2, (top + bottom) / 2);
  const isSeen = part && (at.contains(part) || part.contains(at) && part.matches("label, summary, li, td, th"));
  // Inside of a field for dates the browser marks the part that has the focus.
  const isMarked = getComputedStyle(at).outlineStyle !== "none" || at.matches("[type^=date], [type=time]");
  return [at === document.body, isSeen && isMarked ? "" : at.outerHTML.slice(0, 160)];
}"""
# Text that its own box cuts off, where nobody can move it into sight.
CUT = """() => [...document.querySelectorAll("body *")]
  .filter((one) => one.checkVisibility() && !one.closest(".hidden, .done, svg") && one.textContent.trim())
  .filter((one) => {
    const style = getComputedStyle(one), hides = (over) => ["hidden", "clip"].includes(over);
    return hides(style.overflowX) && one.scrollWidth > one.clientWidth + 1
      || hides(style.overflowY) && one.scrollHeight > one.clientHeight + 1;
  }).map((one) => one.outerHTML.slice(0, 160))"""


def test_at_200_percent_nothing_is_cut_and_what_has_the_focus_is_seen(surf: Surf) -> None:
    function = taking({name: kind for name, (kind, *_) in FIELDS.items()}, [], prompt="Look. " * 40, risk="high")
    request_id = held(function, *(value for _, value, *_ in FIELDS.values()))
    question = asked("Which warehouse?", choices=["berlin", "lyon"])
    for amount in (1, 2, 3):
        held(pay, amount)
    page = surf.tab("/", **ZOOMED)
    for address in [*every_page(request_id), f"/r/{question}"]:
        page.goto(surf.base + address)
        expect(page.locator("[data-soon-live]")).to_have_count(0)
        page.locator("details > summary").evaluate_all(
            "found => found.forEach((one) => { one.parentElement.open = true; })"
        )
        assert not is_wide(page), address
        assert page.evaluate(CUT) == [], address
        page.evaluate("document.activeElement.blur(); scrollTo(0, 0)")
        for step in range(200):
            page.keyboard.press("Tab")
            is_over, hidden = page.evaluate(FOCUSED)
            if is_over:
                break
            assert hidden == "", (address, step)


def test_at_200_percent_a_person_decides_by_keyboard(surf: Surf) -> None:
    first, second = held(pay, 5), held(pay, 6)
    page = surf.tab("/", **ZOOMED)
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/r/{first}")
    for button in ("Approve", "Reject", "Send back"):
        expect(page.get_by_role("button", name=button, exact=True)).to_be_in_viewport(ratio=1)
    expect(page.locator("[data-soon-live]")).to_have_count(0)
    page.keyboard.press("a")
    page.wait_for_url(f"**/r/{second}*")
    expect(page.locator("#call")).to_be_in_viewport()
    page.keyboard.press("z")
    page.wait_for_url(f"**/r/{first}*")
    state_is(page, "pending")
    assert stands(first).state is State.PENDING


def test_on_a_telephone_the_list_cuts_nothing_off_and_the_own_page_is_in_sight_in_the_menu(surf: Surf) -> None:
    long = "UPDATE orders SET state = 'shipped' WHERE shipped_at IS NULL AND region = 'eu-central' AND warehouse = "
    for warehouse in ("berlin", "lyon"):
        held(pay, 5, long + warehouse)
    page = surf.tab("/", **FINGER)
    for warehouse in ("berlin", "lyon"):
        expect(page.locator(".what .args", has_text=warehouse)).to_have_count(1)
    assert page.evaluate(CUT) == []
    expect(page.locator("#keys-open")).to_be_hidden()
    for address in ("/", "/insights", "/settings"):
        page.goto(surf.base + address)
        expect(page.locator(".top nav [aria-current]").last).to_be_in_viewport(ratio=1)
        assert page.evaluate("scrollY") == 0
        edge = page.locator(".top nav").bounding_box()
        tab = page.locator(".top nav [aria-current]").last.bounding_box()
        assert tab["x"] + tab["width"] <= edge["x"] + edge["width"], address
