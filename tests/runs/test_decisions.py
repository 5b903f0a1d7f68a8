"""Decisions about the calls of a run: which count, for what, and what they change; and default parameters.

Handlers note in a list what they did. The one invariant: a decision counts for the one request that was really raised.
"""

from __future__ import annotations

import asyncio
import functools
import time
from typing import Any

import pytest

import sayso
from sayso import ApprovalResolution, Tool, Workflow, load_run, suspend
from sayso.errors import ConfigError
from sayso.runs.decisions import IgnoredDecisionWarning, IgnoredInputWarning
from sayso.stores.base import Store
from tests.support.running import agent_of, answers, awaited, ids, reason, started, yes

# -- decisions -------------------------------------------------------------------------------------------------------


def test_unknown_ids_warn_and_change_nothing(each_store: Store, ran: list[Any], pay: Tool) -> None:
    paused = started(pay, amount=1)
    with pytest.warns(IgnoredDecisionWarning, match="rq_nobody"):
        output = pay(parent_id=paused.run_id, resume={"rq_nobody": True}).run()
    assert (reason(output), ids(output), ran) == (("cancelled", "approval_required"), ids(paused), [])
    with pytest.warns(IgnoredDecisionWarning, match="rq_nobody"):
        assert reason(pay(amount=9, resume={"rq_nobody": True}).run()) == ("cancelled", "approval_required")
    assert ran == []


def test_other_input_for_a_run_that_goes_on_warns_and_changes_nothing(ran: list[Any], pay: Tool) -> None:
    paused = started(pay, amount=1)
    with pytest.warns(IgnoredInputWarning, match=r"resumes as pay\(.*1.*9.*is ignored"):
        output = pay(amount=9, parent_id=paused.run_id, resume=yes(paused)).run()
    assert (output.status.code, ran) == ("success", [1])
    assert pay(amount=1, parent_id=paused.run_id).run().output == output.output  # the same input warns of nothing

    sign = Tool(name="sign", handler=lambda amount, api_key: (amount, api_key), requires_approval=True)
    paused = started(sign, amount=1, api_key="k-1")
    with pytest.warns(
        IgnoredInputWarning, match=r"as sign\(amount=1, api_key=\*\*\*\);.*amount=2, api_key=\*\*\*\), is ignored"
    ):
        sign(amount=2, api_key="k-2", parent_id=paused.run_id, resume=yes(paused)).run()


@pytest.mark.parametrize(
    ("given", "recorded"),
    [
        ({"reason": "half is enough"}, "half is enough"),
        ({"comment": "checked"}, "checked"),
        ({"reason": "half is enough", "comment": "checked"}, "half is enough; checked"),
        ({"reason": "no", "comment": "no"}, "no"),
    ],
    ids=["reason", "comment", "both", "twice the same"],
)
@pytest.mark.parametrize("approved", [True, False], ids=["yes", "no"])
def test_reason_and_comment_of_a_decision_are_both_recorded(
    pay: Tool, approved: bool, given: dict[str, str], recorded: str
) -> None:
    paused = started(pay, amount=1)
    (request_id,) = ids(paused)
    pay(parent_id=paused.run_id, resume={request_id: {"approved": approved, **given}}).run()
    request = sayso.Review().get(request_id)
    assert request.decision is not None
    assert request.decision.comment == recorded
    assert recorded.partition(";")[0] in request.message_for_model()


def test_a_decision_of_one_run_never_counts_in_another(each_store: Store, ran: list[Any], pay: Tool) -> None:
    one, two = started(pay, amount=1), started(pay, amount=1)
    assert ids(one) != ids(two)
    with pytest.warns(IgnoredDecisionWarning, match="another run"):
        output = pay(parent_id=two.run_id, resume=yes(one)).run()
    assert (reason(output), ids(output), ran) == (("cancelled", "approval_required"), ids(two), [])
    assert sayso.Review().get(ids(one)[0]).state == "pending"


