"""Static files (styles, scripts, icons): compressed once, and addressed by a digest of their content.

A page links to `/static/DIGEST/app.css`, which browsers cache for a year without revalidation. When any file changes,
the digest changes, and pages link to the new address. Without a digest, or with another version's, the file is served
too, but browsers must revalidate it each time.
"""

from __future__ import annotations

import gzip
import hashlib
import mimetypes
from functools import cache
from pathlib import Path
from typing import NamedTuple

from starlette.exceptions import HTTPException
from starlette.requests import Request as Http
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from sayso.server.context import accepts_gzip, path_to

_FOLDER = Path(__file__).parent / "static"
_TYPES = {
    ".js": "text/javascript",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".webmanifest": "application/manifest+json",
}
_FOR_EVER = "public, max-age=31536000, immutable"
_ASK_AGAIN = "no-cache"
_WORKER = "sw.js"


class _Asset(NamedTuple):
    plain: bytes
    compressed: bytes
    media_type: str
    tag: str


@cache
def _all() -> tuple[str, dict[str, _Asset]]:
    """Return the digest of all files, and the files by name."""
    digest, found = hashlib.sha256(), dict[str, _Asset]()
    for path in sorted(_FOLDER.iterdir()):
        plain = path.read_bytes()
        kind = _TYPES.get(path.suffix) or mimetypes.guess_type(path.name)[0] or "text/plain"
        tag = hashlib.sha256(plain).hexdigest()
        digest.update(f"{path.name} {tag}\n".encode())
        # mtime=0: every server of one version sends the same bytes.
        found[path.name] = _Asset(plain, gzip.compress(plain, 9, mtime=0), kind, tag[:32])
    return digest.hexdigest()[:16], found


def asset_path(http: Http, name: str) -> str:
    """Return the address under which browsers cache a file."""
    return path_to(http, "static", _all()[0], name)


async def assets(scope: Scope, receive: Receive, send: Send) -> None:
    """Serve a file. This is an ASGI application, to be mounted."""
    http = Http(scope, receive)
    if http.method not in {"GET", "HEAD"}:
        raise HTTPException(405, headers={"allow": "GET, HEAD"})
    digest, files = _all()
    place = scope["path"].removeprefix(scope.get("root_path", "")).lstrip("/")
    given, _, name = place.rpartition("/")
    file = files.get(name)
    if file is None or "/" in given:
        raise HTTPException(404)
    # A weak tag (`W/`), because both encodings of a file share it.
    tag = f'W/"{file.tag}"'
    headers = {"etag": tag, "vary": "accept-encoding", "cache-control": _FOR_EVER if given == digest else _ASK_AGAIN}
    if name == _WORKER:  # its scope is this inbox, not other applications of the same host
        headers["service-worker-allowed"] = scope.get("root_path", "").removesuffix("static")
    if http.headers.get("if-none-match") == tag:
        await Response(status_code=304, headers=headers)(scope, receive, send)
        return
    body = file.plain
    if accepts_gzip(http):
        body, headers["content-encoding"] = file.compressed, "gzip"
    await Response(body, headers=headers, media_type=file.media_type)(scope, receive, send)
