"""A proxy that signs people in: its header counts from its own addresses, said once and properly; else nobody is known.

The invariant: what anybody but the proxy writes into a header signs nobody in.
"""

from __future__ import annotations

import itertools
from typing import Any

import httpx2
import pytest
from starlette.applications import Starlette
from starlette.requests import Request as Http
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from sayso import errors
from sayso.model.request import State
from sayso.model.reviewer import Reviewer
from sayso.server import create_app, login_path
from sayso.server.auth.sign_in import PROXY, Proxy, SignIn, networks, sender_of
from sayso.stores.base import Store
from tests.conftest import Clock
from tests.server.test_where_it_listens import running
from tests.support.acting import Pay, held, payer, state_of
from tests.support.browsing import BASE, Browser, fields_of

PEERS = networks(["10.0.0.5", "192.168.7.0/24", "fd00::/8"])
WAYS = Proxy(PEERS, "X-Forwarded-User", "X-Forwarded-Groups")


def asked(peer: str | None, *headers: tuple[str, str | bytes]) -> Http:
    raw = [(name.encode(), text if isinstance(text, bytes) else text.encode()) for name, text in headers]
    raw = [(name.lower(), text) for name, text in raw]
    return Http({"type": "http", "headers": raw, "client": None if peer is None else (peer, 4_000), "method": "GET"})


@pytest.fixture
def app(memory: Store) -> Starlette:
    return create_app(memory, base_url=BASE, sign_in=SignIn(has_links=False, proxy=WAYS))


@pytest.fixture
def pay(memory: Store) -> Pay:
    return payer()


def at(app: Starlette, peer: str, **headers: str) -> Browser:
    sent = {name.replace("_", "-"): text for name, text in headers.items()}
    return Browser(app, base_url=BASE, client=(peer, 4_000), headers=sent)


def test_an_address_that_a_header_may_have_given_the_connection_is_not_the_proxys() -> None:
    forged = [
        ("10.0.0.5", "10.0.0.5"), ("10.0.0.5", "10.0.0.5:4000"), ("10.0.0.5", "1.2.3.4, 10.0.0.5"),
        ("fd00::1", "[FD00:0::1]:80"), ("fd00::1%eth0", "fd00::1%eth0"), ("::ffff:10.0.0.5", "10.0.0.5"),
    ]  # fmt: skip
    direct = Proxy(PEERS, "X-Forwarded-User", is_direct=True)
    for peer, named in forged:
        http = asked(peer, ("x-forwarded-for", named), ("x-forwarded-user", "ada"))
        assert (WAYS.who(http), direct.who(http)) == (None, Reviewer("ada", issuer=PROXY)), (peer, named)
    assert WAYS.who(asked("10.0.0.5", ("x-forwarded-for", "1.2.3.4"), ("x-forwarded-user", "ada"))) is not None


def test_a_program_of_the_machine_names_nobody_by_an_address_that_uvicorn_believes(memory: Store) -> None:
    sign_in = SignIn(has_links=False, proxy=WAYS)
    app = ProxyHeadersMiddleware(create_app(memory, base_url=BASE, sign_in=sign_in))  # type: ignore[arg-type]
    local = Browser(app, base_url=BASE, client=("127.0.0.1", 4_000), headers={"x-forwarded-user": "ada"})
    assert local.get("/", headers={"x-forwarded-for": "10.0.0.5"}).status_code == 401


def test_whom_the_proxy_names_decides_in_that_name(app: Starlette, pay: Pay, memory: Store) -> None:
    request_id = held(pay, 5).confirmation_id
    ada = at(app, "10.0.0.5", x_forwarded_user="ada", x_forwarded_groups="finance, ops")
    assert ada.decide(request_id, "approve").status_code == 200
    decision = memory.get(request_id).decision
    assert decision is not None
    assert decision.by.qualified == f"{PROXY}:ada"
    assert sorted(ada.get("/api/v1/me").json()["roles"]) == ["finance", "ops"]


