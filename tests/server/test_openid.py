"""Signing in with an OpenID provider: who comes back is who was signed in there, and nobody else by any lie.

The provider is `tests.server.openid`, over real HTTP. The invariant: an answer that is not the right one, for this
browser, now and for the first time, begins no session.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from html import unescape
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest
from joserfc.jwk import RSAKey
from starlette.applications import Starlette

from sayso import errors
from sayso.model.reviewer import Reviewer
from sayso.server import create_app
from sayso.server.auth import login, sign_in
from sayso.server.auth.sign_in import FAILURES, Oidc, Provider, SignIn
from sayso.stores.base import Store
from tests.conftest import Clock
from tests.server.openid import OpenId, openid, unsigned
from tests.support.browsing import BASE, Browser, fields_of, session_at

ORIGIN = {"origin": BASE}


@pytest.fixture
def provider() -> Iterator[OpenId]:
    with openid() as one:
        yield one


@pytest.fixture
def made(memory: Store, provider: OpenId) -> Callable[..., Starlette]:
    def make(*, ways: dict[str, Any] | None = None, **changed: Any) -> Starlette:
        said = {"client_secret": provider.secret, "name": "corp", "roles_claim": "groups"} | changed
        known = Provider(Oidc(said.pop("issuer", provider.url), provider.client_id, **said))
        return create_app(memory, base_url=BASE, sign_in=SignIn(has_links=False, provider=known, **(ways or {})))

    return make


def browser(app: Starlette) -> Browser:
    return Browser(app, base_url=BASE, follow_redirects=False)


def departed(client: Browser, wanted: str = "") -> str:
    """Return where the browser is sent to sign in."""
    page = client.post("/login/openid/go", data={"next": wanted}, headers=ORIGIN)
    assert page.status_code == 200, page.text
    found = re.search(r'content="0; url=([^"]*)"', page.text)
    assert found is not None
    return unescape(found[1])


def answered(client: Browser, address: str) -> dict[str, str]:
    """Return what the page holds that the provider sends the browser back to."""
    back = httpx2.get(address, follow_redirects=False, verify=False).headers["location"]
    assert back.startswith(f"{BASE}/login/openid?")
    return fields_of(client.get(back.removeprefix(BASE)).text)


def taken(client: Browser, answer: dict[str, str]) -> Any:
    return client.post("/login/openid", data=answer, headers=ORIGIN)


def signed_in(client: Browser, wanted: str = "") -> Any:
    return taken(client, answered(client, departed(client, wanted)))


def who(client: Browser) -> str | None:
    found = re.search(r"You are <strong>([^<]*)</strong>", client.get("/").text)
    return found[1] if found else None


def test_a_person_signs_in_and_is_known_by_the_issuers_name_and_the_subject(
    made: Callable[..., Starlette], provider: OpenId
) -> None:
    provider.somebody = {"sub": "00u1", "groups": ["finance", "ops"], "email": "root@corp", "name": "local:root"}
    app = made()
    client = browser(app)
    assert signed_in(client).status_code == 303
    assert who(client) == "00u1 (corp)"
    session = session_at(app, client)
    assert session.reviewer.identity.qualified == "corp:00u1"
    assert session.reviewer.roles == {"finance", "ops"}
    assert provider.asked == ["/.well-known/openid-configuration", "/authorize", "/token", "/jwks"]


def test_a_public_client_needs_no_secret(made: Callable[..., Starlette], provider: OpenId) -> None:
    provider.secret = None
    client = browser(made())
    assert signed_in(client).status_code == 303


def test_what_is_asked_binds_the_answer_to_this_way(made: Callable[..., Starlette], provider: OpenId) -> None:
    asked = {name: values[0] for name, values in parse_qs(urlsplit(departed(browser(made()))).query).items()}
    assert asked["redirect_uri"] == f"{BASE}/login/openid"
    assert (asked["response_type"], asked["code_challenge_method"], asked["scope"]) == ("code", "S256", "openid")
    assert all(len(asked[name]) >= 43 for name in ("state", "nonce", "code_challenge"))
    again = parse_qs(urlsplit(departed(browser(made()))).query)
    assert all(asked[name] != again[name][0] for name in ("state", "nonce", "code_challenge"))


# -- what a provider may not say -------------------------------------------------------------------------------

OTHER_KEY = RSAKey.generate_key(2048, {"kid": "k0"})


def with_public_key_as_secret(provider: OpenId, claims: dict[str, Any]) -> str:
    return unsigned({"alg": "HS256", "kid": "k0"}, claims, secret=provider.keys[0].as_pem(private=False))


LIES: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "another issuer": lambda c: c | {"iss": "https://evil.example"},
    "an issuer with a slash more": lambda c: c | {"iss": c["iss"] + "/"},
    "issuers in a list": lambda c: c | {"iss": [c["iss"]]},
    "no issuer": lambda c: {k: v for k, v in c.items() if k != "iss"},
    "another audience": lambda c: c | {"aud": "other"},
    "another audience, and azp is us": lambda c: c | {"aud": "other", "azp": c["aud"]},
    "others in the audience, too": lambda c: c | {"aud": [c["aud"], "other"], "azp": c["aud"]},
    "azp is another": lambda c: c | {"azp": "other"},
    "no audience": lambda c: {k: v for k, v in c.items() if k != "aud"},
    "an empty audience": lambda c: c | {"aud": []},
    "another nonce": lambda c: c | {"nonce": "0" * 64},
    "an empty nonce": lambda c: c | {"nonce": ""},
    "no nonce": lambda c: {k: v for k, v in c.items() if k != "nonce"},
    "a nonce that is a list": lambda c: c | {"nonce": [c["nonce"]]},
    "it has ended": lambda c: c | {"exp": c["iat"] - 61},
    "no end": lambda c: {k: v for k, v in c.items() if k != "exp"},
    "an end that is no number": lambda c: c | {"exp": "tomorrow"},
    "issued in the future": lambda c: c | {"iat": c["iat"] + 3_600},
    "not valid yet": lambda c: c | {"nbf": c["iat"] + 3_600},
    "never issued": lambda c: {k: v for k, v in c.items() if k != "iat"},
    "nobody": lambda c: {k: v for k, v in c.items() if k != "sub"},
    "nobody by an empty name": lambda c: c | {"sub": ""},
    "a number for a name": lambda c: c | {"sub": 7},
    "a name with a hidden character": lambda c: c | {"sub": "ada\u200b"},
    "a name with white space": lambda c: c | {"sub": " ada"},
    "a hash of another access token": lambda c: c | {"at_hash": "AAAAAAAAAAAAAAAAAAAAAA"},
    "roles that are no names": lambda c: c | {"groups": [1, 2]},
    "roles that are no list": lambda c: c | {"groups": {"finance": True}},
}
FORGERIES: dict[str, Callable[[OpenId, dict[str, Any]], str]] = {
    "alg none": lambda _, c: unsigned({"alg": "none"}, c),
    "alg none with a kid": lambda _, c: unsigned({"alg": "none", "kid": "k0"}, c, "AAAA"),
    "alg None": lambda _, c: unsigned({"alg": "None", "kid": "k0"}, c),
    "no alg": lambda _, c: unsigned({"kid": "k0"}, c, "AAAA"),
    "its public key as a shared secret": with_public_key_as_secret,
    "another key of the same name": lambda p, c: p.signed(c, key=OTHER_KEY),
    "a key that nobody published": lambda p, c: p.signed(c, key=OTHER_KEY, kid="k9"),
    "a key brought along": lambda p, c: p.signed(c, key=OTHER_KEY, kid="k9", jwk=OTHER_KEY.as_dict(private=False)),
    "a signature cut off": lambda p, c: p.signed(c).rpartition(".")[0] + ".",
    "no token": lambda _, __: "",
    "no JSON": lambda _, __: "a.b.c",
    "other claims under a signature": lambda p, c: swapped(p.signed(c), p.signed(c | {"sub": "root"})),
}


def swapped(signed: str, other: str) -> str:
    header, _, signature = signed.split(".")
    return ".".join([header, other.split(".")[1], signature])


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES)
def test_a_token_that_is_not_for_this_sign_in_signs_nobody_in(
    made: Callable[..., Starlette], provider: OpenId, lie: Any, clock: Clock
) -> None:
    client = browser(made())
    provider.lie = lie
    assert signed_in(client).status_code == 403
    assert who(client) is None


@pytest.mark.parametrize("forge", FORGERIES.values(), ids=FORGERIES)
def test_a_token_that_the_provider_did_not_sign_signs_nobody_in(
    made: Callable[..., Starlette], provider: OpenId, forge: Any
) -> None:
    client = browser(made())
    provider.token = forge
    assert signed_in(client).status_code == 403
    assert who(client) is None


def test_every_changed_character_of_a_token_signs_nobody_in(
    made: Callable[..., Starlette], provider: OpenId, clock: Clock
) -> None:
    known = made().state.settings.sign_in.provider
    claims = {
        "iss": provider.url,
        "aud": provider.client_id,
        "iat": int(clock.at.timestamp()),
        "nonce": "n",
        "sub": "a",
    }
    token = provider.signed(claims | {"exp": claims["iat"] + 300})
    assert known._checked({"id_token": token, "access_token": "at"}, "n")["sub"] == "a"
    accepted = []
    for at in range(0, len(token) - 1, 3):  # the last character has bits that mean nothing
        changed = token[:at] + ("B" if token[at] == "A" else "A") + token[at + 1 :]
        try:
            accepted.append(known._checked({"id_token": changed, "access_token": "at"}, "n"))
        except sign_in.SignInError:
            continue
    assert accepted == []


def test_a_new_key_is_looked_up_when_it_is_first_met_and_not_for_every_bad_token(
    made: Callable[..., Starlette], provider: OpenId, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1_000.0]
    monkeypatch.setattr(sign_in, "time", SimpleNamespace(monotonic=lambda: now[0]))
    app = made()
    assert signed_in(browser(app)).status_code == 303
    now[0] += sign_in._SOONEST + 1
    provider.rotate()
    assert signed_in(browser(app)).status_code == 303
    provider.token = FORGERIES["a key that nobody published"]
    for _ in range(5):
        assert signed_in(browser(app)).status_code == 403
    assert provider.asked.count("/jwks") == 2


@pytest.mark.parametrize(
    "published",
    [
        {"issuer": "https://evil.example"}, {"issuer": None}, {"token_endpoint": "http://evil.example/token"},
        {"jwks_uri": "http://evil.example/jwks"}, {"jwks_uri": None}, {"authorization_endpoint": "javascript:alert(1)"},
    ],
)  # fmt: skip
def test_a_provider_that_publishes_something_else_signs_nobody_in(
    made: Callable[..., Starlette], provider: OpenId, published: dict[str, Any]
) -> None:
    provider.published = published
    client = browser(made())
    answer = client.post("/login/openid/go", data={"next": ""}, headers=ORIGIN)
    assert answer.status_code == 403
    assert "evil.example" not in answer.text
    assert provider.asked == ["/.well-known/openid-configuration"]


def test_a_provider_that_does_not_answer_is_asked_again_after_a_while(
    made: Callable[..., Starlette], provider: OpenId, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1_000.0]
    monkeypatch.setattr(sign_in, "time", SimpleNamespace(monotonic=lambda: now[0]))
    client = browser(made())
    provider.is_broken = True
    for _ in range(3):
        answer = client.post("/login/openid/go", data={"next": ""}, headers=ORIGIN)
        assert answer.status_code == 503
        assert "Try again in a moment" in answer.text
    assert len(provider.asked) == 1
    provider.is_broken = False
    now[0] += sign_in._SOONEST + 1
    assert signed_in(client).status_code == 303


# -- whose answer it is ----------------------------------------------------------------------------------------


def test_an_answer_counts_once(made: Callable[..., Starlette], provider: OpenId) -> None:
    app = made()
    client = browser(app)
    answer = answered(client, departed(client))
    trip = dict(client.cookies)
    assert taken(client, answer).status_code == 303
    thief = browser(app)
    thief.cookies.update(trip)
    assert taken(thief, answer).status_code == 403
    assert provider.asked.count("/token") == 1
    assert who(thief) is None


def test_an_answer_counts_in_the_browser_that_set_out(made: Callable[..., Starlette], provider: OpenId) -> None:
    """Login CSRF: who makes another one's browser take the answer of a sign-in of theirs signs nobody in."""
    app = made()
    attacker, victim = browser(app), browser(app)
    answer = answered(attacker, departed(attacker))
    departed(victim)
    assert taken(victim, answer).status_code == 403
    assert who(victim) is None
    assert "/token" not in provider.asked


