"""The awaitable human: a question carried to a person, its response, and the tool that puts both before a model.

Each test runs on every store that keeps requests here. The invariant: the response is what the store holds, whoever
gave it and through whichever channel.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import sayso
from sayso import errors
from sayso.channels import HumanInputRequest, Requester, create_queue_requester, human_in_the_loop
from sayso.model.request import Request, State
from sayso.stores.base import Filter, Store
from sayso.testing import ScriptedModel
from tests.conftest import Clock
from tests.support.acting import program, running

PATIENCE = 30.0


def answering(*answers: str, asked: list[str] | None = None) -> Requester:
    """Return a requester that answers at once, one text after the other."""
    left = iter(answers)

    async def requester(request: HumanInputRequest) -> None:
        if asked is not None:
            asked.append(request.question)
        request.set_response(next(left), by="ada")

    return requester


async def unreachable(_: HumanInputRequest) -> None:
    """Carry a question to nobody, and never end."""
    await asyncio.Event().wait()


async def silent(_: HumanInputRequest) -> None:
    """Carry a question to somebody who answers later, elsewhere."""


def waiting(store: Store) -> list[Request]:
    return list(store.list(Filter(states=frozenset({State.PENDING}), kind="question")).requests)


async def one_waits(store: Store) -> Request:
    """Wait until a question stands in the store."""
    async with asyncio.timeout(PATIENCE):
        while not (found := waiting(store)):  # noqa: ASYNC110  another process may ask
            await asyncio.sleep(0.005)
    (only,) = found
    return only


async def told(asked: list[str], request_id: str) -> None:
    """Wait until the requester has been told of a request; it stands in the store a moment before."""
    async with asyncio.timeout(PATIENCE):
        while request_id not in asked:  # noqa: ASYNC110  the requester is a plain function
            await asyncio.sleep(0.005)


async def meanwhile(asking: Awaitable[Any], deed: Callable[[], Awaitable[Any]]) -> Any:
    """Do something while a task asks, and return what the task gets."""
    task = asyncio.ensure_future(asking)
    await asyncio.sleep(0)
    await deed()
    async with asyncio.timeout(PATIENCE):
        return await task


# -- a question and its response ---------------------------------------------------------------------------------------


def test_response_is_what_was_set(store: Store) -> None:
    async def main() -> str:
        request = HumanInputRequest("Which size?")
        request.set_response("small", by="ada")
        return await request.response()

    assert asyncio.run(main()) == "small"


def test_question_stands_in_the_store_while_it_waits_and_can_be_answered_there(store: Store) -> None:
    async def deed() -> None:
        request = await one_waits(store)
        assert (request.kind, request.subject.text) == ("question", "Which size?")  # type: ignore[union-attr]
        sayso.Review(reviewer="ada", channel="cli").answer(request.id, "large")

    tool = human_in_the_loop(unreachable)
    assert asyncio.run(meanwhile(tool.acall(question="Which size?"), deed)) == "large"


def test_second_answer_is_refused_and_told_who_was_first(store: Store) -> None:
    request = HumanInputRequest("Which size?")
    sayso.Review().answer(request.id, "large", by="ada")
    with pytest.raises(errors.AlreadyDecidedError, match="ada") as caught:
        request.set_response("small", by="grace")
    assert caught.value.request_id == request.id
    with pytest.raises(errors.AlreadyDecidedError, match="ada"):
        sayso.Review().answer(request.id, "medium", by="grace")
    assert asyncio.run(request.response()) == "large"


def test_answer_to_one_object_counts_for_every_other_of_the_same_question(store: Store) -> None:
    with sayso.run("order-1"):
        first, second = HumanInputRequest("Which size?"), HumanInputRequest("Which size?")
    assert first.id == second.id
    first.set_response("small", by="ada")
    with pytest.raises(errors.AlreadyDecidedError):
        second.set_response("large", by="grace")
    assert asyncio.run(second.response()) == "small"


def test_without_a_named_run_each_object_asks_its_own_question(store: Store) -> None:
    first, second = HumanInputRequest("Which size?"), HumanInputRequest("Which size?")
    first.set_response("small", by="ada")
    assert first.id != second.id
    assert store.get(second.id).state is State.PENDING


def test_response_is_set_from_another_thread(store: Store) -> None:
    async def main() -> str:
        request = HumanInputRequest("Which size?")
        threading.Timer(0.02, request.set_response, ["small"], {"by": "ada"}).start()
        async with asyncio.timeout(PATIENCE):
            return await request.response()

    assert asyncio.run(main()) == "small"


def test_response_is_set_from_another_loop(store: Store) -> None:
    async def answer(request: HumanInputRequest) -> None:
        request.set_response("small", by="ada")

    async def main() -> str:
        request = HumanInputRequest("Which size?")
        thread = threading.Thread(target=lambda: asyncio.run(answer(request)))
        responses = [asyncio.ensure_future(request.response()) for _ in range(3)]
        await asyncio.sleep(0)
        thread.start()
        async with asyncio.timeout(PATIENCE):
            assert set(await asyncio.gather(*responses)) == {"small"}
        thread.join()
        return await request.response()

    assert asyncio.run(main()) == "small"


def test_answer_that_is_no_text_is_refused_and_the_question_waits(store: Store) -> None:
    request = HumanInputRequest("Which size?")
    with pytest.raises(errors.InvalidAnswerError):
        request.set_response(["small"], by="ada")  # type: ignore[arg-type]
    assert store.get(request.id).state is State.PENDING


def test_cancelled_wait_leaves_the_question_pending(store: Store) -> None:
    asked = list[str]()

    async def unreachable_too(request: HumanInputRequest) -> None:
        asked.append(request.id)
        await unreachable(request)

    tool = human_in_the_loop(unreachable_too)

    async def main() -> str:
        asking = asyncio.ensure_future(tool.acall(question="Which size?"))
        request = await one_waits(store)
        await told(asked, request.id)  # a question that is only being recorded would be withdrawn
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        assert store.get(request.id).state is State.PENDING
        sayso.Review().answer(request.id, "small", by="ada")
        return request.id

    request_id = asyncio.run(main())
    answer = store.get(request_id)
    assert (answer.state, answer.answer) == (State.ANSWERED, "small")


def test_question_that_nobody_answers_in_time_raises_expired(store: Store, clock: Clock) -> None:
    async def deed() -> None:
        await one_waits(store)
        clock.tick(hours=2)
        store.sweep()

    tool = human_in_the_loop(silent, expires="1h")
    with pytest.raises(sayso.ConfirmationExpired):
        asyncio.run(meanwhile(tool.acall(question="Which size?"), deed))


def test_late_response_is_refused(store: Store, clock: Clock) -> None:
    request = HumanInputRequest("Which size?", expires="1h")
    assert asyncio.run(request.ask())
    clock.tick(hours=2)
    with pytest.raises(errors.RequestExpiredError):
        request.set_response("small", by="ada")


def test_person_who_would_not_answer_raises_rejected(store: Store) -> None:
    async def requester(request: HumanInputRequest) -> None:
        sayso.Review().reject(request.id, "ask the cook", by="ada")

    with pytest.raises(sayso.ConfirmationRejected, match="rejected by ada: ask the cook"):
        asyncio.run(human_in_the_loop(requester).acall(question="Which size?"))


def test_role_is_asked_of_whoever_answers(store: Store) -> None:
    request = HumanInputRequest("Which size?", roles=["cook"])
    with pytest.raises(errors.MissingRoleError):
        request.set_response("small", by="ada")
    request.set_response("small", by=sayso.Reviewer("ada", roles=["cook"]))
    assert asyncio.run(request.response()) == "small"


def test_record_says_who_answered_and_how(store: Store) -> None:
    request = HumanInputRequest("Which size?")
    request.channel = "pager"
    request.set_response("small", by="ada", comment="as always")
    decision = store.get(request.id).decision
    assert decision is not None
    assert (str(decision.by), decision.channel, decision.comment) == ("ada", "pager", "as always")


def test_store_that_fails_is_told_to_whoever_asks(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def fail(*_: object) -> None:
        raise errors.StoreFullError(store.url)

    monkeypatch.setattr(store, "ask", fail)
    with pytest.raises(errors.StoreFullError):
        asyncio.run(human_in_the_loop(answering("small", asked=asked)).acall(question="Which size?"))
    assert asked == []


# -- in a run ----------------------------------------------------------------------------------------------------------


def test_equal_question_is_asked_again_in_the_same_run(store: Store) -> None:
    asked: list[str] = []
    tool = human_in_the_loop(answering("small", "large", "none", asked=asked))

    async def main() -> list[str]:
        with sayso.run("order-1"):
            first = [await tool.acall(question="Which size?") for _ in range(2)]
            return [*first, await asyncio.create_task(tool.acall(question="Which size?"))]

    assert asyncio.run(main()) == ["small", "large", "none"]
    assert len(asked) == 3


def test_child_task_asks_again_what_its_parent_has_heard(store: Store) -> None:
    tool = human_in_the_loop(answering("small", "large", "none"))

    async def main() -> list[str]:
        first = await tool.acall(question="Which size?")
        second = await asyncio.create_task(tool.acall(question="Which size?"))
        return [first, second, await tool.acall(question="Which size?")]

    assert asyncio.run(main()) == ["small", "large", "none"]


def test_two_tasks_of_a_run_that_ask_the_same_hear_one_answer_and_the_next_question_is_new(store: Store) -> None:
    tool = human_in_the_loop(silent)

    async def main() -> list[str]:
        with sayso.run("order-1"):
            both = asyncio.gather(*(tool.acall(question="Which size?") for _ in range(2)))
            sayso.Review().answer((await one_waits(store)).id, "small", by="ada")
            answers = await both
            third = asyncio.ensure_future(tool.acall(question="Which size?"))
            sayso.Review().answer((await one_waits(store)).id, "large", by="ada")
            return [*answers, await third]

    async def again() -> list[str]:
        with sayso.run("order-1"):
            async with asyncio.timeout(PATIENCE):
                return [await human_in_the_loop(unreachable).acall(question="Which size?") for _ in range(2)]

    assert asyncio.run(main()) == ["small", "small", "large"]
    assert asyncio.run(again()) == ["small", "large"]
    assert store.count(Filter()) == 2


RESTARTED = """
import asyncio, sys
import sayso
from sayso.channels import human_in_the_loop

