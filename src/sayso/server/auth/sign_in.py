"""The ways to sign in that a server has, and who may review: a trusted proxy, an OpenID provider, or login links.

A proxy names the user in a header of every request. Anybody can send such a header, so it counts only if the connection
comes from one of the proxy's own addresses. A request from another address, or whose header is not exactly one plain
name, is not signed in.

An OpenID provider is used with the authorization code flow and PKCE; Authlib implements the protocol, and joserfc
checks signatures (extra `oidc`). A person is identified by the provider's short name and its `sub`, never by an e-mail
or display name, which people can choose. An ID token must be signed by the issuer, for this client and this sign-in.

`SignIn` says which of these are enabled. Invariant: only reviewers can sign in, and only in an enabled way.
"""

from __future__ import annotations

import hmac
import ipaddress
import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from importlib import import_module
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import Any, cast
from urllib.parse import urlsplit

from starlette.requests import Request as Http

from sayso import clock, errors
from sayso.channels.settings import ReviewerAllowlist, is_protected
from sayso.model.reviewer import LOCAL, PROGRAM, Reviewer
from sayso.model.text import escape
from sayso.server.api.problems import FaultLog
from sayso.server.auth.sessions import ABSOLUTE

PROXY = "proxy"  # the issuer of people whom a proxy has signed in

_LONGEST_SENDER = 100  # characters of what a proxy writes in place of an address

_log = logging.getLogger("sayso.server")


def networks(texts: Sequence[str]) -> tuple[IPv4Network | IPv6Network, ...]:
    """Parse addresses and networks such as `::1` and `10.0.0.0/8`; raises `ConfigError` if one is invalid."""
    try:
        found = tuple(ipaddress.ip_network(text) for text in texts)
    except ValueError as error:
        raise errors.ConfigError(f"a trusted proxy is an address or a network like 10.0.0.0/8; {error}") from error
    if any(network.prefixlen == 0 for network in found):
        raise errors.ConfigError(
            "a trusted proxy cannot be the whole network, because then anyone could set the header"
        )
    return found


@dataclass(frozen=True)
class Proxy:
    """A trusted proxy.

    Attributes:
        peers: The addresses from which it connects.
        header: The header that names the person; None if it only forwards requests and signs nobody in.
        roles_header: The header that lists the person's roles, separated by commas.
        is_direct: Whether the ASGI server never takes a client's address from a header, like `sayso serve`. If it
            might, a request whose `X-Forwarded-For` contains the peer's address is not taken as the proxy's.
    """

    peers: tuple[IPv4Network | IPv6Network, ...]
    header: str | None = None
    roles_header: str | None = None
    is_direct: bool = False
    _log: FaultLog = field(default_factory=FaultLog, init=False, repr=False, compare=False)

    def is_peer(self, http: Http) -> bool:
        """Return whether a request comes from the proxy."""
        peer = None if http.client is None else _address(_host(http.client.host))
        if peer is None or not any(peer in network for network in self.peers):
            return False
        # By default uvicorn lets any program on 127.0.0.1 set its client address in this header.
        listed = ",".join(http.headers.getlist("x-forwarded-for")).split(",")
        if self.is_direct or peer not in {_address(_host(text.strip())) for text in listed}:
            return True
        _log.warning(
            "a request was not accepted as the proxy's: X-Forwarded-For names %s, from which the ASGI"
            " server may have taken the address; start it with proxy_headers=False",
            peer,
        )
        return False

    def who(self, http: Http) -> Reviewer | None:
        """Return the person that the proxy names; None if the request is not the proxy's or its header is invalid."""
        if self.header is None:
            return None
        names = http.headers.getlist(self.header)
        if not self.is_peer(http):
            if names:
                peer = http.client.host if http.client else "a socket"
                self._refused(f"{escape(self.header)} from {escape(peer)}: trusted_proxies does not list that address")
            return None
        if not "".join(names).strip():
            return self._refused(f"the proxy's {escape(self.header)} is {'empty' if names else 'missing'}")
        roles = http.headers.getlist(self.roles_header) if self.roles_header else []
        if len(names) > 1 or len(roles) > 1:  # the proxy has passed on its client's own header
            return self._refused("it has the header of the person or of the roles twice")
        if "," in names[0]:  # some proxies append to their client's own header
            return self._refused("the header of the person has a comma, so it may name two people")
        try:
            listed = [word.strip() for text in roles for word in _plain(text).split(",") if word.strip()]
            return Reviewer(_plain(names[0]), roles=listed, issuer=PROXY)
        except ValueError as error:
            return self._refused(str(error))

    def _refused(self, why: str) -> None:
        self._log.warn(f"a request of the proxy was not signed in: {why}")

    def origin_of(self, http: Http) -> str:
        """Return the sender of a request (`sender_of`), as the proxy reports it, else from the connection."""
        forwarded = http.headers.getlist("x-forwarded-for") if self.is_peer(http) else []
        last = forwarded[-1].rpartition(",")[2].strip() if forwarded else ""
        return sender_of(last or (http.client.host if http.client else ""))


