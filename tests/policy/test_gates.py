"""A policy file in front of gates and held calls: what each key of a rule does, and what fails closed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import sayso
from sayso import aio, config, errors, policy
from sayso.model.reviewer import Quorum
from sayso.policy import Policy, hold
from sayso.stores.base import Store
from sayso.stores.memory import MemoryStore

pytest.importorskip("cel_expr_python")

RULES = """
[[rules]]
name = "small refunds"
tool = "refund"
when = "args.amount <= 50"
verdict = "allow"
log = true

[[rules]]
tool = "refund"
when = "args.amount > 1000"
verdict = "deny"
reason = "too much"

[[rules]]
name = "larger refunds"
tool = "refund"
verdict = "hold"
reason = "somebody looks"
quorum = 2
risk = "high"
summary = "Refund {amount} for {order}"
redact = ["iban"]
channels = ["ops"]
effect = "refund:{order}"
"""
SCHEMA = {"type": "object", "properties": {"order": {"type": "string"}, "amount": {"type": "number"}}}
RAN: list[Any] = []


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    RAN.clear()
    monkeypatch.chdir(tmp_path)
    made = MemoryStore()
    sayso.configure(store=made)
    return made


def in_effect(text: str = RULES) -> Path:
    file = Path("sayso.toml")
    file.write_text(text)
    file.chmod(0o600)
    return file


def refund(order: str, amount: float, iban: str) -> str:
    RAN.append(amount)
    return f"{amount} to {iban}"


def gated(**options: Any) -> Callable[..., str]:
    return sayso.gate(refund, wait="raise", **options)


def ask(call: Callable[..., Any], amount: float = 400) -> sayso.ConfirmationRequired:
    with pytest.raises(sayso.ConfirmationRequired) as caught:
        call("A-1", amount, "DE02 1203")
    return caught.value


def request_of(call: Callable[..., Any], amount: float = 400) -> Any:
    return sayso.Review().get(ask(call, amount).confirmation_id)


def journal(store: Store, event: str) -> list[dict[str, Any]]:
    import json

    return [json.loads(row.detail) for row in store.journal(limit=100) if row.event == event]


def approve(request: Any, **options: Any) -> None:
    for name in ("ada", "bob"):
        sayso.Review().approve(request.id, by=name, **options)
        options = {}


def test_a_gate_without_a_rule_of_its_own_follows_the_file_in_effect(store: Store) -> None:
    call = gated()
    assert request_of(call, 40).rule is None  # no file yet: held as ever
    in_effect()
    with sayso.run("order-1"):
        assert call("A-1", 41, "DE02") == "41 to DE02"
        noted = journal(store, "allowed")[0]
        assert (noted["rule"], noted["tool"].rpartition(":")[2]) == ("small refunds", "refund")
        with pytest.raises(sayso.ConfirmationRejected, match="too much"):
            call("A-1", 4_000, "DE02")
    assert journal(store, "denied")[0]["rule"] == "rule 2 (sayso.toml:9)"
    assert RAN == [41]


def test_the_settings_file_that_the_environment_names_counts_in_every_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    in_effect('[[rules]]\ntool = "*"\nverdict = "allow"\n')  # of the folder, and loses
    pinned = tmp_path / "service.toml"
    monkeypatch.setenv("SAYSO_CONFIG", "service.toml")
    unusable = {None: "service.toml:1:1: cannot be read", "": "is empty", "[[rules]]": "a rule needs tool"}
    for text, why in unusable.items():
        if text is not None:
            pinned.write_text(text)
            pinned.chmod(0o600)
        with pytest.raises(errors.PolicyError, match=why):
            gated()("A-1", 40, "DE02")
    pinned.write_text("# no settings are meant\n")
    ask(gated())
    pinned.write_text(RULES)
    monkeypatch.setenv("SAYSO_CONFIG", str(pinned))
    monkeypatch.chdir("/")
    with caplog.at_level("INFO", "sayso"), sayso.run("order-1"):
        assert [gated()("A-1", amount, "DE02") for amount in (41, 42)] == ["41 to DE02", "42 to DE02"]
    assert [one.getMessage() for one in caplog.records if "allows" in one.getMessage()] == [
        f"{pinned} allows calls that no person sees, for example this one of refund"
    ]
    monkeypatch.setenv("SAYSO_CONFIG", " ")
    with pytest.raises(errors.ConfigError, match="is set but empty"):
        gated()("A-1", 40, "DE02")
    with pytest.raises(errors.ConfigError, match="is set but empty"):
        config.address_nearby()
    monkeypatch.setenv("SAYSO_CONFIG", str(tmp_path / "gone.toml"))
    with pytest.raises(errors.ConfigError, match=r"gone.toml, which does not exist"):
        config.address_nearby()
    assert RAN == [41, 42]


def test_each_key_of_a_hold_is_in_the_request() -> None:
    in_effect()
    with sayso.run("order-1"):
        request = request_of(gated())
    assert (request.rule, request.risk, request.quorum) == ("larger refunds: somebody looks", "high", Quorum(2))
    assert (request.summary, request.effect) == ("Refund 400 for A-1", "refund:A-1")
    assert (request.redact, request.channels) == (("iban",), ("ops",))
    assert request.call.arguments["iban"] == "***"


def test_a_rule_for_a_name_is_for_the_methods_and_nested_functions_that_are_called_so() -> None:
    in_effect("[[rules]]\ntool = 'refund'\nverdict = 'deny'\nreason = 'no'\n[[rules]]\ntool = '*'\nverdict = 'allow'\n")

    class Bank:
        @sayso.gate
        @staticmethod
        def refund(amount: int) -> None:
            RAN.append(amount)

    @sayso.gate
    def refund(amount: int) -> None:
        RAN.append(amount)

    for function in (Bank.refund, refund):
        with pytest.raises(sayso.ConfirmationDenied):
            function(5)
    assert RAN == []


def test_what_a_rule_masks_is_masked_in_the_result_too_whoever_runs_the_call(store: Store) -> None:
    in_effect()
    with sayso.run("order-1"):
        request = request_of(gated())
        approve(request)
        assert gated()("A-1", 400, "DE02 1203") == "400 to DE02 1203"
    execution = store.get(request.id).execution
    assert execution is not None
    assert execution.result == '{"result":"400 to ***"}'


def test_only_the_named_channels_are_told(store: Store) -> None:
    from sayso.channels import deliver
    from sayso.channels.registry import Notification

    class Ears:
        def __init__(self, name: str) -> None:
            self.name, self.heard = name, list[str]()

        def send(self, notification: Notification) -> None:
            self.heard.append(notification.request_id)

        def follow_up(self, notification: Notification, reference: str | None) -> None: ...

    in_effect()
    ops, everybody = Ears("ops"), Ears("all")
    request = request_of(gated())  # before there is any channel: the named one is told once there is one
    with deliver(store, [ops, everybody], runs=False) as deliverers:
        later = request_of(gated(), 401)
        for one in deliverers:
            one.deliver_due()
    assert set(ops.heard) == {request.id, later.id}
    assert everybody.heard == []


def test_an_effect_of_a_rule_starts_once_and_an_edit_to_another_goes_back() -> None:
    in_effect()
    with sayso.run("order-1"):
        first = request_of(gated())
        approve(first, changes={"order": "B-2"})
        ask(gated())  # the edit has another effect: it waits again, and nothing ran
        assert sayso.Review().get(first.id).state == "pending"
        assert RAN == []
        approve(first, changes={"order": "A-1"})
        assert gated()("A-1", 400, "DE02 1203") == "400 to DE02 1203"
    with sayso.run("order-2"):
        again = request_of(gated(), 500)
        approve(again)
        with pytest.raises(errors.StartRefusedError):
            gated()("A-1", 500, "DE02 1203")
    assert RAN == [400]


def test_a_changed_call_whose_rule_is_gone_is_not_run() -> None:
    file = in_effect()
    held = sayso.hold("refund", {"order": "A-1", "amount": 400}, schema=SCHEMA, run="r", key="c1")
    approve(held.request, changes={"amount": 300})
    file.write_text("[[rules]]\ntool = 'other'\nverdict = 'allow'\n")
    again = sayso.hold("refund", {"order": "A-1", "amount": 400}, schema=SCHEMA, run="r", key="c1")
    with pytest.raises((errors.PolicyError, errors.KeyReusedError)):
        again.once(RAN.append)
    assert RAN == []


def test_an_effect_that_both_name_is_refused() -> None:
    in_effect()
    with pytest.raises(
        errors.PolicyError, match="larger refunds of refund names an effect, but the gate has its own effect="
    ):
        gated(effect="{order}")("A-1", 400, "DE02")


def test_a_held_call_follows_the_file_and_takes_a_policy(store: Store) -> None:
    arguments, schema = {"order": "A-1", "amount": 40}, SCHEMA
    policy = Policy.of_text(RULES)
    held = sayso.hold("refund", arguments, schema=schema, when=policy)
    assert (held.state, held.once(lambda given: given["amount"])) == ("allowed", 40)
    assert journal(store, "allowed")[0]["rule"] == "small refunds"
    in_effect()
    assert sayso.hold("refund", arguments, schema=schema).state == "allowed"
    assert sayso.hold("refund", {**arguments, "amount": 4_000}, schema=schema).state == "denied"
    waiting = sayso.hold("refund", {**arguments, "amount": 400}, schema=schema, run="r", key="c1")
    assert waiting.request is not None
    assert waiting.request.effect == "refund:A-1"
    assert sayso.hold("refund", arguments, schema=schema, when=True).state == "pending"


def test_an_async_gate_and_an_async_hold_follow_the_file() -> None:
    in_effect()

    async def go() -> tuple[str, str]:
        @sayso.gate(wait="raise", name="refund")
        async def refund_later(order: str, amount: float, iban: str) -> str:
            return iban

        held = await aio.hold("refund", {"order": "A-1", "amount": 40}, schema=SCHEMA)
        return await refund_later("A-1", 40, "DE02"), held.state

    assert asyncio.run(go()) == ("DE02", "allowed")


def test_a_tool_takes_a_policy() -> None:
    tool = sayso.Tool(refund, requires_approval=Policy.of_text(RULES))
    assert tool.call(order="A-1", amount=40, iban="DE02") == "40.0 to DE02"
    with pytest.raises(sayso.ConfirmationRequired):
        tool.call(order="A-1", amount=400, iban="DE02")


def test_always_waits_for_a_person_whatever_the_file_allows() -> None:
    in_effect()
    with sayso.run("order-1"):
        assert request_of(gated(always=True), 40).rule == "small refunds"
    assert sayso.hold("refund", {"order": "A", "amount": 4}, schema=SCHEMA, always=True).state == "pending"
    assert request_of(gated(always=True, when=Policy.of_text(RULES)), 41).rule == "small refunds"
    assert RAN == []


def test_what_always_and_when_cannot_be_is_refused() -> None:
    with pytest.raises(errors.ConfigError, match="always=True holds every call, and when=False none"):
        gated(always=True, when=False)
    with pytest.raises(errors.ConfigError, match="always= takes True or False"):
        gated(always="yes")
    with pytest.raises(errors.ConfigError, match=r"a callable or a sayso\.policy\.Policy"):
        gated(when="policy.toml")


def test_a_gate_with_a_rule_of_its_own_does_not_follow_the_file() -> None:
    in_effect("[[rules]]\ntool = '*'\nverdict = 'deny'\nreason = 'closed'\n")
    assert gated(when=False)("A-1", 5, "DE02") == "5 to DE02"
    assert request_of(gated(when=True)).rule is None
    assert request_of(gated(when=lambda amount: amount > 3), 401).rule.startswith("when=")


@pytest.mark.parametrize("text", [
    "[[rules]]\ntool = ", "[[rules]]\ntool = 'refund'\nverdict = 'allow'\nwhen = 'args.amont <= 50'\n",
    "[[rules]]\ntool = 'refund'\nverdict = 'allow'\nwhen = 'args.iban < 3'\n", "[[rules]]\nverdict = 'allow'\n",
])  # fmt: skip
def test_with_a_broken_file_nothing_runs(text: str) -> None:
    in_effect(text)
    with pytest.raises(errors.PolicyError, match=r"sayso\.toml:\d:\d+: "):
        gated()("A-1", 5, "DE02")
    with pytest.raises(errors.PolicyError, match=r"sayso\.toml:\d:\d+: "):
        sayso.hold("refund", {"order": "A", "amount": 5, "iban": "x"}, schema={
            "type": "object", "properties": {"amount": {"type": "number"}, "iban": {"type": "string"}}
        })  # fmt: skip
    assert RAN == []


def test_without_the_cel_library_a_rule_with_a_condition_lets_nothing_through(monkeypatch: pytest.MonkeyPatch) -> None:
    from sayso.policy import condition

    def missing() -> None:
        raise errors.ConfigError('pip install "sayso[policy]"')

    monkeypatch.setattr(condition, "library", missing)
    in_effect()
    with pytest.raises(errors.PolicyError, match=r"sayso\.toml:5:\d+: pip install"):
        gated()("A-1", 5, "DE02")
    in_effect("[[rules]]\ntool = 'refund'\nverdict = 'allow'\n")
    assert gated()("A-1", 5, "DE02") == "5 to DE02"


def test_a_verdict_that_would_not_count_is_refused() -> None:
    from sayso.policy import Verdict

    with pytest.raises(ValueError, match="a verdict's effect cannot be used for allow"):
        Verdict("allow", effect="x")
    with pytest.raises(ValueError, match="a verdict's log cannot be used for hold"):
        Verdict("hold", log=True)


def test_a_rule_in_python_may_say_the_same() -> None:
    made = hold("look", summary="Refund {amount}", redact=["iban"], channels=["ops"], effect="refund:{order}")
    request = request_of(gated(when=lambda amount: made))  # noqa: ARG005  the rule's argument
    assert (request.summary, request.effect, request.channels) == ("Refund 400", "refund:A-1", ("ops",))


def test_a_rule_allows_until_its_budget_is_used_up(store: Store) -> None:
    in_effect("""
