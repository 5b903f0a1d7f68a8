"""The confirmation face, as a program written for it sees it: every example of its description, on our own functions.

Whether the approval behind it holds is asked here too: over threads, tasks, processes and hash seeds. What other
libraries get wrong at the same place is in `test_weaknesses_of_peers`.
"""

from __future__ import annotations

import asyncio
import copy
import inspect
import json
import pickle
import threading
from collections.abc import Callable
from typing import Any

import pytest

import sayso
from sayso import errors
from sayso.confirmation import (
    ConfirmationRejected,
    ConfirmationRequired,
    ResumeState,
    ToolCall,
    clear_all_confirmations,
    clear_confirmation,
    confirm_first,
    get_confirmation_context,
    get_confirmation_status,
    respond_to_confirmation,
)
from sayso.stores.base import Store
from tests.integration.acting import aheld, approved, concurrently, held, program, running


class Disk:
    """Where the effects of a test's calls go, to be counted."""

    def __init__(self) -> None:
        self.deleted: list[str] = []

    def delete(self, path: str = "/tmp/scratch") -> str:
        self.deleted.append(path)
        return f"Deleted {path}"


@pytest.fixture
def disk(store: Store) -> Disk:
    return Disk()


@pytest.fixture
def delete(disk: Disk) -> Callable[..., str]:
    @confirm_first
    def delete_file(path: str = "/tmp/scratch", *, force: bool = False) -> str:
        """Remove a file."""
        return disk.delete(path)

    return delete_file


@pytest.fixture
def adelete(disk: Disk) -> Callable[..., Any]:
    @confirm_first
    async def async_delete(path: str) -> str:
        await asyncio.sleep(0)
        return disk.delete(path)

    return async_delete


# -- the exceptions and their parts ----------------------------------------------------------------------------------


def test_question_alone_makes_a_confirmation_with_an_id_of_its_own() -> None:
    first, second = ConfirmationRequired("Go on?"), ConfirmationRequired("Go on?")
    assert (first.question, str(first), first.tool_call, first.context) == ("Go on?", "Go on?", None, {})
    assert first.confirmation_id
    assert first.confirmation_id != second.confirmation_id


def test_confirmation_carries_the_call_that_it_is_about() -> None:
    call = ToolCall(name="delete_file", args={"path": "/tmp/a"})
    raised = ConfirmationRequired(question="Delete it?", confirmation_id="mine-1", tool_call=call)
    assert raised.tool_call is call
    assert (raised.confirmation_id, call.name, call.args, call.call_id) == ("mine-1", "delete_file", {"path": "/tmp/a"}, None)


def test_confirmation_carries_what_a_module_needs_to_resume() -> None:
    class Clerk:
        def forward(self, text: str) -> str:
            raise ConfirmationRequired("Which year?", context={"step": 5, "partial": ["a"], "input": text})

        def resume(self, answer: str, saved: ConfirmationRequired) -> str:
            return f"{saved.context['input']} {answer} after step {saved.context['step']}"

    clerk = Clerk()
    saved = held(clerk.forward, "report")
    assert clerk.resume("2026", saved) == "report 2026 after step 5"


def test_tool_call_keeps_the_providers_id_as_a_label() -> None:
    call = ToolCall(name="search", args={"query": "tutorials"}, call_id="call_abc123")
    assert (call.name, call.args, call.call_id) == ("search", {"query": "tutorials"}, "call_abc123")


def test_rejection_says_what_was_said_about_which_call(delete: Callable[..., str]) -> None:
    request_id = held(delete, "/tmp/a").confirmation_id
    respond_to_confirmation(request_id, approved=False, data="keep it until Friday")
    with pytest.raises(ConfirmationRejected, match="keep it until Friday") as caught:
        delete("/tmp/a")
    rejected = caught.value
    assert rejected.message == str(rejected)
    assert rejected.confirmation_id == request_id
    assert rejected.tool_call == {"name": "delete_file", "args": {"path": "/tmp/a", "force": False}, "call_id": None}


def test_a_pause_is_no_rejection_and_a_rejection_no_pause() -> None:
    assert not issubclass(ConfirmationRejected, ConfirmationRequired)
    assert not issubclass(ConfirmationRequired, ConfirmationRejected)
    assert issubclass(ConfirmationRequired, Exception)


# -- confirm_first ---------------------------------------------------------------------------------------------------