@pytest.mark.parametrize("peer", ["10.0.0.5", "192.168.7.9", "fd00::1", "::ffff:10.0.0.5"])
def test_the_header_counts_from_the_proxys_addresses(peer: str) -> None:
    assert WAYS.who(asked(peer, ("x-forwarded-user", "ada"))) == Reviewer("ada", issuer=PROXY)


STRANGERS = ["10.0.0.6", "127.0.0.1", "192.168.8.1", "::1", "::ffff:10.0.0.6", "203.0.113.9", "unix", "", None]


@pytest.mark.parametrize("peer", STRANGERS)
def test_the_header_of_anybody_else_signs_nobody_in(peer: str | None) -> None:
    claims = [("x-forwarded-for", "10.0.0.5"), ("forwarded", "for=10.0.0.5"), ("x-real-ip", "10.0.0.5")]
    assert WAYS.who(asked(peer, ("x-forwarded-user", "ada"), *claims)) is None


def test_the_answer_to_anybody_else_is_401_and_shows_nothing(app: Starlette, pay: Pay) -> None:
    request_id = held(pay, 5, "canary-name").confirmation_id
    for peer, page in itertools.product(["127.0.0.1", "203.0.113.9"], ["/", f"/r/{request_id}", "/history", "/events"]):
        answer = at(app, peer, x_forwarded_user="ada", x_forwarded_for="10.0.0.5").get(page)
        assert answer.status_code == 401
        assert "canary-name" not in answer.text


def test_a_session_that_the_proxy_began_is_none_from_elsewhere(app: Starlette, pay: Pay) -> None:
    request_id = held(pay, 5).confirmation_id
    ada = at(app, "10.0.0.5", x_forwarded_user="ada")
    fields = fields_of(ada.get(f"/r/{request_id}").text)
    thief = at(app, "203.0.113.9", x_forwarded_user="ada")
    thief.cookies.update(dict(ada.cookies))
    data = {"csrf": fields["csrf"], "seen": fields["seen"]}
    assert thief.post(f"/r/{request_id}/approve", data=data, headers={"origin": BASE}).status_code == 401
    assert thief.get("/").status_code == 401
    assert state_of(request_id) is State.PENDING


IMPROPER: dict[str, list[tuple[str, str | bytes]]] = {
    "none": [],
    "empty": [("x-forwarded-user", "")],
    "blank": [("x-forwarded-user", "   ")],
    "twice": [("x-forwarded-user", "ada"), ("x-forwarded-user", "root")],
    "twice the same": [("x-forwarded-user", "ada"), ("X-Forwarded-User", "ada")],
    "twice, one empty": [("x-forwarded-user", "ada"), ("x-forwarded-user", "")],
    "white space around": [("x-forwarded-user", " ada")],
    "a tab": [("x-forwarded-user", "a\tda")],
    "a line's end": [("x-forwarded-user", "ada\r\nx: y")],
    "a zero": [("x-forwarded-user", "ada\0")],
    "an escape": [("x-forwarded-user", "\x1b[31mada")],
    "a zero-width space": [("x-forwarded-user", "a\u200bda")],
    "right to left": [("x-forwarded-user", "\u202eada")],
    "no UTF-8": [("x-forwarded-user", b"ad\xff")],
    "roles twice": [
        ("x-forwarded-user", "ada"), ("x-forwarded-groups", "a"), ("x-forwarded-groups", "root"),
    ],
    "a role with a control character": [("x-forwarded-user", "ada"), ("x-forwarded-groups", "a,ro\x00ot")],
    "roles that are no UTF-8": [("x-forwarded-user", "ada"), ("x-forwarded-groups", b"\xff")],
    "another header": [("x_forwarded_user", "ada"), ("x-forwarded-users", "ada"), ("remote-user", "ada")],
}  # fmt: skip


@pytest.mark.parametrize("headers", IMPROPER.values(), ids=IMPROPER)
def test_a_header_that_is_not_one_plain_name_signs_nobody_in(headers: list[tuple[str, str | bytes]]) -> None:
    assert WAYS.who(asked("10.0.0.5", *headers)) is None


