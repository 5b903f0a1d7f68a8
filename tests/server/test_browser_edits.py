"""What the page of a request says of an edit, in a real browser: always what would be approved if it were pressed now.

The invariant: the button and the list of changes compare what stands in the form with what was proposed, whenever it
was written and by whom.
"""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field

import sayso
from sayso.model.request import State
from tests.support.gated import Line, pay, taking
from tests.support.surfing import Surf, asked, held, need, pressed, stands, state_is

expect = need().expect
pytestmark = pytest.mark.slow


def arguments(request_id: str) -> dict[str, Any]:
    edited = stands(request_id).edited
    return {} if edited is None else dict(edited.shown)


def test_what_is_written_before_the_script_runs_counts_as_a_change(surf: Surf) -> None:
    request_id = held(pay, 5)
    page = surf.tab("/")
    waiting: list[Any] = []

    def hold(route: Any) -> None:
        waiting.append(route)

    page.route("**/inbox.js*", hold, times=1)
    page.goto(f"{surf.base}/r/{request_id}", wait_until="commit")
    page.locator("[data-edit] > summary").click()
    page.locator("#f0").fill("7")
    assert len(waiting) == 1
    waiting[0].continue_()
    expect(page.locator("[data-live-diff] li")).to_have_text(["amount: 5 → 7"])
    pressed(page, "Approve with 1 change")
    state_is(page, "approved")
    assert arguments(request_id) == {"amount": 7, "to": "alice"}


def test_a_change_that_was_shown_and_is_taken_back_is_none(surf: Surf) -> None:
    request_id = held(pay, 5)
    page = surf.page(request_id)
    page.locator("#f0").fill("7")
    pressed(page, "See what changes")
    expect(page.locator("[data-previewed]")).to_contain_text("7")
    expect(page.locator("#call .is-edited ins")).to_have_text("7")  # the card says what will run, too
    page.locator("#f0").fill("5")
    expect(page.locator("[data-previewed]")).to_have_count(0)
    expect(page.locator("#call .is-edited")).to_have_count(0)
    expect(page.locator("[data-approve]")).to_be_enabled()
    page.keyboard.press("Escape")
    page.keyboard.press("Control+Enter")
    state_is(page, "approved")
    assert arguments(request_id) == {}


def test_of_a_long_text_and_of_json_the_lines_that_change_are_shown_and_those_around_them(surf: Surf) -> None:
    text = "\n".join(f"line {number}" for number in range(60))
    page = surf.page(held(taking({"body": str, "more": Any}, []), text, {"list": list(range(60))}))
    page.locator("#f0").fill(text.replace("line 9\n", "line nine\n").replace("line 50", "line fifty"))
    page.locator("#f1").fill(page.locator("#f1").input_value().replace("30,", "31,"))
    around = [*["  line 6", "  line 7", "  line 8", "- line 9", "+ line nine", "  line 10", "  line 11", "  line 12"],
              "…", *["  line 47", "  line 48", "  line 49", "- line 50", "+ line fifty"]]  # fmt: skip
    bare = ["- line 9", "+ line nine", "…", "- line 50", "+ line fifty"]
    for place, lines, signs in (("#call .is-edited", around, "…   -+   …"), ("[data-live-diff] li", bare, "…-+…")):
        body, more = page.locator(f"{place} .lines").all()
        assert [line.rstrip("\n") for line in body.locator(".line").all_text_contents()][1 : len(lines) + 1] == lines
        assert [line[0] for line in more.locator(".line").all_text_contents()] == list(signs)
    assert page.locator("#call .is-edited").first.bounding_box()["height"] < 400


def test_changes_before_and_after_one_that_was_shown_are_both_counted(surf: Surf) -> None:
    request_id = held(pay, 5)
    page = surf.page(request_id)
    page.locator("#f0").fill("7")
    pressed(page, "See what changes")
    page.locator("#f1").fill("bob")
    expect(page.locator("[data-live-diff] li")).to_have_text(["amount: 5 → 7", "to: alice → bob"])
    pressed(page, "Approve with 2 changes")
    state_is(page, "approved")
    assert arguments(request_id) == {"amount": 7, "to": "bob"}