def test_an_answer_is_taken_from_our_own_page_only(made: Callable[..., Starlette]) -> None:
    client = browser(made())
    answer = answered(client, departed(client))
    for headers in ({}, {"origin": "https://evil.example"}, {"origin": "null"}):
        assert client.post("/login/openid", data=answer, headers=headers).status_code == 403
        assert client.post("/login/openid/go", data={"next": ""}, headers=headers).status_code == 403
    assert who(client) is None
    assert taken(client, answer).status_code == 303


def test_looking_at_the_answer_uses_nothing_up(made: Callable[..., Starlette], provider: OpenId) -> None:
    client = browser(made())
    answer = answered(client, departed(client))
    for method in ("GET", "HEAD"):
        assert client.request(method, "/login/openid", params=answer).status_code == 200
    assert "/token" not in provider.asked
    assert taken(client, answer).status_code == 303


@pytest.mark.parametrize("changed", [{"state": ""}, {"state": "0" * 64}, {"code": ""}, {"code": "x"}])
def test_a_changed_answer_signs_nobody_in(made: Callable[..., Starlette], changed: dict[str, str]) -> None:
    client = browser(made())
    assert taken(client, answered(client, departed(client)) | changed).status_code == 403
    assert who(client) is None


def test_a_sign_in_that_took_too_long_is_begun_anew(made: Callable[..., Starlette], clock: Clock) -> None:
    client = browser(made())
    answer = answered(client, departed(client))
    clock.tick(minutes=10)
    assert taken(client, answer).status_code == 403