def test_first_call_asks_and_the_approved_call_runs(delete: Callable[..., str], disk: Disk) -> None:
    raised = held(delete, "/tmp/test.txt")
    assert raised.question.startswith("Confirm execution of delete_file")
    assert "/tmp/test.txt" in raised.question
    assert raised.tool_call is not None
    assert (raised.tool_call.name, raised.tool_call.args) == ("delete_file", {"path": "/tmp/test.txt", "force": False})
    assert disk.deleted == []
    respond_to_confirmation(raised.confirmation_id, approved=True)
    assert delete("/tmp/test.txt") == "Deleted /tmp/test.txt"
    assert disk.deleted == ["/tmp/test.txt"]


def test_async_function_asks_and_runs_the_same_way(adelete: Callable[..., Any], disk: Disk) -> None:
    async def main() -> str:
        raised = await aheld(adelete, "/tmp/test.txt")
        assert disk.deleted == []
        respond_to_confirmation(raised.confirmation_id, approved=True)
        return await adelete("/tmp/test.txt")

    assert asyncio.run(main()) == "Deleted /tmp/test.txt"
    assert disk.deleted == ["/tmp/test.txt"]


def test_changed_arguments_run_instead_of_those_asked_for(delete: Callable[..., str], disk: Disk) -> None:
    request_id = held(delete, "/tmp/test.txt").confirmation_id
    respond_to_confirmation(request_id, approved=True, data={"path": "/tmp/safe.txt"})
    assert get_confirmation_status(request_id) == "edited"
    assert delete("/tmp/test.txt") == "Deleted /tmp/safe.txt"
    assert disk.deleted == ["/tmp/safe.txt"]


def test_asking_again_before_the_answer_is_the_same_request(delete: Callable[..., str]) -> None:
    assert held(delete, "/tmp/a").confirmation_id == held(delete, "/tmp/a").confirmation_id


def test_positional_and_keyword_arguments_are_one_call(delete: Callable[..., str], disk: Disk) -> None:
    ways = [held(delete, "/tmp/a"), held(delete, path="/tmp/a"), held(delete, "/tmp/a", force=False)]
    assert len({way.confirmation_id for way in ways}) == 1
    assert held(delete, "/tmp/a", force=True).confirmation_id != ways[0].confirmation_id
    respond_to_confirmation(ways[0].confirmation_id)
    assert delete(force=False, path="/tmp/a") == "Deleted /tmp/a"
    assert len(disk.deleted) == 1


def test_next_call_after_a_run_asks_anew(delete: Callable[..., str], disk: Disk) -> None:
    first = approved(delete, "/tmp/a")
    delete("/tmp/a")
    second = held(delete, "/tmp/a")
    assert second.confirmation_id != first
    assert disk.deleted == ["/tmp/a"]


def test_decorator_keeps_name_words_and_signature() -> None:
    def plain(a: int, /, b: str = "x", *rest: float, key: bool, **more: Any) -> dict[str, int]:
        """Do something."""
        raise AssertionError

    async def aplain(a: int) -> None:
        """Do it later."""

    for function in (plain, aplain):
        gated = confirm_first(function)
        assert inspect.signature(gated) == inspect.signature(function)
        assert (gated.__name__, gated.__doc__, gated.__module__) == (function.__name__, function.__doc__, __name__)
        assert gated.__annotations__ == function.__annotations__
        assert inspect.iscoroutinefunction(gated) is inspect.iscoroutinefunction(function)
        assert inspect.unwrap(gated) is function


def test_every_kind_of_parameter_arrives_as_it_was_called(store: Store) -> None:
    @confirm_first
    def odd(a: int, /, b: str = "b", *rest: float, key: bool, **more: Any) -> tuple[Any, ...]:
        return a, b, rest, key, more

    call = ((1, "x", 2.5, 3.5), {"key": True, "extra": [1], "a": "a keyword that is also a positional name"})
    approved(odd, *call[0], **call[1])
    assert odd(*call[0], **call[1]) == (1, "x", (2.5, 3.5), True, {"extra": [1], "a": call[1]["a"]})


def test_call_that_does_not_fit_is_pythons_own_error_and_asks_nobody(delete: Callable[..., str], store: Store) -> None:
    for wrong in ((("a", "b"), {}), (("a",), {"path": "b"}), ((), {"pth": "a"})):
        with pytest.raises(TypeError, match="argument"):
            delete(*wrong[0], **wrong[1])
    assert store.list(sayso.reviews.Filter()).requests == ()