def test_changes_that_were_refused_are_still_said_to_be_changes(surf: Surf) -> None:
    request_id = held(pay, 5)
    surf.expected = "422"
    page = surf.page(request_id)
    page.locator("#f0").fill("")
    page.locator("#f1").fill("bob")
    pressed(page, "Approve with 2 changes")
    expect(page.locator("[data-live-diff] li")).to_have_text(["amount: 5 → (nothing)", "to: alice → bob"])
    expect(page.locator("[data-approve] > span")).to_have_text("Approve with 2 changes")
    assert stands(request_id).state is State.PENDING
    page.locator("#f0").fill("6")
    pressed(page, "Approve with 2 changes")
    state_is(page, "approved")
    assert arguments(request_id) == {"amount": 6, "to": "bob"}


@pytest.mark.parametrize(("proposed", "after"), [(5, {"v": None}), (None, {})])
def test_null_that_is_chosen_after_a_value_was_typed_is_null(
    surf: Surf, proposed: int | None, after: dict[str, Any]
) -> None:
    request_id = held(taking({"v": int | None}, []), proposed)
    page = surf.page(request_id)
    page.locator("#f0").fill("7")
    page.locator("#f0-way").select_option("null")
    expect(page.locator("#f0")).to_have_value("" if proposed is None else str(proposed))
    pressed(page, "Approve with 1 change" if after else "Approve")
    state_is(page, "approved")
    assert arguments(request_id) == after


def test_what_is_written_is_never_under_the_bar_that_decides(surf: Surf) -> None:
    function = taking({f"argument_{number}": int for number in range(12)}, [])
    page = surf.page(held(function, *range(12)), viewport={"width": 1280, "height": 800})
    for number in range(12):
        page.locator(f"#f{number}").fill("99")
        bar = page.locator(".bar").bounding_box()
        field = page.locator(f"#f{number}").bounding_box()
        assert field["y"] + field["height"] <= bar["y"], number


def test_a_change_of_an_amount_has_the_form_that_the_card_has(surf: Surf) -> None:
    page = surf.page(held(taking({"amount": float, "port": int}, []), 12500.5, 8080))
    expect(page.locator('#call [data-argument="f0"]')).to_have_text("12,500.50")
    page.locator("#f0").fill("1250000.5")
    page.locator("#f1").fill("9090")
    for changes in (page.locator("[data-live-diff]"), page.locator("#call")):
        expect(changes).to_contain_text("12,500.50 → 1,250,000.50")
        expect(changes).to_contain_text("8080 → 9090")
    page.locator("#f0").fill("12500.5")
    expect(page.locator("[data-live-diff]")).not_to_contain_text("12,500")


def test_in_a_long_text_words_are_found_marked_and_counted(surf: Surf) -> None:
    lines = [f"line {number}" for number in range(400)]
    lines[250] = lines[390] = "pay NEEDLE (now)"
    text = "\n".join(["SELECT 1 FROM a", *lines])
    request_id = held(taking({"sql": str, "short": str}, []), text, "a\nb")
    page = surf.page(request_id)
    box, field = page.locator("#call pre.block").first, page.get_by_label("Find in sql")
    expect(page.locator("[data-find]:not([hidden])")).to_have_count(1)  # what is in sight needs no search
    expect(page.locator("#call .is-block small").first).to_have_text(f"sql, {len(text):,} characters")
    field.fill("needle (NOW)")
    expect(page.locator("#call output").first).to_have_text("1 of 2")
    marked = "() => [...CSS.highlights.get('found')].map((one) => one.toString())"
    assert page.evaluate(marked) == ["NEEDLE (now)"] * 2
    first = box.evaluate("(box) => box.scrollTop")
    field.press("Enter")
    expect(page.locator("#call output").first).to_have_text("2 of 2")
    assert box.evaluate("(box) => box.scrollTop") > first > 0
    field.press("Enter")
    expect(page.locator("#call output").first).to_have_text("1 of 2")
    field.fill("nowhere")
    expect(page.locator("#call output").first).to_have_text("not found")
    field.press("Control+Enter")
    expect(page.locator("[data-live-diff]")).to_be_hidden()  # what is searched for is no edit
    assert stands(request_id).state is State.PENDING
    bare = surf.tab(f"/r/{request_id}", java_script_enabled=False)
    expect(bare.locator("#call [data-find]").first).to_be_hidden()


