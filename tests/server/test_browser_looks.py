"""How the inbox of the installed wheel looks in a real browser: readable, on paper, on a telephone, in the dark.

axe-core, which `make test` fetches from npm, looks at every page as well. The invariant: nothing on a page is there for
some people only.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

import sayso
from tests.server.believable import REFUND, fill
from tests.support.gated import FIELDS, Line, pay, taking, wipe
from tests.support.surfing import AXE, Surf, absent, asked, every_page, held, is_wide, need, picture, serving, unfold

expect = need().expect
pytestmark = pytest.mark.slow

PHONE = {"width": 390, "height": 844}


def of_all_kinds(surf: Surf) -> list[str]:
    """Record one request of each kind, and return the addresses of all pages about them."""
    function = taking({name: kind for name, (kind, *_) in FIELDS.items()}, [], prompt="W" * 300, risk="high")
    request_id = held(function, *(value for _, value, *_ in FIELDS.values()))
    question = asked("W" * 400, type=Line)
    sayso.Review().reject(held(pay, 5), "x" * 300, by="bob")
    approved = held(wipe, "/dev/sda")
    sayso.Review().approve(approved, by="bob", changes={"disk": "/dev/sdb"})
    alike = [held(pay, amount, f"/backups/{'x' * 60}/{amount}") for amount in (1, 2, 3, 4)]
    held(pay, 90, f"/home/{'y' * 60}/5")
    write = sayso.gate(wait="raise", name="write")(lambda to, text: f"{to} {text}")
    letters = [held(write, f"kim{at}@{'x' * 60}.example", f"{'W' * 90} {text}\n" * 20) for at, text in enumerate("abc")]
    return [
        *every_page(request_id),
        f"/bulk?alike={alike[0]}",
        f"/bulk?verb=approve&alike={letters[0]}",
        f"/bulk?id={approved}",
        f"/r/{question}",
        f"/r/{approved}",
        "/history?by=bob&to=2000-01-01",
        "/nothing",
    ]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_on_a_telephone_every_page_fits_and_can_be_read(surf: Surf, scheme: str) -> None:
    surf.expected = "404"
    page = surf.tab("/", viewport=PHONE, color_scheme=scheme)
    for at, address in enumerate(of_all_kinds(surf)):
        page.goto(surf.base + address)
        page.evaluate("document.querySelectorAll('details').forEach((one) => { one.ask = true; })")
        assert not is_wide(page), address
        marked = page.locator(".noted").evaluate_all("found => found.map((one) => one.getBoundingClientRect().right)")
        assert max(marked, default=0) < PHONE["width"], address
        assert len(marked) == 2 * address.startswith("/bulk?alike"), address
        texts = page.locator("td .long[open] .call").evaluate_all("found => found.map((one) => one.offsetWidth)")
        assert min(texts, default=300) >= 300, (address, texts)
        assert page.evaluate(DIM) == [], address
        assert page.evaluate(SMALL) == [], address
        picture(page, f"telephone-{scheme}-{at:02}")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_on_any_page(surf: Surf, scheme: str) -> None:
    if not AXE.exists():
        absent("axe-core is not installed (`make test` fetches it from npm)")
    surf.expected = "404"
    page = surf.tab("/", color_scheme=scheme)
    source = AXE.read_text(encoding="utf-8")
    for address in of_all_kinds(surf):
        page.goto(surf.base + address)
        expect(page.locator("[data-soon-live]")).to_have_count(0)
        page.evaluate(source)
        page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
        for size in ({"width": 1280, "height": 800}, PHONE):
            page.set_viewport_size(size)
            assert page.evaluate(LOOK) == [], (address, size)
    page.goto(f"{surf.base}/")
    page.keyboard.press("?")
    page.evaluate(source)
    assert page.evaluate(LOOK) == [], "the list of keys"


# With the rules that axe leaves out unless they are asked for, as those about targets and enhanced contrast.
LOOK = """async () => (await axe.run(document, {
    resultTypes: ["violations"], rules: Object.fromEntries(axe.getRules().map((one) => [one.ruleId, {enabled: true}])),
  })).violations
  .map((one) => [one.id, one.nodes.slice(0, 3).map((node) => node.html.slice(0, 160))])"""


def test_the_ends_of_all_rows_are_in_one_line_at_the_right(surf: Surf) -> None:
    def wire(iban: str, amount: int, currency: str) -> None: ...

    held(pay, 5)
    request_id = held(sayso.gate(wait="raise", quorum=2, risk="high")(wire), "DE89370400440532013000", 12_500, "EUR")
    sayso.Review().comment(request_id, "@ada please look at the IBAN", by="bob")
    page = surf.tab("/")
    rights = page.locator(".row .end").evaluate_all("(ends) => ends.map((end) => end.getBoundingClientRect().right)")
    assert len(rights) == 2
    assert len(set(rights)) == 1


def test_on_paper_a_request_is_whole_and_has_no_buttons(surf: Surf) -> None:
    long = " ".join(f"word{number}" for number in range(2_000))
    request_id = held(taking({"text": str}, [], prompt="Look."), long)
    page = surf.page(request_id, viewport={"width": 794, "height": 1123})
    page.emulate_media(media="print")
    assert not is_wide(page)
    for hidden in ["header.top", ".bar", ".care", "footer", ".queue"]:
        expect(page.locator(hidden).first).to_be_hidden()
    for shown in ["#call", ".unverified", ".facts", ".timeline", ".standing", ".print"]:
        expect(page.locator(shown).first).to_be_visible()
    assert "word1999" in page.locator("#call").inner_text().replace("\n", "").replace(" ", "")
    assert page.evaluate(CUT) == []
    picture(page, "print", full_page=True)


# What paper would cut off, because it could be moved on a screen.
CUT = """() => [...document.querySelectorAll("main *")]
  .filter((one) => one.checkVisibility() && one.scrollHeight > one.clientHeight + 2 && one.clientHeight > 0
    && !["visible", "clip"].includes(getComputedStyle(one).overflowY)).map((one) => one.outerHTML.slice(0, 80))"""


def test_the_figures_of_a_chart_are_in_a_table_too(surf: Surf) -> None:
    sayso.Review().reject(held(pay, 5), "no", by="bob")
    page = surf.tab("/insights?days=7")
    for chart in page.get_by_role("img").all():
        assert chart.locator("title").first.text_content()
        assert chart.locator("desc").text_content()
    page.get_by_text("Each day", exact=True).click()
    today = page.get_by_role("row", name=f"{datetime.now(UTC):%Y-%m-%d}")
    expect(today).to_be_visible()
    page.keyboard.press("Tab")
    expect(page.get_by_role("region", name="By day")).to_be_focused()


def test_what_changes_by_itself_is_read_aloud_once(surf: Surf) -> None:
    request_id = held(pay, 5)
    page = surf.page(request_id)
    expect(page.locator("p.standing")).to_have_attribute("aria-live", "off")  # a countdown is not read every second
    inbox = surf.tab("/")
    expect(inbox.locator("#news")).to_have_attribute("aria-live", "polite")
    expect(inbox.locator(".rows [aria-live]")).to_have_count(0)


def test_times_are_those_of_the_reader_and_say_what_they_are_in_utc(surf: Surf) -> None:
    request_id = held(pay, 5)
    page = surf.tab(f"/r/{request_id}", timezone_id="Asia/Tokyo", locale="en-GB")
    first = page.locator(".timeline time").first
    utc = datetime.fromisoformat(first.get_attribute("title"))
    assert abs(utc - sayso.Review().get(request_id).created_at) < timedelta(seconds=2)
    local = utc + timedelta(hours=9)
    expect(first).to_have_text(f"{local.day} {local:%b %Y, %H:%M:%S}".replace("Sep ", "Sept "))


def test_an_absence_is_typed_in_the_readers_time_and_in_utc_without_scripts(surf: Surf) -> None:
    for has_scripts, typed, hour in (
        (True, "2039-01-31 10:00", 1),
        (True, "2039-01-31T10:00Z", 10),
        (False, "2039-01-31 10:00", 10),
    ):
        page = surf.tab("/settings", timezone_id="Asia/Tokyo", java_script_enabled=has_scripts)
        until = page.get_by_label("Until")
        expect(until).to_have_attribute("placeholder", f"3d, 2026-11-27 09:00{' (UTC)' * (not has_scripts)}")
        until.fill(typed)
        page.get_by_label("Stand-in").fill("bob")
        with page.expect_navigation():
            page.get_by_role("button", name="I am away").click()
        expect(page.locator("#away ~ .cells").first).to_contain_text("You are away")
        (away,) = sayso.Review().delegations()
        assert away.until == datetime(2039, 1, 31, hour, tzinfo=UTC)
        page.close()


def test_a_point_in_time_has_the_readers_time_beside_it_and_stays_as_it_is(surf: Surf) -> None:
    @sayso.gate(wait="raise")
    def meet(at: datetime, text: str, naive: datetime, here: datetime, day: date) -> None: ...

    berlin, tokyo = timezone(timedelta(hours=1)), timezone(timedelta(hours=9))
    at = datetime(2026, 3, 5, 23, 30, tzinfo=berlin)
    naive, here = datetime(2026, 3, 5, 23, 30), datetime(2026, 3, 6, 7, 30, tzinfo=tokyo)  # noqa: DTZ001
    request_id = held(meet, at, "2026-03-05T22:30:00.123456Z", naive, here, date(2026, 3, 5))
    page = surf.tab(f"/r/{request_id}", timezone_id="Asia/Tokyo", locale="en-GB")
    his = "for you Fri, 6 Mar 2026, 07:30 GMT+9"
    expect(page.locator("#call .local")).to_have_text([his, his])
    shown = [one.inner_text() for one in page.locator("#call [data-as-is]").all()]
    assert shown == [
        f"2026-03-05T23:30:00+01:00 Thursday · {his}", f'"2026-03-05T22:30:00.123456Z" {his}',
        "2026-03-05T23:30:00 Thursday", "2026-03-06T07:30:00+09:00 Friday", "2026-03-05 Thursday",
    ]  # fmt: skip


def test_a_point_in_time_inside_of_a_value_has_the_readers_time_beside_it(surf: Surf) -> None:
    @sayso.gate(wait="raise")
    def meet(slots: list[datetime], about: dict[str, object], names: list[str], many: list[object]) -> None: ...

    one, other = (datetime(2026, 3, 5, hour, 30, tzinfo=UTC) for hour in (7, 22))
    about = {"at": one, "text": "at 2026-03-05T07:30:00Z, or later", "day": date(2026, 3, 5)}
    request_id = held(meet, [one, other], about, ["2026-03-05T07:30:00Z"], [{"at": one, "no": no} for no in range(9)])
    page = surf.tab(f"/r/{request_id}", timezone_id="Asia/Tokyo", locale="en-GB")
    his, later = "for you Thu, 5 Mar 2026, 16:30 GMT+9", "for you Fri, 6 Mar 2026, 07:30 GMT+9"
    expect(page.locator("#call .local")).to_have_text([his, later, his, his, *[his] * 9])
    slots, inside, names, many = (part.inner_text() for part in page.locator("#call [data-as-is]").all())
    assert slots == f"[2026-03-05T07:30:00+00:00 {his}, 2026-03-05T22:30:00+00:00 {later}]"
    assert f'"at": 2026-03-05T07:30:00+00:00 {his}\n' in inside
    assert '"text": "at 2026-03-05T07:30:00Z, or later"\n' in inside
    assert '"day": 2026-03-05\n' in inside
    assert names == f'"2026-03-05T07:30:00Z" {his}'
    assert f'"at": 2026-03-05T07:30:00+00:00 {his}' in many


def test_the_inbox_can_be_installed(surf: Surf) -> None:
    page = surf.tab("/")
    found = page.context.new_cdp_session(page).send("Page.getAppManifest")
    assert found["errors"] == []
    assert found["url"].startswith(f"{surf.base}/static/")
    manifest = found["manifest"]
    assert (manifest["startUrl"], manifest["scope"]) == (f"{surf.base}/", f"{surf.base}/")
    fetched = "(icon) => fetch(icon).then((answer) => [answer.status, answer.headers.get('content-type')])"
    assert page.evaluate(fetched, manifest["icons"][0]["url"]) == [200, "image/svg+xml"]


def test_pictures_of_a_day_in_the_inbox(chromium: Any, command: Path, tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/day.db"
    sayso.configure(store=store)
    fill(sayso.Review().store)
    with serving(command, store) as link:
        surf = Surf(chromium, link)
        for scheme in ["light", "dark"]:
            page = surf.tab("/", viewport={"width": 1280, "height": 800}, color_scheme=scheme)
            picture(page, f"inbox-{scheme}")
            page.get_by_role("link", name=REFUND).click()
            expect(page.locator("[data-approve]")).to_be_enabled()
            unfold(page)
            page.locator("#f1").fill("80.00")
            expect(page.locator("[data-approve] > span")).to_have_text("Approve with 1 change")
            page.evaluate("document.activeElement.blur(); scrollTo(0, 0)")
            picture(page, f"request-{scheme}")
            for where in ["history", "insights", "settings"]:
                page.goto(f"{surf.base}/{where}")
                picture(page, f"{where}-{scheme}")
            page.context.close()
        assert surf.found() == []


# Words whose colour is too near to what lies behind them, by the measure of WCAG 2.
DIM = """() => {
  const parts = (colour) => colour.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b].map((c) => c / 255)
    .map((c) => c <= .03928 ? c / 12.92 : ((c + .055) / 1.055) ** 2.4)
    .reduce((sum, c, at) => sum + c * [.2126, .7152, .0722][at], 0);
  const behind = (part) => {
    for (; part; part = part.parentElement) {
      const colour = parts(getComputedStyle(part).backgroundColor);
      if (colour.length === 3 || colour[3] > 0) return colour;
    }
    return [255, 255, 255];
  };
  const hints = [...document.querySelectorAll("[placeholder]")].map((part) => [part, "::placeholder"]);
  const texts = [...document.querySelectorAll("body *")].filter((part) => [...part.childNodes].some(
    (child) => child.nodeType === 3 && child.textContent.trim())).map((part) => [part, null]);
  return [...texts, ...hints].filter(([part]) => !part.disabled && part.checkVisibility())
    .map(([part, pseudo]) => {
      const [a, b] = [light(parts(getComputedStyle(part, pseudo).color)), light(behind(part))];
      return [part.className || part.tagName, (Math.max(a, b) + .05) / (Math.min(a, b) + .05)];
    })
    .filter(([, contrast]) => contrast < 4.5);
}"""
# What a thumb cannot hit; what lies in a label or in a line of text is hit by these.
SMALL = """() => [...document.querySelectorAll("button, select, textarea, summary, input:not([type=hidden])")]
  .filter((part) => part.checkVisibility())
  .map((part) => part.closest("label.check, label.pick") ?? part)
  .filter((part) => part.getBoundingClientRect().height < 43.5)
  .map((part) => part.outerHTML.slice(0, 80))"""