def test_an_id_that_was_never_asked_cannot_be_decided_ahead(each_store: Store, ran: list[Any], pay: Tool) -> None:
    other = started(Tool(lambda: None, name="other", requires_approval=True))
    with pytest.warns(IgnoredDecisionWarning, match="another run.*of the tool other"):
        output = pay(amount=1, resume=yes(other)).run()
    assert reason(output) == ("cancelled", "approval_required")
    assert sayso.Review().get(ids(other)[0]).state == "pending"
    assert ran == []


def test_a_run_that_the_wrong_code_looked_at_waits_as_before(each_store: Store, ran: list[Any], pay: Tool) -> None:
    paused = started(pay, amount=1)
    other = Tool(lambda: None, name="other")
    assert other(parent_id=paused.run_id).run().status.reason == "run_changed"
    assert load_run(paused.run_id).record.state == "paused"
    assert reason(pay(resume=yes(paused)).run()) == ("success", None)


@pytest.mark.parametrize("given", ["yes", "no", None, 1, 0, [], {"approved": "yes"}, {"approve": True}, {}])
def test_what_is_no_decision_decides_nothing(each_store: Store, ran: list[Any], pay: Tool, given: Any) -> None:
    paused = started(pay, amount=1)
    with pytest.warns(IgnoredDecisionWarning):
        output = pay(resume=dict.fromkeys(ids(paused), given)).run()
    assert (reason(output), ids(output), ran) == (("cancelled", "approval_required"), ids(paused), [])
    assert output.metadata["pending_approvals"][0]["metadata"]["approval"]["refused"]


def test_an_edit_runs_with_the_changed_arguments(each_store: Store, ran: list[Any], pay: Tool) -> None:
    agent = agent_of([pay], [("pay", {"amount": 250})])
    paused = started(agent, prompt="go")
    decision = ApprovalResolution(approved=True, override_input={"amount": 7}, metadata={"ticket": "T-1"})
    output = agent(resume=dict.fromkeys(ids(paused), decision)).run()
    assert ran == [7]
    assert output.output.endswith("\npaid 7")
    assert "amount  250 -> 7" in output.output
    (span,) = [span for span in load_run(output.run_id).spans if span.name == "pay"]
    assert span.input == span.metadata["approval"]["input"] == {"amount": 7}
    resolution = span.metadata["approval"]["resolution"]
    assert (resolution["override_input"], resolution["metadata"]) == ({"amount": 7}, {"ticket": "T-1"})


@pytest.mark.parametrize("override", [{"amount": "much"}, {"amont": 7}])
def test_a_bad_edit_decides_nothing(each_store: Store, ran: list[Any], pay: Tool, override: dict[str, Any]) -> None:
    paused = started(pay, amount=1)
    with pytest.warns(IgnoredDecisionWarning):
        output = pay(resume={ids(paused)[0]: {"approved": True, "override_input": override}}).run()
    assert (reason(output), ids(output), ran) == (("cancelled", "approval_required"), ids(paused), [])


def test_an_edit_of_what_was_approved_before_is_not_swallowed(each_store: Store, ran: list[Any], pay: Tool) -> None:
    paused = started(pay, amount=250)
    sayso.Review().approve(ids(paused)[0], by="ada")
    with pytest.warns(IgnoredDecisionWarning, match="approved before"):
        pay(resume={ids(paused)[0]: {"approved": True, "override_input": {"amount": 7}}}).run()
    assert ran == [250]


def test_a_decision_taken_elsewhere_needs_no_resume(each_store: Store, ran: list[Any], pay: Tool) -> None:
    agent = agent_of([pay], [("pay", {"amount": 1}), ("pay", {"amount": 2})])
    paused = started(agent, prompt="go")
    first, second = by_amount(paused, 1, 2)
    review = sayso.Review(reviewer="ada")
    review.approve(first, changes={"amount": 5})
    review.feedback(second, "only on Mondays")
    output = agent(parent_id=paused.run_id).run()
    assert (reason(output), ran) == (("success", None), [5])
    assert "only on Mondays" in output.output
    assert "call it again only if changed" in output.output