def test_a_list_of_objects_is_edited_by_rows_and_each_change_names_its_row(surf: Surf) -> None:
    request_id = held(taking({"lines": list[Line]}, []), [Line(sku="a"), Line(sku="b")])
    page = surf.page(request_id)
    page.locator("[id='f0.1.1']").fill("5")
    page.get_by_text("Add a row").first.click()
    page.locator("[id='f0.2.0']").fill("c")
    page.locator("[id='f0.0-way']").select_option("absent")
    expect(page.locator("[data-live-diff] li")).to_have_text(
        ["lines, row 1: given → left out", "lines, row 2, count: 1 → 5", "lines, row 3, sku: (nothing) → c"]
    )
    pressed(page, "Approve with 3 changes")
    state_is(page, "approved")
    edited = stands(request_id).edited
    assert edited is not None
    assert [line["$model"][1] for line in edited.shown["lines"]] == [{"sku": "b", "count": 5}, {"sku": "c", "count": 1}]


class Meeting(BaseModel):
    room: str
    at: dt.datetime | None = None
    until: dt.time | None = None


def test_a_moment_that_has_no_value_yet_is_chosen_with_its_offset(surf: Surf) -> None:
    request_id = held(taking({"meetings": list[Meeting]}, []), [Meeting(room="a")])
    page = surf.page(request_id, timezone_id="Europe/Berlin")
    page.get_by_text("Add a row").first.click()
    page.locator("[id='f0.1.0']").fill("b")
    moment, picker = page.locator("[id='f0.1.1']"), page.locator(".moment:has([id='f0.1.1']) [type=datetime-local]")
    for chosen, written in (("2026-07-01T14:30", "2026-07-01T14:30:00+02:00"), ("2026-12-01T09:05", None)):
        picker.fill(chosen)
        expect(moment).to_have_value(written or "2026-12-01T09:05:00+02:00")  # the offset that stood there stays
    moment.fill("")
    picker.fill("2026-12-01T09:05")
    expect(moment).to_have_value("2026-12-01T09:05:00+01:00")
    page.locator("[id='f0.1.2']").fill("10:15")
    expect(page.locator("[data-live-diff] li")).to_have_count(3)
    pressed(page, "Approve with 3 changes")
    state_is(page, "approved")
    row = arguments(request_id)["meetings"][1]["$model"][1]
    assert row == {"room": "b", "at": {"$datetime": "2026-12-01T09:05:00+01:00"}, "until": {"$time": "10:15:00"}}


def test_a_date_that_lacks_its_time_is_not_left_out_of_an_approval(surf: Surf) -> None:
    request_id = held(taking({"at": dt.datetime | None}, []), None)
    page = surf.page(request_id, timezone_id="Europe/Berlin")
    picker = page.get_by_label("at: choose a date and time")
    picker.focus()
    page.keyboard.type("12012026")
    approve = page.locator("[data-approve]:enabled")
    approve.click()
    assert picker.evaluate("each => each.validity.badInput && document.activeElement === each")
    assert stands(request_id).state == "pending"
    picker.fill("2026-12-01T09:30")
    expect(page.locator("#f0")).to_have_value("2026-12-01T09:30:00+01:00")
    pressed(page, "Approve with 1 change")
    state_is(page, "approved")
    assert arguments(request_id) == {"at": {"$datetime": "2026-12-01T09:30:00+01:00"}}


