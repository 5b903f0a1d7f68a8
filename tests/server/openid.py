"""An OpenID provider for the tests: it speaks the protocol over HTTP, and lies where a test tells it to.

Discovery, an authorization endpoint at which everybody is `somebody` at once, a token endpoint that checks the client,
the code, the address and the PKCE verifier, and a set of keys that can change. The invariant: what a test does not
change is as the standards want it.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import secrets
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, parse_qsl, quote, unquote, urlencode, urlsplit

from joserfc import jwt
from joserfc.jwk import RSAKey

from sayso import clock

__all__ = ["OpenId", "openid", "unsigned"]

_KEYS = [RSAKey.generate_key(2048, {"use": "sig", "kid": f"k{number}"}) for number in range(3)]


@dataclass
class OpenId:
    """The provider, and what it is to do.

    Attributes:
        url: Its address, and its issuer.
        client_id, secret: The one client that it knows.
        somebody: The claims of whoever signs in.
        lie: Changes the claims of a token before it is signed.
        token: Makes the token of the claims, where it is not signed as it should be.
        published: Changes what it publishes about itself.
        keys: Which keys it publishes; it signs with the first.
        asked: Every path that was asked, in order.
        is_broken: Whether it answers everything with 500.
    """

    url: str = ""
    client_id: str = "sayso-inbox"
    secret: str | None = "a secret of the client"
    somebody: dict[str, Any] = field(default_factory=lambda: {"sub": "00u1", "groups": ["finance"]})
    lie: Callable[[dict[str, Any]], dict[str, Any]] = lambda claims: claims
    token: Callable[[OpenId, dict[str, Any]], str] | None = None
    published: dict[str, Any] = field(default_factory=dict)
    keys: list[Any] = field(default_factory=lambda: _KEYS[:1])
    asked: list[str] = field(default_factory=list)
    is_broken: bool = False
    answers_with_issuer: bool = False
    codes: dict[str, dict[str, str]] = field(default_factory=dict)

    def signed(self, claims: dict[str, Any], *, key: Any = None, **header: Any) -> str:
        """Return a token, signed with the first of its keys or another one."""
        key = key or self.keys[0]
        return jwt.encode(
            {"alg": "RS256", "kid": key.kid, **header}, claims, key, algorithms=["RS256", "HS256", "none"]
        )

    def rotate(self) -> None:
        """Sign with another key from now on, and publish only that."""
        self.keys = [_KEYS[1]]

    def metadata(self) -> dict[str, Any]:
        return {
            "issuer": self.url, "authorization_endpoint": f"{self.url}/authorize",
            "token_endpoint": f"{self.url}/token",
            "jwks_uri": f"{self.url}/jwks", "response_types_supported": ["code"], "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": ["RS256"], "code_challenge_methods_supported": ["S256"],
            **self.published,
        }  # fmt: skip

    def looked_at(self, path: str, asked: dict[str, str]) -> tuple[int, Any, dict[str, str]]:
        """Return what a GET is answered with."""
        if self.is_broken:
            return 500, {}, {}
        if path == "/.well-known/openid-configuration":
            return 200, self.metadata(), {}
        if path == "/jwks":
            return 200, {"keys": [key.as_dict(private=False) for key in self.keys]}, {}
        if path == "/authorize":
            return 302, {}, {"location": self.authorize(asked)}
        return 404, {}, {}

    def authorize(self, asked: dict[str, str]) -> str:
        """Return where a browser that wants to sign in is sent."""
        assert asked["response_type"] == "code"
        assert asked["client_id"] == self.client_id
        assert asked["code_challenge_method"] == "S256"
        assert "openid" in asked["scope"].split()
        code = secrets.token_urlsafe(16)
        self.codes[code] = asked
        answer = {"code": code, "state": asked["state"]} | ({"iss": self.url} if self.answers_with_issuer else {})
        return f"{asked['redirect_uri']}?{urlencode(answer)}"

    def trade(self, form: dict[str, str], authorization: str | None) -> tuple[int, dict[str, Any]]:
        """Return what the token endpoint says."""
        if not self._is_client(form, authorization):
            return 401, {"error": "invalid_client"}
        asked = self.codes.pop(form.get("code", ""), None)
        verifier = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
        challenge = base64.urlsafe_b64encode(verifier).decode().rstrip("=")
        if (
            asked is None or form.get("grant_type") != "authorization_code" or asked["code_challenge"] != challenge
            or asked["redirect_uri"] != form.get("redirect_uri")
        ):  # fmt: skip
            return 400, {"error": "invalid_grant"}
        now = int(clock.now().timestamp())
        claims = self.lie({
            "iss": self.url, "aud": self.client_id, "iat": now, "exp": now + 300, "nonce": asked.get("nonce"),
            **self.somebody,
        })  # fmt: skip
        token = self.token(self, claims) if self.token is not None else self.signed(claims)
        return 200, {"access_token": "at", "token_type": "Bearer", "expires_in": 300, "id_token": token}

    def _is_client(self, form: dict[str, str], authorization: str | None) -> bool:
        if self.secret is None:
            return form.get("client_id") == self.client_id and authorization is None
        said = f"{quote(self.client_id, safe='')}:{quote(self.secret, safe='')}"
        given = base64.b64decode((authorization or "").removeprefix("Basic ")).decode()
        return unquote(given) == unquote(said)


def unsigned(header: dict[str, Any], claims: dict[str, Any], signature: str = "", *, secret: bytes = b"") -> str:
    """Return a token with any header, and any signature: the one given, or one by a shared secret."""
    signed = ".".join(_encoded(json.dumps(part).encode()) for part in (header, claims))
    if secret:
        signature = _encoded(hmac.digest(secret, signed.encode(), "sha256"))
    return f"{signed}.{signature}"


def _encoded(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).decode().rstrip("=")


def _answering(provider: OpenId) -> type[BaseHTTPRequestHandler]:
    class Answering(BaseHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            return

        def _say(self, status: int, said: Any, headers: dict[str, str]) -> None:
            body = json.dumps(said).encode()
            self.send_response(status)
            for name, value in {
                "content-type": "application/json",
                "content-length": str(len(body)),
                **headers,
            }.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            provider.asked.append(parts.path)
            self._say(*provider.looked_at(parts.path, dict(parse_qsl(parts.query))))

        def do_POST(self) -> None:
            provider.asked.append(self.path)
            body = self.rfile.read(int(self.headers["content-length"])).decode()
            form = {name: values[0] for name, values in parse_qs(body).items()}
            status, said = provider.trade(form, self.headers["authorization"])
            self._say(500 if provider.is_broken else status, said, {})

    return Answering


@contextmanager
def openid() -> Iterator[OpenId]:
    """A provider that answers on this machine."""
    provider = OpenId()
    server = ThreadingHTTPServer(("127.0.0.1", 0), _answering(provider))
    provider.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield provider
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
