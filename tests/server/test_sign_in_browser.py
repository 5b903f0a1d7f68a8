"""Signing in at an OpenID provider in a real browser, with scripts and without: what browsers do is not guessed.

The provider is on another site than the inbox (`localhost` and `127.0.0.1` are two), so cookies, redirects and the
policy of the pages count as they will. The invariant: the person ends on the page that was wanted, signed in, and
nothing stands in the console but that they were not signed in before.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sayso import config
from sayso.testing import sample_call
from tests.server.openid import OpenId, openid
from tests.support.surfing import need, shut

pytestmark = pytest.mark.slow

playwright = need()


@pytest.fixture
def provider() -> Iterator[OpenId]:
    with openid() as one:
        one.url = one.url.replace("127.0.0.1", "localhost")
        yield one


@pytest.fixture
def inbox(provider: OpenId, place: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of a server at which people sign in by the provider."""
    (place / "sayso.toml").write_text(
        f'[oidc]\nname = "corp"\nissuer = "{provider.url}"\nclient_id = "{provider.client_id}"\n'
        'client_secret_env = "CLIENT_SECRET"\n'
    )
    monkeypatch.setenv("CLIENT_SECRET", provider.secret or "")
    config.configure(store=f"sqlite:///{place / 'sayso.db'}")
    words = [sys.executable, "-m", "sayso", "--store", config.default_store().url, "serve", "--port", "0"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, bufsize=1) as process:
        assert process.stdout is not None
        try:
            said = [line for _, line in zip(range(4), process.stdout, strict=False)]
            found = re.search(r"http://127\.0\.0\.1:\d+", "".join(said))
            assert found is not None
            yield found[0]
        finally:
            process.kill()


@pytest.fixture
def tab(chromium: Any, has_scripts: bool) -> Iterator[Any]:
    page = chromium.new_context(java_script_enabled=has_scripts).new_page()
    page.set_default_timeout(60_000)
    yield page
    shut(chromium)


@pytest.mark.slow
@pytest.mark.parametrize("has_scripts", [True, False], ids=["scripts", "no scripts"])
def test_a_person_signs_in_and_ends_on_the_page_that_was_wanted(
    inbox: str, provider: OpenId, tab: Any, has_scripts: bool
) -> None:
    request = config.default_store().ask(sample_call())
    faults: list[str] = []
    tab.on("console", lambda line: faults.append(line.text))
    tab.on("pageerror", lambda fault: faults.append(str(fault)))
    tab.goto(f"{inbox}/r/{request.id}")
    tab.get_by_role("button", name="Sign in with corp").click()
    if not has_scripts:  # with them the page sends its form by itself
        tab.wait_for_url(re.compile(r"/login/openid\?"))
        tab.get_by_role("button", name="Open the inbox").click()
    playwright.expect(tab.get_by_text("You are 00u1 (corp)")).to_have_count(1)
    assert tab.url == f"{inbox}/r/{request.id}"
    assert [fault for fault in faults if "401" not in fault] == []
    assert all(cookie["httpOnly"] for cookie in tab.context.cookies(inbox))
    assert [cookie["name"][:6] for cookie in tab.context.cookies(inbox)] == ["sayso-"]  # the way's own has ended
    assert provider.asked.count("/token") == 1