def test_a_picker_shows_what_is_written_beside_it(surf: Surf) -> None:
    end = dt.datetime(2027, 1, 4, 8, tzinfo=dt.UTC)
    page = surf.page(held(taking({"end": dt.datetime}, []), end), timezone_id="Europe/Berlin")
    moment, picker = page.locator("#f0"), page.get_by_label("end: choose a date and time")
    expect(picker).to_have_value("2027-01-04T08:00")
    moment.fill("2027-01-05T09:30:00+01:00")
    expect(picker).to_have_value("2027-01-05T09:30")
    page.reload()  # which restores the draft
    expect(picker).to_have_value("2027-01-05T09:30")
    moment.fill("tomorrow")
    expect(picker).to_have_value("")
    picker.fill("2027-01-06T10:00")
    picker.fill("")
    expect(moment).to_have_value("")


@pytest.mark.parametrize("has_scripts", [True, False])
def test_a_question_for_a_moment_is_answered_by_a_picker_or_as_text(surf: Surf, has_scripts: bool) -> None:
    request_id = asked("When?", type=dt.datetime)
    page = surf.tab(f"/r/{request_id}", java_script_enabled=has_scripts, timezone_id="Asia/Kolkata")
    if has_scripts:
        page.get_by_label("answer: choose a date and time").fill("2026-07-01T14:30")
    else:
        page.locator("#f0").fill("2026-07-01T14:30:00+05:30")
    pressed(page, "Answer")
    state_is(page, "answered")
    assert stands(request_id).answer == "2026-07-01T14:30:00+05:30"


def test_a_change_of_an_amount_is_written_in_the_readers_language(surf: Surf) -> None:
    page = surf.page(held(taking({"amount": float}, []), 12500.5), locale="de-DE")
    page.locator("#f0").fill("1250000.5")
    for changes in (page.locator("[data-live-diff]"), page.locator("#call")):
        expect(changes).to_contain_text("12.500,50 → 1.250.000,50")


def test_a_decimal_comma_is_taken_where_the_pages_language_writes_one(surf: Surf) -> None:
    request_id = held(taking({"amount": float, "rate": float}, []), 12500.5, 1.5)
    page = surf.page(request_id, locale="de-DE")
    page.locator("#f0").fill("12500,50")
    page.locator("#f1").fill("1,5")
    expect(page.locator("[data-live-diff]")).to_be_hidden()  # these are the numbers that stood there
    page.locator("#f0").fill("950,5")
    page.locator("#f1").fill("2,25")
    for changes in (page.locator("[data-live-diff]"), page.locator("#call")):
        expect(changes).to_contain_text("12.500,50 → 950,50")
        expect(changes).to_contain_text("1.5 → 2.25")
    pressed(page, "Mit 2 Änderungen freigeben")
    expect(page.locator("main .tags .state").first).to_have_class("state state-approved")
    assert arguments(request_id) == {"amount": 950.5, "rate": 2.25}


def test_an_amount_that_is_refused_is_shown_as_it_was_typed(surf: Surf) -> None:
    page = surf.page(held(taking({"amount": float}, []), 12500.5), locale="de-DE")
    for typed in ("1.250", "1,250", "1 250,50"):
        page.locator("#f0").fill(typed)
        for changes in (page.locator("[data-live-diff] li"), page.locator("#call [data-edited]")):
            assert changes.inner_text().endswith(f"12.500,50 → {typed}")


def test_of_an_amount_and_its_currency_the_card_says_which_changes(surf: Surf) -> None:
    page = surf.page(held(taking({"amount": float, "currency": str}, []), 12500.5, "EUR"))
    card = page.locator("#call dd")
    expect(card).to_have_text("12,500.50 EUR")
    page.locator("#f1").fill("USD")
    expect(card).to_have_text("12,500.50 EUR → 12,500.50 USD", use_inner_text=True)
    page.locator("#f0").fill("13000")
    expect(card).to_have_text("12,500.50 EUR → 13,000 USD", use_inner_text=True)
    pressed(page, "Approve with 2 changes")
    state_is(page, "approved")
    expect(page.locator("#call dd.is-changed")).to_have_text("13,000.00 USD")


