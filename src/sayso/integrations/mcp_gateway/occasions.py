"""Which request answers for a call that an MCP client makes.

MCP calls have no key of their own: a call that is made again has a new id. So the key is made from the call itself and
a number, its occasion. An equal call means the same occasion while its client was told to call again, or was not there
when the result came; after the result was delivered, an equal call is a new one and a person is asked anew.
"""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import logging
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any

from sayso import aio, clock, errors
from sayso.effects import offload
from sayso.integrations.mcp_gateway.connection import Message, object_of
from sayso.model import canonical
from sayso.model.grant import ABOUT_THIS_CALL
from sayso.model.request import Request, State
from sayso.stores.base import Store

__all__ = ["KEY", "Call", "Occasion", "Occasions", "digest_of"]

_log = logging.getLogger("sayso")
KEY = "sayso/key"
"""In the `_meta` of a call, a key of the client's own: what has it is the same call for ever."""
_REPLAY = timedelta(minutes=10)  # for a result that another process of the run may not have delivered


@dataclass
class Call:
    """A call that the client made: its id, `params` as they came, what is looked at in them, and its arrival."""

    number: str | int
    params: Message
    tool: Message
    arguments: Message
    meta: Message
    arrived: int = 0


@dataclass
class Occasion:
    """One asking for one call.

    Attributes:
        tool: Name of the tool.
        held: The call as it was asked about last.
        users: How many calls are in hand for it now.
        is_ticket: Its client was sent away to call again, or another session asked, so an equal call is this one.
        delivered: When its result reached the client, by `Occasions.counter`; an equal call after that is a new one.
        note: What to say in place of the decision, where the tool was changed.
    """

    tool: str = ""
    held: aio.Held | None = None
    users: int = 0
    is_ticket: bool = False
    delivered: int | None = None
    note: str | None = None


class Occasions:
    """The occasions of one run, as one session knows them.

    Args:
        server: Name of the server.
        run: Name of the run.
        store: Where the requests are.
        when: True, or a policy.
    """

    def __init__(self, server: str, run: str, store: Store, when: Any) -> None:
        self._server, self._run, self._store, self._when = server, run, store, when
        self._known: defaultdict[str, Occasion] = defaultdict(Occasion)
        self._asking = asyncio.Lock()
        self._notes: dict[str, str] = {}
        self.counter = itertools.count(1)

    async def ask(self, call: Call, client: str | None) -> tuple[Occasion, aio.Held]:
        """Find the request of a call, or ask; what is returned counts as in hand (`users`) where a person is asked.

        Raises:
            SaysoError: It could not be asked, and nothing may run.
        """
        async with self._asking:  # of two equal calls at once, the second sees that the first has its occasion
            tool, given = call.tool, call.meta.get(KEY)
            name = f"{self._server}/{tool['name']}"
            if isinstance(given, str):
                key, before = f"client:{given}", 0
            else:
                key, before = await self._pick(digest_of(name, tool.get("inputSchema"), call.arguments), call.arrived)
            about = {"tool changed": self._notes.get(tool["name"]), "equal calls before in this run": before or None}
            noted = {word: fact for word, fact in about.items() if fact is not None}
            facts = {"server": self._server, "client": client, ABOUT_THIS_CALL: noted or None}
            title: Any = tool.get("title") or object_of(tool.get("annotations")).get("title")
            description = tool.get("description")
            held = await aio.hold(
                name, call.arguments, schema=tool.get("inputSchema"), key=key, run=self._run, store=self._store,
                title=title if isinstance(title, str) else None, when=self._when,
                description=description if isinstance(description, str) else None,
                context={word: fact for word, fact in facts.items() if fact is not None},
            )  # fmt: skip
            occasion = self._known[key]
            if held.request is not None:
                occasion.tool, occasion.held, occasion.users = tool["name"], held, occasion.users + 1
                occasion.is_ticket = occasion.is_ticket or isinstance(given, str)
            return occasion, held

    async def _pick(self, digest: str, arrived: int) -> tuple[str, int]:
        """Return the key of the first occasion that this call may mean, and how many there were before it."""
        number = 0
        for number in itertools.count():
            key = f"{digest}:{number}"
            occasion = self._known[key]
            if occasion.delivered is not None and not (occasion.is_ticket and arrived < occasion.delivered):
                continue
            if occasion.users > 0 and not occasion.is_ticket:
                continue
            found = await offload(partial(self._store.find_key, self._run, key))
            if found is None or not _is_over(found, is_ours=occasion.held is not None):
                occasion.is_ticket = occasion.is_ticket or (found is not None and occasion.held is None)
                break
        return f"{digest}:{number}", number

    async def on_change(self, name: str, before: Message, now: Message) -> None:
        """Take note of a tool that the server lists in another way; what was asked about the old schema ends."""
        self._notes[name] = note = _difference(before, now)
        if before.get("inputSchema") == now.get("inputSchema"):
            return
        old = [occasion for occasion in self._known.values() if occasion.tool == name]
        for occasion in old:
            occasion.note = (
                f"{name} was not run: its server changed it meanwhile ({note}). Read its schema again first."
            )
        await self.withdraw(old, f"the server changed the tool: {note}")

    async def withdraw(self, occasions: Iterable[Occasion] | None, reason: str) -> None:
        """Take back what waits, or was approved and has not started, of these occasions; None for all."""
        chosen = list(self._known.values() if occasions is None else occasions)
        for held in [occasion.held for occasion in chosen if occasion.held is not None]:
            try:
                await held.withdraw(reason)
            except errors.SaysoError as error:
                _log.warning("%s was not withdrawn (%s); nothing starts it", held.id, error)


def digest_of(name: str, schema: Any, arguments: Message) -> str:
    """Return what equal calls of one tool have in common, and no other calls."""
    form = canonical.encode({"tool": name, "schema": schema, "arguments": arguments}).text
    return hashlib.sha256(form.encode()).hexdigest()[:40]


def _is_over(request: Request, *, is_ours: bool) -> bool:
    """Say whether an equal call is a new one and does not mean this request any more.

    A no of a person holds. What ended while this session did not have it may not have reached its client.
    """
    if request.state is State.EXPIRED:
        return True
    if request.state is State.CANCELLED:
        return request.decision is not None and request.decision.channel == "program"
    if request.state not in {State.DONE, State.FAILED} or is_ours:
        return False
    ended = None if request.execution is None else request.execution.finished_at
    return ended is None or clock.now() - ended > _REPLAY


def _difference(before: Message, now: Message) -> str:
    """Return in words how a tool was changed."""
    old, new = (object_of(object_of(tool.get("inputSchema")).get("properties")) for tool in (before, now))
    words = {
        "new": sorted(new.keys() - old.keys()), "removed": sorted(old.keys() - new.keys()),
        "changed": sorted(name for name in old.keys() & new.keys() if old[name] != new[name]),
        "fields": sorted(name for name in before.keys() | now.keys() if before.get(name) != now.get(name)),
    }  # fmt: skip
    return "; ".join(f"{word}: {', '.join(names)}" for word, names in words.items() if names)
