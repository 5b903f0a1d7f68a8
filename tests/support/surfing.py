"""Browser tests: a real browser that uses the inbox of the *installed wheel*.

They need Playwright for Python and the system's Chromium (`SAYSO_CHROMIUM` is its path if it is not in `PATH`). If one
is missing, the tests are visibly skipped; with `SAYSO_BROWSER=required`, as `.ci/run` sets it, they fail. Most use
`chromium-headless-shell` where it is installed: Chromium without its windows and menus, which opens a tab in a quarter
of the time. Invariant: no page has a script error, a console message, a new window, or a request to another server.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn

import pytest

import sayso

__all__ = [
    "AXE", "CHROMIUM", "WIDER", "Surf", "absent", "asked", "every_page", "held", "is_wide", "launched", "need",
    "picture", "pressed", "serving", "shut", "stands", "state_is",
    "unfold", "wheel_in",
]  # fmt: skip

ROOT = Path(__file__).resolve().parents[2]
AXE = Path(os.environ.get("SAYSO_AXE", ROOT / ".cache" / "axe" / "node_modules" / "axe-core" / "axe.min.js"))
PICTURES = ROOT / "build" / "screenshots"
CHROMIUM = next(
    filter(None, [os.environ.get("SAYSO_CHROMIUM"), *map(shutil.which, ["chromium", "chromium-browser"])]), ""
)
_SHELL = (None if "SAYSO_CHROMIUM" in os.environ else shutil.which("chromium-headless-shell")) or CHROMIUM
_OPTIONS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
           "--disable-component-update", "--disable-sync"]  # fmt: skip
_BLOCKED = "Service Worker registration blocked by Playwright"
WIDER = "document.documentElement.scrollWidth - document.documentElement.clientWidth"


def absent(what: str) -> NoReturn:
    """Skip the tests with a message, or fail if they are required."""
    reason = f"{what}: the inbox is NOT tested in a browser"
    if os.environ.get("SAYSO_BROWSER") == "required":
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason, allow_module_level=True)


def need() -> Any:
    """Return Playwright's module, or skip with a message about what is missing."""
    if not CHROMIUM:
        absent("there is no Chromium")
    if importlib.util.find_spec("playwright") is None or importlib.util.find_spec("hatchling") is None:
        absent("the extra `browser` is not installed")
    import playwright.sync_api

    playwright.sync_api.expect.set_options(timeout=60_000)  # what a busy machine may need
    return playwright.sync_api


@contextmanager
def launched(program: str = _SHELL) -> Iterator[Any]:
    """Start a browser, and close it at the end."""
    with need().sync_playwright() as play:
        browser = play.chromium.launch(executable_path=program, args=_OPTIONS)
        yield browser
        browser.close()


def wheel_in(folder: Path) -> Path:
    """Build the wheel, install it into a separate environment, and return its `sayso` command.

    Its dependencies come from the environment of the tests; sayso itself comes only from the wheel.
    """
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", folder], cwd=ROOT, check=True,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    (wheel,) = folder.glob("*.whl")
    made = folder / "installed"
    venv.create(made, with_pip=False)
    python = made / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", python]
    subprocess.run([*pip, "install", "--quiet", "--no-deps", "--no-index", wheel], check=True)
    (packages,) = made.glob("lib/python*/site-packages")
    # Added as a plain path, so that `.pth` files there, and with them the source tree, are ignored.
    (packages / "needs.pth").write_text(f"{sysconfig.get_path('purelib')}\n", encoding="utf-8")
    asked = [python, "-c", "import sayso; print(sayso.__file__)"]
    found = subprocess.run(asked, cwd=folder, env=_environment(), capture_output=True, text=True, check=True).stdout
    assert Path(found.strip()).is_relative_to(packages), found
    return made / "bin" / "sayso"