def test_a_comment_that_is_not_sent_is_kept(surf: Surf) -> None:
    first, second = held(pay, 5), held(pay, 6)
    page = surf.page(first)
    comment = page.locator("#comment")
    comment.fill("who is\nthis alice?")
    page.keyboard.press("Escape")
    page.keyboard.press("j")
    page.wait_for_url(f"**/r/{second}*")
    expect(comment).to_have_value("")  # it is about the other request
    page.keyboard.press("k")
    page.wait_for_url(f"**/r/{first}*")
    expect(comment).to_have_value("who is\nthis alice?")
    page.keyboard.press("Escape")
    expect(page.locator("[data-soon-live]")).to_have_count(0)
    page.keyboard.press("a")  # the decision opens the next request
    page.wait_for_url(f"**/r/{second}*")
    page.goto(f"{surf.base}/r/{first}")
    expect(comment).to_have_value("who is\nthis alice?")


def test_a_note_that_was_refused_is_kept_while_a_comment_is_sent(surf: Surf) -> None:
    surf.expected = "422"
    page = surf.page(held(pay, 5))
    page.locator("#f0").fill("7")
    page.locator("#note").fill("less")
    pressed(page, "Send back")
    page.get_by_label("Add my changes to the note, as text").check()
    page.locator("#comment").fill("I send it back")
    page.get_by_role("button", name="Comment", exact=True).click()
    expect(page.locator("#newest-comment")).to_contain_text("I send it back")
    expect(page.locator("#note")).to_have_value("less")
    expect(page.locator("#f0")).to_have_value("7")


def test_a_comment_is_kept_until_it_is_on_the_page(surf: Surf) -> None:
    request_id = held(pay, 5)
    page = surf.page(request_id)
    comment = page.locator("#comment")
    comment.fill("who is alice?")
    surf.expected = "401"
    page.route(f"**/r/{request_id}/comment", lambda route: route.fulfill(status=401, body="signed out"), times=1)
    with page.expect_navigation():  # the answer is none of its pages, so it loads itself again
        comment.press("Control+Enter")
    expect(comment).to_have_value("who is alice?")
    comment.press("Control+Enter")
    expect(page.locator(".talk li pre")).to_have_text("who is alice?")
    expect(comment).to_have_value("")
    page.reload()
    expect(comment).to_have_value("")


def test_an_answer_of_the_wrong_type_comes_back_with_what_to_write(surf: Surf) -> None:
    request_id = asked("How many?", type=int)
    page = surf.tab(f"/r/{request_id}")
    surf.expected = "422"
    answer = page.locator("#f0")
    for is_enhanced in (True, False):
        if not is_enhanced:
            page = surf.tab(f"/r/{request_id}", java_script_enabled=False)
            answer = page.locator("#f0")
        answer.fill("two dozen")
        page.get_by_role("button", name="Answer").click()
        expect(page.locator("#f0-problem")).to_have_text("write a whole number, such as 12")
        expect(answer).to_have_value("two dozen")
    state_is(page, "pending")
    answer.fill("24")
    page.get_by_role("button", name="Answer").click()
    state_is(page, "answered")
    assert stands(request_id).answer == 24


def test_who_may_not_decide_because_of_a_claim_finds_unclaim_at_the_buttons(surf: Surf) -> None:
    request_id = held(pay, 5)
    sayso.Review().claim(request_id, by="bob")
    page = surf.page(request_id, viewport={"width": 390, "height": 600})
    unclaim = page.locator(".bar").get_by_role("button", name="Unclaim for bob")
    expect(unclaim).to_be_in_viewport()
    page.locator("#note").fill("I take it")
    unclaim.click()
    expect(page.locator("[data-why-not]")).to_have_count(0)
    expect(page.locator("#note")).to_have_value("I take it")
    more = page.locator(".bar .more")
    for name, claimed in (("Claim", "ada"), ("Unclaim", None)):
        more.locator("summary").click()
        more.get_by_role("button", name=name, exact=True).click()
        expect(page.locator("#until-" + request_id)).to_have_attribute("data-claimed", claimed or "")
        holder = stands(request_id).claimed_by
        assert (holder and holder.subject) == claimed