def sender_of(text: str) -> str:
    """Return the key of an address for rate limits: the /64 network for IPv6, since one machine may have all of it.

    A port, which some proxies append and which differs for each connection, is removed.
    """
    host = _host(text)
    address = _address(host)
    if isinstance(address, IPv6Address):
        return str(IPv6Network((address, 64), strict=False))
    return str(address or host[:_LONGEST_SENDER])


def _host(text: str) -> str:
    """Return an address without its port and zone."""
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    return text.partition("%")[0]


def _plain(value: str) -> str:
    return value.encode("latin-1").decode("utf-8")  # ASGI servers decode header bytes as Latin-1


def _address(text: str) -> IPv4Address | IPv6Address | None:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None  # a Unix socket has no address
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address


# Only asymmetric signatures: with a shared secret, whoever can verify a token can also forge one.
_SIGNATURES = ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512"]
_RESERVED = frozenset({LOCAL, PROGRAM, "proxy", "token", "api"})
_TIMEOUT, _LEEWAY, _LONGEST_TOKEN = 10, 60, 100_000
_CACHED, _SOONEST = 3_600.0, 10.0  # seconds: lifetime of a cached document, and minimum time between two fetches


class SignInError(errors.SaysoError):
    """Somebody could not be signed in.

    Attributes:
        why: What happened, for the log only, because it may reveal the configuration.
        is_away: Whether the provider did not answer, so that the person can try again.
    """

    def __init__(self, why: str, *, is_away: bool = False) -> None:
        super().__init__(f"nobody was signed in: {why}")
        self.why, self.is_away = why, is_away


@dataclass(frozen=True)
class Oidc:
    """The settings of an OpenID provider.

    Attributes:
        issuer: Its issuer address, under which it publishes its metadata.
        client_id: The client id of this inbox.
        client_secret: The client secret; None for a public client.
        name: The issuer in identities. Not the address, because identities are split at a colon.
        roles_claim: The claim that lists the person's roles; dots separate the names of nested claims.

    Raises:
        ConfigError: The address or the name is invalid.
    """

    issuer: str
    client_id: str
    client_secret: str | None = field(default=None, repr=False)
    name: str = "oidc"
    scopes: tuple[str, ...] = ("openid",)
    roles_claim: str | None = None

    def __post_init__(self) -> None:
        if not is_protected(self.issuer) or urlsplit(self.issuer).query or urlsplit(self.issuer).fragment:
            raise errors.ConfigError(f"the OpenID issuer {self.issuer!r} must be an https URL without ? and #")
        try:
            Reviewer("somebody", issuer=self.name)
        except ValueError as error:
            raise errors.ConfigError(f"the OpenID provider's name: {error}; use a short word such as 'corp'") from error
        if self.name.casefold() in _RESERVED or self.name.casefold().startswith("hook-"):
            raise errors.ConfigError(f"the OpenID provider cannot be named {self.name!r}, because sayso uses this name")


class _Cached:
    """A document that the provider publishes, cached for an hour."""

    def __init__(self, look: Callable[[], Any]) -> None:
        self._look = look
        self._lock = threading.Lock()  # of many people who sign in at once, one fetches
        self._found: Any = None
        self._at: float | None = None

    def get(self, *, anew: bool = False) -> Any:
        """Return it. For 10 s after a failed fetch, raises `SignInError` at once, so nobody queues for a timeout."""
        now = time.monotonic()
        with self._lock:
            lasts = _SOONEST if anew or self._found is None else _CACHED
            if self._at is None or now - self._at > lasts:
                self._at, self._found = now, None
                self._found = self._look()
            if self._found is None:
                raise SignInError("the provider did not answer recently", is_away=True)
            return self._found


