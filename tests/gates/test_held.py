"""`sayso.hold`: a call that is no Python function waits for a person, starts once, and gives one result to all."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Generator
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any

import anyio
import pytest

import sayso
from sayso import errors
from sayso.effects import drive
from sayso.gates import held as handles
from sayso.gates import scope
from sayso.gates.execution import execute
from sayso.gates.options import Gate
from sayso.gates.wait import Waiter
from sayso.integrations.functions import held_tool
from sayso.model.request import Request, State
from sayso.stores.base import Filter, Store
from sayso.stores.memory import MemoryStore
from tests.support.acting import approved, concurrently, forked, payer, running, waiting_in

SCHEMA = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "type": "object",
    "properties": {"path": {"type": "string"}, "mode": {"enum": ["w", "a"]}, "size": {"type": "integer", "minimum": 1}},
    "required": ["path"],
    "additionalProperties": False,
}
FILE = {"path": "/etc/motd", "size": 3}
PATH, SIZED = {"path": "/etc/motd"}, {"properties": {"size": {"type": "integer"}}}


@pytest.fixture(autouse=True)
def store(file_store: Store) -> Store:
    sayso.configure(store=file_store)
    return file_store


def held(**options: Any) -> sayso.Held:
    given: dict[str, Any] = {"schema": SCHEMA, "run": "thread-1", "key": "call_1", **options}
    arguments = given.pop("arguments", FILE)
    return sayso.hold(given.pop("tool", "fs/write_file"), arguments, **given)


def approve(call: sayso.Held, **options: Any) -> None:
    sayso.Review().approve(str(call.id), by="ada", **options)


@pytest.mark.parametrize("how", ["finish", "fail", "unknown"])
def test_an_end_that_could_not_be_recorded_is_told_and_can_be_told_again(
    store: Store, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    call = held()
    approve(call)
    call.start()

    def full(*_: object, **__: object) -> Any:
        raise errors.StoreFullError("no room left")

    with monkeypatch.context() as broken:
        broken.setattr(store, "finish", full)
        with pytest.raises(errors.OutcomeNotRecordedError, match="no room left"):
            getattr(call, how)("it rained")
    assert call.refresh().state is State.RUNNING  # pyright: ignore[reportOptionalMemberAccess]
    getattr(call, how)("it rained")
    assert call.state == {"finish": "done", "fail": "failed", "unknown": "unknown"}[how]


def test_an_edit_that_the_tool_refuses_waits_for_its_reviewers_again(store: Store) -> None:
    call, refused = held(), "size: is odd"
    call.send_back(refused)
    assert call.state == "pending"  # nobody changed it yet
    approve(call, changes={"size": 5})
    call.wait().send_back(refused)
    assert (call.state, call.arguments) == ("pending", FILE)
    assert store.get(str(call.id)).returned == refused
    with pytest.raises(sayso.ConfirmationRequired):
        call.once(dict)
    approve(call)
    call.wait().send_back(refused)  # as it was proposed: that is for the program to refuse
    assert call.once(dict) == FILE
    call.send_back(refused)
    assert call.state == "done"


def test_a_held_call_is_asked_approved_with_changes_and_run_once() -> None:
    call = held(title="Write a file", description="Writes.", context={"from": "mcp"})
    assert (call.state, call.arguments, call.changes, call.reason) == ("pending", FILE, {}, None)
    with pytest.raises(sayso.ConfirmationRequired):
        call.once(dict)
    assert "waits for a person" in call.message_for_model()
    approve(call, changes={"size": 5}, comment="smaller")
    assert call.wait().state == "approved"
    assert (call.arguments, call.changes, call.reason) == ({**FILE, "size": 5}, {"size": 5}, "smaller")
    assert call.once(lambda arguments: sorted(arguments.items())) == [("path", "/etc/motd"), ("size", 5)]
    assert call.state == "done"
    assert "size" in call.message_for_model()
    request = call.request
    assert request is not None
    assert (request.key, request.title, request.context) == ("call_1", "Write a file", {"from": "mcp"})


def test_an_edit_that_the_schema_refuses_decides_nothing() -> None:
    call = held()
    for changes in ({"size": 0}, {"mode": "x"}, {"owner": "root"}):
        with pytest.raises(errors.InvalidChangesError):
            approve(call, changes=changes)
    assert call.refresh() is not None
    assert call.state == "pending"


@pytest.mark.parametrize("way", ["a handle", "a tool"])
def test_what_a_sync_call_asks_in_its_thread_is_found_by_the_tasks_next_one(way: str) -> None:
    pay, asked = payer(), list[str]()
    tool = held_tool(pay, when=False)

    async def call() -> str:
        if way == "a tool":
            return await tool(amount=5)
        return await (await sayso.aio.hold("x", {}, when=False)).once(lambda _: pay(5))

    async def main() -> str:
        try:
            return await call()
        except sayso.ConfirmationRequired as pause:
            asked.append(pause.confirmation_id)
        sayso.Review().approve(asked[0], by="ada")
        return await call()

    assert asyncio.run(main()) == "paid 5 to alice"


def test_a_misspelt_change_does_not_approve_the_call_as_it_was() -> None:
    schema = {"type": "object", "properties": {"path": {"type": "string"}, "size": {"type": "integer"}}}
    call = held(schema=schema, arguments={**FILE, "mode": "w"})
    with pytest.raises(errors.InvalidChangesError, match=r"siz: there is no such argument \(there are path, size\)"):
        approve(call, changes={"siz": 1})
    approve(call, changes={"size": 1, "mode": "a"})
    assert call.wait().arguments == {**FILE, "size": 1, "mode": "a"}


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#/$defs/file", "$defs": {"file": SIZED}},
        {"oneOf": [{"required": ["mode"]}, {"allOf": [SIZED], "not": {"required": ["mode"]}}]},
        {"properties": {"path": {}}, "unevaluatedProperties": True},
    ],
    ids=["a reference", "an alternative", "open"],
)
def test_a_change_may_name_what_any_part_of_the_schema_names(schema: dict[str, Any]) -> None:
    call = held(schema={"type": "object", **schema}, arguments=PATH)
    if "unevaluatedProperties" not in schema:
        with pytest.raises(errors.InvalidChangesError, match="siz: there is no such argument"):
            approve(call, changes={"siz": 1})
    approve(call, changes={"size": 1})
    assert call.wait().arguments == {**FILE, "size": 1}


def test_an_argument_that_the_schema_leaves_open_can_be_added() -> None:
    for number, schema in enumerate(({"type": "object"}, {"type": "object", "additionalProperties": True})):
        call = held(schema=schema, key=f"open {number}")
        approve(call, **({"changes": {"mode": "a"}} if number else {"arguments": {**FILE, "mode": "a"}}))
        assert call.wait().arguments == {**FILE, "mode": "a"}


@pytest.mark.parametrize("wrong", [{}, {"path": 1}, {"path": "x", "mode": "r"}, {"path": "x", "owner": "me"}], ids=str)
def test_arguments_that_do_not_fit_the_schema_are_not_asked(store: Store, wrong: dict[str, Any]) -> None:
    with pytest.raises(errors.ArgumentError, match="fs/write_file"):
        held(arguments=wrong)
    assert store.count(Filter()) == 0


def test_ten_threads_with_one_key_give_one_start_and_ten_equal_results(store: Store) -> None:
    ran: list[dict[str, Any]] = []
    assert len({call.id for call in concurrently(10, held)}) == 1
    approve(held())

    def work() -> Any:
        return held().once(lambda arguments: {"run": ran.append(arguments) or len(ran)})

    assert concurrently(10, work) == [{"run": 1}] * 10
    assert len(ran) == 1
    assert held().once(dict) == {"run": 1}
    assert held().result() == {"run": 1}
    assert store.count(Filter()) == 1


def test_a_key_with_other_arguments_or_another_tool_is_refused(store: Store) -> None:
    held()
    with pytest.raises(errors.KeyReusedError, match="other arguments"):
        held(arguments={"path": "/etc/passwd"})
    with pytest.raises(errors.KeyReusedError, match="another tool"):
        held(tool="fs/delete_file")
    assert store.count(Filter()) == 1


def test_two_equal_calls_of_one_turn_wait_twice() -> None:
    first, second = held(key="call_1"), held(key="call_2")
    approve(first)
    assert first.wait().once(len) == 2
    assert second.refresh() is not None
    assert second.state == "pending"


def test_a_key_needs_a_run_with_a_name(store: Store) -> None:
    with pytest.raises(errors.ConfigError, match="name"):
        held(run=None)
    with sayso.run("thread-2"):
        assert held(run=None).state == "pending"
    assert store.count(Filter()) == 1


def test_a_no_is_raised_and_told_to_the_model_for_ever() -> None:
    sayso.Review().reject(str(held().id), "not that file", by="ada")
    for verb in (lambda: held().wait(), lambda: held().once(dict), lambda: held().start(), lambda: held().result()):
        with pytest.raises(sayso.ConfirmationRejected, match="not that file"):
            verb()
    assert "do not repeat" in held().message_for_model()
    assert (held().state, held().reason) == ("rejected", "not that file")


def test_a_failed_call_fails_for_whoever_asks_with_its_key() -> None:
    call = held()
    approve(call)

    def fail(_: dict[str, Any]) -> None:
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        call.once(fail)
    for again in (held(), held()):
        with pytest.raises(errors.CallFailedError, match="disk full"):
            again.once(dict)


def test_by_hand_a_call_is_started_once_and_its_result_is_for_all() -> None:
    call = held()
    with pytest.raises(sayso.ConfirmationRequired):
        call.start()
    approve(call)
    assert call.start() == FILE
    for other in (call, held()):
        with pytest.raises(errors.AlreadyStartedError):
            other.start()
    with pytest.raises(errors.StartRefusedError, match="not started by this handle; nothing was recorded"):
        held().finish("mine")
    with pytest.raises(TimeoutError):
        held().result(timeout=0.01)
    call.finish({"bytes": 3})
    with pytest.raises(errors.StartRefusedError, match=r"already reported how the call of .* ended"):
        call.finish({"bytes": 4})
    assert held().result() == {"bytes": 3}


def test_without_a_key_a_call_that_failed_or_is_not_known_to_have_given_anything_gives_no_result() -> None:
    call = held(key=None, run="by hand")
    approve(call)
    call.start()
    call.fail("no such host")
    with pytest.raises(errors.CallFailedError, match="no such host"):
        call.result()
    call = held(key=None, run="cut off")
    approve(call)
    call.start()
    call.unknown("the line broke")
    sayso.Review().resolve(str(call.id), happened=True, by="ada")
    with pytest.raises(errors.ValueNotKeptError, match="was not kept"):
        call.result()
    with pytest.raises(errors.AlreadyStartedError):
        call.once(dict)


def test_a_result_that_is_too_large_to_keep_is_not_called_one_without_a_form() -> None:
    call = held(key="large", run="by hand")
    approve(call)
    call.once(lambda _: 2_000_000 * "x")
    with pytest.raises(errors.ValueNotKeptError, match="was not kept: over 1 MB or no canonical form: str"):
        held(key="large", run="by hand").once(dict)


@pytest.mark.parametrize("how", ["before", "meanwhile"])
def test_by_hand_nothing_starts_that_nobody_waits_for_any_more(
    store: Store, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    start = store.start
    with ExitStack() as run:
        run.enter_context(sayso.run("thread-1"))
        call = held(run=None)
        approve(call)

        def leaves(*args: Any, **options: Any) -> Any:
            run.close()
            return start(*args, **options)

        monkeypatch.setattr(store, "start", leaves)
        if how == "before":
            run.close()
        with pytest.raises(sayso.ConfirmationCancelled, match="its run was left"):
            call.start()
    assert store.get(str(call.id)).state is (State.APPROVED if how == "before" else State.FAILED)


@pytest.mark.parametrize("verb", ["cancel", "withdraw"])
def test_by_hand_a_call_that_is_cancelled_right_before_its_start_is_refused_like_others(
    store: Store, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    call, start = held(), store.start
    approve(call)

    def cancelled(*args: Any, **options: Any) -> Any:
        if verb == "cancel":
            sayso.Review().cancel(str(call.id), by="ada")
        else:
            held().withdraw()
        return start(*args, **options)

    monkeypatch.setattr(store, "start", cancelled)
    with pytest.raises(sayso.ConfirmationCancelled):
        call.start()
    assert call.state == "cancelled"


def test_the_timeout_of_a_result_is_for_the_decision_and_the_end_together(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, call = [0.0], held()
    monkeypatch.setattr(handles, "time", SimpleNamespace(monotonic=lambda: now[0]))

    def waiting(self: sayso.Held, timeout: Any) -> Generator[Any, Any, None]:
        yield from ()
        approve(call)
        store.start(str(call.id), "t")
        now[0] = 4.0

    def until_ended(store: Store, request_id: str, waiter: Waiter) -> Generator[Any, Any, Any]:
        yield from ()
        assert waiter.deadline == 5.0
        return store.get(request_id)

    monkeypatch.setattr(sayso.Held, "_waiting", waiting)
    monkeypatch.setattr(handles, "until_ended", until_ended)
    with pytest.raises(TimeoutError, match="is still running"):
        call.result(timeout=5)


def test_by_hand_a_call_may_fail_or_be_unknown() -> None:
    ends: list[tuple[str, Callable[[sayso.Held], None], type[Exception]]] = [
        ("failed", lambda call: call.fail("no such host"), errors.CallFailedError),
        ("unknown", lambda call: call.unknown(TimeoutError("sent")), errors.OutcomeUnknownError),
    ]
    for state, end, error in ends:
        call = held(key=state)
        approve(call)
        call.start()
        end(call)
        assert call.state == state
        with pytest.raises(error):
            held(key=state).once(dict)


def test_a_call_that_a_rule_allows_runs_once_for_whoever_asks_its_handle() -> None:
    allowed, ran = held(when=lambda size: size > 10), list[dict[str, Any]]()

    def work(arguments: dict[str, Any]) -> int:
        ran.append(arguments)
        return len(ran)

    assert concurrently(5, lambda: allowed.once(work)) == [1] * 5
    assert (len(ran), allowed.once(work), allowed.result()) == (1, 1, 1)


def test_tasks_that_ask_the_handle_of_an_allowed_call_run_it_once() -> None:
    ran = list[int]()

    async def work(_: dict[str, Any]) -> int:
        ran.append(1)
        await asyncio.sleep(0)
        return len(ran)

    async def main() -> list[int]:
        allowed = await sayso.aio.hold("fs/write_file", FILE, when=lambda size: size > 10)
        return await asyncio.gather(*(allowed.once(work) for _ in range(5)))

    assert (asyncio.run(main()), len(ran)) == ([1] * 5, 1)


def test_an_allowed_call_that_asks_for_its_own_result_is_refused() -> None:
    allowed = held(when=lambda size: size > 10)
    with pytest.raises(errors.SaysoError, match="waits for its own result"):
        allowed.once(lambda _: allowed.once(dict))


def test_a_rule_may_allow_or_deny_and_nothing_is_asked(store: Store) -> None:
    allowed = held(when=lambda size: size > 10)
    assert (allowed.state, allowed.id, allowed.wait().once(dict)) == ("allowed", None, FILE)
    denied = held(when=lambda **_: sayso.deny("read-only"))
    assert (denied.state, denied.reason) == ("denied", "read-only")
    with pytest.raises(sayso.ConfirmationDenied, match="read-only"):
        denied.once(dict)
    assert "read-only" in denied.message_for_model()
    assert store.count(Filter()) == 0
    strict = held(when=lambda **_: sayso.policy.hold("a file", quorum=2))
    assert strict.request is not None
    assert strict.request.quorum.count == 2


def test_leaving_the_block_withdraws_only_where_asked_to() -> None:
    with held() as kept:
        pass
    with held(key="call_2", withdraw_on_exit=True) as taken:
        pass
    assert (kept.state, taken.state) == ("pending", "cancelled")
    kept.withdraw("changed my mind")
    assert (kept.state, kept.reason) == ("cancelled", "changed my mind")


def test_waiting_ends_with_the_timeout_and_the_request_stays() -> None:
    call = held()
    with pytest.raises(sayso.ConfirmationRequired):
        call.wait(timeout=0.001)
    assert call.refresh() is not None
    assert call.state == "pending"


def test_secrets_are_masked_for_people_and_real_for_the_call() -> None:
    call = held(schema=None, arguments={"url": "u", "api_key": "hunter2!", "memo": "hush"}, redact=["memo"])
    assert call.request is not None
    assert call.request.call.arguments == {"url": "u", "api_key": "***", "memo": "***"}
    approve(call)
    assert call.once(lambda arguments: arguments["api_key"]) == "hunter2!"


def test_a_text_in_place_of_names_to_mask_is_refused_and_not_taken_letter_by_letter(store: Store) -> None:
    with pytest.raises(errors.ConfigError, match="redact= takes a collection of names"):
        held(schema=None, arguments={"memo": "hush"}, redact="memo")
    assert store.count(Filter()) == 0


def test_an_effect_starts_once_across_runs_and_tools() -> None:
    def refund(tool: str, run: str) -> sayso.Held:
        return sayso.hold(tool, {"order": "A-1"}, run=run, key="k", effect="refund:{order}")

    first, second = refund("stripe/refund", "run-1"), refund("paypal/refund", "run-2")
    approve(first)
    approve(second)
    assert first.once(lambda _: "paid") == "paid"
    with pytest.raises(errors.EffectTakenError, match="refund:A-1"):
        second.once(lambda _: pytest.fail("a second effect"))


def test_an_edit_that_moves_the_effect_goes_back_to_the_reviewer() -> None:
    call = sayso.hold("refund", {"order": "A-1"}, run="run-1", key="k", effect="refund:{order}")
    approve(call, changes={"order": "A-2"})
    with pytest.raises(sayso.ConfirmationRequired):
        call.once(lambda _: pytest.fail("ran"))
    request = call.refresh()
    assert request is not None
    assert (request.state, request.edited) == (State.PENDING, None)
    assert "refund:A-2" in str(request.returned)
    approve(call)
    assert call.once(lambda given: given["order"]) == "A-1"


def test_an_edit_that_moves_the_effect_is_not_started_where_the_rule_does_not_name_it_any_more() -> None:
    rules = [lambda **_: sayso.policy.hold(effect="refund:{order}"), lambda **_: sayso.policy.hold()]
    calls = [sayso.hold("refund", {"order": "A-1"}, run="run-1", key="k", when=rule) for rule in rules]
    sayso.Review().approve(str(calls[0].id), changes={"order": "B-2"})
    for start in (calls[1].start, lambda: calls[1].once(lambda _: pytest.fail("another effect"))):
        with pytest.raises(errors.PolicyError, match="no rule says which effect they have now"):
            start()
    assert sayso.Review().get(str(calls[0].id)).state is State.APPROVED


def test_an_edit_of_a_gated_function_that_moves_the_effect_goes_back_and_spends_no_approval() -> None:
    @sayso.gate(name="refund", wait="raise", effect="refund:{order}")
    def refund(order: str, amount: int) -> str:
        return f"{order}: {amount}"

    with sayso.run("run-1"):
        with pytest.raises(sayso.ConfirmationRequired) as asked:
            refund("A-1", 5)
        sayso.Review().approve(asked.value.id, by="ada", changes={"order": "A-2"})
        with pytest.raises(sayso.ConfirmationRequired) as again:
            refund("A-1", 5)
        assert again.value.id == asked.value.id
        sayso.Review().approve(asked.value.id, by="ada", changes={"amount": 4})
        assert refund("A-1", 5) == "A-1: 4"


def test_a_start_takes_no_effect_but_the_one_of_its_arguments(store: Store) -> None:
    def refund(order: str) -> None:
        pytest.fail(order)

    with sayso.run("run-1"), pytest.raises(sayso.ConfirmationRequired) as asked:
        sayso.gate(refund, wait="raise", name="refund")("A-1")
    request = sayso.Review().approve(asked.value.id, by="ada")
    with pytest.raises(errors.InvalidChangesError, match="refund:A-1"):
        drive(execute(Gate(refund, named="refund", effect="refund:{order}"), store, request))


def test_an_effect_hook_that_changes_the_arguments_changes_nothing_that_runs(store: Store) -> None:
    ran: list[Any] = []

    def effect(order: dict[str, int]) -> str:
        order["amount"] = 1_000_000
        return "refund:A-1"

    @sayso.gate(wait="raise", effect=effect)
    def refund(order: dict[str, int]) -> None:
        ran.append(dict(order))

    with sayso.run("run-1"):
        approved(refund, {"amount": 10})
        refund({"amount": 10})
    assert ran == [{"amount": 10}]


def test_a_value_that_the_function_captures_does_not_change_between_the_check_and_the_call(store: Store) -> None:
    account, ran = "A", list[str]()

    async def effect(order: str) -> str:
        nonlocal account
        if sayso.Review().list(state="running").requests:
            account = "B"
        return f"refund:{order}"

    @sayso.gate(wait="raise", effect=effect)
    async def refund(order: str) -> None:
        ran.append(account)

    async def main() -> None:
        with sayso.run("run-1"):
            with pytest.raises(sayso.ConfirmationRequired) as asked:
                await refund("A-1")
            sayso.Review().approve(asked.value.id, by="ada")
            with pytest.raises(errors.AlteredRequestError):
                await refund("A-1")

    asyncio.run(main())
    assert ran == []


@pytest.mark.parametrize("option", ["key", "effect"])
def test_a_key_or_an_effect_that_would_show_a_secret_is_refused(store: Store, option: str) -> None:
    @sayso.gate(wait="raise", name="charge", **{option: lambda api_key: f"charge:{api_key}"})  # type: ignore[arg-type]
    def charge(api_key: str) -> None:
        pytest.fail(api_key)

    with sayso.run("run-1"), pytest.raises(errors.PolicyError, match=f"{option}= of charge"):
        charge("hunter2-hunter2")
    assert store.count(Filter()) == 0


def test_a_call_that_was_asked_before_its_gate_named_an_effect_is_asked_anew(store: Store) -> None:
    def gated(**options: Any) -> Callable[[str], str]:
        @sayso.gate(name="refund", wait="raise", **options)
        def refund(order: str) -> str:
            return pytest.fail("started, and its effect was not taken")

        return refund

    with sayso.run("run-1"):
        with pytest.raises(sayso.ConfirmationRequired) as asked:
            gated()("A-1")
        sayso.Review().approve(asked.value.id, by="ada")
        with pytest.raises(sayso.ConfirmationRequired) as again:
            gated(effect="refund:{order}")("A-1")
    assert (store.get(asked.value.id).state, store.get(again.value.id).effect) == (State.CANCELLED, "refund:A-1")


def test_a_gate_that_asks_for_more_than_a_keyed_request_leaves_it_as_it_is(store: Store) -> None:
    call = sayso.hold("refund", {"order": "A-1"}, run="run-1", key="k")
    for is_approved in (False, True):
        if is_approved:
            approve(call)
        with pytest.raises(errors.KeyReusedError, match="the gate now requires 2"):
            sayso.hold("refund", {"order": "A-1"}, run="run-1", key="k", quorum=2)
        assert store.get(str(call.id)).state is (State.APPROVED if is_approved else State.PENDING)
    assert call.once(lambda given: given["order"]) == "A-1"


def test_a_call_that_asks_for_its_own_result_is_refused() -> None:
    call = sayso.hold("refund", {"order": "A-1"}, run="run-1", key="k")
    approve(call)

    def run(given: dict[str, Any]) -> str:
        again = sayso.hold("refund", given, run="run-1", key="k")
        with pytest.raises(errors.StartRefusedError, match="waits for its own result"):
            again.once(lambda _: pytest.fail("ran twice"))
        with pytest.raises(errors.StartRefusedError, match="waits for its own result"):
            again.result()
        return "paid"

    assert call.once(run) == "paid"


@pytest.mark.parametrize(
    "by", ["", " worker", "a\nb", "\ud800", "w" * 501, 5, True, b"w"], ids=lambda by: ascii(by)[:20]
)
def test_a_start_by_what_is_no_name_is_refused_and_starts_nothing(store: Store, by: Any) -> None:
    call = held()
    approve(call)
    with pytest.raises(errors.ConfigError, match=r"by= takes the name of a process, .* nothing was started"):
        call.start(by=by)
    assert store.get(str(call.id)).state is State.APPROVED
    assert call.start(by="worker/7") == FILE
    execution = store.get(str(call.id)).execution
    assert execution is not None
    assert execution.worker == "worker/7"


def test_a_handle_that_has_started_by_hand_does_not_wait_for_itself() -> None:
    call = sayso.hold("refund", {"order": "A-1"}, run="run-1", key="k")
    approve(call)
    call.start()
    with pytest.raises(errors.StartRefusedError, match="report how that ended first"):
        call.once(lambda _: pytest.fail("ran twice"))
    call.finish("paid")
    assert call.once(lambda _: pytest.fail("ran twice")) == "paid"


def test_awaited_it_does_the_same() -> None:
    async def work() -> list[Any]:
        call = await sayso.aio.hold("fs/write_file", FILE, schema=SCHEMA, run="thread-1", key="call_1")
        approve_later = asyncio.create_task(asyncio.to_thread(sayso.Review().approve, str(call.id), by="ada"))
        await call.wait()
        await approve_later

        async def run(arguments: dict[str, Any]) -> str:
            return arguments["path"]

        gave = await asyncio.gather(*(call.once(each) for each in (run, run, lambda given: given["path"])))
        async with await sayso.aio.hold("x", {}, run="r", key="k", withdraw_on_exit=True) as left:
            pass
        return [*gave, await call.result(), left.state]

    assert asyncio.run(work()) == [FILE["path"]] * 4 + ["cancelled"]


@pytest.mark.parametrize("occasion", [{"run": "thread-1", "key": "call_1"}, {"run": "thread-1"}, {}], ids=str)
def test_who_is_cancelled_before_an_approved_call_starts_takes_its_approval_back(
    store: Store, occasion: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    ran, is_refused, start = list[Any](), threading.Event(), store.start

    def refused(request_id: str, token: str, **options: Any) -> Request:
        try:
            return start(request_id, token, **options)
        finally:
            is_refused.set()

    monkeypatch.setattr(store, "start", refused)

    async def work() -> None:
        options: Any = {**occasion, "effect": "write", "withdraw_on_exit": True}
        async with await sayso.aio.hold("fs/write_file", FILE, schema=SCHEMA, **options) as call:
            await call.wait()
            await call.once(ran.append)

    async def cancelled() -> None:
        task = asyncio.create_task(work())
        (request,) = await asyncio.to_thread(waiting_in, store)
        review = sayso.Review(undo_within="1h")  # until then, its call does not start
        await asyncio.to_thread(review.approve, request.id, by="ada")
        assert await asyncio.to_thread(is_refused.wait, 30)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancelled())
    (request,) = store.list(Filter()).requests
    # With a key, whoever asks again makes this very call.
    assert (request.state, ran) == (State.APPROVED if "key" in occasion else State.CANCELLED, [])
    assert request.decision is not None
    assert "key" in occasion or request.decision.comment == "the program stopped waiting (CancelledError)"


def test_what_nobody_waits_for_in_a_thread_is_taken_back_although_it_was_approved(store: Store) -> None:
    with ExitStack() as run:
        run.enter_context(sayso.run("thread-1"))
        call = held(run=None, key=None, withdraw_on_exit=True)
        approve(call)
        run.close()  # as a cancelled task ends the wait of its thread
        with pytest.raises(sayso.ConfirmationCancelled, match="its run was left"), call:
            call.once(dict)
    assert store.get(str(call.id)).state is State.CANCELLED


def test_who_leaves_takes_no_request_back_for_which_an_equal_call_waits(store: Store) -> None:
    other, request = Waiter(scope.current(), store), held(key=None).refresh()
    assert request is not None
    other.wait_for(request)
    for state in (State.PENDING, State.CANCELLED):
        with held(key=None, withdraw_on_exit=True):
            pass
        assert store.get(request.id).state is state
        other.close()


def test_who_leaves_after_an_error_keeps_the_approval(store: Store) -> None:
    call = held(withdraw_on_exit=True)
    sayso.Review().approve(str(call.id), by="ada")
    with pytest.raises(ValueError, match="later"), call:
        raise ValueError("later")
    assert store.get(str(call.id)).state is State.APPROVED


def test_who_leaves_after_an_error_in_a_run_without_a_name_frees_the_effect(store: Store) -> None:
    for _ in range(2):
        call = sayso.hold("refund", {}, effect="refund:A-4721", withdraw_on_exit=True)
        sayso.Review().approve(str(call.id), by="ada")
        with pytest.raises(ValueError, match="later"), call:
            raise ValueError("later")
        assert store.get(str(call.id)).state is State.CANCELLED
    call = sayso.hold("refund", {}, effect="refund:A-4721")
    sayso.Review().approve(str(call.id), by="ada")
    assert call.once(lambda _: "refunded") == "refunded"


def test_a_cancelled_scope_of_anyio_that_leaves_the_block_withdraws(store: Store) -> None:
    async def work() -> None:
        with anyio.CancelScope() as scope:
            async with await sayso.aio.hold("x", {}, run="r", key="k", withdraw_on_exit=True):
                scope.cancel()
                await anyio.sleep_forever()

    asyncio.run(work())
    assert [request.state for request in store.list(Filter()).requests] == [State.CANCELLED]


RESUME = """
import os, sys, time
import sayso
store, ledger, mode, *rest = sys.argv[1:]
sayso.configure(store=store)
run, effect = rest or ("thread-1", None)
call = sayso.hold("fs/write_file", {"path": "/etc/motd"}, run=run, key="call_1", effect=effect)
def write(arguments):
    with open(ledger, "a") as file:
        file.write("ran\\n")
    if mode == "die":
        os.kill(os.getpid(), 9)
    return {"bytes": 4}