def test_who_lacks_a_role_is_not_offered_to_unclaim_at_the_buttons(surf: Surf) -> None:
    @sayso.gate(wait="raise", roles=["finance"])
    def refund(amount: int) -> None: ...

    request_id = held(refund, 5)
    bob = sayso.Review(reviewer=sayso.Reviewer("bob", roles=["finance"]))
    bob.claim(request_id)
    page = surf.page(request_id)
    expect(page.locator("[data-why-not]")).to_contain_text("you need the role finance")
    expect(page.locator(".bar").get_by_role("button", name="Unclaim for bob")).to_have_count(0)
    bob.reject(request_id)  # the next test begins without it


def test_the_question_about_a_high_risk_shows_the_lines_of_a_text(surf: Surf) -> None:
    @sayso.gate(wait="raise", risk="high")
    def send(to: str, body: str) -> None: ...

    body = "Dear Alice,\n\nthe house is sold.\n" + "Yours, Bob " * 40
    request_id = held(send, "alice@example.com", body)
    page = surf.page(request_id)
    page.locator("#f0").fill("bob@example.com")
    page.get_by_role("button", name="Approve with 1 change").click()
    asks = page.locator("#sure-what")
    expect(asks.locator("dd")).to_have_count(2)
    assert asks.locator("dd").nth(1).inner_text().startswith("Dear Alice,\n\nthe house is sold.\nYours, Bob")
    assert body.strip() in asks.inner_text()
    expect(asks.locator("dd").first).to_have_text("alice@example.com → bob@example.com", use_inner_text=True)
    expect(page.locator("#sure-changes li")).to_have_text("to: alice@example.com → bob@example.com")


def test_the_question_about_a_high_risk_shows_the_edited_amount_and_strikes_the_old_one(surf: Surf) -> None:
    @sayso.gate(wait="raise", risk="high")
    def wire(amount: float, currency: str, to: str) -> None: ...

    request_id = held(wire, 12500.5, "EUR", "alice")
    page = surf.page(request_id)
    page.locator("#f0").fill("1250.05")
    page.locator("#f2").fill("bob")
    page.get_by_role("heading", level=1).click()
    expect(page.locator("[data-approve]")).to_be_enabled()
    page.keyboard.press("a")
    expect(page.get_by_role("dialog", name="Risk high. Approve?")).to_be_visible()
    for place in (page.locator("#sure-what"), page.locator("#call")):
        amount, to = place.locator("dd").all()
        expect(amount).to_have_text("12,500.50 EUR → 1,250.05 EUR", use_inner_text=True)
        expect(amount.locator("del")).to_have_text("12,500.50 EUR")
        expect(amount.locator("ins")).to_have_text("1,250.05 EUR")
        expect(to).to_have_text("alice → bob", use_inner_text=True)
    page.keyboard.press("Escape")
    page.locator("#f0").fill("12500.5")
    page.locator("#f2").fill("alice")
    page.get_by_role("button", name="Approve", exact=True).click()
    expect(page.locator("#sure-what dd")).to_have_text(["12,500.50 EUR", "alice"], use_inner_text=True)
    assert stands(request_id).state is State.PENDING


def test_what_the_form_can_tell_is_wrong_is_said_before_the_question_about_a_high_risk(surf: Surf) -> None:
    @sayso.gate(wait="raise", risk="high")
    def move(count: Annotated[int, Field(ge=1, le=99)], rate: Decimal, name: Annotated[str, Field(max_length=3)],
             more: Any) -> None: ...  # fmt: skip

    request_id = held(move, 5, Decimal("1.5"), "abc", {"a": 1})
    page = surf.page(request_id)
    approve, asks = page.locator("[data-approve]"), page.get_by_role("dialog", name="Risk high. Approve?")
    expect(approve).to_be_enabled()
    for place, wrong, why in (
        ("#f0", "five", "write a whole number, such as 12"), ("#f0", "5.5", "write a whole number, such as 12"),
        ("#f0", "", "write a whole number, such as 12"), ("#f0", "100", "at most 99"), ("#f0", "-1", "at least 1"),
        ("#f1", "1,250", "such as 4900.50"), ("#f2", "abcd", "length at most 3"),
        ("#f3", "{", "this is not valid JSON"),
    ):  # fmt: skip
        field = page.locator(place)
        was = field.input_value()
        field.fill(wrong)
        page.locator("[data-edit] > summary").click()  # which folds the field away
        approve.click()
        expect(field).to_be_focused()
        assert why in field.evaluate("(field) => field.validationMessage"), wrong
        expect(asks).to_be_hidden()
        field.fill(was)
    page.locator("#f0").fill("12345678901234567890")  # which is not exact here: the server compares it
    approve.click()
    expect(asks).to_be_visible()
    asks.get_by_role("button", name="Back").click()
    page.locator("#f0").fill("7")
    approve.click()
    pressed(page, "Approve")
    state_is(page, "approved")