def test_a_denial_tells_the_model_not_to_repeat_the_call(each_store: Store, ran: list[Any], pay: Tool) -> None:
    agent = agent_of([pay], [("pay", {"amount": 1})])
    paused = started(agent, prompt="go")
    output = agent(resume={ids(paused)[0]: ApprovalResolution(approved=False, reason="too much")}).run()
    assert (reason(output), ran) == (("success", None), [])
    assert "too much" in output.output
    assert "do not repeat this call" in output.output


def test_once_spent_the_same_call_asks_again(each_store: Store, ran: list[Any], pay: Tool) -> None:
    agent = agent_of([pay], [("pay", {"amount": 1})], [("pay", {"amount": 1})])
    paused = started(agent, prompt="go")
    second = agent(resume=yes(paused)).run()
    assert (reason(second), ran) == (("cancelled", "approval_required"), [1])
    assert ids(second) != ids(paused)


def test_asking_again_finds_the_same_open_request(each_store: Store, ran: list[Any], pay: Tool) -> None:
    agent = agent_of([pay], [("pay", {"amount": 1}), ("pay", {"amount": 1})])
    paused = started(agent, prompt="go")
    assert len(set(ids(paused))) == 2  # two calls of one turn wait twice
    for _ in range(3):
        assert set(ids(agent(parent_id=paused.run_id).run())) == set(ids(paused))
    assert len(sayso.Review().list().requests) == 2


def test_a_chosen_run_id_finds_the_run_again(each_store: Store, ran: list[Any], pay: Tool) -> None:
    paused = pay(amount=1, run_id="order-4721").run()
    assert (paused.run_id, ids(pay(amount=1, run_id="order-4721").run())) == ("order-4721", ids(paused))


def test_a_decision_brought_again_after_a_crash_goes_on_with_the_run(
    each_store: Store, ran: list[Any], pay: Tool, monkeypatch: pytest.MonkeyPatch
) -> None:
    last = Tool(lambda pay: ran.append(pay), name="last")  # noqa: PLW0108
    flow = Workflow(name="flow").step(pay, amount=1).step(last)
    paused = started(flow)

    async def breaks(pay: str) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(last, "function", breaks)
        with pytest.raises(KeyboardInterrupt):
            flow(resume=yes(paused)).run()
    assert (ran, sayso.Review().get(ids(paused)[0]).state) == ([1], "done")
    output = flow(parent_id=paused.run_id, resume=yes(paused)).run()
    assert reason(output) == ("success", None)
    assert ran == [1, "paid 1"]


# -- decisions while somebody else has the run -----------------------------------------------------------------------


class Busy:
    """A run that a worker has in hand: one approved step does not end before `go`, another step waits for a person."""

    def __init__(self, ran: list[Any]) -> None:
        self.inside, self.go = asyncio.Event(), asyncio.Event()

        async def slow() -> None:
            self.inside.set()
            await self.go.wait()

        held = Tool(lambda: ran.append("paid"), name="pay", requires_approval=True)
        self.flow = Workflow(name="flow").step(Tool(slow, requires_approval=True)).step(held)
        self.run_id = self.slow = self.pay = ""

    async def begun(self) -> asyncio.Task[Any]:
        """Return the worker, once it is inside of the slow step."""
        paused = await self.flow().collect()
        self.run_id = paused.run_id
        waiting = {entry["runnable_path"]: entry["approval_id"] for entry in paused.metadata["pending_approvals"]}
        self.slow, self.pay = waiting["flow.slow"], waiting["flow.pay"]
        worker = asyncio.ensure_future(self.flow(resume={self.slow: True}).collect())
        await self.inside.wait()
        return worker

    async def said(self, resume: dict[str, Any], **given: Any) -> Any:
        """Return what a second caller is told, who brings a decision meanwhile."""
        return await self.flow(resume=resume, **given).collect()