class Provider:
    """An OpenID provider; raises `ConfigError` if the extra `oidc` is not installed."""

    def __init__(self, oidc: Oidc) -> None:
        self.oidc = oidc
        try:
            self._http: Any = import_module("httpx2")
            self._tls = self._http.create_ssl_context()  # made once: it loads the system's certificate authorities
            # Authlib has no type hints.
            self._authlib: Any = import_module("authlib.integrations.httpx_client")
            self._claims: Any = import_module("authlib.oidc.core").CodeIDToken
            from joserfc import errors as faults
            from joserfc import jwk, jws, jwt
        except ModuleNotFoundError as error:
            raise errors.ConfigError(
                f"signing in by OpenID needs the extra `oidc` ({error.name} is missing): pip install 'sayso[oidc]'"
            ) from error
        self._jwk, self._jws, self._jwt, self._faults = jwk, jws, jwt, faults
        self._metadata = _Cached(self._discover)
        self._keys = _Cached(self._fetch_keys)

    def address(self, *, back: str, state: str, nonce: str, verifier: str) -> str:
        """Return the authorization address to send a browser to; raises `SignInError`."""
        with self._client(back) as client:
            return client.create_authorization_url(
                self._metadata.get()["authorization_endpoint"], state=state, nonce=nonce, code_verifier=verifier
            )[0]

    def reviewer(self, code: str, *, sender: str | None, back: str, nonce: str, verifier: str) -> Reviewer:
        """Exchange an authorization code for the person who signed in; raises `SignInError`.

        `sender` is the answer's `iss` parameter, which is checked if it or the metadata has one (RFC 9207).
        """
        names_itself = self._metadata.get().get("authorization_response_iss_parameter_supported") is True
        if (names_itself or sender is not None) and sender != self.oidc.issuer:
            raise SignInError(f"the answer came from {sender!r}")
        with self._client(back) as client:
            answer = self._asked(
                lambda: client.fetch_token(self._metadata.get()["token_endpoint"], code=code, code_verifier=verifier)
            )
        claims = self._checked(cast("dict[str, Any]", answer), nonce)
        try:
            return Reviewer(claims["sub"], roles=_roles_in(claims, self.oidc.roles_claim), issuer=self.oidc.name)
        except ValueError as error:
            raise SignInError(str(error)) from error

    def _client(self, back: str) -> Any:
        methods = self._metadata.get().get("token_endpoint_auth_methods_supported", ["client_secret_basic"])
        method = "client_secret_basic" if "client_secret_basic" in methods else "client_secret_post"
        return self._authlib.OAuth2Client(
            self.oidc.client_id, self.oidc.client_secret, scope=" ".join(self.oidc.scopes), redirect_uri=back,
            code_challenge_method="S256", timeout=_TIMEOUT, verify=self._tls,
            token_endpoint_auth_method="none" if self.oidc.client_secret is None else method,
        )  # fmt: skip

    def _asked(self, ask: Callable[[], Any]) -> Any:
        """Return the provider's answer; raises `SignInError`. Redirects are not followed."""
        try:
            return ask()
        except (self._http.HTTPError, self._http.InvalidURL) as error:
            raise SignInError(f"the provider does not answer: {error}", is_away=True) from error
        except (self._authlib.OAuthError, ValueError, TypeError) as error:
            raise SignInError(f"the provider refused: {error}") from error

    def _fetch(self, address: str) -> Mapping[str, Any]:
        found: Any = self._asked(
            lambda: self._http.get(address, timeout=_TIMEOUT, verify=self._tls).raise_for_status().json()
        )
        if not isinstance(found, dict):
            raise SignInError(f"{address} did not return a JSON object")
        return cast("dict[str, Any]", found)

    def _discover(self) -> Mapping[str, Any]:
        found = self._fetch(self.oidc.issuer.rstrip("/") + "/.well-known/openid-configuration")
        if found.get("issuer") != self.oidc.issuer:
            raise SignInError(
                f"the provider's metadata name the issuer {found.get('issuer')!r}, not {self.oidc.issuer!r}"
            )
        for name in ("authorization_endpoint", "token_endpoint", "jwks_uri"):
            if not is_protected(found.get(name)):
                raise SignInError(f"the provider's {name} is {found.get(name)!r}, which is not an https URL")
        return found

    def _fetch_keys(self) -> Any:
        try:
            listed: list[dict[str, Any]] = self._fetch(self._metadata.get()["jwks_uri"])["keys"]
            usable = [key for key in listed if key["kty"] in {"RSA", "EC"}]  # no other kind makes an accepted signature
            return self._jwk.KeySet.import_key_set({"keys": usable})
        except (self._faults.JoseError, LookupError, ValueError, TypeError) as error:
            raise SignInError(f"the provider's keys cannot be read: {error}") from error

    def _checked(self, answer: Mapping[str, Any], nonce: str) -> Mapping[str, Any]:
        """Return the claims of an answer's ID token after every check of OpenID Connect Core 3.1.3.7."""
        token = answer.get("id_token")
        if not isinstance(token, str) or len(token) > _LONGEST_TOKEN:
            raise SignInError("the provider's answer has no id_token")
        try:
            read = self._read(token)
            claims = self._claims(
                read.claims, read.header,
                {"iss": {"essential": True, "value": self.oidc.issuer}, "sub": {"essential": True}},
                {"nonce": nonce, "client_id": self.oidc.client_id, "access_token": answer.get("access_token")},
            )  # fmt: skip
            claims.validate(now=int(clock.now().timestamp()), leeway=_LEEWAY)
        except (self._faults.JoseError, ValueError, TypeError) as error:
            raise SignInError(f"the provider's token is not valid: {type(error).__name__} {error}") from error
        # The library accepts a token for another audience if its `azp` is this client.
        if claims.get("aud") not in (self.oidc.client_id, [self.oidc.client_id]):
            raise SignInError(f"the token was issued for {claims.get('aud')!r}")
        if not hmac.compare_digest(str(claims.get("nonce")).encode(), nonce.encode()):
            raise SignInError("the token belongs to another sign-in")
        if not isinstance(claims.get("sub"), str):
            raise SignInError("the token does not name a person")
        return claims

    def _read(self, token: str) -> Any:
        registry = self._jws.JWSRegistry(algorithms=_SIGNATURES, strict_check_header=False)
        try:
            return self._jwt.decode(token, self._keys.get(), registry=registry)
        except (self._faults.InvalidKeyIdError, self._faults.BadSignatureError):
            return self._jwt.decode(token, self._keys.get(anew=True), registry=registry)  # the keys may have changed