# -- the functions ---------------------------------------------------------------------------------------------------


def test_status_follows_the_persons_words(delete: Callable[..., str]) -> None:
    said: dict[str, dict[str, Any]] = {
        "approved": {"approved": True},
        "rejected": {"approved": False},
        "edited": {"approved": True, "data": {"path": "/tmp/safe"}},
        "feedback": {"approved": True, "status": "feedback", "data": "which one?"},
    }
    for status, response in said.items():
        request_id = held(delete, f"/tmp/{status}").confirmation_id
        assert get_confirmation_status(request_id) == "pending"
        respond_to_confirmation(request_id, **response)
        assert get_confirmation_status(request_id) == status


def test_status_of_an_unknown_id_is_pending(store: Store) -> None:
    assert get_confirmation_status("never-asked") == "pending"


def test_status_is_that_of_a_decision_made_through_any_door(delete: Callable[..., str]) -> None:
    request_id = held(delete, "/tmp/a").confirmation_id
    sayso.Review().reject(request_id, by="ada")
    assert get_confirmation_status(request_id) == "rejected"
    assert get_confirmation_context()[request_id]["status"] == "rejected"


def test_feedback_reaches_the_program_and_nothing_runs(delete: Callable[..., str], disk: Disk) -> None:
    request_id = held(delete, "/tmp/a").confirmation_id
    respond_to_confirmation(request_id, approved=True, status="feedback", data="ask me about /tmp/b instead")
    with pytest.raises(sayso.ConfirmationFeedback, match="ask me about /tmp/b instead"):
        delete("/tmp/a")
    assert disk.deleted == []


@pytest.mark.parametrize(
    ("approved", "data", "status", "becomes", "runs"),
    [
        (True, None, "rejected", "rejected", False),
        (True, None, "feedback", "feedback", False),
        (False, None, "approved", "approved", True),
        (False, {"path": "/tmp/b"}, "edited", "edited", True),
        (True, {"path": "/tmp/b"}, "approved", "edited", True),
        (True, {"path": "/tmp/b"}, "rejected", "rejected", False),
    ],
)
def test_status_wins_over_approved(
    delete: Callable[..., str], disk: Disk, approved: bool, data: Any, status: str, becomes: str, runs: bool
) -> None:
    request_id = held(delete, "/tmp/a").confirmation_id
    respond_to_confirmation(request_id, approved=approved, data=data, status=status)
    assert get_confirmation_status(request_id) == becomes
    if runs:
        delete("/tmp/a")
    else:
        with pytest.raises(ConfirmationRejected):
            delete("/tmp/a")
    assert len(disk.deleted) == runs


@pytest.mark.parametrize(
    "response",
    [{"status": "pending"}, {"status": "yes"}, {"status": ""}, {"status": "edited"}, {"approved": "no"}, {"approved": 1}],
)
def test_response_that_means_nothing_is_refused(delete: Callable[..., str], disk: Disk, response: dict[str, Any]) -> None:
    request_id = held(delete, "/tmp/a").confirmation_id
    with pytest.raises((ValueError, TypeError), match="nothing was decided"):
        respond_to_confirmation(request_id, **response)
    assert get_confirmation_status(request_id) == "pending"
    held(delete, "/tmp/a")
    assert disk.deleted == []


def test_empty_data_is_an_edit_to_the_defaults(delete: Callable[..., str], disk: Disk) -> None:
    request_id = held(delete, "/prod", force=True).confirmation_id
    respond_to_confirmation(request_id, data={})
    assert get_confirmation_status(request_id) == "edited"
    delete("/prod", force=True)
    assert disk.deleted == ["/tmp/scratch"]


@pytest.mark.parametrize(
    "data", [{}, {"count": "many"}, {"count": 1, "extra": 2}, {"count": None}, {"count": float("nan")}, [1], "count=1", 7]
)
def test_data_that_does_not_fit_decides_nothing(store: Store, data: Any) -> None:
    @confirm_first
    def take(count: int) -> int:
        return count

    request_id = held(take, 3).confirmation_id
    with pytest.raises(errors.InvalidChangesError, match="nothing was decided") as caught:
        respond_to_confirmation(request_id, data=data)
    assert caught.value.problems
    assert get_confirmation_status(request_id) == "pending"
    respond_to_confirmation(request_id, data={"count": "4"})
    assert take(3) == 4


