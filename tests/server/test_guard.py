"""Who may ask the inbox, and what every answer carries: names, headers, sessions, and forms of its own pages only.

What the pages show is in `test_pages`, what their forms do in `test_actions`. The invariant: a request that
does not come from a page of the inbox, in the session in which it was shown, changes nothing.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request as Http
from starlette.routing import Mount, Route
from starlette.testclient import TestClient

import sayso
from sayso.model.request import State
from sayso.model.reviewer import Reviewer
from sayso.server import create_app, login_path
from sayso.server.auth.sessions import ABSOLUTE, IDLE, PRINTED, Sessions, TokenSigner
from sayso.server.protection import HEADERS
from sayso.stores.base import Store
from sayso.testing import sample_call
from tests.conftest import Clock
from tests.support.acting import Pay, held, state_of
from tests.support.browsing import BASE, Browser, browser, fields_of

ALL_STATIC = Path(sayso.__file__).parent / "server" / "static"


def pages(request_id: str) -> list[str]:
    return [
        "/", f"/r/{request_id}", f"/bulk?verb=approve&id={request_id}", "/history", "/runs", "/runs/nothing",
        "/healthz", "/login", "/nothing", "/r/rq_nothing", "/static/app.css", "/static/nothing",
        "/?state=odd", "/?cursor=odd",
    ]  # fmt: skip


def test_every_answer_carries_the_headers(ada: Browser, pay: Pay) -> None:
    request_id = held(pay, 5).confirmation_id
    answers = [ada.get(page) for page in pages(request_id)]
    answers += [ada.get("/", headers={"host": "evil.example"}), ada.post(f"/r/{request_id}/approve", data={})]
    answers += [ada.request("DELETE", "/"), ada.request("OPTIONS", "/")]
    assert {answer.status_code for answer in answers} >= {200, 400, 403, 404, 405, 421}
    for answer in answers:
        assert {name: answer.headers.get(name) for name in HEADERS} == HEADERS, answer.url
    policy = HEADERS["content-security-policy"]
    for part in ("default-src 'self'", "frame-ancestors 'none'", "form-action 'self'", "base-uri 'none'"):
        assert part in policy
    assert "unsafe" not in policy


def test_a_page_is_never_kept_by_a_browser_and_a_file_under_its_digest_for_ever(ada: Browser, pay: Pay) -> None:
    request_id = held(pay, 5).confirmation_id
    for page in ("/", f"/r/{request_id}", "/login", "/nothing"):
        assert ada.get(page).headers["cache-control"] == "no-store"
    (named,) = re.findall(r'href="(/static/\w+/app\.css)"', ada.get("/").text)
    kept = ada.get(named)
    assert kept.headers["cache-control"] == "public, max-age=31536000, immutable"
    for other in ("/static/app.css", "/static/0123456789abcdef/app.css"):  # of another version, which may differ
        file = ada.get(other)
        assert (file.content, file.headers["cache-control"]) == (kept.content, "no-cache")
        assert ada.get(other, headers={"if-none-match": file.headers["etag"]}).status_code == 304
    for nothing in ("/static/nothing.css", "/static/", f"{named}/app.css", "/static/%2e%2e/app.py"):
        assert ada.get(nothing).status_code == 404
    assert ada.post("/static/app.css").status_code == 405


def test_a_file_is_sent_compressed_to_whoever_reads_that(ada: Browser) -> None:
    plain = ada.get("/static/app.css", headers={"accept-encoding": "gzip;q=0, br"})
    short = ada.get("/static/app.css", headers={"accept-encoding": "br, gzip"})
    assert "content-encoding" not in plain.headers
    assert short.headers["content-encoding"] == "gzip"
    assert short.content == plain.content
    assert int(short.headers["content-length"]) * 3 < len(plain.content)


def test_a_first_page_with_its_files_is_under_60_kb_on_the_wire(ada: Browser, store: Store) -> None:
    for number in range(300):  # as different as calls are, so that they do not shrink to one
        to = hashlib.sha256(str(number).encode()).hexdigest()
        store.ask(sample_call(f"run_{to[:8]}", {"amount": number, "to": to}))
    sent = {"sec-fetch-site": "same-origin", "accept-encoding": "gzip"}
    page = ada.get("/?fold=no", headers=sent)
    files = set(re.findall(r'(?:src|href)="(/static/[^"]+)"', page.text))
    assert {name.rpartition("/")[2] for name in files} >= {"app.css", "inbox.js", "icon.svg"}
    sizes = [int(one.headers["content-length"]) for one in (page, *(ada.get(name, headers=sent) for name in files))]
    assert sum(sizes) < 60_000, sizes


# What a browser says of who made it ask; `none` is a person, by the address bar or a bookmark.
@pytest.mark.parametrize(
    ("site", "is_compressed"),
    [("same-origin", True), ("none", True), ("same-site", False), ("cross-site", False), ("", False)],
)
def test_a_page_that_another_site_asked_for_is_not_compressed(
    ada: Browser, pay: Pay, site: str, is_compressed: bool
) -> None:
    request_id = held(pay, 5).confirmation_id
    sent = {"sec-fetch-site": site, "accept-encoding": "gzip"}
    for page in ("/", f"/r/{request_id}", "/?q=x"):
        answer = ada.get(page, headers=sent)
        assert answer.status_code == 200
        assert (answer.headers.get("content-encoding") == "gzip") is is_compressed
        assert "</html>" in answer.text
    fields = fields_of(ada.get(f"/r/{request_id}").text)
    refused = ada.post(f"/r/{request_id}/feedback", data=fields, headers={"origin": BASE, **sent})
    assert (refused.headers.get("content-encoding") == "gzip") is is_compressed


def test_a_page_that_signs_somebody_in_is_not_compressed(app: Starlette) -> None:
    sent = {"sec-fetch-site": "same-origin", "accept-encoding": "gzip"}
    answer = TestClient(app, base_url=BASE).get(login_path(app, Reviewer("ada")), headers=sent)
    assert "content-encoding" not in answer.headers


def test_the_token_of_forms_is_drawn_otherwise_on_each_page_and_every_drawing_counts(ada: Browser, pay: Pay) -> None:
    request_id = held(pay, 5).confirmation_id
    drawn = {fields_of(ada.get(f"/r/{request_id}").text)["csrf"] for _ in range(5)}
    assert len({one[:64] for one in drawn}) == len({one[64:] for one in drawn}) == 5
    plain = ada.get("/api/v1/me").json()["csrf"]
    assert not any(plain in one for one in drawn)
    for csrf in (*drawn, plain):
        assert ada.submit(f"/r/{request_id}/claim", csrf=csrf).status_code == 400  # known, and sees nothing of it
    one = drawn.pop()
    for wrong in (one[:-1] + ("0" if one[-1] != "0" else "1"), "0" * 128, "x" * 128, one[:64], one[64:], "é" * 128):
        assert ada.submit(f"/r/{request_id}/claim", csrf=wrong).status_code == 403


def test_a_fault_that_nobody_foresaw_has_the_headers_and_says_nothing(
    app: Starlette, monkeypatch: pytest.MonkeyPatch, store: Store
) -> None:
    def broken(*_: Any, **__: Any) -> Any:
        raise ZeroDivisionError("hunter2")

    ada = browser(app, "ada", raises=False)
    monkeypatch.setattr(type(store), "count", broken)
    answer = ada.get("/")
    assert answer.status_code == 500
    assert "hunter2" not in answer.text
    assert {name: answer.headers.get(name) for name in HEADERS} == HEADERS


def test_no_page_has_script_or_style_in_it(ada: Browser, pay: Pay) -> None:
    request_id = held(pay, 5).confirmation_id
    for page in pages(request_id):
        text = ada.get(page).text
        assert "<style" not in text
        assert " style=" not in text
        assert "javascript:" not in text
        assert " on" not in "".join(part.partition(">")[0] for part in text.split("<button"))
        for script in text.split("<script")[1:]:
            assert script.lstrip().startswith('src="/static/')
            assert script.partition(">")[2].startswith("</script>")


@pytest.mark.parametrize(
    ("host", "is_known"),
    [
        ("localhost", True), ("localhost:8600", True), ("127.0.0.1:9", True), ("[::1]:8600", True), ("LOCALHOST", True),
        ("evil.example", False), ("localhost.evil.example", False), ("evil@localhost", False),
        ("127.0.0.1.nip.io", False),
        ("", False), ("localhost:port", False), ("127.0.0.2", False),
    ],
)  # fmt: skip
def test_it_answers_to_its_own_names_only(app: Starlette, host: str, is_known: bool) -> None:
    answer = TestClient(app, base_url=BASE).get("/healthz", headers={"host": host})
    assert (answer.status_code == 200) is is_known


def test_base_url_is_the_one_name_that_it_has(store: Store) -> None:
    client = TestClient(create_app(store, base_url="https://approvals.example"), base_url="https://approvals.example")
    assert client.get("/healthz").status_code == 200
    assert client.get("/healthz", headers={"host": "localhost"}).status_code == 421


# -- sessions --------------------------------------------------------------------------------------------------


def test_who_is_not_signed_in_sees_nothing_of_any_request(app: Starlette, pay: Pay) -> None:
    request_id = held(pay, 5, "canary-name").confirmation_id
    stranger = TestClient(app, base_url=BASE)
    for page in ["/", f"/r/{request_id}", "/history", "/runs", f"/bulk?verb=approve&id={request_id}", "/events"]:
        answer = stranger.get(page)
        assert answer.status_code == 401, page
        assert "canary-name" not in answer.text
        assert request_id not in answer.text


def test_a_link_begins_one_session(app: Starlette) -> None:
    path = login_path(app, Reviewer("ada"))
    token = path.partition("token=")[2]
    looker = TestClient(app, base_url=BASE)
    assert looker.get(path).status_code == 200
    assert not looker.cookies
    statuses = []
    for _ in range(2):
        client = TestClient(app, base_url=BASE, follow_redirects=False)
        statuses.append(client.post("/login", data={"token": token}, headers={"origin": BASE}).status_code)
    assert statuses == [303, 401]


def test_a_link_is_not_taken_from_elsewhere_or_after_an_hour(app: Starlette, clock: Clock) -> None:
    client = TestClient(app, base_url=BASE, follow_redirects=False)
    token = login_path(app, Reviewer("ada")).partition("token=")[2]
    for headers in ({}, {"origin": "https://evil.example"}, {"origin": "null"}):
        assert client.post("/login", data={"token": token}, headers=headers).status_code == 403
    clock.tick(seconds=PRINTED.total_seconds())
    assert client.post("/login", data={"token": token}, headers={"origin": BASE}).status_code == 401


def test_cookie_cannot_be_read_by_scripts_and_is_not_sent_from_elsewhere(app: Starlette, store: Store) -> None:
    for made, base, begins in [(app, BASE, "sayso-8600="), (None, "https://ok.example", "__Host-sayso=")]:
        app_here = made or create_app(store, base_url=base)
        client = TestClient(app_here, base_url=base, follow_redirects=False)
        token = login_path(app_here, Reviewer("ada")).partition("token=")[2]
        cookie = client.post("/login", data={"token": token}, headers={"origin": base}).headers["set-cookie"]
        assert cookie.startswith(begins)
        assert {"HttpOnly", "SameSite=lax", "Path=/"} <= set(cookie.split("; "))
        assert ("Secure" in cookie) is base.startswith("https")


def test_sessions_end_by_idleness_and_for_good(store: Store, clock: Clock) -> None:
    sessions = Sessions(store, TokenSigner(store))
    idle = sessions.begin(Reviewer("ada"))
    clock.tick(seconds=IDLE.total_seconds() - 1)
    assert sessions.find(idle.id) is not None
    clock.tick(seconds=IDLE.total_seconds())
    assert sessions.find(idle.id) is None
    busy = sessions.begin(Reviewer("ada"))
    for _ in range(int(ABSOLUTE / IDLE) * 2):
        clock.tick(seconds=IDLE.total_seconds() / 2)
        last = sessions.find(busy.id)
    assert last is None


def test_signing_out_ends_the_session(ada: Browser) -> None:
    stolen = dict(ada.cookies)
    csrf = fields_of(ada.get("/").text)["csrf"]
    assert ada.submit("/logout", csrf=csrf).status_code == 200
    ada.cookies.update(stolen)
    assert ada.get("/").status_code == 401


# -- forms -----------------------------------------------------------------------------------------------------


def forged(ada: Browser, other: Browser, request_id: str) -> list[tuple[dict[str, str], dict[str, str], Any]]:
    """Return headers, cookies and body of forms that no page of ada's made."""
    fields = fields_of(ada.get(f"/r/{request_id}").text)
    theirs = fields_of(other.get(f"/r/{request_id}").text)["csrf"]
    good = {"csrf": fields["csrf"], "seen": fields["seen"]}
    return [
        ({"origin": BASE}, {}, {"seen": good["seen"]}),
        ({"origin": BASE}, {}, good | {"csrf": ""}),
        ({"origin": BASE}, {}, good | {"csrf": theirs}),
        ({"origin": "https://evil.example"}, {}, good),
        ({"origin": "http://localhost:9999"}, {}, good),
        ({"origin": "null"}, {}, good),
        ({}, {}, good),
    ]