def _roles_in(claims: Mapping[str, Any], claim: str | None) -> list[str]:
    """Return the roles that a claim lists, none if it is missing; raises `ValueError`."""
    if claim is None:
        return []
    found: Any = claims
    for step in [claim] if claim in claims else claim.split("."):
        found = cast("Mapping[str, Any]", found).get(step) if isinstance(found, Mapping) else None
    if found is None:
        return []
    listed: Any = [found] if isinstance(found, str) else found
    if not isinstance(listed, list) or not all(isinstance(role, str) for role in cast("list[Any]", listed)):
        raise ValueError(f"the claim {claim} is not a list of names")
    return cast("list[str]", listed)


FAILURES = "20/minute"
"""How often one address may fail to sign in. Each server counts separately."""


@dataclass(frozen=True)
class SignIn:
    """How people sign in to one inbox, and who may review.

    Attributes:
        has_links: Whether login links begin sessions.
        proxy: The proxy that signs people in, or only forwards requests.
        reviewers: Who may review, as `name` or `issuer:name`, compared exactly; None is everybody who signs in.
        role: The role that every reviewer needs; None requires no role.
        lasts: Absolute lifetime of a session.
    """

    has_links: bool = True
    proxy: Proxy | None = None
    provider: Provider | None = None
    reviewers: Collection[str] | None = None
    role: str | None = None
    lasts: timedelta = ABSOLUTE

    @property
    def fingerprint(self) -> str:
        """The enabled ways to sign in. A session that began under another fingerprint is invalid."""
        issuer = "" if self.provider is None else self.provider.oidc.issuer
        return f"{'links' if self.has_links else ''} {issuer}".strip()

    def admits(self, reviewer: Reviewer) -> bool:
        """Return whether a person who is signed in may review here."""
        return ReviewerAllowlist(self.reviewers, self.role).admits(reviewer)
