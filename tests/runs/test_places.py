"""What is asked at a place of a run counts there, and stops counting as waiting once it was heard."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import sayso
from sayso import Agent, Review, Tool, Workflow, suspend
from sayso.model.request import State
from sayso.stores.base import Store
from sayso.testing import ScriptedModel


def test_an_equal_question_of_a_later_step_is_another_question(each_store: Store) -> None:
    def first() -> str:
        return sayso.ask("Which warehouse?", wait="raise")

    def second() -> str:
        return sayso.ask("Which warehouse?", wait="raise")

    flow = Workflow(name="flow").step(first).step(second, depends_on=["first"])
    run_id, heard = flow().run().run_id, ["berlin", "lyon"]
    for answer in heard:
        (waits,) = Review().list(kind="question").requests
        Review().answer(waits.id, answer)
        output = flow(parent_id=run_id).run()
    assert output.output == {"first": "berlin", "second": "lyon"}


def test_a_run_whose_answer_was_heard_is_not_ready_for_it_again(each_store: Store) -> None:
    def handler() -> list[Any]:
        return [suspend({"question": "one?"}), suspend({"question": "two?"})]

    tool = Tool(handler)
    paused = tool().run()
    (one,) = paused.metadata["pending_interactions"]
    Review().answer(one["interaction_id"], "1")
    assert each_store.ready_runs(["handler"]) == [paused.run_id]
    paused = tool(parent_id=paused.run_id).run()
    (two,) = paused.metadata["pending_interactions"]
    assert two["payload"] == {"question": "two?"}
    assert list(each_store.ready_runs(["handler"])) == []
    Review().answer(two["interaction_id"], "2")
    assert tool(parent_id=paused.run_id).run().output == ["1", "2"]


def test_a_run_whose_inner_call_was_approved_is_not_ready_for_it_again(each_store: Store) -> None:
    @sayso.confirm_first
    def wipe(path: str) -> str:
        return f"wiped {path}"

    def handler() -> list[str]:
        return [wipe("a"), wipe("b")]

    tool = Tool(handler)
    paused = tool().run()
    for path in ("a", "b"):
        (waits,) = Review().list(state=State.PENDING).requests
        assert waits.call.arguments == {"path": path}
        assert list(each_store.ready_runs(["handler"])) == []
        Review().approve(waits.id)
        assert each_store.ready_runs(["handler"]) == [paused.run_id]
        output = tool(parent_id=paused.run_id).run()
    assert output.output == ["wiped a", "wiped b"]


def test_cancelling_a_call_inside_of_a_handler_ends_the_run(each_store: Store) -> None:
    @sayso.confirm_first
    def wipe(path: str) -> str:
        return f"wiped {path}"

    def handler() -> str:
        return wipe("a")

    after: list[str] = []
    flow = Workflow(name="flow").step(handler).step(lambda: after.append("x"), name="after")
    flow = flow.step(lambda handler: after.append(handler), name="last")  # noqa: PLW0108  named as the step
    paused = flow().run()
    (waits,) = Review().list(state=State.PENDING).requests
    Review().cancel(waits.id, "enough")
    output = flow(parent_id=paused.run_id).run()
    assert (output.status.code, output.status.reason, after) == ("cancelled", "cancelled", ["x"])


def test_many_calls_of_one_turn_do_not_each_bring_what_all_have_to_save(tmp_path: Path) -> None:
    path, many = tmp_path / "sayso.jsonl", 300
    ran: list[int] = []

    async def pay(n: int, note: str) -> int:
        ran.append(n)
        return n

    calls = [("pay", {"n": n, "note": "x" * 200}) for n in range(many)]
    agent = Agent(
        model=ScriptedModel([calls, "done"]), tools=[Tool(pay, requires_approval=True)], store=f"jsonl:{path}"
    )
    paused = agent(prompt="go").run()
    before = path.stat().st_size
    yes = {entry["approval_id"]: True for entry in paused.metadata["pending_approvals"]}
    output = agent(parent_id=paused.run_id, resume=yes).run()
    assert (output.output, sorted(ran)) == ("done", list(range(many)))
    # The model's turn holds every call: once is 100 kB, and once with each call would be 30 MB.
    assert before < 3_000_000
    assert path.stat().st_size < 10_000_000