def takes_forms(app: Starlette) -> list[str]:
    """Return every address that takes a POST of a browser; programs sign theirs, or bring a token."""
    posts = [route.path for route in app.routes if isinstance(route, Route) and "POST" in (route.methods or ())]
    return [re.sub(r"{[^}]*}", "x", path) for path in posts if not path.startswith(("/api/", "/hooks/"))]


def test_no_address_takes_a_form_of_another_page_or_of_nobody(app: Starlette, ada: Browser, store: Store) -> None:
    addresses = takes_forms(app)
    assert {"/login", "/login/openid", "/login/openid/go", "/logout", "/bulk", "/r/x/x"} <= set(addresses)
    before = list(store.journal()), [store.records(kind) for kind in ("link", "token", "channel")]
    for address in addresses:
        for origin in ({}, {"origin": "https://evil.example"}, {"origin": "null"}):
            assert ada.post(address, data={"csrf": "x"}, headers=origin).status_code == 403, address
        stranger = TestClient(app, base_url=BASE)
        assert stranger.post(address, data={"csrf": "x"}, headers={"origin": BASE}).status_code in {401, 403, 404}
        mine = ada.post(address, data={"csrf": "x"}, headers={"origin": BASE}, follow_redirects=False)
        assert mine.status_code in {303, 403, 404}, address  # 303: who is signed in goes on to the inbox
    assert (list(store.journal()), [store.records(kind) for kind in ("link", "token", "channel")]) == before
    assert ada.get("/").status_code == 200


