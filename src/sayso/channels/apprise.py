"""Notifications by email, phone and chat through Apprise: a title, one line and a link.

Apprise names each service by a URL that contains passwords and tokens. Messages, logs and `repr` show only its scheme,
and Apprise's own log is silenced. If one of several services fails, only that service gets the message again.
"""

from __future__ import annotations

import logging
import re
import threading
from collections import OrderedDict
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, cast

import apprise

from sayso.channels.registry import Channel, DeliveryError, Notification
from sayso.channels.settings import Table
from sayso.model.reviewer import Identity

_KNOWN = ("people", "type", "urls", "urls_env")
_SECONDS = 20.0
_MOST_REMEMBERED = 1_000


class AppriseChannel(Channel):
    """A channel that notifies one or more services.

    Args:
        name: The channel's name.
        services: Pairs of a URL's scheme and the Apprise service.
        people: The people whom it reaches personally.
    """

    def __init__(self, name: str, services: Sequence[tuple[str, Any]], *, people: Sequence[Identity] = ()) -> None:
        self.name, self.people = name, people
        self._services = services
        self._lock = threading.Lock()
        self._accepted: OrderedDict[str, set[int]] = OrderedDict()  # by message id: the indexes of services that got it

    def __repr__(self) -> str:
        return f"AppriseChannel({self.name!r}, {', '.join(scheme for scheme, _ in self._services)})"

    def send(self, notification: Notification) -> None:
        """Notify every service that has not received this notification yet.

        Raises:
            DeliveryError: At least one service did not accept it.
        """
        with self._lock:
            accepted = self._accepted.setdefault(notification.id, set[int]())
            while len(self._accepted) > _MOST_REMEMBERED:
                self._accepted.popitem(last=False)
        title, line = map(_inert, (notification.title, notification.line))
        failed, body = list[str](), "\n".join(filter(None, (line, notification.link)))
        for at, (scheme, service) in enumerate(self._services):
            if at in accepted:
                continue
            with _silence_logs():
                is_accepted = service.notify(body, title=title, body_format="text", timeout=_SECONDS)
            if is_accepted:
                accepted.add(at)
            else:
                failed.append(scheme)
        if failed:
            raise DeliveryError(f"{', '.join(failed)} did not accept the message; it is retried later")
        with self._lock:
            self._accepted.pop(notification.id, None)


_LIVE = re.compile(r"(?<=[@<\]])(?=\S)|(?<=:)(?=//)|(?<=\bwww)(?=\.)", re.IGNORECASE)


def _inert(text: str) -> str:
    """Return a text in which no name is a link or a mention, which many services make even of plain text."""
    return _LIVE.sub(" ", text)


@contextmanager
def _silence_logs() -> Generator[None]:
    """Silence the logs of Apprise and its HTTP client inside the block, because they may quote a service's URL.

    Apprise sends from its own threads, so its log records cannot be distinguished from those of other code.
    """

    def drop(_: logging.LogRecord) -> bool:
        return False

    logs = [logging.getLogger(name) for name in ("apprise", "urllib3.connectionpool")]
    for log in logs:
        log.addFilter(drop)
    try:
        yield
    finally:
        for log in logs:
            log.removeFilter(drop)


def make(name: str, settings: Mapping[str, Any]) -> AppriseChannel:
    """Create the channel from its table in `sayso.toml`.

    Raises:
        ConfigError: A setting is missing, unknown or invalid; the message does not quote a URL.
    """
    table = Table(f"channels.{name}", settings, known=_KNOWN)
    urls = table.secret("urls_env").split() if "urls_env" in settings else table.texts("urls")
    if not urls:
        raise table.error(
            "urls", "is missing; list Apprise URLs there, or name an environment variable with them in urls_env"
        )
    # Following a redirect would send the message, and the secrets in its headers, to another host.
    known, services = cast("Any", apprise), list[Any]()
    for url in urls:
        service = known.Apprise(asset=known.AppriseAsset(app_id="sayso", http_redirects=False))
        with _silence_logs():
            services.append(service if service.add(url) else None)
    wrong = [str(at) for at, service in enumerate(services, 1) if service is None]
    if wrong:
        raise table.error("urls", f"contains URLs of services that Apprise does not know: number {', '.join(wrong)}")
    pairs = [(url.partition(":")[0], one) for url, one in zip(urls, services, strict=True)]
    return AppriseChannel(name, pairs, people=table.people("people"))