def test_on_a_german_page_a_number_with_two_meanings_is_said_before_the_question(surf: Surf) -> None:
    @sayso.gate(wait="raise", risk="high")
    def pay_out(amount: float) -> None: ...

    page = surf.page(held(pay_out, 5.5), locale="de-DE")
    expect(page.locator("[data-approve]")).to_be_enabled()
    for typed, why in (("1.250", "1250 oder 1.2500"), ("1,250", "ohne andere Zeichen schreiben, etwa 4900.50")):
        page.locator("#f0").fill(typed)
        page.locator("[data-approve]").click()
        assert why in page.locator("#f0").evaluate("(field) => field.validationMessage")
    expect(page.locator("#sure")).to_be_hidden()
    page.locator("#f0").fill("1250,5")
    page.locator("[data-approve]").click()
    expect(page.locator("#sure-changes li")).to_have_text("amount: 5,50 → 1.250,50")


def test_of_a_nested_or_removed_value_the_card_says_that_it_stands_before_the_change(surf: Surf) -> None:
    act = taking({"line": Line, "note": str | None}, [])
    page = surf.page(held(act, Line(sku="a"), "soon"))
    line, note = page.locator("#call dd").all()
    page.locator("[id='f0.1']").fill("5")
    expect(line).to_contain_text("Before your changes below:")
    expect(line).to_contain_text("count: 1 → 5")
    page.locator("#f1-way").select_option("null")
    expect(note).to_contain_text("given → nothing (null)")
    assert "line-through" in note.locator("[data-as-is]").evaluate("(old) => getComputedStyle(old).textDecorationLine")
    page.locator("[id='f0.1']").fill("1")
    page.locator("#f1-way").select_option("value")
    expect(line).not_to_contain_text("Before")
    assert note.locator("[data-as-is]").evaluate("(old) => getComputedStyle(old).textDecorationLine") == "none"


def test_a_question_for_several_choices_is_answered_by_keys_and_never_with_nothing(surf: Surf) -> None:
    surf.expected = "422"
    request_id = asked("Which?", type=list[Literal["red", "green", "blue"]])
    page = surf.tab(f"/r/{request_id}")
    answer = page.get_by_role("button", name="Answer")
    expect(answer).to_be_enabled()
    page.keyboard.press("a")
    expect(page.get_by_role("alert").first).to_contain_text("give at least one")
    assert stands(request_id).state is State.PENDING
    expect(answer).to_be_enabled()  # before its scripts have run, a key does nothing
    for key in "1234":
        page.keyboard.press(key)
    page.keyboard.press("2")  # once more: not this one
    expect(page.get_by_label("None (an empty list)")).to_be_checked()
    expect(page.get_by_label("green")).not_to_be_checked()
    expect(answer).to_be_enabled()
    with page.expect_navigation():  # the page before it says the same
        page.keyboard.press("a")
    expect(page.locator(".problem")).to_contain_text("but not both")
    expect(page.get_by_label("blue")).to_be_checked()  # what was ticked is kept
    expect(answer).to_be_enabled()
    page.keyboard.press("4")
    expect(page.get_by_label("None (an empty list)")).not_to_be_checked()
    page.keyboard.press("a")
    state_is(page, "answered")
    assert stands(request_id).answer == ["red", "blue"]