VERBS = ["approve", "reject", "feedback", "answer", "cancel", "claim", "release", "extend", "resolve"]


@pytest.mark.parametrize("verb", VERBS)
def test_a_forged_form_changes_nothing(app: Starlette, ada: Browser, pay: Pay, store: Store, verb: str) -> None:
    request_id = held(pay, 5).confirmation_id
    before = list(store.journal())
    for headers, _, body in forged(ada, browser(app, "bob"), request_id):
        data = body | {"note": "no", "span": "1h", "happened": "yes", "force": "yes"}
        answer = ada.post(f"/r/{request_id}/{verb}", data=data, headers=headers)
        assert answer.status_code == 403, (headers, body)
    answer = ada.post(
        f"/r/{request_id}/{verb}", content='{"csrf": 1}', headers={"origin": BASE, "content-type": "text/plain"}
    )
    assert answer.status_code == 415
    assert list(store.journal()) == before
    assert state_of(request_id) is State.PENDING


def test_a_form_of_ours_is_taken(ada: Browser, pay: Pay) -> None:
    request_id = held(pay, 5).confirmation_id
    assert ada.decide(request_id, "reject").status_code == 200
    assert state_of(request_id) is State.REJECTED


def test_a_form_without_a_session_changes_nothing(app: Starlette, ada: Browser, pay: Pay) -> None:
    request_id = held(pay, 5).confirmation_id
    fields = fields_of(ada.get(f"/r/{request_id}").text)
    data = {"csrf": fields["csrf"], "seen": fields["seen"]}
    stranger = TestClient(app, base_url=BASE)
    assert stranger.post(f"/r/{request_id}/reject", data=data, headers={"origin": BASE}).status_code == 401
    assert state_of(request_id) is State.PENDING


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS", "PUT", "PATCH", "DELETE"])
def test_only_post_changes_anything(ada: Browser, pay: Pay, store: Store, method: str) -> None:
    request_id = held(pay, 5).confirmation_id
    fields = fields_of(ada.get(f"/r/{request_id}").text)
    before = list(store.journal()), store.get(request_id)
    query = f"csrf={fields['csrf']}&seen={fields['seen']}&item={request_id}:{fields['seen']}&verb=approve&note=x"
    for page in [*pages(request_id), *(f"/r/{request_id}/{verb}" for verb in VERBS), "/logout"]:
        ada.request(method, f"{page}{'&' if '?' in page else '?'}{query}", headers={"origin": BASE})
    assert (list(store.journal()), store.get(request_id)) == before
    assert ada.get("/").status_code == 200