def test_an_answer_of_another_provider_is_not_taken(made: Callable[..., Starlette], provider: OpenId) -> None:
    """Mix-up (RFC 9207): who answers says so, and must where the provider always does."""
    app = made()
    client = browser(app)
    answer = answered(client, departed(client))
    assert taken(client, answer | {"iss": "https://evil.example"}).status_code == 403
    provider.published = {"authorization_response_iss_parameter_supported": True}
    always = browser(made())
    assert taken(always, answered(always, departed(always))).status_code == 403
    provider.answers_with_issuer = True
    assert signed_in(always).status_code == 303
    assert "/token" in provider.asked


def test_a_provider_that_signs_nobody_in_is_quoted_harmlessly(made: Callable[..., Starlette]) -> None:
    client = browser(made())
    answer = answered(client, departed(client)) | {"error": "<b>access_denied\u202e</b>"}
    refused = taken(client, answer)
    assert refused.status_code == 403
    assert "access_denied" in refused.text
    assert "<b>" not in refused.text
    assert "\u202e" not in refused.text


def test_failed_answers_are_held_up_and_a_good_one_is_not(made: Callable[..., Starlette], provider: OpenId) -> None:
    client = browser(made())
    most = int(FAILURES.partition("/")[0])
    answers = [taken(client, {"code": "guess", "state": "guess"}).status_code for _ in range(most + 1)]
    assert answers == [403] * most + [429]
    assert signed_in(client).status_code == 303


