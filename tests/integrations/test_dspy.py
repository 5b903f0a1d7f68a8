"""A person as a real `dspy.Tool`, called by a real `dspy.ReAct` that plays DSPy's own dummy model.

Needs DSPy, some 370 MB with what it brings along: `pip install "sayso[dspy]"`; without it everything here is skipped.
"""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

import sayso
from sayso import errors
from sayso.channels import HumanInputRequest, Requester, create_queue_requester
from sayso.integrations.dspy import Stopped, human_in_the_loop
from sayso.model.request import State
from sayso.stores.base import Filter, Store
from tests.conftest import Clock
from tests.integrations.adapters.installed import framework

dspy: Any = framework("dspy", "dspy")
dummies: Any = framework("dspy.utils.dummies", "dspy")

PATIENCE = 30.0


def model(*questions: str) -> Any:
    """Return a model that asks these questions and then answers."""
    asks = [
        {"next_thought": "ask", "next_tool_name": "ask_human", "next_tool_args": {"question": question}}
        for question in questions
    ]
    finish = {"next_thought": "done", "next_tool_name": "finish", "next_tool_args": {}}
    return dummies.DummyLM([*asks, finish, {"reasoning": "as asked", "pizza": "small"}])


def react(requester: Requester) -> Any:
    return dspy.ReAct("order -> pizza", tools=[human_in_the_loop(requester)], max_iters=5)


def heard(prediction: Any) -> list[str]:
    """Return what a model was told, without the last step, which finishes."""
    told = [text for name, text in prediction.trajectory.items() if name.startswith("observation")]
    assert told[-1] == "Completed."
    return told[:-1]


def answering(*answers: str) -> Requester:
    left = iter(answers)

    async def requester(request: HumanInputRequest) -> None:
        request.set_response(next(left), by="ada")

    return requester


async def silent(_: HumanInputRequest) -> None:
    """Carry a question to somebody who answers later, elsewhere."""


def test_tool_is_dspys_own(store: Store) -> None:
    tool = human_in_the_loop(silent, name="ask_cook", description="Ask the cook.")
    assert isinstance(tool, dspy.Tool)
    assert (tool.name, tool.desc, tool.args) == ("ask_cook", "Ask the cook.", {"question": {"type": "string"}})


def test_agent_hears_the_answers_without_a_loop(store: Store) -> None:
    with dspy.context(lm=model("Which size?", "Which size?")):
        done = react(answering("small", "large"))(order="a pizza")
    assert heard(done) == ["small", "large"]
    assert store.count(Filter(states=frozenset({State.ANSWERED}))) == 2


def test_agent_hears_the_answers_in_a_loop(store: Store) -> None:
    async def main() -> Any:
        with dspy.context(lm=model("Which size?", "Which size?")):
            return await react(answering("small", "large")).acall(order="a pizza")

    assert heard(asyncio.run(main())) == ["small", "large"]


def test_loop_goes_on_while_the_agent_waits_for_a_queue(store: Store) -> None:
    async def main() -> tuple[Any, int]:
        queue: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        pending: dict[str, dict[str, Any]] = {}
        with dspy.context(lm=model("Which size?")):
            asking = asyncio.ensure_future(react(create_queue_requester(queue, pending)).acall(order="a pizza"))
        async with asyncio.timeout(PATIENCE):
            item = await queue.get()
        for ticks in range(20):  # noqa: B007  counted below
            await asyncio.sleep(0.001)
        assert not asking.done()
        pending.pop(item["id"])["request"].set_response("small", by="ada")
        async with asyncio.timeout(PATIENCE):
            return await asking, ticks

    done, ticks = asyncio.run(main())
    assert (heard(done), ticks) == (["small"], 19)