def test_a_form_that_is_too_long_or_is_none_is_refused(ada: Browser, pay: Pay) -> None:
    request_id = held(pay, 5).confirmation_id
    kind = {"origin": BASE, "content-type": "application/x-www-form-urlencoded"}
    for body, status in [(b"a=" + b"x" * 8_000_001, 413), (b"a=%ff", 400), (b"\xff", 400), (b"a&" * 6_000, 400)]:
        assert ada.post(f"/r/{request_id}/reject", content=body, headers=kind).status_code == status
    assert state_of(request_id) is State.PENDING


# -- mounted ---------------------------------------------------------------------------------------------------


def test_it_can_be_mounted_below_a_path_of_a_program_that_knows_its_people(store: Store, pay: Pay) -> None:
    def who(http: Http) -> Reviewer | None:
        name = http.headers.get("x-person")
        return Reviewer(name, issuer="host") if name else None

    async def own(_: Http) -> Any:
        raise NotImplementedError

    inner = create_app(store, who=who)
    outer = Starlette(routes=[Route("/own", own), Mount("/inbox", inner)])
    request_id = held(pay, 5).confirmation_id
    client = Browser(outer, base_url=BASE, root="/inbox", headers={"x-person": "kim"})
    text = client.get("/inbox/").text
    assert f'href="/inbox/r/{request_id}"' in text
    (script,) = re.findall(r'src="(/inbox/static/\w+/inbox\.js)"', text)
    assert client.get(script).headers["cache-control"].endswith("immutable")
    assert client.decide(request_id, "approve").status_code == 200
    decision = store.get(request_id).decision
    assert decision is not None
    assert (decision.by.qualified, decision.channel) == ("host:kim", "web")
    client.headers["x-person"] = ""
    assert client.get("/inbox/").status_code == 401


