"""Who is told what happens to Confirms and plans in this program.

A subscriber gets the events of what this program does, and of what it learns when it reads a Confirm that was decided
elsewhere. Invariant: what a subscriber does, or fails to do, changes nothing of what was decided.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Any

from sayso.effects import Effects, HookCall
from sayso.mplp.part import Event, StageEvent

__all__ = ["Subscriber", "subscribe", "tell"]

Subscriber = Callable[[Event | StageEvent], Any]
"""Gets an event; may be async where the program is."""

_subscribers: list[Subscriber] = []


def subscribe(subscriber: Subscriber) -> Callable[[], None]:
    """Have a function called with every event from now on; calling what is returned ends it.

    An event may come more than once, where two processes notice the same decision at one time; its `event_id` is the
    same then. What the function raises is logged.
    """
    _subscribers.append(subscriber)

    def unsubscribe() -> None:
        if subscriber in _subscribers:
            _subscribers.remove(subscriber)

    return unsubscribe


def tell(event: Event | StageEvent) -> Effects[None]:
    """Call every subscriber with an event."""
    for subscriber in _subscribers:
        try:
            yield HookCall(partial(subscriber, event), {})
        except Exception:  # the subscriber's own code; what it is told of has happened already
            logging.getLogger("sayso").exception("a subscriber failed at %s", event.event_type)
