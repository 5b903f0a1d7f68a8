"""The server: the inbox, where people decide in a browser, and the HTTP API; it needs the extra `web`.

`create_app` returns an ASGI application that `sayso serve` runs and that any other ASGI application can mount. Pages
are rendered here and work without JavaScript. They read and decide only through `sayso.reviews`, and escape everything
that comes from a program.
"""

from sayso.server.app import create_app, login_path

__all__ = ["create_app", "login_path"]
