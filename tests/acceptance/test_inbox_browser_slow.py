"""Pages of the inbox in a real browser whose scripts come late, one by one, as they do on a slow line.

The invariant: a page that was slow to load is as live, and decides as little by itself, as one that was quick.
"""

from __future__ import annotations

from typing import Any

import pytest

import sayso
from tests.acceptance.gated import pay
from tests.acceptance.surfing import Surf, held, need

expect = need().expect
pytestmark = pytest.mark.slow


@pytest.mark.parametrize("late", ["htmx.min.js", "hx-sse.min.js", "app.js"])
def test_a_page_one_of_whose_scripts_comes_late_is_live(surf: Surf, late: str) -> None:
    request_id = held(pay, 5)
    page = surf.tab("/")
    waiting: list[Any] = []

    def hold(route: Any) -> None:
        waiting.append(route)

    page.route(f"**/{late}*", hold, times=1)
    page.goto(f"{surf.base}/", wait_until="commit")
    expect(page.locator(f"#at-{request_id}")).to_be_visible()
    if late != "htmx.min.js":
        page.wait_for_function("window.htmx")
    page.evaluate("new Promise((done) => setTimeout(done, 100))")  # for what would begin too early
    assert len(waiting) == 1
    waiting[0].continue_()
    sayso.Review().claim(request_id, by="bob")
    expect(page.locator(f"#at-{request_id}")).to_contain_text("bob is looking")