def test_context_shows_what_was_asked_and_told_here(delete: Callable[..., str]) -> None:
    first, second, third = (held(delete, path).confirmation_id for path in ("/a", "/b", "/c"))
    respond_to_confirmation(first, approved=True, data={"path": "/d"})
    respond_to_confirmation(second, approved=False)
    assert get_confirmation_context() == {
        first: {"approved": True, "data": {"path": "/d"}, "status": "edited"},
        second: {"approved": False, "data": None, "status": "rejected"},
        third: {"approved": False, "data": None, "status": "pending"},
    }


def test_context_is_a_copy(delete: Callable[..., str], disk: Disk) -> None:
    request_id = held(delete, "/a").confirmation_id
    get_confirmation_context()[request_id].update(approved=True, status="approved")
    get_confirmation_context().clear()
    assert get_confirmation_context()[request_id]["status"] == "pending"
    held(delete, "/a")


def test_executed_call_leaves_the_context(delete: Callable[..., str]) -> None:
    approved(delete, "/a")
    assert len(get_confirmation_context()) == 1
    delete("/a")
    assert get_confirmation_context() == {}


def test_id_that_was_never_asked_is_noted_and_authorises_nothing(delete: Callable[..., str], disk: Disk) -> None:
    respond_to_confirmation("rq_guessed", approved=True)
    assert get_confirmation_context()["rq_guessed"] == {"approved": True, "data": None, "status": "approved"}
    assert get_confirmation_status("rq_guessed") == "approved"
    asked = held(delete, "/tmp/a")
    assert asked.confirmation_id != "rq_guessed"
    assert get_confirmation_status(asked.confirmation_id) == "pending"
    assert disk.deleted == []


def test_cleared_confirmation_is_taken_back_and_asked_anew(delete: Callable[..., str], disk: Disk) -> None:
    first = approved(delete, "/a")
    clear_confirmation(first)
    assert get_confirmation_status(first) == "cancelled"
    assert first not in get_confirmation_context()
    assert held(delete, "/a").confirmation_id != first
    assert disk.deleted == []


def test_clearing_forgets_a_no(delete: Callable[..., str]) -> None:
    request_id = held(delete, "/a").confirmation_id
    respond_to_confirmation(request_id, approved=False)
    clear_confirmation(request_id)
    assert held(delete, "/a").confirmation_id != request_id


def test_clearing_all_leaves_nothing(delete: Callable[..., str]) -> None:
    ids = [approved(delete, "/a"), held(delete, "/b").confirmation_id]
    respond_to_confirmation("rq_guessed")
    clear_all_confirmations()
    assert get_confirmation_context() == {}
    assert [get_confirmation_status(request_id) for request_id in ids] == ["cancelled", "cancelled"]


def test_clearing_an_unknown_id_is_quiet(store: Store) -> None:
    clear_confirmation("rq_never")
    assert get_confirmation_context() == {}


# -- loops of agents -------------------------------------------------------------------------------------------------


def test_resume_state_carries_a_loop_through_several_confirmations(disk: Disk, delete: Callable[..., str]) -> None:
    def agent(paths: list[str], resume_state: ResumeState | None = None) -> list[str]:
        if resume_state is not None:
            respond_to_confirmation(resume_state.confirmation_id, approved=resume_state.user_response == "yes")
        done: list[str] = []
        for path in paths[len(disk.deleted) :]:
            done.append(delete(path))
        return done

    resume_state, rounds = None, 0
    while True:
        try:
            agent(["/a", "/b", "/c"], resume_state)
            break
        except ConfirmationRequired as pause:
            rounds += 1
            resume_state = ResumeState(pause, "yes")
    assert rounds == 3
    assert disk.deleted == ["/a", "/b", "/c"]


def test_resume_state_shows_the_pause_it_stands_for(delete: Callable[..., str]) -> None:
    pause = held(delete, "/a")
    pause.context["iteration"] = 3
    state = ResumeState(pause)
    assert state.user_response == "yes"
    assert (state.exception, state.confirmation_id, state.question) == (pause, pause.confirmation_id, pause.question)
    assert (state.tool_call, state.context) == (pause.tool_call, {"iteration": 3})


