"""What a person waits for in front of the inbox: bytes on the wire, the first paint, the next card, a day by keyboard.

A real Chromium looks at a real server; what is measured is between a key and pixels.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from .browsers import Inbox, serving
from .contest import Plan
from .statistic import median
from .table import Row, seconds
from .worker import AbsentError, Worker

__all__ = ["in_a_browser"]

STORE = "sqlite FULL"
OPTIONS = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
PAINTED = """async () => {
  while (!performance.getEntriesByName("first-contentful-paint").length) await new Promise(requestAnimationFrame);
  const paint = performance.getEntriesByName("first-contentful-paint")[0].startTime;
  return {paint: paint / 1000, at: (performance.timeOrigin + paint) / 1000};
}"""
# The next card may come with a document of its own, or take the place of this one; a frame that follows was painted.
WATCH = """(() => {
  const now = () => (performance.timeOrigin + performance.now()) / 1000;
  const card = () => document.querySelector("[data-request]")?.dataset.request;
  addEventListener("keydown", () => sessionStorage.setItem("pressed", now()), true);
  let last;
  const look = () => {
    if (card() === last) return;
    last = card();
    requestAnimationFrame(() => setTimeout(() => sessionStorage.setItem("painted", now())));
  };
  new MutationObserver(look).observe(document, { childList: true, subtree: true });
})()"""
READY = """async (before) => {
  const now = () => (performance.timeOrigin + performance.now()) / 1000, until = now() + 30;
  const card = () => document.querySelector("[data-request]");
  while (!card() || card().dataset.request === before || document.querySelector("[data-decides]:disabled, [data-soon-live]")) {
    if (now() > until) throw new Error(`nothing to decide on ${location} after 30 s`);
    await new Promise(requestAnimationFrame);
  }
  return now();
}"""  # noqa: E501


def in_a_browser(name: str, plan: Plan) -> list[Row]:
    """Measure the inbox with 300 and with 10,000 pending, and a day of 200 decisions."""
    rows: list[Row] = []
    try:
        _find_chromium()
    except AbsentError as absent:
        return [Row(name, "sayso serve", STORE, note=f"absent ({absent})")]
    with _chromium() as browser:
        for pending in (300, plan.pick(10_000, 1_000)):
            with _served(plan, "fill", decided=100, pending=pending) as inbox:
                rows += _painted(name, f"{pending:,} pending", browser, inbox, plan)
        count = plan.pick(200, 20)
        with _served(plan, "fill_day", count=count) as inbox:
            rows.append(_day(name, browser, inbox, count))
    return rows


def _find_chromium() -> str:
    # The shell draws no windows and menus of its own, all of it in software here.
    names = ("chromium-headless-shell", "chromium", "chromium-browser")
    path = os.environ.get("SAYSO_CHROMIUM") or next(filter(None, map(shutil.which, names)), None)
    if path is None or importlib.util.find_spec("playwright") is None:
        raise AbsentError("extra browser, or Chromium")
    return path


@contextmanager
def _chromium() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=_find_chromium(), args=OPTIONS)
        yield browser
        browser.close()


@contextmanager
def _served(plan: Plan, fill: str, **counts: int) -> Iterator[Inbox]:
    with ExitStack() as stack:
        worker = Worker("ours:Listing", plan.new_folder("screen"), "FULL")
        stack.callback(worker.close)
        worker.call(fill, **counts)
        inbox = stack.enter_context(serving(f"sqlite:///{Path(worker.folder) / 'sayso.db'}"))
        worker.close()
        yield inbox


def _signed_in(browser: Any, inbox: Inbox, *, is_watched: bool = False) -> Any:
    """Return a page of a browser that has nothing in its cache; a script that watches it delays its first paint."""
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    cookie, _, value = inbox.cookie.partition("=")
    context.add_cookies([{"name": cookie, "value": value, "url": inbox.origin}])
    if is_watched:
        context.add_init_script(WATCH)
    return context.new_page()


def _painted(name: str, what: str, browser: Any, inbox: Inbox, plan: Plan) -> list[Row]:
    """Open the list anew and again, and approve one request after another."""
    sizes: list[float] = []
    colds: list[float] = []
    warms: list[float] = []
    _open(_signed_in(browser, inbox), inbox)  # the server's own first page counts for nobody
    for _ in range(plan.pick(10, 3)):
        page, received = _signed_in(browser, inbox), list[int]()
        wire = page.context.new_cdp_session(page)
        wire.send("Network.enable")
        wire.on("Network.loadingFinished", lambda sent, to=received: to.append(sent["encodedDataLength"]))
        colds.append(_open(page, inbox))
        page.wait_for_load_state("load")
        sizes.append(sum(received))
        warms += [_open(page, inbox) for _ in range(3)]
        page.context.close()
    page = _signed_in(browser, inbox, is_watched=True)
    page.goto(f"{inbox.origin}/?fold=no")  # hundreds of alike calls are one row else
    page.locator("[data-row] a.what").first.click()
    page.wait_for_load_state()  # before its scripts have run, a key does nothing
    taken, _ = _decided(page, ["a"] * plan.pick(30, 5))
    page.context.close()
    wire = f"{max(sizes) / 1000:.1f} kB on the wire with all files (aim: under 60 kB)"
    cold = f"{Path(_find_chromium()).name}; {wire}; aim: under 150 ms"
    return [
        Row.of(name, f"first paint, nothing cached, {what}", STORE, colds, note=cold),
        Row.of(name, f"first paint, again, {what}", STORE, warms, note="aim: under 150 ms"),
        Row.of(name, f"approve to the next card, {what}", STORE, taken, note="aim: under 100 ms"),
    ]  # fmt: skip


def _open(page: Any, inbox: Inbox) -> float:
    page.goto(inbox.origin, wait_until="commit")
    return float(page.evaluate(PAINTED)["paint"])


def _decided(page: Any, keys: Sequence[str]) -> tuple[list[float], list[float]]:
    """Press a key for each request; return the seconds to the paint of the next card, and until it can be decided."""
    painted: list[float] = []
    ready: list[float] = []
    before = ""
    page.evaluate(READY, before)
    for key in keys:
        before = page.locator("[data-request]").get_attribute("data-request")
        with page.expect_navigation(wait_until="commit"):
            page.keyboard.press(key)
        at = float(page.evaluate(READY, before))
        pressed = float(page.evaluate("Number(sessionStorage.getItem('pressed'))"))
        painted.append(float(page.evaluate("Number(sessionStorage.getItem('painted'))")) - pressed)
        ready.append(at - pressed)
    return painted, ready


def _day(name: str, browser: Any, inbox: Inbox, count: int) -> Row:
    """Play a day: each request gets what it asks for (approve, reject, an answer, a risk confirmed), by keys alone."""
    page = _signed_in(browser, inbox, is_watched=True)
    page.goto(f"{inbox.origin}/?fold=no", wait_until="load")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_selector("[data-request]")
    page.wait_for_load_state()
    taken: list[float] = []
    risky: list[float] = []
    pressed: list[int] = []
    for number in range(count - 1):
        page.evaluate(READY, "")
        is_question = page.locator("[data-choice]").count() > 0
        is_risky = page.locator("[data-approve][data-risk]").count() > 0
        keys = ["1", "a"] if is_question else ["a"] if number % 5 != 4 else ["r", "Control+Enter"]
        keys = ["a", "Enter"] if is_risky else keys
        for key in keys[:-1]:
            page.keyboard.press(key)
        asked = _asked(page) if is_risky else 0.0
        (risky if is_risky else taken).append(asked + _decided(page, keys[-1:])[1][0])
        pressed.append(len(keys))
    page.context.close()
    note = (
        f"at most {max(pressed)} keys each, {sum(pressed) / len(pressed):.2f} on average (aim: two, and 600 ms, of"
        f" which a new card takes no key for 500 ms); longest {seconds(max(taken))}; {len(risky)} with a high risk:"
        f" {seconds(median(risky))}, longest {seconds(max(risky))}, since their question takes no key for 500 ms either"
    )
    return Row.of(
        name,
        f"a day of {count} decisions by keyboard",
        STORE,
        taken,
        note=note,
        keys=max(pressed),
        middle=median(taken),
    )


def _asked(page: Any) -> float:
    """Wait until the question about a high risk can be answered; return the seconds since the key that opened it."""
    page.wait_for_selector("#sure-yes:focus")
    return float(
        page.evaluate("(performance.timeOrigin + performance.now()) / 1000 - sessionStorage.getItem('pressed')")
    )