[[rules]]
name = "refunds of a day"
tool = "refund"
verdict = "allow"
budget = "sum(args.amount) <= 100 per 24h"
quorum = 2
roles = ["finance"]
redact = ["iban"]
""")
    with sayso.run("order-1"):
        assert gated()("A-1", 60, "DE02") == "60 to DE02"
        held = request_of(gated(), 50)
        assert gated()("A-1", 40, "DE02") == "40 to DE02"
    assert held.state == "pending"
    assert RAN == [60, 40]
    assert (held.quorum, held.call.shown["iban"]) == (Quorum(2, {"finance"}), "***")
    assert request_of(gated(always=True), 5).quorum == held.quorum
    with pytest.raises(errors.MissingRoleError):
        sayso.Review().approve(held.id, by="bob")


def test_a_rule_in_python_says_what_a_call_needs_that_has_no_room() -> None:
    within = policy.allow(budget="count() <= 0 per 1h", otherwise=hold("a lot", quorum=2, risk="high"))
    held = request_of(gated(when=lambda amount: within))  # noqa: ARG005  the rule's argument
    assert (held.quorum, held.risk, "a lot; the budget" in str(held.rule)) == (Quorum(2), "high", True)
    for wrong in (
        {"otherwise": hold()}, {"budget": "count() <= 1 per 1h", "otherwise": hold(always=True)},
        {"budget": "count() <= 1 per 1h", "otherwise": policy.deny("no")},
    ):  # fmt: skip
        with pytest.raises(ValueError, match="otherwise="):
            policy.allow(**wrong)


def test_a_run_without_a_name_is_null_for_a_condition() -> None:
    in_effect('[[rules]]\ntool = "ship"\nwhen = "run == null"\nverdict = "deny"\nreason = "name the run"\n')

    @sayso.gate(wait="raise", name="ship")
    def ship() -> None:
        RAN.append(1)

    with sayso.run(), pytest.raises(sayso.ConfirmationRejected, match="name the run"):
        ship()
    with sayso.run("order-1"), pytest.raises(sayso.ConfirmationRequired):
        ship()
    assert RAN == []
