"""`sayso serve` in a real browser: decide, edit, answer, race, keys, live news, and texts that attack the page.

It needs the extra `browser` and a Chromium of the system; `SAYSO_CHROMIUM` says where that is if it is not in the
path. The invariant: on no page does a script fail, a line stand in the console, or a request go anywhere else.
"""

from __future__ import annotations

import datetime as dt
import enum
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field

import sayso
from sayso.model.request import State

CHROMIUM = next(
    filter(None, [os.environ.get("SAYSO_CHROMIUM"), *map(shutil.which, ["chromium", "chromium-browser"])]), ""
)
if not CHROMIUM:
    pytest.skip("there is no Chromium: the inbox is NOT tested in a browser", allow_module_level=True)
sync_api: Any = pytest.importorskip(
    "playwright.sync_api", reason="the extra `browser` is not installed: the inbox is NOT tested in a browser"
)
expect = sync_api.expect
pytestmark = pytest.mark.slow

OPTIONS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
           "--disable-component-update", "--disable-sync"]  # fmt: skip
WIDER = "document.documentElement.scrollWidth - document.documentElement.clientWidth"


class Colour(enum.Enum):
    RED = "r"
    BLUE = "b"


class Line(BaseModel):
    sku: str
    count: int = 1


class Surf:
    """A browser at which somebody has signed in, and what went wrong on its pages.

    Attributes:
        base: The address of the server.
        faults: Scripts that failed, lines in the console, and requests that went elsewhere.
    """

    def __init__(self, chromium: Any, link: str) -> None:
        self._chromium = chromium
        self.base = link.partition("/login")[0]
        self.faults: list[str] = []
        self._state: Any = None
        page = self.tab(link)
        page.wait_for_url(f"{self.base}/")  # the page of the link sends its form at once
        self._state = page.context.storage_state()

    def tab(self, address: str, **options: Any) -> Any:
        """Open an address in a tab of its own."""
        page = self._chromium.new_context(storage_state=self._state, **options).new_page()
        page.set_default_timeout(10_000)
        page.on("console", lambda line: self.faults.append(f"{line.type}: {line.text}"))
        page.on("pageerror", lambda fault: self.faults.append(f"script: {fault}"))
        page.on("request", lambda asked: self._check(asked.url))
        page.goto(address if address.startswith("http") else self.base + address)
        return page

    def _check(self, address: str) -> None:
        if not address.startswith((f"{self.base}/", "data:image/")):
            self.faults.append(f"elsewhere: {address}")

    def page(self, request_id: str, **options: Any) -> Any:
        """Open the page of a request."""
        return self.tab(f"/r/{request_id}", **options)


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with sync_api.sync_playwright() as play:
        browser = play.chromium.launch(executable_path=CHROMIUM, args=OPTIONS)
        yield browser
        browser.close()


@contextmanager
def serving(store: str) -> Iterator[str]:
    """Start a server in a process of its own, and give the link that signs in."""
    command = [sys.executable, "-m", "sayso", "--store", store, "serve", "--port", "0", "--as", "ada"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, bufsize=1) as process:
        assert process.stdout is not None
        try:
            process.stdout.readline()
            yield re.findall(r"http\S+", process.stdout.readline())[0]
        finally:
            process.kill()


@pytest.fixture
def surf(chromium: Any, tmp_path: Path) -> Iterator[Surf]:
    store = f"sqlite:///{tmp_path}/inbox.db"
    sayso.configure(store=store)
    with serving(store) as link:
        surfing = Surf(chromium, link)
        yield surfing
        for context in chromium.contexts:
            context.close()
    assert surfing.faults == []


def held(function: Callable[..., Any], *args: Any) -> str:
    with pytest.raises(sayso.ConfirmationRequired) as caught:
        function(*args)
    return caught.value.confirmation_id


def asked(question: str, **options: Any) -> str:
    with pytest.raises(sayso.ConfirmationRequired) as caught:
        sayso.ask(question, wait="raise", **options)
    return caught.value.confirmation_id


@sayso.gate(wait="raise")
def pay(amount: int, to: str = "alice") -> str:
    """Pay somebody."""
    return f"paid {amount} to {to}"


@sayso.gate(wait="raise", risk="high", prompt="The customer sent a photo.")
def wipe(disk: str) -> str:
    return f"wiped {disk}"


def stands(request_id: str) -> sayso.Request:
    return sayso.Review().get(request_id)