async def requester(request):
    print("carried", request.id, flush=True)

async def main():
    with sayso.run("order-1"):
        print("heard", await human_in_the_loop(requester).acall(question="Which size?"), flush=True)

asyncio.run(main())
"""


def test_question_of_a_named_run_survives_the_death_of_its_program(file_store: Store) -> None:
    first = program(RESTARTED, SAYSO_STORE=file_store.url)
    assert first.stdout is not None
    request_id = first.stdout.readline().split()[1]
    first.kill()
    first.communicate()
    again = program(RESTARTED, SAYSO_STORE=file_store.url)
    assert again.stdout is not None
    assert again.stdout.readline().split()[1] == request_id
    sayso.Review().answer(request_id, "small", by="ada")
    assert running(again) == "heard small"
    assert running(program(RESTARTED, SAYSO_STORE=file_store.url)) == "heard small"
    assert file_store.count(Filter()) == 1


def test_agent_asks_each_of_its_questions_and_equal_ones_too(store: Store) -> None:
    asked: list[str] = []
    ask = ("ask_human", {"question": "Which size?"})
    script = ScriptedModel([ask, ask, lambda told: " and ".join(m["content"] for m in told if m["role"] == "tool")])
    agent = sayso.Agent(
        name="waiter", model=script, tools=[human_in_the_loop(answering("small", "large", asked=asked))]
    )
    assert agent(prompt="Two pizzas").run().output == "small and large"
    assert len(asked) == 2


def test_run_of_an_agent_that_is_called_again_finds_the_question_and_its_answer(store: Store) -> None:
    asked: list[str] = []

    def agent() -> sayso.Agent:
        async def requester(request: HumanInputRequest) -> None:
            asked.append(request.id)

        ask = ("ask_human", {"question": "Which size?"})
        script = ScriptedModel([ask, ask, lambda told: " and ".join(m["content"] for m in told if m["role"] == "tool")])
        return sayso.Agent(name="waiter", model=script, tools=[human_in_the_loop(requester)])

    async def begun() -> None:
        run = asyncio.ensure_future(agent()(prompt="Two pizzas", run_id="order-1").collect())
        request = await one_waits(store)
        await told(asked, request.id)
        run.cancel()
        await asyncio.gather(run, return_exceptions=True)
        sayso.Review().answer(request.id, "small", by="ada")

    async def resumed() -> Any:
        run = asyncio.ensure_future(agent()(prompt="Two pizzas", run_id="order-1").collect())
        request = await one_waits(store)
        await told(asked, request.id)
        assert asked.index(request.id) == 1
        sayso.Review().answer(request.id, "large", by="ada")
        async with asyncio.timeout(PATIENCE):
            return (await run).output

    asyncio.run(begun())
    assert asyncio.run(resumed()) == "small and large"
    assert len(asked) == len(set(asked)) == 2


def test_tool_is_offered_with_one_argument() -> None:
    tool = human_in_the_loop(silent, name="ask_cook", description="Ask the cook.")
    assert (tool.name, tool.description) == ("ask_cook", "Ask the cook.")
    assert tool.schema["required"] == list(tool.schema["properties"]) == ["question"]
    assert tool.schema["properties"]["question"]["type"] == "string"


# -- requesters --------------------------------------------------------------------------------------------------------


def test_requester_that_fails_is_told_and_the_question_still_waits(store: Store) -> None:
    async def requester(_: HumanInputRequest) -> None:
        raise OSError("the line is dead")

    with pytest.raises(OSError, match="the line is dead"):
        asyncio.run(human_in_the_loop(requester).acall(question="Which size?"))
    assert [request.state for request in waiting(store)] == [State.PENDING]


def test_requester_is_broken_off_when_the_question_is_answered_elsewhere(store: Store) -> None:
    ended: list[str] = []

    async def requester(request: HumanInputRequest) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(request.id)

    async def deed() -> None:
        sayso.Review().answer((await one_waits(store)).id, "large", by="ada")

    assert asyncio.run(meanwhile(human_in_the_loop(requester).acall(question="Which size?"), deed)) == "large"
    assert len(ended) == 1


def test_requester_that_comes_second_is_refused_and_the_first_answer_counts(store: Store) -> None:
    refusals: list[str] = []

    async def requester(request: HumanInputRequest) -> None:
        sayso.Review().answer(request.id, "large", by="ada")  # no await: who has an answer cancels this task
        try:
            request.set_response("small", by="grace")
        except errors.AlreadyDecidedError as refusal:
            refusals.append(str(refusal))
            raise

    assert asyncio.run(human_in_the_loop(requester).acall(question="Which size?")) == "large"
    assert len(refusals) == 1
    assert "ada" in refusals[0]


def test_requester_that_fails_after_the_answer_is_told_to_the_loop(store: Store) -> None:
    told: list[str] = []

    async def requester(request: HumanInputRequest) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            raise OSError("the line is dead")

    async def main() -> str:
        asyncio.get_running_loop().set_exception_handler(
            lambda _, what: told.append(f"{what['message']}: {what['exception']}")
        )

        async def deed() -> None:
            sayso.Review().answer((await one_waits(store)).id, "large", by="ada")

        return await meanwhile(human_in_the_loop(requester).acall(question="Which size?"), deed)

    assert asyncio.run(main()) == "large"
    assert told == ["a requester failed after its question was decided: the line is dead"]


def test_a_thousand_questions_are_answered_each_with_its_own(store: Store) -> None:
    count = 1000 if store.url.startswith("memory") else 60

    async def main() -> list[str]:
        async def requester(request: HumanInputRequest) -> None:
            await asyncio.to_thread(request.set_response, request.question.upper(), by="ada")

        tool = human_in_the_loop(requester)
        return await asyncio.gather(*(tool.acall(question=f"q{n}") for n in range(count)))

    assert asyncio.run(main()) == [f"Q{n}" for n in range(count)]


# -- the queue ---------------------------------------------------------------------------------------------------------


def test_queue_holds_what_is_to_be_sent_and_the_dict_what_answers_it(store: Store) -> None:
    async def main() -> str:
        queue: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        pending: dict[str, dict[str, Any]] = {}
        tool = human_in_the_loop(create_queue_requester(queue, pending))

        async def deed() -> None:
            item = await queue.get()
            assert item == {"type": "human_input", "id": waiting(store)[0].id, "question": "Which size?"}
            entry = pending[item["id"]]
            assert sorted(entry) == ["question", "request", "sent"]
            assert entry["question"] == entry["request"].question == "Which size?"
            await asyncio.sleep(0)
            assert entry["sent"] is True
            entry["request"].set_response("small", by="ada")
            del pending[item["id"]]

        return await meanwhile(tool.acall(question="Which size?"), deed)

    assert asyncio.run(main()) == "small"
    (answered,) = store.list(Filter(states=frozenset({State.ANSWERED}))).requests
    assert answered.decision is not None
    assert answered.decision.channel == "queue"


def test_requester_of_a_queue_ends_when_the_item_is_on_it(store: Store) -> None:
    async def main() -> None:
        queue: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        pending: dict[str, dict[str, Any]] = {}
        request = HumanInputRequest("Which size?")
        await create_queue_requester(queue, pending)(request)
        assert queue.get_nowait()["id"] == request.id
        assert pending[request.id]["sent"] is True
        assert store.get(request.id).state is State.PENDING

    asyncio.run(main())


def test_what_is_answered_elsewhere_is_no_longer_in_the_dict(store: Store) -> None:
    async def main() -> dict[str, Any]:
        queue: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        pending: dict[str, dict[str, Any]] = {}
        tool = human_in_the_loop(create_queue_requester(queue, pending))

        async def deed() -> None:
            request_id = (await queue.get())["id"]
            assert request_id in pending
            sayso.Review().answer(request_id, "small", by="ada")

        assert await meanwhile(tool.acall(question="Which size?"), deed) == "small"
        return pending

    assert asyncio.run(main()) == {}


def test_full_queue_lets_the_asker_wait_and_still_take_an_answer_from_elsewhere(store: Store) -> None:
    async def main() -> dict[str, Any]:
        queue: asyncio.Queue[dict[str, Any]] = asyncio.Queue(maxsize=1)
        queue.put_nowait({})
        pending: dict[str, dict[str, Any]] = {}
        tool = human_in_the_loop(create_queue_requester(queue, pending))

        async def deed() -> None:
            request = await one_waits(store)
            assert queue.qsize() == 1
            sayso.Review().answer(request.id, "small", by="ada")

        assert await meanwhile(tool.acall(question="Which size?"), deed) == "small"
        assert queue.get_nowait() == {}
        return pending

    assert asyncio.run(main()) == {}


def test_asker_that_is_cancelled_before_its_item_is_on_the_queue_leaves_nothing_in_the_dict(store: Store) -> None:
    async def main() -> None:
        queue: asyncio.Queue[dict[str, Any]] = asyncio.Queue(maxsize=1)
        queue.put_nowait({})
        pending: dict[str, dict[str, Any]] = {}
        asking = asyncio.ensure_future(create_queue_requester(queue, pending)(HumanInputRequest("Which size?")))
        while not pending:  # noqa: ASYNC110  a plain dict rings no bell
            await asyncio.sleep(0.005)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        assert pending == {}

    asyncio.run(main())
    assert len(waiting(store)) == 1


def test_queue_of_one_loop_is_filled_from_another(store: Store) -> None:
    async def main() -> str:
        queue: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        pending: dict[str, dict[str, Any]] = {}
        tool = human_in_the_loop(create_queue_requester(queue, pending))
        elsewhere = asyncio.ensure_future(asyncio.to_thread(lambda: asyncio.run(tool.acall(question="Which size?"))))
        async with asyncio.timeout(PATIENCE):
            item = await queue.get()
        pending[item["id"]]["request"].set_response("small", by="ada")
        async with asyncio.timeout(PATIENCE):
            return await elsewhere

    assert asyncio.run(main(), debug=True) == "small"  # in debug a loop refuses what is not meant for other threads