def test_a_name_in_utf8_is_that_name() -> None:
    said = WAYS.who(asked("10.0.0.5", ("x-forwarded-user", "Žofie"), ("x-forwarded-groups", "účetní,, ")))
    assert said == Reviewer("Žofie", issuer=PROXY, roles={"účetní"})


def test_login_links_lead_nowhere_behind_a_proxy_that_signs_people_in(app: Starlette) -> None:
    token = login_path(app, Reviewer("ada")).partition("token=")[2]
    client = at(app, "203.0.113.9")
    assert client.post("/login", data={"token": token}, headers={"origin": BASE}).status_code == 403
    assert client.get("/").status_code == 401


def test_who_is_not_let_in_is_told_and_the_log_says_why_once(
    memory: Store, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    ways = SignIn(has_links=False, reviewers=["ada", "bob"], role="finance", proxy=Proxy(
        networks(["10.0.0.5"]), "X-Forwarded-User", "X-Forwarded-Groups"
    ))  # fmt: skip
    app = create_app(memory, base_url=BASE, sign_in=ways)
    stranger = "A proxy signs people in here"
    for peer, headers, page, line in [
        ("10.0.0.6", {"x_forwarded_user": "ada"}, stranger, "10.0.0.6: trusted_proxies does not list that address"),
        ("10.0.0.5", {"x_forwarded_user": ""}, stranger, "X-Forwarded-User is empty"),
        ("10.0.0.5", {}, stranger, "X-Forwarded-User is missing"),
        ("10.0.0.5", {"x_forwarded_user": "bob", "x_forwarded_groups": "ops"}, "without the role finance",
         "required_role is 'finance', and their roles are 'ops'"),
        ("10.0.0.5", {"x_forwarded_user": "bob"}, "without the role finance", "their roles are none"),
        ("10.0.0.5", {"x_forwarded_user": "eve", "x_forwarded_groups": "finance"}, "not on the list of reviewers",
         "reviewers does not list 'proxy:eve'"),
    ]:  # fmt: skip
        caplog.clear()
        for _ in range(2):
            assert page in at(app, peer, **headers).get("/").text
        assert [line in record.getMessage() for record in caplog.records if record.levelname == "WARNING"] == [True]


def test_somebody_whom_the_proxy_knows_and_who_may_not_review_is_told_so(memory: Store) -> None:
    ways = SignIn(has_links=False, proxy=WAYS, reviewers=["ada"], role="finance")
    app = create_app(memory, base_url=BASE, sign_in=ways)
    for name, groups, status in [("ada", "finance", 200), ("ada", "ops", 403), ("bob", "finance", 403)]:
        answer = at(app, "10.0.0.5", x_forwarded_user=name, x_forwarded_groups=groups).get("/")
        assert answer.status_code == status
        assert ("cannot review here" in answer.text) is (status == 403)


def test_roles_that_change_end_the_forms_of_before(app: Starlette, pay: Pay) -> None:
    request_id = held(pay, 5).confirmation_id
    ada = at(app, "10.0.0.5", x_forwarded_user="ada", x_forwarded_groups="finance")
    fields = fields_of(ada.get(f"/r/{request_id}").text)
    ada.headers["x-forwarded-groups"] = ""
    data = {"csrf": fields["csrf"], "seen": fields["seen"]}
    assert ada.post(f"/r/{request_id}/approve", data=data, headers={"origin": BASE}).status_code == 403
    assert state_of(request_id) is State.PENDING


def test_where_an_attempt_came_from_is_the_proxys_word_only() -> None:
    told = [("x-forwarded-for", "1.2.3.4, 5.6.7.8")]
    assert WAYS.origin_of(asked("10.0.0.5", *told)) == "5.6.7.8"
    assert WAYS.origin_of(asked("10.0.0.5", ("x-forwarded-for", "1.1.1.1"), *told)) == "5.6.7.8"
    assert WAYS.origin_of(asked("203.0.113.9", *told)) == "203.0.113.9"
    assert WAYS.origin_of(asked("10.0.0.5")) == "10.0.0.5"
    assert WAYS.origin_of(asked(None)) == ""
    for text, sender in [  # whoever has one IPv6 address has the network's others, and any port
        ("1.2.3.4:5678", "1.2.3.4"), ("::ffff:1.2.3.4", "1.2.3.4"), ("2001:db8::1", "2001:db8::/64"),
        ("2001:db8:0:0:ffff::9", "2001:db8::/64"), ("[2001:db8::1]:443", "2001:db8::/64"),
        ("fe80::1%eth0", "fe80::/64"), ("unknown", "unknown"), ("x" * 1_000, "x" * 100),
    ]:  # fmt: skip
        assert WAYS.origin_of(asked("10.0.0.5", ("x-forwarded-for", text))) == sender
        assert sender_of(text) == sender


def test_a_program_around_and_a_proxy_do_not_both_say_who_it_is(memory: Store) -> None:
    with pytest.raises(errors.ConfigError, match="cannot be combined"):
        create_app(memory, base_url=BASE, sign_in=SignIn(proxy=WAYS), who=lambda _: None)


def test_over_the_wire_the_header_counts_from_the_proxys_address_only(file_store: Store) -> None:
    words = ["--base-url", "https://a.example", "--proxy-header", "X-User", "--trusted-proxy"]
    statuses: dict[str, Any] = {}
    for network in ("127.0.0.0/8", "10.0.0.0/8"):
        with running(file_store, *words, network) as (_, said):
            port = "".join(said).partition(", port ")[2].partition(";")[0]
            sent = [("host", "a.example"), ("x-user", "ada"), ("x-forwarded-for", "10.0.0.5")]
            url = f"http://127.0.0.1:{port}/"
            statuses[network] = [
                httpx2.get(url, headers=headers).status_code for headers in (sent, [*sent, ("x-user", "ada")], sent[:1])
            ]
    assert statuses == {"127.0.0.0/8": [200, 401, 401], "10.0.0.0/8": [401, 401, 401]}


def test_a_person_whom_the_proxy_names_costs_the_store_nothing(app: Starlette, memory: Store) -> None:
    ada = at(app, "10.0.0.5", x_forwarded_user="ada")
    ada.get("/")
    kept = ada.cookies["sayso-8600"]
    for _ in range(3):
        assert at(app, "10.0.0.5", x_forwarded_user="mallory").get("/settings").status_code == 200
    assert not memory.records("session")
    ada.get("/")
    assert ada.cookies["sayso-8600"] == kept


def test_a_cookie_counts_for_the_person_for_whom_it_was_made(app: Starlette, pay: Pay) -> None:
    """A cookie that mallory planted at ada's browser gives mallory no form that is taken as hers."""
    mallory = at(app, "10.0.0.5", x_forwarded_user="mallory")
    request_id = held(pay, 5).confirmation_id
    theirs = fields_of(mallory.get(f"/r/{request_id}").text)["csrf"]
    for planted in (mallory.cookies["sayso-8600"], "0" * 128, "0" * 64, ""):
        ada = at(app, "10.0.0.5", x_forwarded_user="ada")
        ada.headers["cookie"] = f"sayso-8600={planted}"
        page = fields_of(ada.get(f"/r/{request_id}").text)
        assert page["csrf"] != theirs
        answer = ada.submit(f"/r/{request_id}/reject", csrf=theirs, seen=page["seen"])
        assert answer.status_code == 403, planted
    assert state_of(request_id) is State.PENDING


def test_a_header_that_may_name_two_signs_nobody_in(app: Starlette) -> None:
    assert WAYS.who(asked("10.0.0.5", ("x-forwarded-user", "ada, mallory"))) is None
    assert at(app, "10.0.0.5", x_forwarded_user="ada, mallory").get("/").status_code == 401
