"""`human_in_the_loop`: a tool by which a model, or a program, asks a person and waits for the answer."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from sayso.channels.request import HumanInputRequest, Requester, carried
from sayso.errors import ConfigError
from sayso.gates.options import quorum_of, span_of
from sayso.model.keywords import checks_keywords
from sayso.runs.tool import Tool
from sayso.signals import trimmed
from sayso.stores.base import Store

__all__ = ["human_in_the_loop"]


@trimmed
@checks_keywords()
def human_in_the_loop(
    requester: Requester, *, name: str = "ask_human", description: str | None = None, expires: timedelta | str = "24h",
    roles: Sequence[str] = (), risk: str | None = None, store: Store | str | None = None,
) -> Tool:  # fmt: skip
    """Return a tool with one argument, `question`, that asks a person: `answer = await tool.acall(question="…")`.

    Give it to an `Agent` or a `ReAct` as well. It waits where it stands, and takes the first answer, whoever gives it
    and through whichever channel; the requester is then broken off, if it is still at work. In a run with an id, a
    question that was asked before the program stopped is found again with its answer.

    Args:
        requester: Carries each question to a person.
        name, description: What a model sees.
        expires, roles, risk, store: As for `HumanInputRequest`.
    """
    if not callable(requester):
        raise ConfigError(f"human_in_the_loop takes a requester, a function that carries a question, not {requester!r}")
    span_of("expires", expires)
    quorum_of(1, roles)
    if risk is not None and not isinstance(risk, str):  # pyright: ignore[reportUnnecessaryIsInstance]  callers may be untyped
        raise ConfigError(f"risk= takes a text, not {risk!r}")

    async def ask_human(question: str) -> str:
        """Ask a person a question and wait for the answer."""
        request = HumanInputRequest(question, expires=expires, roles=roles, risk=risk, store=store)
        return await carried(request, requester)

    return Tool(ask_human, name=name, description=description, store=store)