def test_another_person_in_the_same_browser_does_not_inherit_the_session(store: Store, pay: Pay) -> None:
    names = ["kim"]
    app = create_app(store, who=lambda _: Reviewer(names[0]))
    client = Browser(app, base_url=BASE)
    request_id = held(pay, 5).confirmation_id
    fields = fields_of(client.get(f"/r/{request_id}").text)
    names[0] = "lee"
    data = {"csrf": fields["csrf"], "seen": fields["seen"]}
    assert client.post(f"/r/{request_id}/approve", data=data, headers={"origin": BASE}).status_code == 403
    assert state_of(request_id) is State.PENDING


# -- what is brought along -------------------------------------------------------------------------------------


def test_every_file_is_our_own() -> None:
    ours = {
        "app.css", "app.js", "app.webmanifest", "bulk.js", "card.js", "icon-192.png", "icon-512.png", "icon.svg",
        "list.js", "live.js", "offline.html", "page.js", "push.js", "sw.js", "texts.js", "times.js",
    }  # fmt: skip
    assert {path.name for path in ALL_STATIC.iterdir()} == ours


def test_a_page_loads_one_style_sheet_and_one_script_that_holds_all(store: Store, pay: Pay) -> None:
    client = Browser(create_app(store, who=lambda _: Reviewer("kim")), base_url=BASE)
    for path in ("/", f"/r/{held(pay, 5).confirmation_id}", "/history", "/settings"):
        text = client.get(path).text
        assert len(re.findall(r'<link rel="stylesheet"', text)) == 1
        (script,) = re.findall(r'<script src="([^"]+)"', text)
        joined = client.get(script).text
        for source in ALL_STATIC.glob("*.js"):
            assert (source.read_text(encoding="utf-8") in joined) is (source.name != "sw.js"), source.name


def test_the_service_worker_speaks_for_the_pages_of_its_inbox_alone(store: Store) -> None:
    around = Starlette(routes=[Mount("/approvals", create_app(store))])
    for app, scope in ((create_app(store), "/"), (around, "/approvals/")):
        answer = TestClient(app, base_url=BASE).get(f"{scope}static/sw.js")
        assert (answer.status_code, answer.headers["service-worker-allowed"]) == (200, scope)
