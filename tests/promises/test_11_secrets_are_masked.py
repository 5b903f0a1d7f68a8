"""11. Secrets are masked at every depth wherever they are shown, logged, sent or traced; the call gets real values."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import SecretStr

import sayso
from sayso import errors
from tests.promises.world import World
from tests.support.acting import held
from tests.support.commands import sayso as command


def test_11_secrets_are_masked_wherever_something_is_shown(world: World, capfd: pytest.CaptureFixture[str]) -> None:
    bait, got = "canary-7f3a91-secret", []

    @sayso.gate(wait="raise", redact=["iban"], prompt=f"with {bait}?", retries=1)
    def connect(url: str, password: str, deep: dict[str, Any], held_back: SecretStr, iban: str) -> dict[str, str]:
        got.append((password, deep, held_back.get_secret_value(), iban))
        if len(got) == 1:
            raise ConnectionError(f"refused with {bait}")
        return {"token": bait, "note": f"logged in with {bait}"}

    def call() -> Any:
        return connect("db", bait, {"a": [{"b": ({"api_key": bait},)}]}, SecretStr(bait), iban=bait)

    shown: list[object] = []
    pause = held(call)
    shown += [pause.question, repr(pause), json.dumps(pause.to_dict())]
    request_id = pause.confirmation_id
    edited = sayso.Review().approve(request_id, by="ada", changes={"url": "db2", "iban": bait}, comment="fine")
    shown += [repr(edited), edited.effective.arguments, edited.effective.shown]
    with pytest.raises(ConnectionError):
        call()
    assert call()["token"] == bait
    final = world.store.get(request_id)
    shown += [repr(final), repr(final.execution), final.execution and (final.execution.result, final.execution.error)]
    shown += [list(world.store.journal()), sayso.get_confirmation_context()]
    for words in (["ls", "--json"], ["show", request_id, "--full"], ["show", request_id, "--json"], ["log", "--json"]):
        shown.append(command(*words).out)

    @sayso.gate(wait="raise", when=lambda password: 1 / len(password[99:]))
    def other(password: str) -> None: ...

    @sayso.gate(wait="raise", when=lambda password: {}[password])
    def third(password: str) -> None: ...

    for gated in (other, third):
        with pytest.raises(errors.PolicyError) as refused:
            gated(bait)
        shown += [str(refused.value), repr(refused.value), repr(refused.value.__cause__)]
    shown += capfd.readouterr()
    assert [bait in str(one) for one in shown] == [False] * len(shown)
    assert got == [(bait, {"a": [{"b": ({"api_key": bait},)}]}, bait, bait)] * 2