try:
    print(call.once(write)["bytes"])
except sayso.ConfirmationRequired:
    print(call.id)
except sayso.errors.SaysoError as error:
    print(type(error).__name__)
"""


def test_ten_processes_with_one_key_start_it_once(store: Store, tmp_path: Any) -> None:
    ledger = tmp_path / "ledger"
    (first,) = [running(forked(RESUME, store.url, str(ledger), "live"))]
    sayso.Review().approve(first, by="ada")
    racers = [forked(RESUME, store.url, str(ledger), "live") for _ in range(10)]
    assert [running(process) for process in racers] == ["4"] * 10
    assert ledger.read_text() == "ran\n"
    assert store.count(Filter()) == 1


def test_a_process_killed_after_its_start_leaves_the_outcome_unknown_to_all(store: Store, tmp_path: Any) -> None:
    ledger = tmp_path / "ledger"
    first = running(forked(RESUME, store.url, str(ledger), "live"))
    sayso.Review().approve(first, by="ada")
    killed = forked(RESUME, store.url, str(ledger), "die")
    killed.communicate(timeout=60)
    racers = [forked(RESUME, store.url, str(ledger), "live") for _ in range(10)]
    assert [running(process) for process in racers] == ["OutcomeUnknownError"] * 10
    assert ledger.read_text() == "ran\n"


def test_of_two_processes_with_one_effect_in_two_runs_one_starts(store: Store, tmp_path: Any) -> None:
    ledger, effect = tmp_path / "ledger", "write:{path}"
    for run in ("run-1", "run-2"):
        sayso.Review().approve(running(forked(RESUME, store.url, str(ledger), "live", run, effect)), by="ada")
    racers = [forked(RESUME, store.url, str(ledger), "live", run, effect) for run in ("run-1", "run-2")]
    assert sorted(running(process) for process in racers) == ["4", "EffectTakenError"]
    assert ledger.read_text() == "ran\n"


def test_function_that_suspends_is_made_again_and_its_approval_is_not_spent() -> None:
    class Paused(Exception):
        """What a framework raises to come back later."""

    def pause(_: dict[str, Any]) -> str:
        raise Paused

    call = held(suspends=Paused)
    approve(call)
    with pytest.raises(Paused):
        call.once(pause)
    assert held(suspends=Paused).once(lambda arguments: f"wrote {arguments['size']}") == "wrote 3"


@pytest.mark.parametrize(("how", "state"), [("fail", "failed"), ("unknown", "unknown")])
def test_by_hand_the_program_says_how_a_call_ended_also_with_an_exception_that_suspends(how: str, state: str) -> None:
    call = held(suspends=ValueError)
    approve(call)
    call.start()
    getattr(call, how)(ValueError("it rained"))
    assert call.state == state


def test_what_a_call_by_hand_says_did_not_run_counts_in_the_gate_around_it(store: Store) -> None:
    @sayso.gate(wait="raise")
    def save() -> None:
        call = held()
        approve(call)
        call.start()
        locked = sayso.NotExecuted("the disk is locked")
        call.fail(locked)
        raise locked

    with sayso.run("nightly"):
        with pytest.raises(sayso.ConfirmationRequired) as caught:
            save()
        sayso.Review().approve(caught.value.confirmation_id, by="ada")
        with pytest.raises(sayso.NotExecuted, match="the disk is locked"):
            save()
    assert store.get(caught.value.confirmation_id).state is State.FAILED


class Frozen(ValueError):
    def add_note(self, note: str) -> None:
        raise AttributeError(note)


def test_whether_to_withdraw_is_yes_or_no() -> None:
    with pytest.raises(errors.ConfigError, match="withdraw_on_exit= takes True or False, not 'no'; nothing was asked"):
        sayso.hold("pay", {}, withdraw_on_exit="no")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("kind", [ValueError, Frozen])
def test_what_the_call_raised_is_raised_also_where_the_store_fails_after_it(kind: type[ValueError]) -> None:
    store = MemoryStore()
    held = sayso.hold("pay", {"amount": 5}, run="order", store=store)
    sayso.Review(store, reviewer="ada").approve(str(held.id))

    def pay(arguments: dict[str, Any]) -> None:
        def fail(*_: object, **__: object) -> None:
            raise errors.StoreUnavailableError("the disk is gone")

        store.finish = store.settle = fail  # type: ignore[method-assign]
        raise kind(arguments["amount"])

    with pytest.raises(kind, match="5") as raised:
        held.once(pay)
    assert kind is Frozen or "could not be recorded" in raised.value.__notes__[0]