def pressed(page: Any, name: str) -> None:
    """Press a button, as soon as it can be, and wait for the page that comes."""
    page.get_by_role("button", name=name, exact=True).click()
    page.wait_for_load_state()


def state_is(page: Any, state: str) -> None:
    expect(page.locator("main .tags .state").first).to_have_text(state)


def test_a_person_approves_and_the_call_runs(surf: Surf) -> None:
    request_id = held(pay, 5)
    page = surf.tab("/")
    expect(page.locator(".about a")).to_have_text(stands(request_id).run_id[:11])
    page.get_by_role("link", name="pay(amount=5, to='alice')").click()
    pressed(page, "Approve")
    state_is(page, "approved")
    assert page.url == f"{surf.base}/r/{request_id}"
    decision = stands(request_id).decision
    assert decision is not None
    assert (decision.by.qualified, decision.channel) == ("local:ada", "web")
    assert pay(5) == "paid 5 to alice"


# argument: (its type, its value, how a person changes it, what runs then)
FILL, PICK = "fill", "select_option"
FIELDS: dict[str, tuple[Any, Any, tuple[str, Any], Any]] = {
    "text": (str, "old", (FILL, "new"), "new"),
    "long": (str, "a\nb", (FILL, "a\n\nb "), "a\n\nb "),
    "whole": (int, 5, (FILL, "-7"), -7),
    "bounded": (Annotated[float, Field(ge=0, le=500)], 320.0, (FILL, "80.5"), 80.5),
    "exact": (Decimal, Decimal("1.10"), (FILL, "1.20"), Decimal("1.20")),
    "yes": (bool, True, (PICK, "false"), False),
    "word": (Literal["damaged", "late"], "damaged", (PICK, "1"), "late"),
    "colour": (Colour, Colour.RED, (PICK, "1"), Colour.BLUE),
    "day": (dt.date, dt.date(2026, 3, 1), (FILL, "2026-03-02"), dt.date(2026, 3, 2)),
    "at": (dt.datetime, dt.datetime.fromisoformat("2026-03-01T09:30"), (FILL, "2026-03-02T10:00:00"),
           dt.datetime.fromisoformat("2026-03-02T10:00")),
    "time": (dt.time, dt.time(9, 30, 15), (FILL, "10:00:01"), dt.time(10, 0, 1)),
    "items": (list[str], ["a", "b"], (FILL, "a\nc\nd"), ["a", "c", "d"]),
    "numbers": (list[int], [1, 2], (FILL, "3"), [3]),
    "maybe": (int | None, None, (FILL, "4"), 4),
    "line": (Line, Line(sku="x", count=3), (FILL, "y"), Line(sku="y", count=3)),
    "many": (list[Line], [Line(sku="x")], (FILL, '[{"sku": "z", "count": 9}]'), [Line(sku="z", count=9)]),
    "any": (dict[str, Any], {"k": [1]}, (FILL, '{"k": [1.0, null, "1"]}'), {"k": [1.0, None, "1"]}),
}  # fmt: skip


def taking(kinds: dict[str, Any], ran: list[dict[str, Any]]) -> Callable[..., Any]:
    """Return a gated function of these arguments that keeps what it ran with."""

    def take(**given: Any) -> str:
        ran.append(given)
        return "ran"

    names: dict[str, Any] = {"take": take}
    said = ", ".join(kinds)
    passed = ", ".join(f"{name}={name}" for name in kinds)
    exec(f"def made({said}):\n    return take({passed})", names)  # noqa: S102  a function of its own signature
    made = names["made"]
    made.__module__, made.__annotations__ = __name__, kinds
    return sayso.gate(wait="raise")(made)


def test_each_kind_of_field_comes_back_as_a_value_of_its_type(surf: Surf) -> None:
    ran: list[dict[str, Any]] = []
    function = taking({name: kind for name, (kind, *_) in FIELDS.items()}, ran)
    values = [value for _, value, *_ in FIELDS.values()]
    page = surf.page(held(function, *values))
    for place, (name, (_, _, (how, sent), _)) in enumerate(FIELDS.items()):
        getattr(page.locator(f'[id="f{place}.0"]' if name == "line" else f"#f{place}"), how)(sent)
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
    page = surf.page(request_id)
    page.locator("#f1").fill("bob")
    page.locator("#f0").fill("")
    pressed(page, "Approve with 2 changes")
    expect(page.locator("#f0-problem")).to_be_visible()
    expect(page.locator("#f1")).to_have_value("bob")
    assert stands(request_id).state is State.PENDING
    surf.faults = [fault for fault in surf.faults if "422" not in fault]