def test_agent_in_a_thread_asks_through_the_queue_of_the_loop(store: Store) -> None:
    async def main() -> Any:
        queue: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        pending: dict[str, dict[str, Any]] = {}
        agent = react(create_queue_requester(queue, pending))
        with dspy.context(lm=model("Which size?")):
            asking = asyncio.ensure_future(dspy.asyncify(agent)(order="a pizza"))
        async with asyncio.timeout(PATIENCE):
            item = await queue.get()
        pending.pop(item["id"])["request"].set_response("small", by="ada")
        async with asyncio.timeout(PATIENCE):
            return await asking

    assert heard(asyncio.run(main())) == ["small"]


def test_answer_given_elsewhere_is_heard(store: Store) -> None:
    tool = human_in_the_loop(silent)
    asked = threading.Event()

    def person() -> None:
        while not asked.wait(0.01):
            for request in store.list(Filter(states=frozenset({State.PENDING}))).requests:
                sayso.Review().answer(request.id, "small", by="ada")
                asked.set()

    thread = threading.Thread(target=person)
    thread.start()
    assert tool(question="Which size?") == "small"
    thread.join(PATIENCE)


def test_second_answer_is_refused(store: Store) -> None:
    async def requester(request: HumanInputRequest) -> None:
        request.set_response("small", by="ada")
        with pytest.raises(errors.AlreadyDecidedError, match="ada"):
            request.set_response("large", by="grace")

    assert human_in_the_loop(requester)(question="Which size?") == "small"


def test_question_of_a_named_run_is_not_carried_again(store: Store) -> None:
    for requester in (answering("small"), answering()):
        with sayso.run("order-1"):
            assert human_in_the_loop(requester)(question="Which size?") == "small"


def test_person_who_would_not_answer_is_told_to_the_model(store: Store) -> None:
    async def requester(request: HumanInputRequest) -> None:
        sayso.Review().reject(request.id, "ask the cook", by="ada")

    with dspy.context(lm=model("Which size?")):
        (told,) = heard(react(requester)(order="a pizza"))
    assert "ConfirmationRejected: The question was not answered: ada rejected it" in told
    assert "ask the cook" in told
    assert told.endswith("Choose another way, or tell the user.")


def test_question_that_expires_raises_expired(store: Store, clock: Clock) -> None:
    async def requester(_: HumanInputRequest) -> None:
        clock.tick(hours=2)
        store.sweep()

    with pytest.raises(sayso.ConfirmationExpired):
        human_in_the_loop(requester, expires="1h")(question="Which size?")


# -- what no model may talk its way around -----------------------------------------------------------------------------


def test_react_takes_every_exception_for_an_observation(store: Store) -> None:
    """What makes `Stopped` necessary; if this turns red, DSPy has changed."""

    def ask_human(question: str) -> str:
        raise errors.StoreFullError(store.url)

    with dspy.context(lm=model("Which size?")):
        done = dspy.ReAct("order -> pizza", tools=[ask_human])(order="a pizza")
    assert done.pizza == "small"


def test_person_who_cancels_ends_the_agent(store: Store) -> None:
    async def requester(request: HumanInputRequest) -> None:
        sayso.Review().cancel(request.id, "closed", by="ada")

    async def main() -> None:
        with dspy.context(lm=model("Which size?")):
            await react(requester).acall(order="a pizza")

    with dspy.context(lm=model("Which size?")), pytest.raises(Stopped, match="cancelled by ada: closed") as caught:
        react(requester)(order="a pizza")
    assert isinstance(caught.value.why, sayso.ConfirmationCancelled)
    with pytest.raises(Stopped, match="cancelled by ada: closed"):
        asyncio.run(main())


def test_question_that_cannot_be_kept_ends_the_agent(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise errors.StoreFullError(store.url)

    monkeypatch.setattr(store, "ask", fail)
    with dspy.context(lm=model("Which size?")), pytest.raises(Stopped) as caught:
        react(answering("small"))(order="a pizza")
    assert isinstance(caught.value.why, errors.StoreFullError)


def test_agent_that_would_block_the_loop_is_stopped(store: Store) -> None:
    async def main() -> None:
        with dspy.context(lm=model("Which size?")):
            react(answering("small"))(order="a pizza")

    with pytest.raises(Stopped, match="without await"):
        asyncio.run(main())
    assert store.count(Filter()) == 0