@pytest.mark.parametrize("names_the_run", [True, False])
@pytest.mark.parametrize(
    ("no", "state"),
    [
        (False, "rejected"),
        (ApprovalResolution(approved=False, reason="too much", approver_id="ada"), "rejected"),
        ({"approved": False}, "rejected"),
        (sayso.Cancel("stop"), "cancelled"),
    ],
    ids=["False", "resolution", "dict", "cancel"],
)
@awaited
async def test_a_no_is_recorded_while_another_worker_has_the_run(
    each_store: Store, ran: list[Any], no: Any, state: str, names_the_run: bool
) -> None:
    busy = Busy(ran)
    worker = await busy.begun()
    output = await busy.said({busy.pay: no}, **({"parent_id": busy.run_id} if names_the_run else {}))
    assert reason(output) == ("cancelled", "approval_already_claimed")
    assert f"the rejection of {busy.pay} was recorded" in output.status.message
    assert sayso.Review().get(busy.pay).state == state
    busy.go.set()
    await worker
    again = await busy.flow(parent_id=busy.run_id).collect()
    assert (again.status.code, ran) == ("cancelled", [])


@awaited
async def test_a_no_that_comes_too_late_is_told_while_another_worker_has_the_run(
    each_store: Store, ran: list[Any]
) -> None:
    busy = Busy(ran)
    worker = await busy.begun()
    with pytest.warns(IgnoredDecisionWarning, match="was not recorded"):
        output = await busy.said({busy.slow: False})
    assert (
        f"the rejection of {busy.slow} was not recorded: request {busy.slow} was already approved"
        in output.status.message
    )
    with pytest.warns(IgnoredDecisionWarning, match="was not recorded"):
        output = await busy.said({busy.pay: {"approved": False, "expires_at": 1}})
    assert f"the rejection of {busy.pay} was not recorded: it was valid only until" in output.status.message
    busy.go.set()
    assert ids(await worker) == [busy.pay]


@pytest.mark.parametrize("given", [True, {"approved": True}, "no", None], ids=["True", "dict", "text", "None"])
@awaited
async def test_what_is_no_no_decides_nothing_while_another_worker_has_the_run(
    each_store: Store, ran: list[Any], given: Any
) -> None:
    busy = Busy(ran)
    worker = await busy.begun()
    output = await busy.said({busy.pay: given})
    assert "nothing was done" in output.status.message
    assert sayso.Review().get(busy.pay).state == "pending"
    busy.go.set()
    assert (ids(await worker), ran) == ([busy.pay], [])


@awaited
async def test_a_no_about_another_run_is_ignored_with_a_warning(each_store: Store, ran: list[Any], pay: Tool) -> None:
    busy = Busy(ran)
    worker = await busy.begun()
    (other,) = ids(await pay(amount=1).collect())
    with pytest.warns(IgnoredDecisionWarning, match="of another run"):
        await busy.said({other: False}, parent_id=busy.run_id)
    assert sayso.Review().get(other).state == "pending"
    busy.go.set()
    await worker


# -- default parameters ----------------------------------------------------------------------------------------------


def test_default_params_are_made_once_for_a_call(each_store: Store, ran: list[Any]) -> None:
    made = iter(range(100))
    tool = Tool(
        lambda amount, key: ran.append((amount, key)), name="pay", requires_approval=True,
        default_params={"key": lambda: next(made)},
    )  # fmt: skip
    agent = agent_of([tool], [("pay", {"amount": 1}), ("pay", {"amount": 1})])
    paused = started(agent, prompt="go")
    again = agent(parent_id=paused.run_id).run()
    assert sorted(entry["input"]["key"] for entry in again.metadata["pending_approvals"]) == [0, 1]
    agent(resume=yes(paused)).run()
    assert sorted(ran) == [(1, 0), (1, 1)]
    assert next(made) == 2