def test_a_person_rejects_sends_back_and_answers(surf: Surf) -> None:
    page = surf.page(held(pay, 1))
    page.get_by_label("Note to the program").fill("not today")
    pressed(page, "Reject")
    state_is(page, "rejected")
    page = surf.page(held(pay, 2))
    page.get_by_label("Note to the program").fill("half of it")
    pressed(page, "Send back with the note")
    state_is(page, "feedback")
    request_id = asked("Which warehouse?", choices=["berlin", "lyon"])
    page = surf.page(request_id)
    page.locator("#f0").select_option(label="'lyon'")
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
    expect(page.locator("pre.call")).to_have_count(3)
    page.get_by_label("Approve this one").nth(1).uncheck()
    pressed(page, "Approve those that are ticked")
    expect(page.get_by_role("heading", level=1)).to_have_text("2 of 2 decided")
    assert [stands(one).state for one in ids] == [State.APPROVED, State.PENDING, State.APPROVED]


def test_of_two_tabs_the_second_is_told_and_decides_nothing(surf: Surf) -> None:
    request_id = held(pay, 5)
    first, second = surf.page(request_id, java_script_enabled=False), surf.page(request_id, java_script_enabled=False)
    pressed(first, "Reject")
    pressed(second, "Approve")
    state_is(second, "rejected")
    expect(second.get_by_role("alert")).to_contain_text("was already rejected by 'ada'")
    assert stands(request_id).state is State.REJECTED
    surf.faults = [fault for fault in surf.faults if "409" not in fault]


def test_without_scripts_a_person_signs_in_edits_and_approves(chromium: Any, surf: Surf, tmp_path: Path) -> None:
    request_id = held(pay, 5)
    with serving(f"sqlite:///{tmp_path}/inbox.db") as link:
        page = chromium.new_context(java_script_enabled=False).new_page()
        page.goto(link)
        pressed(page, "Open the inbox")
        page.get_by_role("link", name="pay(amount=5, to='alice')").click()
        page.locator("#f1").fill("bob")
        pressed(page, "See what changes")
        expect(page.locator(".diff")).to_contain_text("'bob'")
        assert stands(request_id).state is State.PENDING
        pressed(page, "Approve with 1 change")
        state_is(page, "approved")
    assert pay(5) == "paid 5 to bob"


def test_keys_alone_open_refuse_and_approve(surf: Surf) -> None:
    calm, risky = held(pay, 5), held(wipe, "/dev/sda")
    page = surf.tab("/")
    for key in ["j", "j", "Enter"]:
        page.keyboard.press(key)
    page.wait_for_url(f"**/r/{risky}")
    expect(page.locator("[data-approve]")).to_be_enabled()
    page.once("dialog", lambda dialog: dialog.dismiss())
    page.keyboard.press("a")
    assert stands(risky).state is State.PENDING
    page.once("dialog", lambda dialog: dialog.accept())
    page.keyboard.press("a")
    state_is(page, "approved")
    page.keyboard.press("g")
    page.keyboard.press("i")
    page.wait_for_url(f"{surf.base}/")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/r/{calm}")
    expect(page.locator("[data-approve]")).to_be_enabled()
    page.keyboard.press("e")
    page.keyboard.type("a")  # in a field it is a letter
    page.keyboard.press("Escape")
    assert stands(calm).state is State.PENDING


def test_an_open_inbox_is_told_of_new_requests_and_of_decisions_elsewhere(surf: Surf) -> None:
    request_id = held(pay, 5)
    page = surf.tab("/")
    expect(page).to_have_title("Inbox (1) · sayso")
    held(wipe, "/dev/sda")
    expect(page.locator("#news")).to_have_text("1 new request, show")
    expect(page).to_have_title("Inbox (2) · sayso")
    expect(page.locator("[data-row]")).to_have_count(1)
    sayso.Review().reject(request_id, by="bob")
    expect(page.locator(f"#at-{request_id}")).to_contain_text("rejected by bob")
    expect(page).to_have_title("Inbox (1) · sayso")
    page.locator("#news a").click()
    expect(page.get_by_role("link", name="wipe")).to_be_visible()