def test_a_provider_that_does_not_answer_is_nobodys_failed_attempt(
    made: Callable[..., Starlette], provider: OpenId, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = made()
    counted: list[str] = []
    monkeypatch.setattr(app.state.settings.failures, "count", counted.append)
    client = browser(app)
    answer = answered(client, departed(client))
    provider.is_broken = True
    assert taken(client, answer).status_code == 503
    assert not counted


def test_a_provider_that_hangs_keeps_nobody_from_the_pages(
    made: Callable[..., Starlette], monkeypatch: pytest.MonkeyPatch
) -> None:
    app, begun, goes_on = made(), threading.Semaphore(0), threading.Event()

    def hang(*_: object, **__: object) -> str:
        begun.release()
        assert goes_on.wait(60)
        raise sign_in.SignInError("it hung", is_away=True)

    monkeypatch.setattr(Provider, "address", hang)
    with browser(app) as client, ThreadPoolExecutor(51) as people:  # one loop, as of a server
        departing = [
            people.submit(client.post, "/login/openid/go", data={"next": ""}, headers=ORIGIN) for _ in range(50)
        ]
        try:
            for _ in range(login.AT_PROVIDER):
                assert begun.acquire(timeout=60)
            assert people.submit(client.get, "/").result(60).status_code == 401
        finally:
            goes_on.set()
        assert {one.result(60).status_code for one in departing} == {503}


@pytest.mark.parametrize(
    ("wanted", "where"),
    [
        ("/r/rq_1?x=1", "/r/rq_1?x=1"), ("", "/"), ("https://evil.example/", "/"), ("//evil.example", "/"),
        ("/\\evil.example", "/"), ("\\\\evil.example", "/"), ("/\t/evil.example", "/"), ("javascript:alert(1)", "/"),
        ("/r/\u202e", "/"), ("evil.example", "/"), ("/" + "a" * 600, "/"), ("/\r\nset-cookie: a=b", "/"),
    ],
)  # fmt: skip
def test_a_person_goes_on_to_a_page_of_ours_only(made: Callable[..., Starlette], wanted: str, where: str) -> None:
    assert signed_in(browser(made()), wanted).headers["location"] == where


def test_the_page_that_was_wanted_is_where_one_goes_on(made: Callable[..., Starlette]) -> None:
    client = browser(made())
    stranger = client.get("/r/rq_1?from=mail")
    assert stranger.status_code == 401
    assert "Sign in with corp" in stranger.text
    assert fields_of(stranger.text)["next"] == "/r/rq_1?from=mail"


# -- who may review --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ways", "is_in"),
    [
        ({"reviewers": ["00u1"]}, True), ({"reviewers": ["corp:00u1"]}, True), ({"reviewers": ["local:00u1"]}, False),
        ({"reviewers": ["00U1"]}, False), ({"reviewers": ["bob"]}, False), ({"role": "finance"}, True),
        ({"role": "root"}, False), ({"reviewers": ["00u1"], "role": "root"}, False),
    ],
)  # fmt: skip
def test_who_may_not_review_has_no_session(made: Callable[..., Starlette], ways: dict[str, Any], is_in: bool) -> None:
    app = made(ways=ways)
    client = browser(app)
    answer = signed_in(client)
    assert answer.status_code == (303 if is_in else 403)
    assert (who(client) is not None) is is_in
    if not is_in:
        assert "cannot review here" in answer.text
        assert not app.state.settings.store.records("session")