def test_default_params_of_a_handler_that_asks_are_made_once(each_store: Store, ran: list[Any]) -> None:
    made = iter(range(100))

    def pay(key: int) -> str:
        ran.append(key)
        return suspend({"question": "which?"})

    tool = Tool(pay, default_params={"key": lambda: next(made)})
    flow = Workflow(name="flow").step(tool)
    paused = started(flow)
    output = flow(resume=answers(paused, "blue")).run()
    assert (output.output, ran) == ({"pay": "blue"}, [0, 0])


def test_plain_default_params_fill_in_what_is_not_given(memory: None) -> None:
    tool = Tool(lambda a, b=0: [a, b], name="pair", default_params={"a": 1, "b": lambda: 2})
    assert tool().run().output == [1, 2]
    assert tool(a=5, b=6).run().output == [5, 6]


def test_a_model_is_not_asked_for_what_has_a_default(memory: None) -> None:
    tool = Tool(lambda a, b, key: [a, b, key], name="t", default_params={"b": 1, "key": lambda: "k"})
    assert set(tool.schema["properties"]) == {"a", "b"}
    assert tool.schema["required"] == ["a"]
    assert started(Tool(tool.handler, name="t", requires_approval=True), a=1, b=2, key=3).metadata


def test_default_params_that_fail_do_not_run_the_handler(memory: None, ran: list[Any]) -> None:
    tool = Tool(lambda key: ran.append(key), name="pay", default_params={"key": lambda: 1 / 0})  # noqa: PLW0108
    output = tool().run()
    assert (output.status.code, ran) == ("error", [])


def test_an_async_default_param_is_awaited_once_for_a_call(each_store: Store, ran: list[Any]) -> None:
    made = iter(range(100))

    async def key() -> int:
        await asyncio.sleep(0)
        return next(made)

    async def pay(amount: int, key: int) -> str:
        ran.append((amount, key))
        return f"paid {amount} by {key}"

    def pay_later(amount: int, key: int) -> None:
        ran.append((amount, key))

    tool = Tool(pay, requires_approval=True, default_params={"key": key})
    paused = started(tool, amount=1)
    assert paused.metadata["pending_approvals"][0]["input"] == {"amount": 1, "key": 0}
    assert tool(parent_id=paused.run_id, resume=yes(paused)).run().output == "paid 1 by 0"
    free = Tool(pay, default_params={"key": functools.partial(key)})
    assert free(amount=2).run().output == "paid 2 by 1"
    assert asyncio.run(free.acall(amount=3)) == "paid 3 by 2"
    with pytest.raises(TypeError, match=r"default_params\['key'\] of pay_later is async.*acall"):
        Tool(pay_later, default_params={"key": key}).call(amount=4)
    assert ran == [(1, 0), (2, 1), (3, 2)]


def test_default_params_that_need_arguments_are_refused_at_the_construction(ran: list[Any]) -> None:
    def key(prefix: str, *more: str, end: str = "") -> str:
        return prefix

    async def akey(*, prefix: str) -> str:
        return prefix

    for made in (key, akey):
        with pytest.raises(ConfigError, match=r"default_params\['key'\] of \w+ .*'prefix'.*lambda"):
            Tool(lambda key: ran.append(key), name="pay", default_params={"key": made})  # noqa: PLW0108
        with pytest.raises(ConfigError, match=r"default_params\['key'\] of \w+ .*'prefix'.*lambda"):
            Workflow(name="flow", default_params={"key": made})
    for fits in (functools.partial(key, "x"), dict, time.time, lambda *_, **__: "k"):
        Tool(lambda key: ran.append(key), name="pay", default_params={"key": fits})  # noqa: PLW0108
    assert ran == []


def by_amount(output: sayso.OutputEvent, *amounts: int) -> list[str]:
    """Return the ids of the calls that wait, by what they pay; calls of one turn are emitted as they come."""
    known = {entry["input"]["amount"]: entry["approval_id"] for entry in output.metadata["pending_approvals"]}
    return [known[amount] for amount in amounts]