def test_pause_goes_through_a_web_session_and_back(delete: Callable[..., str], disk: Disk) -> None:
    pause = held(delete, "/a")
    pause.context["original_question"] = "tidy"
    session = json.dumps(ResumeState(pause, '{"path": "/b"}').to_dict())
    state = ResumeState.from_dict(json.loads(session))
    assert state.context == {"original_question": "tidy"}
    assert isinstance(state.tool_call, ToolCall)
    respond_to_confirmation(state.confirmation_id, data=json.loads(state.user_response))
    assert delete("/a") == "Deleted /b"


def test_resume_state_takes_what_to_dict_saved(delete: Callable[..., str]) -> None:
    pause = held(delete, "/a")
    assert ResumeState(pause.to_dict(), "no").exception.to_dict() == pause.to_dict()


ROUND_TRIPS: dict[str, Callable[[ConfirmationRequired], ConfirmationRequired]] = {
    "json": lambda pause: ConfirmationRequired.from_dict(json.loads(json.dumps(pause.to_dict()))),
    "pickle": lambda pause: pickle.loads(pickle.dumps(pause)),
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
}


@pytest.mark.parametrize("way", ROUND_TRIPS)
@pytest.mark.parametrize(
    "pause",
    [
        ConfirmationRequired("Go on?"),
        ConfirmationRequired("Größe ändern? \u202e", confirmation_id="x", context={"n": [1, {"a": None}]}),
        ConfirmationRequired("Delete?", tool_call=ToolCall("delete", {"path": "/a"}, "call_1")),
    ],
    ids=["bare", "context", "call"],
)
def test_pause_survives(way: str, pause: ConfirmationRequired) -> None:
    back = ROUND_TRIPS[way](pause)
    assert type(back) is ConfirmationRequired
    assert (back.question, back.confirmation_id, back.context) == (pause.question, pause.confirmation_id, pause.context)
    assert back.tool_call == pause.tool_call
    assert type(back.tool_call) is type(pause.tool_call)
    assert str(back) == str(pause)


@pytest.mark.parametrize("way", [lambda e: pickle.loads(pickle.dumps(e)), copy.copy, copy.deepcopy])
def test_refusal_survives(way: Callable[[Any], Any]) -> None:
    for kind in (ConfirmationRejected, sayso.ConfirmationFeedback, sayso.ConfirmationExpired, sayso.ConfirmationDenied):
        back = way(kind("not now", confirmation_id="x", tool_call=ToolCall("f", {"a": 1})))
        assert type(back) is kind
        assert (back.message, back.confirmation_id, back.tool_call) == ("not now", "x", ToolCall("f", {"a": 1}))


def test_tool_call_goes_into_a_json_response_as_it_is(delete: Callable[..., str]) -> None:
    pause = held(delete, "/a")
    body = {"status": "confirmation_required", "question": pause.question, "tool_call": pause.tool_call}
    sent = json.loads(json.dumps(body))
    assert sent["tool_call"] == {"name": "delete_file", "args": {"path": "/a", "force": False}, "call_id": None}


def test_tool_call_goes_into_a_frameworks_response(delete: Callable[..., str]) -> None:
    responses = pytest.importorskip("starlette.responses")
    body = responses.JSONResponse({"tool_call": held(delete, "/a").tool_call}).body
    assert json.loads(body)["tool_call"]["name"] == "delete_file"


def test_batch_asks_for_each_item_and_keeps_the_rest_waiting(delete: Callable[..., str], disk: Disk) -> None:
    pauses = [held(delete, f"/{name}") for name in ("low", "high", "low2")]
    for pause in pauses:
        assert pause.tool_call is not None
        if pause.tool_call.args["path"].startswith("/low"):
            respond_to_confirmation(pause.confirmation_id)
    delete("/low2")
    delete("/low")
    held(delete, "/high")
    assert disk.deleted == ["/low2", "/low"]


# -- where a decision counts -----------------------------------------------------------------------------------------


def test_each_thread_confirms_for_itself(delete: Callable[..., str], disk: Disk) -> None:
    ids: list[str] = []

    def worker() -> str:
        pause = held(delete, "/same")
        ids.append(pause.confirmation_id)
        assert list(get_confirmation_context()) == [pause.confirmation_id]
        respond_to_confirmation(pause.confirmation_id, approved=True)
        return delete("/same")

    assert concurrently(3, worker) == ["Deleted /same"] * 3
    assert len(set(ids)) == 3
    assert len(disk.deleted) == 3


