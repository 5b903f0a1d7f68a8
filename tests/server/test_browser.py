"""The inbox of the installed wheel in a real browser: decide, edit, answer, several at once, races, keys, live news.

How it looks is in `test_browser_looks`, and what attacks it in `test_browser_attacks`. The invariant: what
a person saw and pressed is what was decided, once, and everything else decides nothing.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import sayso
from sayso import config
from sayso.model.request import State
from sayso.server import create_app, login_path
from tests.support.gated import FIELDS, pay, taking, wipe
from tests.support.surfing import Surf, asked, held, need, pressed, serving, stands, state_is, unfold

expect = need().expect
pytestmark = pytest.mark.slow


def test_a_person_approves_and_the_call_runs(surf: Surf) -> None:
    request_id = held(pay, 5)
    page = surf.tab("/")
    expect(page.locator(".about a")).to_have_text(stands(request_id).run_id[:11])
    page.get_by_role("link", name='pay amount=5, to="alice"').click()
    pressed(page, "Approve")
    state_is(page, "approved")
    assert page.url == f"{surf.base}/r/{request_id}"
    decision = stands(request_id).decision
    assert decision is not None
    assert (decision.by.qualified, decision.channel) == ("local:ada", "web")
    assert pay(5) == "paid 5 to alice"


def test_each_kind_of_field_comes_back_as_a_value_of_its_type(surf: Surf) -> None:
    ran: list[dict[str, Any]] = []
    function = taking({name: kind for name, (kind, *_) in FIELDS.items()}, ran)
    values = [value for _, value, *_ in FIELDS.values()]
    page = surf.page(held(function, *values))
    for name, day in (("day", "Sunday"), ("at", "Sunday")):
        drawn = page.locator(f'#call [data-argument="f{list(FIELDS).index(name)}"]')
        expect(drawn).to_contain_text(f"2026-03-01{'T09:30:00' * (name == 'at')} {day}")
    for place, (name, (_, _, (how, sent), _)) in enumerate(FIELDS.items()):
        part = {"line": ".0", "many": ".0.0"}.get(name, "")
        getattr(page.locator(f'[id="f{place}{part}"]'), how)(sent)
    pressed(page, f"Approve with {len(FIELDS)} changes")
    state_is(page, "approved")
    assert function(*values) == "ran"
    wanted = {name: after for name, (*_, after) in FIELDS.items()}
    assert [{name: (type(one), one) for name, one in ran[0].items()}] == [
        {name: (type(one), one) for name, one in wanted.items()}
    ]


def test_a_form_left_alone_changes_nothing(surf: Surf) -> None:
    ran: list[dict[str, Any]] = []
    function = taking({name: kind for name, (kind, *_) in FIELDS.items()}, ran)
    values = [value for _, value, *_ in FIELDS.values()]
    request_id = held(function, *values)
    page = surf.page(request_id)
    page.locator("#f0").fill("new")
    page.locator("#f0").fill("old")
    pressed(page, "Approve")
    state_is(page, "approved")
    assert stands(request_id).edited is None
    assert function(*values) == "ran"
    assert list(ran[0].values()) == values


def test_a_change_that_does_not_fit_decides_nothing_and_is_kept_in_the_form(surf: Surf) -> None:
    request_id = held(pay, 5)
    surf.expected = "422"
    page = surf.page(request_id)
    page.locator("#f1").fill("bob")
    page.locator("#f0").fill("")
    pressed(page, "Approve with 2 changes")
    expect(page.locator("#f0-problem")).to_be_visible()
    expect(page.locator("#f1")).to_have_value("bob")
    assert stands(request_id).state is State.PENDING


def test_a_person_rejects_sends_back_and_answers(surf: Surf) -> None:
    page = surf.page(held(pay, 1))
    page.get_by_label("Note to the program").fill("not today")
    pressed(page, "Reject")
    state_is(page, "rejected")
    page = surf.page(held(pay, 2))
    page.get_by_label("Note to the program").fill("half of it")
    pressed(page, "Send back")
    state_is(page, "feedback")
    request_id = asked("Which warehouse?", choices=["berlin", "lyon"])
    page = surf.page(request_id)
    page.get_by_role("radio", name="lyon").check()
    pressed(page, "Answer")
    state_is(page, "answered")
    assert sayso.ask("Which warehouse?", wait="raise", choices=["berlin", "lyon"]) == "lyon"
    for amount, reason in [(1, "not today"), (2, "half of it")]:
        with pytest.raises(sayso.ConfirmationRejected) as refused:
            pay(amount)
        assert reason in str(refused.value)


def test_several_are_decided_at_once_and_only_those_that_are_ticked(surf: Surf) -> None:
    ids = [held(pay, amount) for amount in range(3)]
    page = surf.tab("/")
    page.get_by_label("Select all").check()
    pressed(page, "Approve…")
    for key in "jjx":
        page.keyboard.press(key)
    expect(page.get_by_label("Approve rq_").nth(1)).not_to_be_checked()
    pressed(page, "Approve 2 of 3")
    expect(page.get_by_role("heading", level=1)).to_have_text("2 of 2 approved")
    assert [stands(one).state for one in ids] == [State.APPROVED, State.PENDING, State.APPROVED]


def test_what_is_typed_on_a_page_of_several_or_into_the_name_of_a_view_is_no_shortcut(surf: Surf) -> None:
    ids = [held(pay, amount) for amount in range(2)]
    page = surf.tab("/?q=pay")
    page.get_by_text("Save this view").click()
    expect(page.get_by_label("Name")).to_be_focused()
    page.keyboard.type("arxj")
    expect(page.get_by_label("Name")).to_have_value("arxj")
    page.goto(f"{surf.base}/bulk?verb=reject&id={ids[0]}&id={ids[1]}")
    expect(page.locator("[data-soon-live]")).to_have_count(0)
    page.keyboard.press("r")  # a no is final, and has a reason
    expect(page.locator("#note")).to_be_focused()
    page.keyboard.type("a raj")
    assert {stands(one).state for one in ids} == {State.PENDING}
    page.keyboard.press("Control+Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("2 of 2 rejected")
    assert [one.decision and one.decision.comment for one in map(stands, ids)] == ["a raj"] * 2


def test_of_two_tabs_the_second_is_told_and_decides_nothing(surf: Surf) -> None:
    request_id = held(pay, 5)
    surf.expected = "409"
    first, second = surf.page(request_id, java_script_enabled=False), surf.page(request_id, java_script_enabled=False)
    pressed(first, "Reject")
    pressed(second, "Approve")
    state_is(second, "rejected")
    expect(second.get_by_role("alert")).to_contain_text("It is rejected already, by ada")
    assert stands(request_id).state is State.REJECTED


# Sends the form of the page so many times at once, as as many tabs would.
AT_ONCE = """async (verbs) => {
  const form = document.querySelector("[data-decide]"), fields = new URLSearchParams(new FormData(form));
  const send = (verb) => fetch(form.action.replace("preview", verb), {method: "POST", body: fields});
  return (await Promise.all(verbs.map(send))).map((answer) => answer.status);
}"""


def test_of_many_tabs_at_once_one_decides(surf: Surf) -> None:
    surf.expected = "409"
    verbs = ["approve", "reject"] * 4
    for amount in range(5):
        request_id = held(pay, amount)
        page = surf.page(request_id)
        page.get_by_label("Note to the program").fill("x")  # so that the page stays when it hears of the decision
        statuses = page.evaluate(AT_ONCE, verbs)
        assert sorted(statuses) == [200, *[409] * 7]
        decision = stands(request_id).decision
        assert decision is not None
        assert decision.verb == verbs[statuses.index(200)]


def test_a_form_about_what_was_changed_meanwhile_decides_nothing_and_shows_the_change(surf: Surf) -> None:
    shared = sayso.gate(wait="raise", quorum=2, name="pay")(lambda amount, to="alice": f"{amount} {to}")
    request_id = held(shared, 5)
    surf.expected = "412"
    page = surf.page(request_id)
    sayso.Review().approve(request_id, by="bob", changes={"amount": 500})
    pressed(page, "Approve")
    expect(page.get_by_role("alert")).to_contain_text("changed since you opened it")
    expect(page.locator("#call")).to_contain_text("500")
    assert stands(request_id).state is State.PENDING
    assert [vote.by.subject for vote in stands(request_id).votes] == ["bob"]
    pressed(page, "Approve")
    state_is(page, "approved")


def test_a_form_of_what_has_expired_meanwhile_decides_nothing(surf: Surf) -> None:
    request_id = held(pay, 5)
    surf.expected = "409"
    page = surf.page(
        request_id, java_script_enabled=False
    )  # with scripts, the page may be loaded anew before the click
    sayso.Review().extend(request_id, "1ms", by="bob")
    pressed(page, "Approve")
    state_is(page, "expired")
    expect(page.get_by_role("alert")).to_contain_text("expired")
    assert stands(request_id).decision is None


def test_a_reload_in_the_middle_loses_nothing_and_repeats_nothing(surf: Surf) -> None:
    request_id = held(pay, 5)
    page = surf.page(request_id)
    page.locator("#f0").fill("7")
    page.get_by_label("Note to the program").fill("less")
    page.reload()
    expect(page.locator("#f0")).to_have_value("7")
    expect(page.get_by_label("Note to the program")).to_have_value("less")
    expect(page.locator("#call")).to_contain_text("5 → 7")
    page.locator("#f0").fill("8")
    pressed(page, "Approve with 1 change")
    state_is(page, "approved")
    page.reload()
    page.reload()
    state_is(page, "approved")
    expect(page.locator(".diff ins")).to_have_text("8")
    events = [entry.event for entry in sayso.Review().store.journal(run_id=stands(request_id).run_id)
              if entry.request_id == request_id]  # fmt: skip
    assert len([event for event in events if event != "asked"]) == 1


def test_without_scripts_a_person_signs_in_edits_and_approves(chromium: Any, surf: Surf, command: Path) -> None:
    request_id = held(pay, 5)
    with serving(command, sayso.Review().store.url) as link:
        page = chromium.new_context(java_script_enabled=False).new_page()
        page.goto(link)
        pressed(page, "Open the inbox")
        page.get_by_role("link", name='pay amount=5, to="alice"').click()
        page.wait_for_url(f"**/r/{request_id}*")  # nothing on the page before could be unfolded
        unfold(page)
        page.locator("#f1").fill("bob")
        pressed(page, "See what changes")
        expect(page.locator(".diff")).to_contain_text('"bob"')
        assert stands(request_id).state is State.PENDING
        pressed(page, "Approve with 1 change")
        state_is(page, "approved")
    assert pay(5) == "paid 5 to bob"


def test_letters_alone_open_refuse_and_approve_and_lead_to_the_next(surf: Surf) -> None:
    calm, risky = held(pay, 5), held(wipe, "/dev/sda")
    page = surf.tab("/")
    for key in ["j", "j", "k", "Enter"]:
        page.keyboard.press(key)
    page.wait_for_url(f"**/r/{risky}")
    expect(page.locator("[data-approve]")).to_be_enabled()
    asks = page.get_by_role("dialog", name="Risk high. Approve?")
    for press in (lambda: page.keyboard.press("a"), page.locator("[data-approve]").click):  # whatever presses it
        press()
        expect(asks.locator("#sure-what")).to_have_text(re.compile(r"^wipe\s*disk\s*/dev/sda\s*$"))
        page.keyboard.press("Escape")
        expect(asks).to_be_hidden()
        expect(page.locator("[data-approve]")).to_be_focused()
        assert stands(risky).state is State.PENDING
    page.locator("[data-edit]").evaluate("box => { box.open = true }")
    page.locator("#f0").fill("/dev/sdb")
    page.get_by_role("heading", level=1).click()
    page.keyboard.press("a")
    expect(asks).to_contain_text("/dev/sda → /dev/sdb")  # what runs is what is asked of
    page.keyboard.press("Escape")
    page.locator("#f0").fill("/dev/sda")
    page.get_by_role("heading", level=1).click()
    for key in ("a", "a", "Enter"):  # pressed again at once it is no second decision
        page.keyboard.press(key)
    expect(asks).to_be_visible()
    assert stands(risky).state is State.PENDING
    expect(asks.get_by_role("button", name="Approve")).to_be_focused()
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/r/{calm}?done={risky}")  # the next one that waits
    expect(page.locator("[data-done]")).to_contain_text("approved by ada")
    assert stands(risky).state is State.APPROVED
    expect(page.locator("[data-approve]")).to_be_enabled()
    page.keyboard.press("e")
    page.keyboard.type("a")  # in a field it is a letter
    page.locator("#f0").fill("5")
    page.keyboard.press("Escape")
    assert stands(calm).state is State.PENDING
    page.keyboard.press("e")
    page.keyboard.press("Control+Enter")
    state_is(page, "approved")  # nothing else waits, so its own page says what becomes of it
    assert pay(5) == "paid 5 to alice"


def test_letters_lead_from_one_request_to_its_neighbours(surf: Surf) -> None:
    first, second = held(pay, 1), held(pay, 2)
    page = surf.page(first)
    page.keyboard.press("j")
    page.wait_for_url(f"**/r/{second}")
    page.keyboard.press("k")
    page.wait_for_url(f"**/r/{first}")
    page.keyboard.press("g")
    page.keyboard.press("i")
    page.wait_for_url(f"{surf.base}/")
    page.keyboard.press("/")
    expect(page.get_by_role("searchbox")).to_be_focused()


def test_a_request_beyond_the_first_page_of_the_list_has_its_neighbours(surf: Surf) -> None:
    ids = [held(pay, amount) for amount in range(54)]
    page = surf.page(ids[51])
    expect(page.locator(".queue h2")).to_contain_text("52 of 54")
    for key, to in (("j", 52), ("k", 51), ("k", 50), ("k", 49), ("j", 50)):
        page.keyboard.press(key)
        page.wait_for_url(f"**/r/{ids[to]}")
    expect(page.locator("[data-queued]")).to_have_count(50)


def test_a_digit_chooses_an_answer(surf: Surf) -> None:
    request_id = asked("Which warehouse?", choices=["berlin", "lyon"])
    page = surf.page(request_id)
    expect(page.locator("[data-decides]:disabled")).to_have_count(0)
    page.keyboard.press("2")
    expect(page.get_by_role("radio", name="lyon")).to_be_checked()
    page.keyboard.press("a")
    state_is(page, "answered")
    assert sayso.ask("Which warehouse?", wait="raise", choices=["berlin", "lyon"]) == "lyon"


def test_filters_stay_while_one_request_after_the_other_is_decided(surf: Surf) -> None:
    first, other, second = held(pay, 1), held(wipe, "/dev/sda"), held(pay, 2)
    page = surf.tab("/?tool=pay")
    page.get_by_role("link", name='pay amount=1, to="alice"').click()
    expect(page.locator("[data-queued]")).to_have_count(2)
    page.get_by_label("Note to the program").fill("no")
    pressed(page, "Reject")
    page.wait_for_url(f"**/r/{second}?in=tool%3Dpay&done={first}")
    page.get_by_label("Note to the program").fill("no")
    pressed(page, "Reject")
    state_is(page, "rejected")
    expect(page.get_by_role("navigation", name="Requests")).to_contain_text("Nothing else matches. The whole inbox (1)")
    assert stands(other).state is State.PENDING


def test_whoever_cannot_decide_sees_why_until_they_can(surf: Surf) -> None:
    request_id = held(pay, 5)
    sayso.Review().claim(request_id, by="bob")
    page, other = surf.page(request_id), surf.page(request_id)
    why = page.locator("[data-why-not]:visible")
    expect(why).to_contain_text("bob")
    expect(page.locator("[data-approve]")).to_be_disabled()
    held(pay, 6)
    expect(page.locator("#pending")).to_have_text("2")  # it was told how things stand, and that is as it was sent
    expect(why).not_to_contain_text("Reload the page")
    other.fill("#note", "mine")
    sayso.Review().release(request_id, by="bob")
    expect(page.locator("[data-approve]")).to_be_enabled()
    expect(page.locator("[data-why-not]")).to_have_count(0)
    expect(other.locator("[data-why-not]:visible")).to_contain_text("bob has unclaimed it")
    other.reload()
    expect(other.locator("[data-approve]")).to_be_enabled()
    expect(other.locator("#note")).to_have_value("mine")


def test_the_page_of_a_call_shows_its_result_as_soon_as_there_is_one(surf: Surf) -> None:
    request_id = held(pay, 5)
    page = surf.page(request_id)
    sayso.Review(channel="cli").approve(request_id, by="bob")
    state_is(page, "approved")
    assert pay(5) == "paid 5 to alice"
    state_is(page, "done")
    expect(page.get_by_role("heading", name="Result")).to_be_visible()
    expect(page.get_by_role("button", name="Cancel the run")).to_have_count(0)


def test_what_is_decided_elsewhere_costs_nobody_their_edit(surf: Surf) -> None:
    request_id = held(pay, 5)
    page = surf.page(request_id)
    page.locator("#f0").fill("7")
    sayso.Review(channel="cli").reject(request_id, by="bob")
    expect(page.locator("[data-approve]")).to_be_disabled()
    expect(page.locator("[data-why-not]")).to_contain_text("It is rejected")
    expect(page.locator("#f0")).to_have_value("7")


def test_in_the_list_a_letter_only_leads_to_the_page_that_asks(surf: Surf) -> None:
    first, second = held(pay, 1), held(pay, 2)
    page = surf.tab("/")
    page.keyboard.press("a")  # nothing is selected and no row is marked
    assert page.url == f"{surf.base}/"
    for key in ["j", "j", "x", "k", "a"]:
        page.keyboard.press(key)
    page.wait_for_url("**/bulk?**")
    expect(page.locator("pre.call")).to_have_count(1)
    assert stands(second).state is State.PENDING
    expect(page.locator("[data-decides]")).to_be_enabled()
    page.keyboard.press("a")
    expect(page.get_by_role("heading", level=1)).to_have_text("1 of 1 approved")
    assert [stands(one).state for one in (first, second)] == [State.PENDING, State.APPROVED]


def wipe_disk(disk: str) -> None: ...


def test_several_at_high_risk_and_a_grant_ask_once_more_as_one_does(surf: Surf) -> None:
    risky = held(wipe, "/dev/sda")
    page = surf.tab(f"/bulk?verb=approve&id={risky}")
    asks = page.get_by_role("dialog", name="Risk high. Approve?")
    page.get_by_role("button", name="Approve 1").click()
    expect(asks).to_be_visible()
    page.goto(f"{surf.base}/r/{risky}")
    page.get_by_text("Approve, and the next ones like it").first.click()
    page.locator("[name=without]").first.check()
    page.get_by_role("button", name="Approve, and the next ones like it").click()
    asks = page.get_by_role("dialog", name="Risk high. Approve, and 5 more like it for 1 hour?")
    expect(asks).to_contain_text("In the calls after this one, these may be anything: disk")
    asks.get_by_role("button", name="Back").click()
    assert stands(risky).state is State.PENDING


def test_ticked_terms_of_a_grant_are_not_left_out_whatever_is_pressed(surf: Surf) -> None:
    surf.expected = "422"
    risky = held(wipe, "/dev/sda")
    for press in ("click", "key", "palette"):
        page = surf.tab(f"/r/{risky}")
        page.get_by_text("Approve, and the next ones like it").first.click()
        page.locator("[name=without]").first.check()
        expect(page.locator("[data-approve]")).to_be_enabled()
        if press == "click":
            page.locator("[data-approve]").click()
        elif press == "key":
            page.keyboard.press("a")
        else:
            page.keyboard.press("Control+k")
            page.locator("#palette-words").fill("approve")
            page.keyboard.press("Enter")
        expect(page.get_by_role("alert")).to_contain_text("Terms of a grant are ticked, and “Approve” makes none.")
        expect(page.locator("#sure")).to_be_hidden()
        expect(page.locator("[name=without]").first).to_be_checked()
        page.locator("[name=without]").first.uncheck()
        page.locator("[data-approve]").click()
        expect(page.get_by_role("dialog", name="Risk high. Approve?")).to_be_visible()
    assert stands(risky).state is State.PENDING


def test_the_question_about_a_high_risk_repeats_the_warnings(surf: Surf) -> None:
    twice = sayso.gate(wait="raise", risk="high", effect="wipe:{disk}")(wipe_disk)
    with sayso.run("first"):
        held(twice, "/dev/sda")
    with sayso.run("second"):
        page = surf.page(held(twice, "/dev/sda"))
    page.locator("[data-approve]").click()
    asks = page.get_by_role("dialog", name="Risk high. Approve?")
    expect(asks.locator(".warn")).to_contain_text("the same effect")


def test_what_is_typed_while_earlier_calls_are_counted_stays(surf: Surf) -> None:
    held(pay, 4)
    page, answers = surf.page(held(pay, 5)), list[Any]()
    page.route("**/preview-grant", lambda route: answers.append(route))  # noqa: PLW0108  a builtin takes no mark
    with page.expect_request("**/preview-grant"):
        page.get_by_text("Approve, and the next ones like it").first.click()
    page.evaluate("window.setTimeout = () => 0")  # what is typed is not asked about by itself before the answer comes
    page.get_by_label("at most").fill("3")
    with page.expect_response("**/preview-grant") as answer:
        answers[0].continue_()
    answer.value.finished()
    page.evaluate("fetch(location.href).then((it) => it.text())")  # after the answer, so it was read
    expect(page.get_by_label("at most")).to_have_value("3")


def test_a_bound_over_the_calls_own_number_is_refused_before_it_is_sent(surf: Surf) -> None:
    surf.expected = "422"  # of the count of earlier calls
    request_id = held(pay, 5)
    page = surf.page(request_id)
    page.get_by_text("Approve, and the next ones like it").first.click()
    bound = page.get_by_label("at most")
    bound.fill("6")
    expect(bound).to_have_js_property("validationMessage", "no more than 5, its value here")
    page.get_by_text("Approve, and the next ones like it").first.click()  # folds it
    expect(bound).to_be_hidden()
    page.locator("[data-approve]").click()
    expect(bound).to_be_focused()
    assert stands(request_id).state is State.PENDING
    bound.fill("5")
    page.locator("[data-approve]").click()
    state_is(page, "approved")


def test_a_key_that_is_held_down_decides_nothing(surf: Surf) -> None:
    request_id = held(pay, 5)
    page = surf.page(request_id)
    expect(page.locator("[data-approve]")).to_be_enabled()
    page.evaluate("document.body.dispatchEvent(new KeyboardEvent('keydown', {key: 'a', repeat: true, bubbles: true}))")
    page.keyboard.press("r")  # what is pressed after it counts
    expect(page.locator("#note")).to_be_focused()
    assert stands(request_id).state is State.PENDING
    risky = held(wipe, "/dev/sda")
    page = surf.page(risky)
    expect(page.locator("[data-approve]")).to_be_enabled()
    page.locator("[data-approve]").focus()
    yes = page.get_by_role("dialog", name="Risk high. Approve?").get_by_role("button", name="Approve")
    for _ in range(2):  # held down until the dialog can be answered: the second is the keyboard's own
        page.keyboard.down("Enter")
        expect(yes).to_be_focused()
    page.keyboard.up("Enter")
    expect(yes).to_be_visible()
    assert stands(risky).state is State.PENDING


def test_a_no_asks_for_its_reason_first_and_ctrl_enter_there_is_a_no(surf: Surf) -> None:
    for key, button, state in (("r", "Reject", State.REJECTED), ("f", "Send back", State.FEEDBACK)):
        request_id = held(taking({f"text{at}": str for at in range(12)}, []), *[f"long, for {key}"] * 12)
        page = surf.page(request_id)
        expect(page.locator("[data-approve]")).to_be_enabled()
        page.evaluate("scrollTo(0, 50)")
        for each in (key, "Escape", "n", "Escape", key):  # what was begun can be left, and a plain note is no answer
            page.keyboard.press(each)
            expect(page.locator(".aimed")).to_have_count(int(each == key))
        expect(page.locator(".aimed")).to_have_text(f"{button}{key}")
        assert page.evaluate("scrollY") == 50  # the bar is in sight, so the call stays where it is
        page.keyboard.type("a better reason")
        assert stands(request_id).state is State.PENDING
        page.keyboard.press("Control+Enter")
        state_is(page, str(state))
        decision = stands(request_id).decision
        assert (stands(request_id).state, decision and decision.comment) == (state, "a better reason")


def test_what_is_sent_back_by_the_mouse_asks_what_should_be_different_on_the_same_page(surf: Surf) -> None:
    request_id = held(pay, 5)
    page = surf.page(request_id)
    back, note = page.get_by_role("button", name="Send back"), page.locator("#note")
    expect(back).to_be_enabled()
    for _ in range(2):  # however often: what it needs is words
        back.click()
        expect(note).to_be_focused()
        expect(note).to_have_attribute("placeholder", "What should be different?")
    expect(page.get_by_role("alert")).to_have_count(0)
    assert stands(request_id).state is State.PENDING
    page.keyboard.type("half of it")
    back.click()
    state_is(page, "feedback")


def test_what_was_refused_is_what_the_note_sends_next(surf: Surf) -> None:
    surf.expected = "status of 422"
    request_id = held(pay, 5)
    page = surf.page(request_id)
    expect(page.locator("[data-approve]")).to_be_enabled()
    page.keyboard.press("f")
    page.keyboard.press("Control+Enter")  # it needs words, and says so before anything is sent
    expect(page.locator(".aimed")).to_contain_text("Send back")
    with page.expect_navigation():
        page.evaluate("document.querySelector('[data-key=f]').click()")  # sent all the same
    expect(page.get_by_role("alert")).to_contain_text("write in the note")
    expect(page.locator("#note")).to_be_focused()
    expect(page.locator(".aimed")).to_contain_text("Send back")
    expect(page.locator("[data-approve]")).to_be_enabled()
    page.keyboard.type("4000 is far too many")
    page.keyboard.press("Control+Enter")
    state_is(page, "feedback")


def test_commands_bring_other_buttons_into_sight_and_press_none(surf: Surf) -> None:
    request_id = held(pay, 5)
    page = surf.page(request_id)
    expect(page.locator("[data-approve]")).to_be_enabled()
    for words, name in (("cancel the", "Cancel the run"), ("extend", "Extend")):
        page.keyboard.press("Control+k")
        page.keyboard.type(words)
        page.keyboard.press("Enter")
        expect(page.get_by_role("button", name=name, exact=True)).to_be_focused()
    assert stands(request_id).state is State.PENDING


def test_whatever_is_announced_above_it_the_call_keeps_its_place_while_a_note_is_written(surf: Surf) -> None:
    request_id = held(taking({f"text{at}": str for at in range(12)}, []), *["long"] * 12)
    page = surf.page(request_id, viewport={"width": 1280, "height": 800})
    call = page.locator("#call")
    width = call.bounding_box()["width"]
    sayso.Review().stop(by="bob", reason="wrong prices")
    try:
        page.reload()
        expect(page.get_by_role("alert")).to_contain_text("wrong prices")
        assert call.bounding_box()["width"] == width
        above = page.get_by_role("alert").bounding_box()
        assert above["y"] + above["height"] <= page.locator(".queue").bounding_box()["y"]
        page.locator("#note").focus()
        page.evaluate("scrollTo(0, 40)")
        page.keyboard.type("not now", delay=20)
        assert page.evaluate("new Promise((done) => requestAnimationFrame(() => done(scrollY)))") == 40
    finally:
        sayso.Review().go(by="bob")


def test_a_click_that_rejects_asks_for_the_reason_first_and_a_second_one_needs_none(surf: Surf) -> None:
    request_id = held(pay, 5)
    page = surf.page(request_id)
    page.get_by_role("button", name="Reject").dblclick()  # two at once are one
    expect(page.locator(".aimed")).to_have_text("Rejectr")
    expect(page.locator("#note")).to_be_focused()
    assert stands(request_id).state is State.PENDING
    expect(page.locator("[data-soon-live]")).to_have_count(0)
    pressed(page, "Reject")
    state_is(page, "rejected")
    decision = stands(request_id).decision
    assert decision is not None
    assert decision.comment is None


def test_a_question_is_not_answered_with_nothing(surf: Surf) -> None:
    request_id = asked("What shall I write?")
    page = surf.page(request_id)
    expect(page.locator("[data-decides]:disabled")).to_have_count(0)
    page.keyboard.press("a")
    expect(page.locator("textarea#f0")).to_be_focused()
    page.keyboard.press("Control+Enter")  # the browser says that it is missing
    assert stands(request_id).state is State.PENDING
    page.keyboard.type("two\nlines")
    page.keyboard.press("Control+Enter")
    state_is(page, "answered")
    assert stands(request_id).answer == "two\nlines"


def test_a_request_far_down_the_list_opens_at_the_top_of_its_page(surf: Surf) -> None:
    ids = [held(pay, amount) for amount in range(20)]
    page = surf.tab(f"/r/{ids[-1]}", viewport={"width": 1280, "height": 600})
    expect(page.get_by_role("heading", level=1)).to_be_in_viewport()
    expect(page.locator("[data-queued][aria-current]")).to_be_in_viewport()
    assert page.evaluate("scrollY") == 0


def test_the_next_request_is_one_that_this_person_can_decide(surf: Surf) -> None:
    first, claimed, third = (held(pay, amount) for amount in (1, 2, 3))
    sayso.Review().claim(claimed, by="bob")
    page = surf.page(first)
    page.get_by_label("Note to the program").fill("no")
    pressed(page, "Reject")
    page.wait_for_url(f"**/r/{third}?done={first}")
    page.get_by_label("Note to the program").fill("no")
    pressed(page, "Reject")
    state_is(page, "rejected")  # what bob claimed is left to him
    assert page.url == f"{surf.base}/r/{third}"


def test_letters_can_be_switched_off_and_prefixes_lead_to_every_page(surf: Surf) -> None:
    request_id = held(pay, 5)
    page = surf.tab("/")
    page.clock.set_fixed_time("2026-01-01")  # as above
    for key, where in {"r": "runs", "h": "history", "n": "insights", "s": "settings", "i": ""}.items():
        page.keyboard.press("g")
        page.keyboard.press(key)
        page.wait_for_url(f"{surf.base}/{where}")
    page.keyboard.press("?")
    expect(page.get_by_role("heading", name="Keyboard shortcuts")).to_be_in_viewport(ratio=1)
    page.get_by_role("switch").uncheck()
    page.keyboard.press("Escape")
    page.goto(f"{surf.base}/r/{request_id}")
    expect(page.locator("[data-approve]")).to_be_enabled()
    for key in "arf?":
        page.keyboard.press(key)
    page.keyboard.press("g")
    page.keyboard.press("h")
    expect(page.get_by_role("dialog")).to_be_hidden()
    assert page.url.endswith(request_id)
    assert stands(request_id).state is State.PENDING


FOCUS = """() => {
  const at = document.activeElement, style = getComputedStyle(at);
  const said = at.cloneNode(true);
  said.querySelectorAll("[aria-hidden]").forEach((part) => part.remove());
  return [said.textContent.trim(), style.outlineStyle, parseFloat(style.outlineWidth)];
}"""


def test_with_tab_and_enter_alone_a_person_decides_and_sees_where_they_are(surf: Surf) -> None:
    request_id = held(pay, 5)
    page = surf.tab("/")

    def reach(words: str) -> None:
        for _ in range(60):
            page.keyboard.press("Tab")
            said, style, width = page.evaluate(FOCUS)
            assert style != "none", said
            assert width >= 2, said
            if said == words:
                return
        raise AssertionError(f"{words} is not reached")

    reach("Skip to the content")
    reach('pay amount=5, to="alice"')
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/r/{request_id}")
    expect(page.locator("[data-approve]")).to_be_enabled()
    reach("Approve")
    page.keyboard.press("Enter")
    state_is(page, "approved")


def test_an_open_inbox_is_told_of_new_requests_and_of_decisions_elsewhere(surf: Surf) -> None:
    request_id, other = held(pay, 5), held(pay, 6)
    page = surf.tab("/")
    expect(page).to_have_title("Inbox (2) · sayso")
    page.get_by_label("Select all").check()
    held(wipe, "/dev/sda")
    expect(page.locator("#news")).to_have_text("1 new request, show")
    expect(page).to_have_title("Inbox (3) · sayso")
    expect(page.locator("[data-row]")).to_have_count(2)
    page.locator("#news a").focus()
    sayso.Review(channel="cli").reject(request_id, by="bob")
    expect(page.locator(f"#at-{request_id}")).to_contain_text("rejected by bob (cli")
    expect(page.locator(f"#state-{request_id}")).to_have_text("rejected")
    expect(page.locator(f"[name=id][value={request_id}]")).to_be_disabled()
    expect(page.locator(f"[name=id][value={other}]")).to_be_checked()
    expect(page).to_have_title("Inbox (2) · sayso")
    expect(page.locator("#news a")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_role("link", name="wipe")).to_be_visible()


def test_what_somebody_else_is_looking_at_says_so(surf: Surf) -> None:
    request_id = held(pay, 5)
    page = surf.tab("/")
    expect(page.locator(f"#at-{request_id}")).to_be_visible()
    sayso.Review().claim(request_id, by="bob")
    expect(page.locator(f"#at-{request_id}")).to_contain_text("claimed by bob")
    expect(page.locator(f"[name=id][value={request_id}]")).to_be_enabled()


def test_a_countdown_goes_on(surf: Surf) -> None:
    @sayso.gate(wait="raise", expires="3599s")
    def hurry() -> None: ...

    page = surf.page(held(hurry))
    shown = page.locator(".standing .end time")
    expect(shown).to_have_text(re.compile(r"^in 59m( \d+s)?$"))
    first = shown.text_content()
    expect(shown).not_to_have_text(first)
    assert len(re.findall(r"in \d", page.locator(".standing").inner_text())) == 1, "the end stands there twice"


@pytest.mark.parametrize("with_scripts", [True, False])
def test_enter_in_a_box_decides_nothing(surf: Surf, with_scripts: bool) -> None:
    @sayso.gate(wait="raise", risk="high", effect="wipe everything")
    def wipe_all() -> None: ...

    with sayso.run(f"first {with_scripts}"):
        held(wipe_all)
    with sayso.run(f"second {with_scripts}"):
        request_id = held(wipe_all)
    page = surf.tab(f"/r/{request_id}", java_script_enabled=with_scripts)
    expect(page.locator("[data-approve]")).to_be_enabled()
    for name in ("again",) if with_scripts else ("again", "sure"):
        page.locator(f"[name={name}]").check()
        page.keyboard.press("Enter")  # it would press the first button of the form that can be pressed
    with page.expect_navigation():
        page.locator("#comment").fill("still here")
        page.get_by_role("button", name="Comment").click()
    assert stands(request_id).state is State.PENDING
    assert sayso.Review().grants() == []


def test_a_page_whose_dialog_was_closed_is_loaded_again_when_its_request_is_decided(surf: Surf) -> None:
    request_id = held(pay, 5)
    page = surf.page(request_id)
    page.keyboard.press("?")
    page.get_by_role("button", name="Close").click()
    with page.expect_navigation(wait_until="load"):
        sayso.Review().reject(request_id, "no", by="bob")
    state_is(page, "rejected")


def test_a_draft_is_not_shown_to_somebody_else_who_signs_in_to_the_same_tab(surf: Surf, site: tuple[Surf, str]) -> None:
    request_id = held(pay, 5)
    page = surf.page(request_id)
    page.locator("#note").fill("for my eyes only")
    page.locator("#comment").fill("for my eyes only")
    page.context.clear_cookies()
    app = create_app(config.open_store(site[1]))
    for name, note in (("bob", ""), ("ada", "for my eyes only")):
        page.goto(surf.base + login_path(app, sayso.Reviewer(name)))
        page.wait_for_url(f"{surf.base}/")
        page.goto(f"{surf.base}/r/{request_id}")
        expect(page.locator(".who strong")).to_have_text(name)
        expect(page.locator("#note")).to_have_value(note)
        expect(page.locator("#comment")).to_have_value(note)


def test_an_edit_outlives_the_end_of_its_session_and_decides_nothing_until_it_is_seen_again(
    surf: Surf, site: tuple[Surf, str]
) -> None:
    surf.expected = "status of 40"
    request_id = held(pay, 5)
    page = surf.page(request_id)
    page.locator("#f1").fill("bob")
    page.locator("#note").fill("as agreed")
    page.context.clear_cookies()
    page.locator("[data-approve]:enabled").click()
    expect(page.locator("main")).to_contain_text("Sign in")
    assert stands(request_id).state is State.PENDING
    page.goto(surf.base + login_path(create_app(config.open_store(site[1])), sayso.Reviewer("ada")))
    page.wait_for_url(f"{surf.base}/")
    page.goto(f"{surf.base}/r/{request_id}")
    expect(page.locator("#f1")).to_have_value("bob")
    expect(page.locator("#note")).to_have_value("as agreed")
    expect(page.locator("[data-approve] > span")).to_have_text("Approve with 1 change")
    page.locator("[data-approve]:enabled").click()
    state_is(page, "approved")
    assert pay(5) == "paid 5 to bob"


SUBMITS = """
from sayso.mplp import Plan, PlanStep, submit_plan_for_approval
plan = Plan(plan_id="550e8400-e29b-41d4-a716-446655440501", title="Migration", objective="Move the data",
            steps=[PlanStep(description="Export")])
print(submit_plan_for_approval(plan, "planner").confirm_id, plan.status)
"""
READS = """
from sayso.mplp import read_confirm, read_plan
plan = read_plan("550e8400-e29b-41d4-a716-446655440501")
confirm = read_confirm(plan.plan_id)
print(confirm.confirm_id, plan.status, confirm.status, confirm.decisions[-1].decided_by_role)
"""


def test_a_plan_is_submitted_in_one_process_approved_here_and_seen_as_approved_in_a_third(
    surf: Surf, site: tuple[Surf, str]
) -> None:
    def printed(program: str) -> list[str]:
        environment = {**os.environ, "SAYSO_STORE": site[1]}
        words = [sys.executable, "-c", program]
        return subprocess.run(words, env=environment, check=True, capture_output=True, text=True).stdout.split()

    confirm_id, status = printed(SUBMITS)
    assert status == "proposed"
    page = surf.tab("/")
    page.get_by_role("link", name=re.compile("carry_out_plan")).click()
    expect(page.locator("main")).to_contain_text("Migration")
    pressed(page, "Approve")
    state_is(page, "approved")
    assert printed(READS) == [confirm_id, "approved", "approved", "ada"]
