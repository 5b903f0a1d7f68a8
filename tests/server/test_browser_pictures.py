"""Pages look as their committed pictures do: at a desk and on a telephone, light and dark.

Time stands still, and every letter is a box of half an em (`pictures/boxes.ttf`), so neither ids nor the fonts of a
machine can change a picture; what is left to differ is smoothing at edges. Compared is at half the size: red is more
than 0.2 % of the points differing by more than 32 of 255 in a colour. `make screenshots` writes them anew.
"""

from __future__ import annotations

import base64
import os
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import sayso
from sayso import clock
from sayso.server import login_path
from sayso.stores.memory import MemoryStore
from tests.server.believable import fill
from tests.support.gated import pay
from tests.support.running import agent_of, paying, started
from tests.support.serving import Serving
from tests.support.surfing import PICTURES, held, need, shut

need()
pytestmark = pytest.mark.slow

COMMITTED = Path(__file__).parent / "pictures"
AT = datetime(2026, 11, 23, 9, 0, tzinfo=UTC)
SHARE = 0.002
WRITES = os.environ.get("SAYSO_SCREENSHOTS") == "write"  # read before a test begins without our variables
SIZES = {"desk": {"width": 1280, "height": 800}, "telephone": {"width": 390, "height": 844}}
FONT = base64.b64encode((COMMITTED / "boxes.ttf").read_bytes()).decode()
BOXES = (
    f"@font-face {{ font-family: Boxes; src: url(data:font/ttf;base64,{FONT}) }}"
    " * { font-family: Boxes !important; text-rendering: geometricPrecision !important }"  # no machine's hinting
)
# Returns which share of the points of two pictures differs; 1 where they have other sizes.
DIFFER = """async ([one, other]) => {
  const images = await Promise.all([one, other].map(async (data) => {
    const image = new Image();
    image.src = `data:image/png;base64,${data}`;
    await image.decode();
    return image;
  }));
  const [width, height] = [images[0].width >> 1, images[0].height >> 1];
  if (images[0].width !== images[1].width || images[0].height !== images[1].height) return 1;
  const [a, b] = images.map((image) => {
    const context = Object.assign(document.createElement("canvas"), { width, height }).getContext("2d");
    context.imageSmoothingQuality = "high";
    context.drawImage(image, 0, 0, width, height);
    return context.getImageData(0, 0, width, height).data;
  });
  let found = 0;
  for (let at = 0; at < a.length; at += 4)
    if ([0, 1, 2].some((c) => Math.abs(a[at + c] - b[at + c]) > 32)) found += 1;
  return found / (width * height);
}"""


@pytest.fixture(scope="module")
def inbox() -> Iterator[tuple[Serving, dict[str, str]]]:
    """A server at which time stands still, and the pages of which there are pictures, by name."""
    with clock.use(lambda: AT):
        store = MemoryStore()
        sayso.configure(store=store)
        fill(store)
        named = pytest.MonkeyPatch()  # a program has the name of its file, which is that of whoever runs the tests
        named.setattr(sys, "argv", ["shop.py"])
        alike = [held(pay, amount) for amount in (1, 2, 3, 4, 90)]
        waiting = sayso.Review(store).list(state="pending").requests
        first = next(one for one in waiting if one.risk == "high")
        mailed = next(one for one in waiting if one.risk is None and one.kind == "call")
        sayso.Review(store, reviewer="grace").grant(mailed.id, count=5, lasts="8h", seen=mailed.fingerprint)
        agent = agent_of([paying([])], ("pay", {"amount": 12_500}), name="bookkeeper")
        with ThreadPoolExecutor(1) as outside:  # Playwright has a loop in this thread
            run_id = outside.submit(started, agent, prompt="Pay what is due.").result().run_id
        server = Serving(store=store)
        yield server, {
            "list": "/", "request": f"/r/{first.id}", "alike": f"/bulk?alike={alike[0]}", "insights": "/insights",
            "history": "/history", "runs": "/runs", "run": f"/runs/{run_id}", "grants": "/grants",
            "settings": "/settings",
        }  # fmt: skip
        server.end()
        named.undo()


def taken(page: Any, address: str, change: str = "") -> bytes:
    """Return the picture of a page, with a style of its own added."""
    page.goto(address)
    page.evaluate(
        "new Promise((done) => requestAnimationFrame(() => setTimeout(done)))"
    )  # scripts measure after a paint
    page.add_style_tag(content=BOXES + change)
    page.evaluate("document.fonts.load('16px Boxes').then(() => document.fonts.ready)")
    picture: bytes = page.screenshot(animations="disabled", caret="hide")
    return picture


def opened(chromium: Any, size: str, scheme: str) -> Any:
    context = chromium.new_context(
        viewport=SIZES[size], color_scheme=scheme, bypass_csp=True, timezone_id="UTC", locale="en-US",
        service_workers="block",
    )  # fmt: skip
    context.clock.set_fixed_time(AT)
    return context.new_page()


def share(page: Any, name: str, picture: bytes) -> float:
    """Return which share of a picture differs from the committed one."""
    known = (COMMITTED / f"{name}.png").read_bytes()
    page.goto("about:blank")
    found: float = page.evaluate(DIFFER, [base64.b64encode(one).decode() for one in (known, picture)])
    return found


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", SIZES)
def test_pages_look_as_their_pictures_do(
    chromium: Any, inbox: tuple[Serving, dict[str, str]], size: str, scheme: str
) -> None:
    server, pages = inbox
    page, found = opened(chromium, size, scheme), dict[str, bytes]()
    found["sign-in"] = taken(page, f"{server.url}/")
    page.goto(server.url + login_path(server.app, sayso.Reviewer("ada")))
    page.wait_for_url(f"{server.url}/")
    for name, address in pages.items():
        found[name] = taken(page, server.url + address)
    if WRITES:
        for name, picture in found.items():
            (COMMITTED / f"{name}-{size}-{scheme}.png").write_bytes(picture)
    PICTURES.mkdir(parents=True, exist_ok=True)
    differing: dict[str, float] = {}
    for name, picture in found.items():
        part = share(page, f"{name}-{size}-{scheme}", picture)
        if part > SHARE:
            differing[name] = part
            (PICTURES / f"{name}-{size}-{scheme}.png").write_bytes(picture)
    shut(chromium)
    todo = "if they are meant to look so, run `make screenshots`, and `make pictures` for the docs"
    assert differing == {}, f"compare {PICTURES} with {COMMITTED}; {todo}"


def test_a_changed_colour_and_a_lost_column_are_seen(chromium: Any, inbox: tuple[Serving, dict[str, str]]) -> None:
    server, pages = inbox
    page = opened(chromium, "desk", "light")
    page.goto(server.url + login_path(server.app, sayso.Reviewer("ada")))
    page.wait_for_url(f"{server.url}/")
    for name, change, is_seen in (
        ("request", "", False),
        ("request", "[data-approve] { background: #7a1fa2 !important }", True),
        ("list", ".tags { display: none !important }", True),
        ("alike", "tr > :nth-child(3) { display: none !important }", True),
        ("list", "body { filter: blur(.25px) }", False),  # letters smoothed in another way
        ("list", "body { transform: translate(.2px, .2px) }", False),
    ):
        picture = taken(page, server.url + pages[name], change)
        assert (share(page, f"{name}-desk-light", picture) > SHARE) is is_seen, (
            f"{name} with {change!r}; if test_pages_look_as_their_pictures_do fails too, mend that first"
        )
    shut(chromium)
    sizes = sum(one.stat().st_size for one in COMMITTED.iterdir())
    assert sizes < 1_500_000
