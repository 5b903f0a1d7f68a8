"""The inbox as a program of a device: installed, without a connection, and what it keeps there, in a real browser.

The invariant: no page of the inbox, and nothing of a request, is kept on the device.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

import sayso
import sayso.policy
from tests.support.gated import pay
from tests.support.surfing import CHROMIUM, Surf, held, launched, need, serving, stands

expect = need().expect
pytestmark = pytest.mark.slow

READY = """navigator.serviceWorker.ready.then(({active}) => active.state === "activated"
  || new Promise((done) => active.addEventListener("statechange", () => done(true))))"""
KEPT = """async () => {
  const kept = [];
  for (const name of await caches.keys()) {
    for (const one of await (await caches.open(name)).keys()) kept.push(new URL(one.url).pathname);
  }
  return kept;
}"""


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """The whole browser: its shell grants no site the right to show notifications."""
    with launched(CHROMIUM) as browser:
        yield browser


def with_worker(surf: Surf, address: str = "/") -> Any:
    """Open a page whose service worker is at work."""
    page = surf.tab(address, service_workers="allow")
    page.evaluate(READY)
    page.reload()
    assert page.evaluate("navigator.serviceWorker.controller !== null")
    return page


def test_the_inbox_can_be_installed(surf: Surf) -> None:
    page = with_worker(surf)
    protocol = page.context.new_cdp_session(page)
    found = {one["errorId"] for one in protocol.send("Page.getInstallabilityErrors")["installabilityErrors"]}
    assert found <= {"in-incognito"}  # as every context of Playwright is
    assert protocol.send("Page.getAppManifest")["errors"] == []


def test_without_a_connection_a_page_says_so_and_shows_nothing_that_was_kept(
    chromium: Any, surf: Surf, command: Path
) -> None:
    request_id = held(pay, 4721)
    with serving(command, sayso.Review().store.url) as link:
        other = Surf(chromium, link)
        page = with_worker(other, f"/r/{request_id}")
        expect(page.get_by_role("heading", name="pay")).to_be_visible()
        page.goto(f"{other.base}/history")
        kept = page.evaluate(KEPT)
    for address in ("/", f"/r/{request_id}", "/history?state=done"):
        page.goto(other.base + address)
        expect(page.get_by_role("heading", name="No connection")).to_be_visible()
        assert "4721" not in page.content()
        assert page.url == other.base + address
    assert page.evaluate("getComputedStyle(document.querySelector('main')).maxWidth") != "none"  # it has its styles
    assert {path.rpartition("/")[2] for path in kept} == {"app.css", "icon.svg", "offline.html"}
    assert all(path.startswith("/static/") for path in kept)
    assert "no-store" in page.evaluate("fetch(location.href).then(() => '', () => 'no-store')")


def test_a_page_that_another_site_leads_to_is_asked_for_as_such(surf: Surf) -> None:
    # The server compresses a page only for who does not come from another site, which these headers tell.
    page = with_worker(surf)
    got: list[tuple[bool, str | None]] = []
    page.on("response", lambda one: one.url.endswith("/history") and got.append(
        (one.from_service_worker, one.headers.get("content-encoding"))
    ))  # fmt: skip
    page.goto(f"{surf.base}/history")
    page.get_by_role("link", name="Runs").click()
    page.get_by_role("link", name="History").click()
    expect(page.get_by_role("heading", name="History")).to_be_visible()
    page.route("http://elsewhere.example/", lambda route: route.fulfill(
        content_type="text/html", body=f'<a href="{surf.base}/history">there</a>',
    ))  # fmt: skip
    surf.expected = "elsewhere"
    page.goto("http://elsewhere.example/")
    page.get_by_role("link", name="there").click()
    expect(page.get_by_role("heading", name="History")).to_be_visible()
    assert got == [(True, "gzip"), (True, "gzip"), (True, None)]


SUBSCRIBED = """PushManager.prototype.subscribe = async ({applicationServerKey}) => ({toJSON: () => ({
  endpoint: `https://push.example/${applicationServerKey.length}`, keys: KEYS,
})});
Notification.requestPermission = async () => "granted";"""
SHOWN = """async () => (await registration.getNotifications()).map(
  ({title, body, actions, silent}) => [title, body, actions.map((one) => one.action), silent]
)"""
HAPPENS = """async ([name, about]) => {
  const waits = [], [notification] = await registration.getNotifications();
  const event = name === "push" ? new PushEvent(name, {data: JSON.stringify(about)})
    : new NotificationEvent(name, {notification, action: about});
  event.waitUntil = (promise) => waits.push(promise);
  dispatchEvent(event);
  await Promise.all(waits);
}"""


def test_a_reviewer_turns_notifications_on_and_off(surf: Surf) -> None:
    point = ec.generate_private_key(ec.SECP256R1()).public_key()
    raw = point.public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
    keys = {"p256dh": base64.urlsafe_b64encode(raw).decode().rstrip("="), "auth": "A" * 22}
    page = with_worker(surf, "/settings")
    expect(page.get_by_text("This browser cannot show notifications")).to_be_hidden()
    page.evaluate(SUBSCRIBED.replace("KEYS", json.dumps(keys)))
    page.get_by_label("Name of this device").fill("my phone")
    with page.expect_navigation():
        page.get_by_role("button", name="Turn on notifications in this browser").click()
    expect(page.locator("#devices ~ ul")).to_contain_text("my phone this browser")
    with page.expect_navigation():
        page.get_by_role("button", name="Remove: my phone").click()
    expect(page.locator("#devices ~ ul")).to_have_count(0)


def test_a_notification_decides_what_it_showed_and_says_so_where_it_could_not(surf: Surf) -> None:
    @sayso.gate(wait="raise", when=lambda: sayso.policy.hold(risk="low", approve_from_notification=True))
    def restart(service: str) -> None: ...

    page = with_worker(surf)
    page.context.grant_permissions(["notifications"], origin=surf.base)
    surf.expected = "409|412"
    (worker,) = page.context.service_workers
    for action, is_as_shown, said, state in (
        ("approve", True, "Approved", "approved"), ("approve", False, "Not approved", "pending"),
        ("reject", True, "Rejected", "rejected"), ("reject", False, "Not rejected", "pending"),
    ):  # fmt: skip
        request_id = held(restart, said)
        about = {
            "id": "m", "request": request_id, "title": "a program asks", "body": "restart(…)", "is_over": False,
            "approve": stands(request_id).current_fingerprint if is_as_shown else "f" * 64, "for": "local:ada",
        }  # fmt: skip
        worker.evaluate(HAPPENS, ["push", about])
        assert worker.evaluate(SHOWN) == [["a program asks", "restart(…)", ["approve", "reject"], False]]
        worker.evaluate(HAPPENS, ["notificationclick", action])
        ((title, _, actions, _),) = worker.evaluate(SHOWN)
        assert title.startswith(said)
        assert (actions, stands(request_id).state) == ([], state)
        worker.evaluate(HAPPENS, ["push", {**about, "approve": None, "is_over": True, "title": "it ended"}])
        assert worker.evaluate(SHOWN) == [["it ended", "restart(…)", [], True]]
        worker.evaluate("registration.getNotifications().then((all) => all.forEach((one) => one.close()))")
    request_id = held(restart, "in German")
    words = {"approve": "Freigeben", "reject": "Ablehnen", "approved": "Freigegeben"}
    about |= {"request": request_id, "approve": stands(request_id).current_fingerprint, "words": words}
    worker.evaluate(HAPPENS, ["push", about])
    titles = "async () => (await registration.getNotifications())[0].actions.map((one) => one.title)"
    assert worker.evaluate(titles) == ["Freigeben", "Ablehnen"]
    worker.evaluate(HAPPENS, ["notificationclick", "approve"])
    assert worker.evaluate(SHOWN)[0][0] == "Freigegeben · a program asks"


def test_a_notification_decides_nothing_in_the_name_of_somebody_who_has_signed_in_since(surf: Surf) -> None:
    @sayso.gate(wait="raise", when=lambda: sayso.policy.hold(risk="low", approve_from_notification=True))
    def restart(service: str) -> None: ...

    page = with_worker(surf)
    page.context.grant_permissions(["notifications"], origin=surf.base)
    (worker,) = page.context.service_workers
    request_id = held(restart, "nginx")
    about = {
        "id": "m", "request": request_id, "title": "a program asks", "body": "restart(…)", "is_over": False,
        "approve": stands(request_id).current_fingerprint, "for": "local:bob",
    }  # fmt: skip
    worker.evaluate(HAPPENS, ["push", about])
    worker.evaluate(HAPPENS, ["notificationclick", "approve"])  # it opens the page, where a click would allow that
    assert stands(request_id).state == "pending"