def test_a_countdown_goes_on(surf: Surf) -> None:
    @sayso.gate(wait="raise", expires="90s")
    def hurry() -> None: ...

    page = surf.page(held(hurry))
    shown = page.locator(".standing time")
    expect(shown).to_have_text(re.compile(r"^in 1m( \d+s)?$"))
    first = shown.text_content()
    expect(shown).not_to_have_text(first)
    assert len(re.findall(r"in \d", page.locator(".standing").inner_text())) == 1, "the end stands there twice"


def every_page(request_id: str) -> list[str]:
    run_id = stands(request_id).run_id
    return ["/", f"/r/{request_id}", "/runs", f"/runs/{run_id}", "/history", f"/bulk?verb=approve&id={request_id}"]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_on_a_telephone_every_page_fits_and_can_be_read(surf: Surf, scheme: str) -> None:
    function = taking({name: kind for name, (kind, *_) in FIELDS.items()}, [])
    request_id = held(function, *(value for _, value, *_ in FIELDS.values()))
    question = asked("W" * 400, type=Line)
    sayso.Review().reject(held(pay, 5), "x" * 300, by="bob")
    for address in [*every_page(request_id), f"/r/{question}"]:
        page = surf.tab(address, viewport={"width": 390, "height": 844}, color_scheme=scheme)
        assert page.evaluate(WIDER) <= 0, address
        assert page.evaluate(DIM) == [], address
        assert page.evaluate(SMALL) == [], address


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
  return [...document.querySelectorAll("body *")]
    .filter((part) => !part.disabled && part.checkVisibility() && [...part.childNodes].some(
      (child) => child.nodeType === 3 && child.textContent.trim()))
    .map((part) => {
      const [a, b] = [light(parts(getComputedStyle(part).color)), light(behind(part))];
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


TEXTS = [
    "<script>fail()</script>", "</script><script>fail()</script>", "<img src=x onerror=fail()>",
    "<svg onload=fail()>", "</textarea><script>fail()</script>", "'><img src=//evil.example/x>",
    '"><img src=https://evil.example/x onerror=fail()>', "</title><script>fail()</script>",
    "</pre></body><iframe src=//evil.example></iframe>", "javascript:fail()", "{{ 7*7 }}", "{% raw %}",
    "<style>@import '//evil.example/x.css';</style>", "<link rel=stylesheet href=//evil.example/x>",
    "<meta http-equiv=refresh content='0;url=//evil.example'>", "<base href=//evil.example/>",
    "<form action=//evil.example><button autofocus>Approve</button>", "<details open ontoggle=fail()>",
    '" autofocus onfocus=fail() x="', "' hx-get='//evil.example' hx-trigger='load' x='", "<a hx-on:load=fail()>",
    "<div hx-get=/history hx-trigger=load>", "&lt;script&gt;fail()&lt;/script&gt;", "<!--<script>", "]]><script>",
    "\x1b[31mred\x1b[0m", "\u202egnp.exe", "a\u200bb\ufeffc", "\x00\x07\x08", "data: <script>\n\nevent: x\n\n",
    "<math><mtext><style><img src onerror=fail()>", "\u2028fail()\u2029", "<h1>approved by ada</h1>", "x" * 100_000,
]  # fmt: skip


def test_texts_that_attack_the_page_stay_texts(surf: Surf) -> None:
    def send(text: str, words: list[str], more: dict[str, str]) -> None: ...

    def says(text: str, **_: Any) -> str:
        return text

    gated = sayso.gate(wait="raise", prompt=says, risk="<b onclick=fail()>high")(send)
    live = surf.tab("/")
    for text in TEXTS:
        with sayso.run(f"run {text[:80]}" if text.isprintable() else None):
            request_id = held(gated, text, [text, "b"], {text: text})
            question = asked(text, choices=[text, "other"])
        for address in [f"/r/{request_id}", f"/r/{question}"]:
            page = surf.tab(address)
            assert page.locator("main h1").count() == 1
            assert page.locator("script:not([src]), iframe, img, base, style, main link").count() == 0
            page.context.close()
        sayso.Review().reject(question, text[:1000], by="bob")
    for address in ["/", "/runs", "/history", *every_page(request_id)]:
        surf.tab(address).wait_for_load_state("networkidle" if "/r/" not in address and address != "/" else "load")
    expect(live.locator("#news")).to_contain_text("new requests")
