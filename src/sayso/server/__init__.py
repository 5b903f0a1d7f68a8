"""The web inbox: a person sees in a browser what waits, and decides; the extra `web` brings what it needs.

`create_app` makes an ASGI program that `sayso serve` runs and that any other ASGI program can mount. Pages are made on
the server and work without JavaScript. The invariant: pages see and decide through the person's door
(`sayso.reviews`) alone, and nothing that came from a program reaches a page unescaped.
"""

from sayso.server.app import create_app, login_path

__all__ = ["create_app", "login_path"]