def test_approval_in_one_thread_is_nothing_in_another(delete: Callable[..., str], disk: Disk) -> None:
    mine = approved(delete, "/a")
    seen: list[Any] = []

    def other() -> None:
        seen.append(get_confirmation_context())
        seen.append(held(delete, "/a").confirmation_id)

    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    assert seen[0] == {}
    assert seen[1] != mine
    assert disk.deleted == []


def test_sibling_tasks_share_nothing(adelete: Callable[..., Any], disk: Disk) -> None:
    async def approves() -> str:
        return (pause := await aheld(adelete, "/a")).confirmation_id, sayso.Review().approve(pause.confirmation_id, by="ada")

    async def tries() -> str:
        assert get_confirmation_context() == {}
        return (await aheld(adelete, "/a")).confirmation_id

    async def main() -> None:
        mine, _ = await asyncio.create_task(approves())
        theirs = await asyncio.gather(*(tries() for _ in range(5)))
        assert len({mine, *theirs}) == 6

    asyncio.run(main())
    assert disk.deleted == []


def test_child_task_sees_what_its_parent_was_granted(adelete: Callable[..., Any], disk: Disk) -> None:
    async def main() -> None:
        pause = await aheld(adelete, "/a")
        respond_to_confirmation(pause.confirmation_id)
        assert await asyncio.create_task(adelete("/a")) == "Deleted /a"
        await aheld(adelete, "/a")

    asyncio.run(main())
    assert disk.deleted == ["/a"]


def test_child_task_does_not_grant_its_parent(adelete: Callable[..., Any], disk: Disk) -> None:
    async def child() -> str:
        pause = await aheld(adelete, "/a")
        respond_to_confirmation(pause.confirmation_id)
        return pause.confirmation_id

    async def main() -> None:
        get_confirmation_context()  # the parent has a run before the child begins
        theirs = await asyncio.create_task(child())
        assert (await aheld(adelete, "/a")).confirmation_id != theirs

    asyncio.run(main())
    assert disk.deleted == []


def test_pause_of_a_task_is_answered_by_who_awaited_it(adelete: Callable[..., Any], disk: Disk) -> None:
    async def agent() -> str:
        return await adelete("/a")

    async def main() -> str:
        pause = await aheld(lambda: asyncio.create_task(agent()))
        respond_to_confirmation(pause.confirmation_id)
        return await asyncio.create_task(agent())

    assert asyncio.run(main()) == "Deleted /a"
    assert len(disk.deleted) == 1


def test_pause_of_one_loop_is_answered_outside_and_found_by_the_next(adelete: Callable[..., Any], disk: Disk) -> None:
    async def agent() -> str:
        return await adelete("/a")

    pause = held(lambda: asyncio.run(agent()))
    respond_to_confirmation(pause.confirmation_id)
    assert asyncio.run(agent()) == "Deleted /a"
    assert disk.deleted == ["/a"]


def test_to_thread_stands_in_its_callers_run(delete: Callable[..., str], disk: Disk) -> None:
    async def main() -> str:
        pause = await aheld(lambda: asyncio.to_thread(delete, "/a"))
        assert held(delete, "/a").confirmation_id == pause.confirmation_id
        respond_to_confirmation(pause.confirmation_id)
        return await asyncio.to_thread(delete, "/a")

    assert asyncio.run(main()) == "Deleted /a"
    assert len(disk.deleted) == 1


def test_ten_agents_at_once_each_run_their_own(adelete: Callable[..., Any], disk: Disk) -> None:
    async def agent(number: int) -> str:
        pause = await aheld(adelete, f"/{number % 2}")
        respond_to_confirmation(pause.confirmation_id)
        return await adelete(f"/{number % 2}")

    async def main() -> list[str]:
        return await asyncio.gather(*(agent(number) for number in range(10)))

    assert sorted(asyncio.run(main())) == ["Deleted /0"] * 5 + ["Deleted /1"] * 5
    assert len(disk.deleted) == 10


def test_run_by_name_is_one_place_for_threads_and_tasks(
    delete: Callable[..., str], adelete: Callable[..., Any], disk: Disk
) -> None:
    def elsewhere() -> str:
        with sayso.run("order-1"):
            return held(delete, "/a").confirmation_id

    assert len(set(concurrently(4, elsewhere))) == 1

    async def main() -> set[str]:
        with sayso.run("order-1"):
            pauses = await asyncio.gather(*(asyncio.create_task(aheld(adelete, "/b")) for _ in range(4)))
        return {pause.confirmation_id for pause in pauses}

    assert len(asyncio.run(main())) == 1