@pytest.mark.parametrize(
    ("claim", "claims", "roles"),
    [
        ("groups", {"groups": "finance"}, {"finance"}), ("roles", {}, set()), (None, {"groups": ["a"]}, set()),
        ("realm_access.roles", {"realm_access": {"roles": ["ops"]}}, {"ops"}),
        ("https://corp.example/roles", {"https://corp.example/roles": ["ops"]}, {"ops"}),
        ("realm_access.roles", {"realm_access": ["roles"]}, set()),
    ],
)  # fmt: skip
def test_roles_are_those_of_the_claim_that_was_set(
    made: Callable[..., Starlette], provider: OpenId, claim: str | None, claims: dict[str, Any], roles: set[str]
) -> None:
    provider.somebody = {"sub": "00u1", **claims}
    app = made(roles_claim=claim)
    client = browser(app)
    assert signed_in(client).status_code == 303
    session = session_at(app, client)
    assert session.reviewer.roles == roles


@pytest.mark.parametrize(
    "wrong",
    [
        {"issuer": "http://login.example.com"}, {"issuer": "login.example.com"}, {"issuer": "https://a.example?x=1"},
        {"name": "https://login.example.com"}, {"name": "local"}, {"name": "Proxy"}, {"name": "hook-ci"}, {"name": ""},
        {"name": "token"},
    ],
)  # fmt: skip
def test_a_provider_that_could_be_mistaken_is_refused(wrong: dict[str, str]) -> None:
    with pytest.raises(errors.ConfigError):
        Oidc(**({"issuer": "https://login.example.com", "client_id": "a"} | wrong))


def test_a_provider_needs_the_address_to_which_it_sends_people_back(memory: Store, provider: OpenId) -> None:
    ways = SignIn(provider=Provider(Oidc(provider.url, "a")))
    with pytest.raises(errors.ConfigError, match="needs base_url"):
        create_app(memory, sign_in=ways)


def test_login_links_are_refused_where_they_are_not_a_way(made: Callable[..., Starlette]) -> None:
    app = made()
    token = app.state.settings.links.token(Reviewer("ada"))
    answer = browser(app).post("/login", data={"token": token}, headers=ORIGIN)
    assert answer.status_code == 403
    assert not app.state.settings.store.records("session")
