"""Which ways lead into the inbox of `sayso serve`: its options, and `[serve]` and `[oidc]` in `sayso.toml`.

An option wins over the file. Invariant: what is set and cannot be used is refused before anything listens, and a secret
comes from the environment only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sayso import config, errors
from sayso.channels.settings import Table, allowed_reviewers
from sayso.model import duration

if TYPE_CHECKING:
    from sayso.server.oidc import Provider
    from sayso.server.proxy import Proxy
    from sayso.server.sign_in import SignIn

__all__ = ["Options", "provider", "serve_table", "sign_in"]

_SERVE = (
    "host", "port", "tls_cert", "tls_key", "login_links", "proxy_header", "proxy_roles_header", "trusted_proxies",
    "reviewers", "required_role", "session", "rate",
    "plain_address",
)  # fmt: skip
_OIDC = ("issuer", "client_id", "client_secret_env", "name", "scopes", "roles_claim")


@dataclass(frozen=True)
class Options:
    """What the command line says of it.

    Attributes:
        has_links: `--login-links`.
        header, roles_header: `--proxy-header` and `--proxy-roles-header`.
        peers: `--trusted-proxy`.
    """

    has_links: bool = False
    header: str | None = None
    roles_header: str | None = None
    peers: Sequence[str] = ()


def serve_table() -> Table:
    """Return `[serve]` of the settings file.

    Raises:
        ConfigError: It has a setting that is not known.
    """
    return Table("serve", config.table("serve"), known=_SERVE)


def sign_in(options: Options) -> SignIn | None:
    """Return the ways that are open; None where none was set.

    Raises:
        ConfigError: A setting cannot be used.
    """
    from sayso.server.session import ABSOLUTE
    from sayso.server.sign_in import SignIn

    table = serve_table()
    has_links = options.has_links or table.get("login_links", bool, False)
    proxy, known = _proxy(options, table), provider()
    signs_in = proxy is not None and proxy.header is not None
    if signs_in and (has_links or known is not None):
        raise errors.ConfigError(
            "a proxy that signs people in has the last word, so login links and [oidc] would lead nowhere; take one out"
        )
    lasts, may = table.get("session", str, ""), allowed_reviewers()
    rules = SignIn(
        has_links=has_links, proxy=proxy, provider=known, reviewers=may.reviewers, role=may.role,
        lasts=duration.parse(lasts) if lasts else ABSOLUTE,
    )  # fmt: skip
    if not (has_links or signs_in or known):
        if rules.reviewers is not None or rules.role is not None:
            raise errors.ConfigError("[serve] says who may review, and there is no way to know people; add one")
        return None
    return rules


def _proxy(options: Options, table: Table) -> Proxy | None:
    from sayso.server.proxy import Proxy, networks

    header = options.header or table.get("proxy_header", str, "") or None
    roles = options.roles_header or table.get("proxy_roles_header", str, "") or None
    peers = networks(options.peers or table.texts("trusted_proxies"))
    if (header or roles) and not peers:
        raise errors.ConfigError(
            "a header that names people counts from the proxy's addresses only: add --trusted-proxy 10.0.0.5, say"
        )
    if roles and not header:
        raise errors.ConfigError("--proxy-roles-header goes with --proxy-header")
    return Proxy(peers, header, roles) if peers else None


def provider() -> Provider | None:
    """Return the OpenID provider of `[oidc]`; None where there is none.

    Raises:
        ConfigError: A setting cannot be used, or the extra `oidc` is not installed.
    """
    found = config.table("oidc")
    if not found:
        return None
    from sayso.server.oidc import Oidc, Provider

    table = Table("oidc", found, known=_OIDC)
    scopes = table.texts("scopes") or ["openid"]
    if "openid" not in scopes:
        raise table.fault("scopes", "must have 'openid' among them")
    return Provider(
        Oidc(
            table.text("issuer"), table.text("client_id"),
            table.secret("client_secret_env") if "client_secret_env" in found else None,
            name=table.get("name", str, "oidc"), scopes=tuple(scopes),
            roles_claim=table.get("roles_claim", str, "") or None,
        )
    )  # fmt: skip
