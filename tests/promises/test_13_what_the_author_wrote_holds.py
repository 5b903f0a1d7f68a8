"""13. The author's options hold: each option of each decorator takes effect in each form, or is an error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import sayso
from sayso import errors
from tests.conftest import Clock
from tests.promises.world import World
from tests.support.acting import held

FINANCE = {"roles": {"finance"}}
BOTH: dict[str, Any] = {"name": "wire", "quorum": 2, "expires": "1h", **FINANCE}
FORMS: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "gate(f, …)": (sayso.gate, {"wait": "raise", "redact": ["to"]}),
    "@gate(…)": (lambda f, **options: sayso.gate(**options)(f), {"wait": "raise", "redact": ["to"]}),
    "confirm_first(f, …)": (sayso.confirm_first, {"redact": ["to"]}),
    "@confirm_first(…)": (lambda f, **options: sayso.confirm_first(**options)(f), {"redact": ["to"]}),
    "tool(f, …)": (sayso.tool, {"requires_approval": True, "approval_redact_keys": ["to"]}),
    "@tool(…)": (
        lambda f, **options: sayso.tool(**options)(f),
        {"requires_approval": True, "approval_redact_keys": ["to"]},
    ),
}


def test_13_each_option_counts_in_each_form_or_is_an_error(world: World, clock: Clock) -> None:
    ran: list[tuple[int, str]] = []

    def pay(amount: int, to: str) -> None:
        ran.append((amount, to))

    ada, eve = (sayso.Reviewer(name, roles={"finance"}) for name in ("ada", "eve"))
    for amount, (form, (declare, options)) in enumerate(FORMS.items()):
        made = declare(pay, **BOTH, **options)
        call = getattr(made, "call", made)
        pause = held(call, amount, "DE89")
        assert (pause.tool_call.name, pause.tool_call.args["to"]) == ("wire", "***"), form
        with pytest.raises(errors.MissingRoleError):
            sayso.Review().approve(pause.confirmation_id, by="bob")
        sayso.Review().approve(pause.confirmation_id, by=ada)
        held(call, amount, "DE89")
        assert len(ran) == amount, form
        sayso.Review().approve(pause.confirmation_id, by=eve)
        call(amount, "DE89")
        assert ran[amount:] == [(amount, "DE89")], form

        late = held(call, amount, "late").confirmation_id
        clock.tick(minutes=61)
        with pytest.raises(errors.RequestExpiredError):
            sayso.Review().approve(late, by=ada)
        with pytest.raises(TypeError, match="did you mean quorum="):
            declare(pay, qourum=2)
        with pytest.raises((TypeError, ValueError, errors.SaysoError)):
            declare(pay, **options | {"quorum": 0})
    assert len(ran) == len(FORMS)
