"""Where `sayso serve` may listen: on this machine alone without more, elsewhere only where it can know who decides.

Nothing listens in these tests but the last ones, on this machine's own addresses. The invariant: a place that is
refused is refused before anything listens.
"""

from __future__ import annotations

import re
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Self

import httpx2
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from sayso.cli import main
from sayso.stores.base import Store

EVERYWHERE = ".".join("0000")
OUTSIDE = [EVERYWHERE, "::", "192.168.1.5", "10.0.0.1", "::ffff:192.168.1.5", "2001:db8::1"]
HERE = ["127.0.0.1", "localhost", "LOCALHOST", "::1", "[::1]", "127.0.0.2"]
PUBLIC = "https://approvals.example.com"
WAYS = {
    "links": ["--login-links"],
    "proxy": ["--proxy-header", "X-Forwarded-User", "--trusted-proxy", "10.0.0.0/8"],
    "openid": [],
}


@pytest.fixture
def served(file_store: Store, monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """What the server would have begun to serve, and where."""
    began: list[tuple[Any, ...]] = []

    class Listener:
        def __init__(self, address: tuple[str, int]) -> None:
            self.address = address

        def __enter__(self) -> Self:
            return self

        def __exit__(self, *_: object) -> None:
            return

        def setsockopt(self, *_: int) -> None:
            return

        def getsockname(self) -> tuple[str, int]:
            return self.address

    monkeypatch.setattr("socket.create_server", lambda address, **_: Listener(address))
    monkeypatch.setattr(
        "sayso.cli.serve._run", lambda app, listeners, config: began.append((app, listeners[0].address, config))
    )
    return began


def serve(store: Store, *words: str) -> int:
    return main(["--store", store.url, "serve", "--as", "ada", *words])


def set_up_openid(place: Path) -> None:
    (place / "sayso.toml").write_text('[oidc]\nissuer = "https://login.example.com"\nclient_id = "sayso"\n')


@pytest.mark.parametrize("host", HERE)
def test_on_this_machine_nothing_more_is_needed(host: str, file_store: Store, served: list[Any]) -> None:
    assert serve(file_store, "--host", host) == 0
    ((app, address, _),) = served
    assert address[0] in {"127.0.0.1", "127.0.0.2", "::1"}
    assert app.state.settings.sign_in.has_links
    assert app.state.on_stranger is not None


@pytest.mark.parametrize("host", OUTSIDE)
@pytest.mark.parametrize("more", [[], ["--base-url", PUBLIC], ["--insecure-http"], ["--trusted-proxy", "10.0.0.0/8"]])
def test_it_refuses_to_listen_where_it_cannot_know_who_decides(
    host: str, more: list[str], file_store: Store, served: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    assert serve(file_store, "--host", host, *more) == 1
    said = capsys.readouterr().err
    assert "could not tell who decides" in said
    assert "ssh -L" in said
    assert "--login-links" in said
    assert served == []


def test_an_address_elsewhere_opens_it_as_listening_elsewhere_does(
    file_store: Store, served: list[Any], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert serve(file_store, "--base-url", PUBLIC) == 1
    monkeypatch.setenv("SAYSO_BASE_URL", PUBLIC)
    assert serve(file_store) == 1
    assert capsys.readouterr().err.count("could not tell who decides") == 2
    assert served == []


@pytest.mark.parametrize("way", ["links", "proxy", "openid"])
@pytest.mark.parametrize("host", [*OUTSIDE, "127.0.0.1"])
def test_with_a_way_to_know_people_it_listens_anywhere(
    host: str, way: str, file_store: Store, served: list[Any], place: Path
) -> None:
    if way == "openid":
        set_up_openid(place)
    assert serve(file_store, "--host", host, "--base-url", PUBLIC, *WAYS[way]) == 0
    ((app, _, _),) = served
    settings = app.state.settings
    assert settings.base_url == PUBLIC
    assert settings.sign_in.has_links is (way == "links")
    assert (settings.sign_in.provider is not None) is (way == "openid")
    assert (settings.who is not None) is (way == "proxy")
    assert app.state.on_stranger is None  # no link for whoever comes, though only to the terminal


@pytest.mark.parametrize("host", OUTSIDE)
def test_it_needs_the_address_by_which_people_reach_it(
    host: str, file_store: Store, served: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    assert serve(file_store, "--host", host, "--login-links") == 1
    assert "without --base-url" in capsys.readouterr().err
    assert served == []


@pytest.mark.parametrize("way", ["links", "proxy", "openid"])
@pytest.mark.parametrize("host", [*OUTSIDE, "127.0.0.1"])
def test_plain_http_to_others_is_refused_unless_it_is_asked_for_by_name(
    host: str, way: str, file_store: Store, served: list[Any], place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if way == "openid":
        set_up_openid(place)
    words = ["--host", host, "--base-url", "http://approvals.example.com", *WAYS[way]]
    assert serve(file_store, *words) == 1
    assert "over plain http" in capsys.readouterr().err
    assert served == []
    assert serve(file_store, *words, "--insecure-http") == 0
    assert "WARNING" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--host", "example.com"], "an IP address or localhost"), (["--host", ""], "an IP address or localhost"),
        (["--host", "127.1"], "an IP address or localhost"), (["--host", "127.0.0.1.evil.example"], "an IP address"),
        (["--base-url", "approvals.example.com"], "is not a URL"),
        (["--base-url", "ftp://a.example"], "is not a URL"), (["--base-url", "https://a.example:x"], "is not a URL"),
        (["--base-url", "https://ada@a.example"], "is not a URL"),
        (["--base-url", "https://a.example/inbox"], "its own host name"),
        (["--base-url", "https://a.example?x"], "its own host name"),
        (["--proxy-header", "X-User"], "--trusted-proxy"), (["--proxy-roles-header", "X-Roles"], "--trusted-proxy"),
        (["--proxy-roles-header", "X-Roles", "--trusted-proxy", "10.0.0.1"], "needs --proxy-header"),
        (["--proxy-header", "X-User", "--trusted-proxy", EVERYWHERE + "/0"], "cannot be the whole network"),
        (["--proxy-header", "X-User", "--trusted-proxy", "::/0"], "cannot be the whole network"),
        (["--proxy-header", "X-User", "--trusted-proxy", "proxy.example"], "an address or a network"),
        (["--proxy-header", "X-User", "--trusted-proxy", "10.0.0.1/8"], "an address or a network"),
        (["--proxy-header", "X-User", "--trusted-proxy", "10.0.0.1", "--login-links"], "cannot be combined"),
    ],
)  # fmt: skip
def test_what_cannot_be_used_is_told_before_anything_listens(
    words: list[str], said: str, file_store: Store, served: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    assert serve(file_store, *words) == 1
    assert said in capsys.readouterr().err
    assert served == []


SETTINGS = {
    '[serve]\nhost = "{everywhere}"': "could not tell who decides",
    '[serve]\nlogin_link = true': "login_link is not known",
    '[serve]\nlogin_links = "yes"': "must be true or false",
    '[serve]\nreviewers = ["ada"]': "no way to sign in is configured",
    '[serve]\nreviewers = [1]': "must be a list of strings",
    '[serve]\nlogin_links = true\nsession = "soon"': "is not a duration",
    '[oidc]\nissuer = "https://a.example"': "client_id is missing",
    '[oidc]\nissuer = "https://a.example"\nclient_id = "a"\nclient_secret = "b"': "client_secret is not known",
    '[oidc]\nissuer = "https://a.example"\nclient_id = "a"\nclient_secret_env = "NO_SUCH"': "which is not set",
    '[oidc]\nissuer = "http://a.example"\nclient_id = "a"': "must be an https URL",
    '[oidc]\nissuer = "https://a.example"\nclient_id = "a"\nscopes = ["email"]': "must include 'openid'",
}  # fmt: skip


@pytest.mark.parametrize(("text", "said"), SETTINGS.items())
def test_a_setting_that_cannot_be_used_is_told(
    text: str, said: str, file_store: Store, served: list[Any], place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (place / "sayso.toml").write_text(text.replace("{everywhere}", EVERYWHERE))
    assert serve(file_store) == 1
    assert said in capsys.readouterr().err
    assert served == []


def test_settings_of_the_file_are_used_and_options_win(file_store: Store, served: list[Any], place: Path) -> None:
    (place / "sayso.toml").write_text(
        f'base_url = "{PUBLIC}"\n[serve]\nhost = "{EVERYWHERE}"\nport = 8700\nproxy_header = "X-User"\n'
        'proxy_roles_header = "X-Roles"\ntrusted_proxies = ["10.0.0.5"]\nreviewers = ["ada"]\nrequired_role = "ops"\n'
        'session = "12h"\n'
    )
    assert serve(file_store) == 0
    assert serve(file_store, "--port", "8800", "--proxy-header", "X-Other", "--trusted-proxy", "10.0.0.6") == 0
    (first, at_first, _), (second, at_second, _) = served
    assert (at_first, at_second) == ((EVERYWHERE, 8700), (EVERYWHERE, 8800))
    ways, others = first.state.settings.sign_in, second.state.settings.sign_in
    assert (ways.proxy.header, ways.proxy.roles_header, ways.role, ways.lasts) == (
        "X-User", "X-Roles", "ops", timedelta(hours=12),
    )  # fmt: skip
    assert list(ways.reviewers) == ["ada"]
    assert (others.proxy.header, str(others.proxy.peers[0])) == ("X-Other", "10.0.0.6/32")


def test_a_secret_of_its_own_is_needed_where_the_store_is_no_file(
    file_store: Store, served: list[Any], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sayso.server.auth.sessions._secret_file", lambda _: None)
    words = ["--login-links", "--base-url", PUBLIC]
    assert serve(file_store, *words) == 1
    assert "set SAYSO_SECRET" in capsys.readouterr().err
    monkeypatch.setenv("SAYSO_SECRET", "short")
    assert serve(file_store, *words) == 1
    assert "at least 32 random ones" in capsys.readouterr().err
    monkeypatch.setenv("SAYSO_SECRET", "0" * 32)
    assert serve(file_store, *words) == 0


# -- over the wire -----------------------------------------------------------------------------------------------


@contextmanager
def running(store: Store, *words: str) -> Iterator[tuple[subprocess.Popen[str], list[str]]]:
    """A server in a process of its own, and what it said."""
    process = subprocess.Popen(
        [sys.executable, "-m", "sayso", "--store", store.url, "serve", "--port", "0", *words],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, bufsize=1,
    )  # fmt: skip
    said: list[str] = []
    try:
        assert process.stdout is not None
        while "Ctrl-C to stop" not in "".join(said):
            line = process.stdout.readline()
            assert line, process.communicate()
            said.append(line)
        yield process, said
    finally:
        process.kill()
        process.communicate()


def certificate(folder: Path) -> tuple[Path, Path]:
    """Return the files of a certificate for localhost, and of its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
        .serial_number(1).not_valid_before(now - timedelta(hours=1)).not_valid_after(now + timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )  # fmt: skip
    files = folder / "cert.pem", folder / "key.pem"
    files[0].write_bytes(made.public_bytes(serialization.Encoding.PEM))
    files[1].write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )  # fmt: skip
    return files


def test_it_speaks_https_itself_with_a_certificate(file_store: Store, place: Path) -> None:
    cert, key = certificate(place)
    with running(file_store, "--tls-cert", str(cert), "--tls-key", str(key), "--as", "ada") as (_, said):
        link = re.search(r"https://127\.0\.0\.1:(\d+)(/login\S+)", "".join(said))
        assert link is not None
        base = f"https://localhost:{link[1]}"
        with httpx2.Client(base_url=base, verify=ssl.create_default_context(cafile=cert)) as client:
            token = link[2].partition("token=")[2]
            answer = client.post("/login", data={"token": token}, headers={"origin": base})
            assert answer.status_code == 303
            cookie = answer.headers["set-cookie"]
            assert cookie.startswith("__Host-sayso=")
            assert {"Secure", "HttpOnly", "Path=/"} <= set(cookie.split("; "))
            assert client.get("/").status_code == 200


def test_a_certificate_that_cannot_be_used_is_told(
    file_store: Store, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cert, _ = certificate(place)
    (place / "bad.pem").write_text("nothing")
    assert serve(file_store, "--port", "0", "--tls-cert", str(place / "bad.pem")) == 1
    assert serve(file_store, "--port", "0", "--tls-cert", str(cert)) == 1
    out, err = capsys.readouterr()
    assert err.count("cannot be used") == 2
    assert "open https" not in out
    (place / "sayso.toml").write_text('[serve]\ntls_cert = "/nowhere/gone.pem"')
    assert serve(file_store, "--port", "0") == 1
    assert "/nowhere/gone.pem" in capsys.readouterr().err
    (place / "sayso.toml").write_text('[serve]\ntls_cert = "gone.pem"')
    assert serve(file_store, "--port", "0") == 1
    assert "must be an absolute path" in capsys.readouterr().err
    (place / "sayso.toml").unlink()
    assert serve(file_store, "--tls-key", str(cert)) == 1
    assert serve(file_store, "--tls-cert", str(cert), "--base-url", "http://localhost:8600") == 1


def test_an_open_server_answers_to_its_one_name(file_store: Store) -> None:
    with running(file_store, "--login-links", "--base-url", PUBLIC) as (_, said):
        assert f"open {PUBLIC}\n" in said
        assert not any("token=" in line for line in said)
        listens = re.search(r"the server listens on 127\.0\.0\.1, port (\d+)", "".join(said))
        assert listens is not None
        port = listens[1]
        for host, status in [("approvals.example.com", 200), ("localhost", 421), (f"127.0.0.1:{port}", 421)]:
            answer = httpx2.get(f"http://127.0.0.1:{port}/healthz", headers={"host": host}, verify=False)
            assert answer.status_code == status


def test_where_people_sign_in_the_servers_user_needs_no_name(
    file_store: Store, served: list[Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def nobody() -> str:
        raise KeyError("getpwuid(): uid not found: 1234")

    monkeypatch.setattr("getpass.getuser", nobody)
    words = ["--store", file_store.url, "serve", "--port", "0"]
    assert main([*words, "--login-links", "--base-url", PUBLIC]) == 0
    assert main(words) == 1
    assert "has no name on this machine; set SAYSO_REVIEWER" in capsys.readouterr().err
    assert len(served) == 1
