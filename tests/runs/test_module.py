"""`Module`: either half makes the other work, and a pause goes on through every face of a module of one's own."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

import sayso
from sayso import ConfirmationRequired, ResumeState, get_confirmation_context, get_confirmation_status
from sayso.runs.module import Module, Prediction
from sayso.stores.base import Store
from tests.runs.reacting import ANSWER, Script, agent_of, deleter
from tests.support.acting import Disk, aheld, held


class Double(Module):
    def forward(self, number: int) -> Prediction:
        return Prediction(result=number * 2, thread=threading.get_ident())


class ADouble(Module):
    async def aforward(self, number: int) -> Prediction:
        await asyncio.sleep(0)
        return Prediction(result=number * 2)


@pytest.mark.parametrize("kind", [Double, ADouble])
def test_either_half_makes_every_face(kind: type[Module]) -> None:
    async def streamed() -> list[Any]:
        return [event async for event in kind().astream(number=2)]

    assert kind()(number=2).result == 4
    assert kind()(2).result == 4
    assert kind().forward(number=2).result == 4
    assert asyncio.run(kind().aforward(number=2)).result == 4
    assert [event.result for event in asyncio.run(streamed())] == [4]


def test_sync_module_does_not_stand_in_the_loops_way() -> None:
    async def main() -> int:
        return (await Double().aforward(number=1)).thread

    assert asyncio.run(main()) != threading.get_ident()


def test_async_module_called_inside_of_a_loop_says_what_to_use() -> None:
    async def main() -> None:
        assert Double()(number=1).result == 2  # a sync half needs no loop
        with pytest.raises(RuntimeError, match=r"ADouble.forward is async inside.*await …aforward"):
            ADouble()(number=1)

    asyncio.run(main())


def test_what_a_module_raises_says_nothing_of_a_loop() -> None:
    class Failing(Module):
        async def aforward(self) -> Prediction:
            raise ValueError("mine")

    with pytest.raises(ValueError, match="mine") as caught:
        Failing()()
    assert caught.value.__context__ is None


def test_module_without_a_half_is_told_which_it_lacks() -> None:
    class Nothing(Module):
        pass

    with pytest.raises(NotImplementedError, match="Nothing has neither forward nor aforward"):
        Nothing()()
    with pytest.raises(NotImplementedError, match="Nothing has neither forward nor aforward"):
        asyncio.run(Nothing().aforward())
    with pytest.raises(NotImplementedError, match="resume with resume_state="):
        Nothing().resume("yes", ConfirmationRequired("?"))


class Steps(Module):
    """The description's own module: it saves where it stood, and goes on from there."""

    def forward(self, input: str) -> Prediction:  # noqa: A002  the description's word
        raise ConfirmationRequired(
            "Please confirm", context={"current_step": 5, "partial_result": "half", "input": input}
        )

    def resume(self, user_response: Any, saved_state: ConfirmationRequired) -> Prediction:  # type: ignore[override]
        assert saved_state.context["current_step"] == 5
        if user_response.lower() != "yes":
            return Prediction(output="stopped")
        return Prediction(output=f"{saved_state.context['partial_result']} of {saved_state.context['input']}")


class ASteps(Module):
    async def aforward(self, input: str) -> Prediction:  # noqa: A002
        return Steps().forward(input)

    async def aresume(self, user_response: Any, saved: ConfirmationRequired) -> Prediction:
        return Steps().resume(user_response, saved)


@pytest.mark.parametrize("kind", [Steps, ASteps])
def test_module_with_a_resume_of_its_own_goes_on_from_what_it_saved(kind: type[Module]) -> None:
    module = kind()
    signal = held(module, input="work")
    assert module.resume("yes", signal).output == "half of work"
    assert asyncio.run(module.aresume("yes", signal)).output == "half of work"
    for state in (signal.to_dict(), ResumeState(signal, "yes"), ResumeState(signal, "no").to_dict()):
        given = {"user_response": "yes"} if state == signal.to_dict() else {}
        expected = "stopped" if given == {} and not isinstance(state, ResumeState) else "half of work"
        assert module(input="again", resume_state=state, **given).output == expected
        assert asyncio.run(module.aforward(input="again", resume_state=state, **given)).output == expected
    assert module.suspend(signal) is signal


class Cleaner(Module):
    """No `resume`: it runs again, and what was approved is found."""

    def __init__(self, disk: Disk) -> None:
        @sayso.confirm_first
        def delete_file(path: str) -> str:
            return disk.delete(path)

        self.delete = delete_file

    def forward(self, path: str) -> Prediction:
        return Prediction(output=self.delete(path))


class ACleaner(Cleaner):
    forward = Module.forward

    async def aforward(self, path: str) -> Prediction:
        return Prediction(output=self.delete(path))


@pytest.mark.parametrize("kind", [Cleaner, ACleaner])
@pytest.mark.parametrize("is_async", [False, True])
def test_module_without_one_runs_again_and_finds_the_decision(kind: type[Cleaner], is_async: bool, disk: Disk) -> None:
    module = kind(disk)

    def call(**inputs: Any) -> Prediction:
        return asyncio.run(module.aforward(**inputs)) if is_async else module(**inputs)

    signal = held(call, path="/a")
    assert call(path="/a", resume_state=ResumeState(signal, "yes")).output == "Deleted /a"
    again = held(call, path="/a")
    with pytest.raises(sayso.ConfirmationRejected):
        call(path="/a", resume_state=again, user_response="no")
    assert disk.deleted == ["/a"]


def test_pause_of_a_module_stands_in_the_callers_context(disk: Disk) -> None:
    agent = agent_of(Script([("delete_file", {"path": "/a"})], ANSWER), deleter(disk))
    signal = held(agent, question="?")
    assert get_confirmation_context()[signal.confirmation_id]["status"] == "pending"
    agent.resume("yes", signal)
    assert get_confirmation_status(signal.confirmation_id) == "approved"


def test_clearing_the_context_takes_back_what_an_agent_asked(disk: Disk) -> None:
    agent = agent_of(Script([("delete_file", {"path": "/a"})], ANSWER), deleter(disk))
    signal = held(agent, question="?")
    sayso.clear_all_confirmations()
    assert get_confirmation_status(signal.confirmation_id) == "cancelled"
    with pytest.raises(sayso.ConfirmationCancelled):
        agent.resume("yes", signal)
    assert disk.deleted == []


def test_module_that_calls_an_agent_streams_its_text(store: Store) -> None:
    class Outer(Module):
        async def aforward(self, question: str) -> Prediction:
            return await agent_of(Script("inner words")).aforward(question=question)

    async def main() -> list[Any]:
        return [event async for event in Outer().astream(question="?")]

    text, last = asyncio.run(main())
    assert (text.text, last.answer) == ("inner words", "inner words")


def test_pause_comes_out_of_a_stream(disk: Disk) -> None:
    agent = agent_of(Script([("delete_file", {"path": "/a"})], ANSWER), deleter(disk))

    async def streamed(**inputs: Any) -> Any:
        return [event async for event in agent.astream(question="?", **inputs)][-1]

    async def main() -> None:
        signal = await aheld(streamed)
        assert (await streamed(resume_state=signal, user_response="yes")).answer == "done"

    asyncio.run(main())
    assert disk.deleted == ["/a"]
