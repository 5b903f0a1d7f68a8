"""Every option of every public decorator has its effect, in both forms: `d(function, …)` and `d(…)(function)`.

One table names the effect of each option as a check of what a program or a person sees. The invariant: an option that
a decorator takes and the table does not know fails these tests.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from datetime import timedelta
from queue import SimpleQueue
from typing import Any, NamedTuple

import pytest

import sayso
from sayso import channels, errors
from sayso.channels.registry import notification_for
from sayso.gates import dialog, stderr, wait
from sayso.gates.gate import ConfirmOptions, GateOptions
from sayso.model.request import Request, State
from sayso.runs.definition import options_of
from sayso.stores.base import Store
from tests.conftest import Clock
from tests.support.acting import held

MASK = "***"
RAN: list[tuple[int, str]] = []
ENDS: list[BaseException] = []

Declare = Callable[..., Any]
"""Declares `function` with options, in one of the two forms."""


@pytest.fixture(autouse=True)
def nothing_ran(place: Any) -> None:
    sayso.configure(store="sqlite:///requests.db")
    RAN.clear()
    ENDS.clear()


def pay(amount: int, to: str = "alice") -> str:
    """Pay somebody."""
    RAN.append((amount, to))
    if ENDS:
        raise ENDS.pop()
    return f"paid {amount} to {to}"


class Gated(NamedTuple):
    """`pay` behind one decorator with the options of a check, in one form."""

    declare: Declare
    always: dict[str, Any]
    is_tool: bool
    clock: Clock

    def __call__(self, **options: Any) -> Callable[..., Any]:
        made = self.declare(pay, **{**self.always, **options})
        return made.call if self.is_tool else made


def request_of(call: Callable[..., Any], *args: Any) -> Request:
    return sayso.Review().get(held(call, *args).confirmation_id)


def approve(call: Callable[..., Any], *args: Any) -> str:
    request = request_of(call, *args)
    sayso.Review().approve(request.id, by="ada")
    return request.id


# -- what each option does, by what it means -------------------------------------------------------------------------


def rule(made: Gated, option: str) -> None:
    call = made(**{option: lambda amount: amount > 10})
    assert call(5) == "paid 5 to alice"
    held(call, 50)
    assert RAN == [(5, "alice")]


def prompt(made: Gated, option: str) -> None:
    assert held(made(**{option: "Is it Friday?"}), 5).question == "Is it Friday?"
    assert held(made(**{option: lambda amount: f"Pay {amount}?"}), 6).question == "Pay 6?"


def description(made: Gated, option: str) -> None:
    assert request_of(made(**{option: "Sends money away."}), 5).description == "Sends money away."


def expires(made: Gated, option: str) -> None:
    request = request_of(made(**{option: "1h"}), 5)
    made.clock.tick(minutes=61)
    with pytest.raises(errors.RequestExpiredError):
        sayso.Review().approve(request.id, by="ada")


def approval_expires(made: Gated, option: str) -> None:
    call = made(**{option: "1h"})
    first = approve(call, 5)
    made.clock.tick(minutes=61)
    with pytest.raises((sayso.ConfirmationRequired, sayso.ConfirmationExpired)):
        call(5)
    assert RAN == []
    assert sayso.Review().get(first).state is State.EXPIRED


def name(made: Gated, option: str) -> None:
    tool_call = held(made(**{option: "wire"}), 5).tool_call
    assert tool_call is not None
    assert tool_call.name == "wire"


def quorum(made: Gated, option: str) -> None:
    call = made(**{option: 2})
    approve(call, 5)
    held(call, 5)
    assert RAN == []
    sayso.Review().approve(held(call, 5).confirmation_id, by="bob")
    assert call(5) == "paid 5 to alice"


def roles(made: Gated, option: str) -> None:
    call = made(**{option: {"finance"}})
    request = request_of(call, 5)
    with pytest.raises(errors.MissingRoleError):
        sayso.Review().approve(request.id, by="ada")
    sayso.Review().approve(request.id, by=sayso.Reviewer("eve", roles={"finance"}))
    assert call(5) == "paid 5 to alice"


def redact(made: Gated, option: str) -> None:
    call = made(**{option: {"to"}})
    tool_call = held(call, 5, "DE89").tool_call
    assert tool_call is not None
    assert tool_call.args == {"amount": 5, "to": MASK}


def redactor(made: Gated, option: str) -> None:
    tool_call = held(made(**{option: lambda arguments: {"amount": arguments["amount"]}}), 5, "DE89").tool_call
    assert tool_call is not None
    assert tool_call.args == {"amount": 5}


def risk(made: Gated, option: str) -> None:
    request = request_of(made(**{option: "high"}), 5)
    assert [found.id for found in sayso.Review().list(risk="high").requests] == [request.id]


def retries(made: Gated, option: str) -> None:
    call = made(**{option: 1})
    ENDS.append(ValueError("refused"))
    approve(call, 5)
    with pytest.raises(ValueError, match="refused"):
        call(5)
    assert call(5) == "paid 5 to alice"


def idempotent(made: Gated, option: str) -> None:
    call = made(**{option: True})
    ENDS.append(KeyboardInterrupt())
    approve(call, 5)
    with pytest.raises(KeyboardInterrupt):
        call(5)
    assert call(5) == "paid 5 to alice"
    assert len(RAN) == 2


def verify(made: Gated, option: str) -> None:
    call = made(**{option: lambda amount: sayso.Happened(f"known: {amount}")})
    ENDS.append(KeyboardInterrupt())
    approve(call, 5)
    with pytest.raises(KeyboardInterrupt):
        call(5)
    assert call(5) == "known: 5"
    assert len(RAN) == 1


def ambiguous(made: Gated, option: str) -> None:
    call = made(**{option: LookupError})
    ENDS.append(KeyError("sent"))
    request_id = approve(call, 5)
    with pytest.raises(KeyError):
        call(5)
    assert sayso.Review().get(request_id).state is State.UNKNOWN


def store(made: Gated, option: str) -> None:
    confirmation_id = held(made(**{option: "memory:aside"}), 5).confirmation_id
    assert sayso.Review("memory:aside").get(confirmation_id).state is State.PENDING
    assert sayso.Review().list().requests == ()


def escalation(made: Gated, option: str) -> None:
    with pytest.raises(errors.ConfigError, match=option):
        made(**{option: "1h" if option == "escalate_after" else {"boss"}})
    call = made(roles={"finance"}, escalate_after="1h", escalate_to={"boss"})
    request, boss = request_of(call, 5), sayso.Reviewer("zoe", roles={"boss"})
    with pytest.raises(errors.MissingRoleError):
        sayso.Review().approve(request.id, by=boss)
    made.clock.tick(minutes=61)
    sayso.Review().approve(request.id, by=boss)
    assert call(5) == "paid 5 to alice"


def notify_arguments(made: Gated, option: str) -> None:
    request = request_of(made(**{option: True}), 5)
    message = notification_for(request, "asked", mark="", channel="ops", base_url=None, now=made.clock())
    assert message.arguments == {"amount": 5, "to": "alice"}


def always(made: Gated, option: str) -> None:
    rule = "requires_approval" if made.is_tool else "when"
    call = made(**{option: True, rule: lambda amount: amount > 10})
    assert request_of(call, 5).always
    with pytest.raises(errors.ConfigError, match="always="):
        made(**{option: "yes"})
    assert RAN == []


def wait_option(made: Gated, option: str) -> None:
    held(made(**{option: "raise"}), 5)
    # A gate that blocks takes a timeout; one that raises has no use for it.
    held(made(**{option: "block", "timeout": "1ms"}), 6)
    with pytest.raises(errors.ConfigError, match="timeout="):
        made(**{option: "raise", "timeout": "1ms"})


def timeout(made: Gated, option: str) -> None:
    held(made(**{"wait": "block", option: "1ms"}), 5)
    assert RAN == []


def on_expiry(made: Gated, option: str) -> None:
    asked: SimpleQueue[str] = SimpleQueue()

    def expire_the_first(_: Store, request: Request) -> None:
        if not asked.empty():
            sayso.Review().approve(request.id, by="ada")
            return
        asked.put(request.id)
        made.clock.tick(hours=25)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dialog, "person_is_at_terminal", lambda: False)
        patch.setattr(stderr, "announce", expire_the_first)
        patch.setattr(wait, "_LOOK_AGAIN", 3600.0)
        patch.setattr(Store, "look_again", 3600.0)
        assert made(**{"wait": "block", option: "ask"})(5) == "paid 5 to alice"
        asked.get()
        with pytest.raises(sayso.ConfirmationExpired):
            made(**{"wait": "block", option: "reject"})(6)


def key(made: Gated, option: str) -> None:
    call = made(**{option: "{to}"})
    with sayso.run("order-1"):
        approve(call, 5)
        assert [call(5), call(5)] == ["paid 5 to alice"] * 2
        assert len(RAN) == 1
        with pytest.raises(errors.KeyReusedError):
            call(6)
    with pytest.raises(errors.ConfigError, match="needs a named run"):
        call(5)
    with pytest.raises(errors.ConfigError, match=option):
        made(**{option: "{order}"})


def effect(made: Gated, option: str) -> None:
    call = made(**{option: "pay:{to}"})
    for run in ("order-1", "order-2"):
        with sayso.run(run):
            approve(call, 5)
    with sayso.run("order-1"):
        assert call(5) == "paid 5 to alice"
    with sayso.run("order-2"), pytest.raises(errors.EffectTakenError, match="pay:alice"):
        call(5)
    with pytest.raises(errors.ConfigError, match=option):
        made(**{option: "pay:{order}"})


def words(made: Gated, option: str) -> None:
    assert getattr(request_of(made(**{option: "Pay {amount} to {to}"}), 5), option) == "Pay 5 to alice"
    assert getattr(request_of(made(**{option: lambda to: f"Pay {to}"}), 6), option) == "Pay alice"
    redact = "approval_redact_keys" if made.is_tool else "redact"
    shown = getattr(request_of(made(**{option: "to {to}", redact: {"to"}}), 7, "DE89370400"), option)
    assert shown == f"to {MASK}"


def suspends(made: Gated, option: str) -> None:
    call = made(**{option: LookupError})
    ENDS.append(KeyError("later"))
    request_id = approve(call, 5)
    with pytest.raises(KeyError):
        call(5)
    assert sayso.Review().get(request_id).state is State.APPROVED
    assert call(5) == "paid 5 to alice"


def on_reject(made: Gated, option: str) -> None:
    for value, said in (("return", "do not repeat"), (lambda no: no.message, "was rejected by")):
        call = made(**{option: value})
        sayso.Review().reject(request_of(call, 5).id, "too much", by="ada")
        assert said in call(5)
        assert "too much" in call(5)
        sayso.clear_all_confirmations()
    with pytest.raises(errors.ConfigError, match=option):
        made(**{option: "drop"})


# -- what only tools have --------------------------------------------------------------------------------------------


def held_always(made: Gated, option: str) -> None:
    call = made.declare(pay, **{option: True})
    held(call.call, 5)
    assert made.declare(pay, **{option: False}).call(5) == "paid 5 to alice"


def tool_description(made: Gated, option: str) -> None:
    assert made.declare(pay, **{option: "Sends money."}).description == "Sends money."
    description(made, option)


def approval_description(made: Gated, option: str) -> None:
    description(made, option)
    context = request_of(made(**{option: lambda amount: f"{amount} go away"}), 6).context
    assert context is not None
    assert context["description"] == "6 go away"


def default_params(made: Gated, option: str) -> None:
    tool_call = held(made(**{option: {"to": lambda: "bob"}}), 5).tool_call
    assert tool_call is not None
    assert tool_call.args == {"amount": 5, "to": "bob"}


ASKING: dict[str, Callable[[Gated, str], None]] = {
    "expires": expires, "approval_expires": approval_expires, "name": name, "quorum": quorum, "roles": roles,
    "risk": risk, "idempotent": idempotent, "verify": verify, "store": store, "escalate_after": escalation,
    "escalate_to": escalation, "notify_arguments": notify_arguments, "ambiguous": ambiguous, "key": key,
    "effect": effect, "title": words, "summary": words, "suspends": suspends, "always": always,
}  # fmt: skip
CONFIRM = ASKING | {
    "when": rule, "prompt": prompt, "description": description, "redact": redact, "redactor": redactor,
    "retries": retries,
}  # fmt: skip
GATE = CONFIRM | {"wait": wait_option, "timeout": timeout, "on_expiry": on_expiry, "on_reject": on_reject}
TOOL = ASKING | {
    "requires_approval": rule, "require_confirmation": held_always, "approval_prompt": prompt,
    "description": tool_description, "approval_description": approval_description, "approval_redact_keys": redact,
    "approval_redactor": redactor, "default_params": default_params,
    "tracing_provider": store, "on_reject": on_reject,
}  # fmt: skip

DECORATORS: dict[str, tuple[Declare, dict[str, Any], dict[str, Callable[[Gated, str], None]]]] = {
    "gate": (sayso.gate, {"wait": "raise"}, GATE),
    "confirm_first": (sayso.confirm_first, {}, CONFIRM),
    "tool": (sayso.tool, {"requires_approval": True}, TOOL),
}
FORMS: dict[str, Callable[[Declare], Declare]] = {
    "called": lambda decorator: decorator,
    "decorating": lambda decorator: lambda function, **options: decorator(**options)(function),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("decorator", "option"), [(decorator, option) for decorator, (*_, table) in DECORATORS.items() for option in table]
)
def test_an_option_has_its_effect_in_both_forms(decorator: str, option: str, form: str, clock: Clock) -> None:
    declare, always, table = DECORATORS[decorator]
    table[option](Gated(FORMS[form](declare), always, decorator == "tool", clock), option)


def test_no_decorator_has_an_option_whose_effect_is_not_tested() -> None:
    assert GateOptions.__optional_keys__ == GATE.keys()
    assert ConfirmOptions.__optional_keys__ == CONFIRM.keys()
    assert options_of(sayso.Tool) | {"require_confirmation"} == TOOL.keys()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("decorator", DECORATORS)
def test_a_misspelt_option_is_refused_with_the_one_that_was_meant(decorator: str, form: str) -> None:
    declare = FORMS[form](DECORATORS[decorator][0])
    with pytest.raises(TypeError, match=rf"^{decorator}\(\) has no qourum=; did you mean quorum=\? Nothing was done$"):
        declare(pay, qourum=2)


@pytest.mark.parametrize("option", ["qourum", "approvers"])
@pytest.mark.parametrize("decorator", DECORATORS)
def test_a_misspelt_option_is_refused_before_there_is_a_function(decorator: str, option: str) -> None:
    with pytest.raises(TypeError, match="did you mean quorum="):
        DECORATORS[decorator][0](**{option: 2})


def test_the_bare_form_and_the_empty_one_hold_as_well() -> None:
    for declare in (sayso.confirm_first, sayso.confirm_first()):
        held(declare(pay), 5)
    for make in (sayso.tool, sayso.tool()):
        assert make(pay).call(5) == "paid 5 to alice"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dialog, "person_is_at_terminal", lambda: False)
        patch.setattr(stderr, "announce", lambda _, request: sayso.Review().reject(request.id, by="ada"))
        for number, declare in enumerate((sayso.gate, sayso.gate())):
            with pytest.raises(sayso.ConfirmationRejected):
                declare(pay)(number)


def test_what_is_asked_once_is_not_asked_again_after_an_expiry() -> None:
    with pytest.raises(errors.ConfigError, match="on_expiry='ask' asks again, and with key= a call is asked once"):
        sayso.gate(lambda amount: amount, name="pay", key="{amount}", on_expiry="ask")


@pytest.mark.parametrize("option", ["wait", "timeout", "on_expiry", "on_reject"])
def test_how_to_wait_is_no_option_of_what_always_raises(option: str) -> None:
    with pytest.raises(TypeError, match=rf"confirm_first\(\) has no {option}=, because it always raises"):
        sayso.confirm_first(pay, **{option: "block"})  # type: ignore[call-overload]


def test_one_stranger_cannot_approve_what_two_from_finance_must() -> None:
    def wire(amount: int, iban: str) -> None:
        RAN.append((amount, iban))

    call = sayso.gate(wire, quorum=2, roles={"finance"}, redact={"iban"}, wait="raise")
    signal = held(call, 5, "DE89")
    assert signal.tool_call is not None
    assert signal.tool_call.args == {"amount": 5, "iban": MASK}
    with pytest.raises(errors.MissingRoleError):
        sayso.Review().approve(signal.confirmation_id, by="stranger")
    sayso.Review().approve(signal.confirmation_id, by=sayso.Reviewer("eve", roles={"finance"}))
    held(call, 5, "DE89")
    assert RAN == []


def test_two_names_of_one_option_are_refused_together() -> None:
    with pytest.raises(errors.ConfigError, match="two names of one option"):
        sayso.tool(pay, require_confirmation=True, requires_approval=False)


# -- a person as a tool ----------------------------------------------------------------------------------------------


async def _carry(request: channels.HumanInputRequest) -> None:
    request.set_response("yes", by=sayso.Reviewer("eve", roles={"finance"}))


def asked_of(**options: Any) -> tuple[sayso.Tool, Request]:
    tool = channels.human_in_the_loop(_carry, **options)
    assert asyncio.run(tool.acall(question="Shall I?")) == "yes"
    (request,) = sayso.Review(options.get("store")).list(state="all").requests
    return tool, request


PERSON: dict[str, tuple[Any, Callable[[sayso.Tool, Request], Any]]] = {
    "name": ("phone", lambda tool, _: tool.name),
    "description": ("Calls Ada.", lambda tool, _: tool.description),
    "expires": ("1h", lambda _, request: request.expires_at - request.created_at),
    "roles": (["finance"], lambda _, request: list(request.quorum.roles)),
    "risk": ("high", lambda _, request: request.risk),
    "store": ("memory:aside", lambda tool, _: tool.store.url),
}


@pytest.mark.parametrize("option", PERSON)
def test_an_option_of_a_person_as_a_tool_has_its_effect(option: str) -> None:
    value, seen = PERSON[option]
    assert seen(*asked_of(**{option: value})) == (timedelta(hours=1) if option == "expires" else value)


def test_no_option_of_a_person_as_a_tool_is_untested_and_a_misspelt_one_is_refused() -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'expirse'"):
        channels.human_in_the_loop(_carry, expirse="1h")  # type: ignore[call-arg]
    known = inspect.signature(channels.human_in_the_loop).parameters.values()
    assert {option.name for option in known if option.kind is option.KEYWORD_ONLY} == PERSON.keys()