def test_other_runs_decide_nothing_here(delete: Callable[..., str], disk: Disk) -> None:
    with sayso.run("order-1"):
        first = approved(delete, "/a")
    with sayso.run("order-2"):
        assert held(delete, "/a").confirmation_id != first
    assert held(delete, "/a").confirmation_id != first
    with sayso.run("order-1"):
        assert delete("/a") == "Deleted /a"


IDS = """
import sys
from dataclasses import dataclass
from datetime import date
from enum import Enum
from typing import Literal
import sayso

class Size(Enum):
    SMALL = "s"
    LARGE = "l"

@dataclass
class Order:
    size: Size
    extra: dict[str, int | str | None]

@sayso.confirm_first
def ship(order: Order, to: str | bytes, when: date, how: Literal["air", "sea"], *tags: str) -> None: ...

sayso.configure(store=sys.argv[1])
with sayso.run("order-4721"):
    try:
        ship(Order(Size.LARGE, {"b": 1, "a": "x", "c": None}), to="Bern", when=date(2026, 1, 31), how="sea", *("x", "y"))
    except sayso.ConfirmationRequired as pause:
        print(pause.confirmation_id)
"""


def test_id_is_the_same_in_every_process_and_under_every_hash_seed(file_store: Store) -> None:
    ids: set[str] = set()
    for first in range(0, 20, 2):
        pair = [program(IDS, file_store.url, PYTHONHASHSEED=str(seed)) for seed in (first, first + 1)]
        ids |= {running(process) for process in pair}
    assert len(ids) == 1
    assert get_confirmation_status(ids.pop()) == "pending"
    assert file_store.count(sayso.reviews.Filter()) == 1


RUN_APPROVED = """
import sys
import sayso

sayso.configure(store=sys.argv[1])

@sayso.confirm_first
def pay(amount: int) -> str:
    with open(sys.argv[2], "a") as ledger:
        ledger.write(f"{amount}\\n")
    return "paid"

with sayso.run("order-4721"):
    try:
        print(pay(10))
    except sayso.ConfirmationRequired as pause:
        print(pause.confirmation_id)
"""


def test_decision_is_found_by_the_next_process_of_the_run(file_store: Store, tmp_path: Any) -> None:
    ledger = tmp_path / "ledger"
    request_id = running(program(RUN_APPROVED, file_store.url, str(ledger)))
    assert running(program(RUN_APPROVED, file_store.url, str(ledger))) == request_id
    respond_to_confirmation(request_id)
    assert running(program(RUN_APPROVED, file_store.url, str(ledger))) == "paid"
    assert running(program(RUN_APPROVED, file_store.url, str(ledger))).startswith("rq_")
    assert ledger.read_text() == "10\n"


# -- once ------------------------------------------------------------------------------------------------------------


def told_no(outcome: Any) -> bool:
    """Came second: it is running, or it ran and the next one must be asked for."""
    return isinstance(outcome, errors.AlreadyStartedError | ConfirmationRequired)


def test_one_approval_runs_once_under_twenty_threads(delete: Callable[..., str], disk: Disk) -> None:
    def go() -> str:
        with sayso.run("order-1"):
            return delete("/a")

    for attempt in range(3):
        with sayso.run("order-1"):
            approved(delete, "/a")
        outcomes = concurrently(20, go)
        assert outcomes.count("Deleted /a") == 1
        assert sum(map(told_no, outcomes)) == 19
        assert len(disk.deleted) == attempt + 1
        with sayso.run("order-1"):
            clear_confirmation(held(delete, "/a").confirmation_id)


def test_one_approval_runs_once_under_twenty_tasks(adelete: Callable[..., Any], disk: Disk) -> None:
    async def main() -> list[Any]:
        with sayso.run("order-1"):
            pause = await aheld(adelete, "/a")
            respond_to_confirmation(pause.confirmation_id)
            calls = [asyncio.create_task(adelete("/a")) for _ in range(20)]
            return await asyncio.gather(*calls, return_exceptions=True)

    outcomes = asyncio.run(main())
    assert outcomes.count("Deleted /a") == 1
    assert sum(map(told_no, outcomes)) == 19
    assert disk.deleted == ["/a"]
