"""The confirmation face, as a program written for it sees it: every example of its description, on our own functions.

What its exceptions carry is in `test_pauses`, in which thread, task or process a decision counts in `test_scope`, what
other libraries get wrong at the same place in `test_weaknesses_of_peers`.
"""

from __future__ import annotations

import asyncio
import inspect
import json
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
from tests.support.acting import Disk, aheld, approved, held


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
    assert store.list(sayso.stores.base.Filter()).requests == ()


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
    [
        {"status": "pending"},
        {"status": "yes"},
        {"status": ""},
        {"status": "edited"},
        {"approved": "no"},
        {"approved": 1},
    ],
)
def test_response_that_means_nothing_is_refused(
    delete: Callable[..., str], disk: Disk, response: dict[str, Any]
) -> None:
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
    "data",
    [{}, {"count": "many"}, {"count": 1, "extra": 2}, {"count": None}, {"count": float("nan")}, [1], "count=1", 7],
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


@pytest.mark.parametrize("name", ["nope", "rq_\x1b[31m\u202e" + "x" * 500])
def test_response_to_an_id_that_no_store_knows_is_warned_of(
    store: Store, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    respond_to_confirmation(name)
    (record,) = caplog.records
    assert (record.name, record.levelname) == ("sayso", "WARNING")
    said = record.getMessage()
    assert "no request with this id" in said
    assert "approves nothing" in said
    assert name[:3] in said
    assert store.url in said
    assert said.isprintable()
    assert len(said) < 300 + len(store.url)


def test_response_to_a_request_is_not_warned_of(delete: Callable[..., str], caplog: pytest.LogCaptureFixture) -> None:
    respond_to_confirmation(held(delete, "/a").confirmation_id)
    assert caplog.records == []


def test_id_that_was_never_asked_is_noted_and_authorises_nothing(delete: Callable[..., str], disk: Disk) -> None:
    respond_to_confirmation("rq_guessed", approved=True)
    assert get_confirmation_context()["rq_guessed"] == {"approved": True, "data": None, "status": "approved"}
    assert get_confirmation_status("rq_guessed") == "approved"
    asked = held(delete, "/tmp/a")
    assert asked.confirmation_id != "rq_guessed"
    assert get_confirmation_status(asked.confirmation_id) == "pending"
    assert disk.deleted == []


def test_response_counts_though_the_rule_lets_the_call_through_by_then(store: Store) -> None:
    ran: list[int] = []
    is_night = True

    @confirm_first(when=lambda amount: is_night)  # noqa: ARG005  the hook's name for it
    def pay(amount: int) -> int:
        ran.append(amount)
        return amount

    for amount, response in ((5, {"approved": False}), (6, {"approved": True, "data": {"amount": 1}})):
        is_night = True
        with pytest.raises(ConfirmationRequired) as held:
            pay(amount)
        is_night = False
        respond_to_confirmation(held.value.id, **response)
    with pytest.raises(ConfirmationRejected):
        pay(5)
    assert (pay(6), pay(7), ran) == (1, 7, [1, 7])


def test_response_to_a_call_with_a_key_counts_for_no_other_call(store: Store) -> None:
    def mail(**options: Any) -> sayso.Held:
        return sayso.hold("mail", {"to": "bob"}, store=store, **options)

    with sayso.run("thread-1"):
        first = mail(key="call_1")
        respond_to_confirmation(first.id or "")
        without_key, allowed = mail(), mail(key="call_2", when=lambda: False)
        assert (without_key.id == first.id, without_key.state, allowed.state) == (False, "pending", "allowed")

        other = mail()
        respond_to_confirmation(other.id or "")
        assert mail(key="call_3", when=lambda: False).state == "allowed"
        assert first.once(lambda arguments: f"first to {arguments['to']}") == "first to bob"


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
        return [delete(path) for path in paths[len(disk.deleted) :]]

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