def _environment() -> dict[str, str]:
    """Return the environment without the source tree on the path, which would take precedence over the wheel."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | {"SAYSO_UNDO": "0"}


@contextmanager
def serving(command: Path, store: str, *, undo: str = "0") -> Iterator[str]:
    """Start the server in another process, and yield the sign-in link."""
    words = [command, "--store", store, "serve", "--port", "0", "--as", "ada"]
    with subprocess.Popen(
        words, env=_environment() | {"SAYSO_UNDO": undo}, stdout=subprocess.PIPE, text=True, bufsize=1
    ) as process:
        assert process.stdout is not None
        try:
            yield next(found[0] for line in process.stdout if (found := re.search(r"http\S+/login\S+", line)))
        finally:
            process.kill()


class Surf:
    """A browser with a signed-in person, and the faults on its pages.

    Attributes:
        base: The address of the server.
        faults: Script errors, console messages, dialogs, and requests to other servers.
        expected: A pattern of messages that a test causes on purpose, which are not faults.
    """

    def __init__(self, chromium: Any, link: str) -> None:
        self._chromium = chromium
        self.base = link.partition("/login")[0]
        self.faults: list[str] = []
        self.expected = ""
        self._state: Any = None
        page = self.tab(link)
        page.wait_for_url(f"{self.base}/")  # the link's page submits its form at once
        self._state = page.context.storage_state()

    def tab(self, address: str, **options: Any) -> Any:
        """Open an address in a new tab."""
        # Playwright's routes do not see requests of a service worker.
        options = {"service_workers": "block", **options}
        page = self._chromium.new_context(storage_state=self._state, **options).new_page()
        page.set_default_timeout(60_000)
        page.on("console", lambda line: _BLOCKED in line.text or self.faults.append(f"{line.type}: {line.text}"))
        page.on("pageerror", lambda fault: self.faults.append(f"script: {fault}"))
        page.context.on("request", lambda asked: self._check(asked.url))
        page.context.on("page", lambda more: more is page or self.faults.append("a window of its own"))
        page.goto(address if address.startswith("http") else self.base + address)
        return page

    def _check(self, address: str) -> None:
        if not address.startswith((f"{self.base}/", "data:image/")):
            self.faults.append(f"elsewhere: {address}")

    def page(self, request_id: str, **options: Any) -> Any:
        """Open the page of a request, and unfold the fields of its arguments."""
        page = self.tab(f"/r/{request_id}", **options)
        unfold(page)
        return page

    def found(self) -> list[str]:
        """Return the faults that were not expected."""
        return [fault for fault in self.faults if not (self.expected and re.search(self.expected, fault))]


def shut(chromium: Any) -> None:
    """Close every tab.

    Chromium hangs if a context is closed while a page starts to reload itself, as ours do when a call has ended. An
    empty page loads nothing.
    """
    for context in chromium.contexts:
        for page in context.pages:
            emptied(page)
        context.close()


def emptied(page: Any) -> None:
    """Navigate to an empty page, even if the page was about to navigate elsewhere."""
    for _ in range(3):
        with suppress(need().Error):  # another navigation interrupted this one
            page.goto("about:blank")
            return


def held(function: Callable[..., Any], *args: Any) -> str:
    with pytest.raises(sayso.ConfirmationRequired) as caught:
        function(*args)
    return caught.value.confirmation_id


def asked(question: str, **options: Any) -> str:
    with pytest.raises(sayso.ConfirmationRequired) as caught:
        sayso.ask(question, wait="raise", **options)
    return caught.value.confirmation_id


def stands(request_id: str) -> sayso.Request:
    return sayso.Review().get(request_id)


def pressed(page: Any, name: str) -> None:
    """Press a button as soon as it is enabled, and wait for the next page."""
    with page.expect_navigation():
        page.get_by_role("button", name=name, exact=True).click()


def unfold(page: Any) -> None:
    """Show the fields of a call's arguments, if there are any and they are not shown yet."""
    fields = page.locator("[data-edit]:not([open]) > summary")
    if fields.count():
        fields.click()


def state_is(page: Any, state: str) -> None:
    """Wait until the page shows a state and its scripts have run, because earlier key presses have no effect."""
    need().expect(page.locator("main .tags .state").first).to_have_text(state)
    page.wait_for_load_state()


def is_wide(page: Any) -> bool:
    """Return whether a page can be scrolled horizontally."""
    return bool(page.evaluate(WIDER) > 0)


def every_page(request_id: str) -> list[str]:
    run_id = stands(request_id).run_id
    return [
        "/", f"/r/{request_id}", "/runs", f"/runs/{run_id}", "/history", f"/bulk?verb=approve&id={request_id}",
        "/insights", "/settings", "/grants",
    ]  # fmt: skip


def picture(page: Any, name: str, **options: Any) -> None:
    """Save a screenshot of a page as an artifact of the test run."""
    PICTURES.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=PICTURES / f"{name}.png", **options)
