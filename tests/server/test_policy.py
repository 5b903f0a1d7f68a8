"""The policy file of a server counts whole: of a call that a program asks, the stricter of both sides is recorded."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx2
import pytest

import sayso
from sayso import errors
from sayso.model.request import Request
from sayso.model.reviewer import Quorum
from sayso.stores.http import HttpStore
from sayso.stores.sqlite import SqliteStore
from sayso.view.summary import risk_rank
from tests.support.serving import new_token, serving

PAYMENT = {
    "type": "object", "additionalProperties": False, "required": ["amount", "iban"],
    "properties": {"amount": {"type": "integer"}, "iban": {"type": "string"}},
}  # fmt: skip
IBAN = "DE89370400440532013000"

Says = Callable[..., None]


@pytest.fixture
def server_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Says:
    """Write the rules of the server; each is for every tool."""
    monkeypatch.chdir(tmp_path)
    settings = tmp_path / "sayso.toml"

    def write(*rules: str) -> None:
        settings.write_text("".join(f"[[rules]]\ntool = '*'\n{one}\n" for one in rules))
        settings.chmod(0o600)

    return write


def test_what_a_call_needs_is_the_stricter_of_the_program_and_the_rule_of_the_server(
    server_says: Says, tmp_path: Path
) -> None:
    behind = SqliteStore(tmp_path / "server.db")
    with serving() as server:
        store = HttpStore(server.of(behind), new_token(behind))

        def asked(number: int, **options: Any) -> Request:
            given = {"amount": number, "iban": IBAN}
            options = {"schema": PAYMENT, "key": str(number), "run": "r", "store": store, "when": True, **options}
            call = sayso.hold("pay", given, **options)
            assert sayso.hold("pay", given, **options).id == call.id  # it is found again, and not withdrawn
            return behind.get(str(call.id))

        def risky(risk: str) -> Any:
            return lambda **_: sayso.policy.hold(risk=risk, channels=["ops", "mail"], redact=["amount"])

        no_rule = asked(1)
        server_says("verdict = 'allow'")
        assert (asked(2).quorum, asked(2).rule) == (no_rule.quorum, None)  # it asks for nothing more
        server_says("""
            verdict = 'hold'
            name = 'payments'
            reason = 'money'
            quorum = 2
            expires = '1h'
            risk = 'high'
            redact = ['iban']
            channels = ['ops', 'chat']
        """)
        told = {"title": f"Pay {IBAN}", "description": f"To {IBAN}.", "context": {"to": IBAN, "for": ["rent"]}}
        held = asked(3, **told)
        assert (held.quorum, held.risk, held.channels) == (Quorum(2), "high", ("ops", "chat"))
        assert held.expires_at - held.created_at == timedelta(hours=1)
        assert held.rule == "the server's policy says hold: payments (money)"
        shown = [held.call.masked, held.title, held.description, str(held.context), held.summary]
        assert (held.redact, held.call.arguments) == (("iban",), {"amount": 3, "iban": "***"})
        assert not [text for text in shown if text and IBAN in text]
        assert held.context == {"to": "***", "for": ["rent"]}
        assert IBAN in held.call.form  # what runs is the whole call

        less = asked(4, when=risky("critical"), expires="5m")
        assert (less.risk, less.channels) == ("critical", ("ops",))
        assert less.expires_at - less.created_at == timedelta(minutes=5)
        assert less.redact == ("amount", "iban")

        sayso.Review(behind, by="ada").approve(held.id)
        sayso.Review(behind, by="bob").approve(held.id)
        call = sayso.hold("pay", {"amount": 3, "iban": IBAN}, schema=PAYMENT, key="3", run="r", store=store, when=True)
        assert call.once(lambda given: f"paid to {given['iban']}") == f"paid to {IBAN}"
        ended = behind.get(held.id).execution
        assert ended is not None
        assert IBAN not in str(ended.result)

        refused = [
            ("channels", lambda: asked(5, when=lambda **_: sayso.policy.hold(channels=["mail"]))),
            ("effect contains", lambda: asked(6, effect="pay:{iban}")),
        ]
        for why, ask in refused:
            with pytest.raises(
                errors.AskRefusedError, match=why.replace("channels", "allows only the channels ops, chat")
            ):
                ask()
        store.close()


def test_what_the_policy_of_the_server_denies_is_not_asked(server_says: Says, tmp_path: Path) -> None:
    behind = SqliteStore(tmp_path / "server.db")
    with serving() as server:
        url, token = server.of(behind), new_token(behind)
        store = HttpStore(url, token)

        @sayso.gate(wait="raise", store=store, name="pay", when=True)
        def pay(amount: int) -> None:
            raise AssertionError("it ran")

        server_says("verdict = 'deny'\nreason = 'not at night'\nname = 'night'")
        with sayso.run("r"), pytest.raises(errors.AskRefusedError, match=r"denies pay \(night\): not at night"):
            pay(1)
        body = {"tool": "pay", "arguments": {"amount": 1}, "agent_reasoning": "rent", "timeout": "1h"}
        headers = {"authorization": f"Bearer {token}", "idempotency-key": "k"}
        answer = httpx2.post(f"{url}/api/aap/v1/requests", json=body, headers=headers)
        assert (answer.status_code, "not at night" in answer.text) == (422, True), answer.text
        noted = [json.loads(row.detail) for row in behind.journal() if row.event == "denied"]
        assert noted == 2 * [{"tool": "pay", "rule": "night", "reason": "not at night"}]
        server_says("verdict = 'hold'\nwhen = 'args.size > 1'")  # there is no such argument
        with sayso.run("r"), pytest.raises(errors.AskRefusedError, match="could not be evaluated"):
            pay(2)
        assert not behind.list(sayso.stores.filter.Filter(), limit=10).requests
        assert sayso.audit.verify(behind).broken == ()
        store.close()


def test_the_higher_of_two_risks_is_the_higher_word_and_no_word_is_the_lowest() -> None:
    for lower, higher in [
        (None, "low"),
        ("low", "Medium"),
        ("medium", "high"),
        ("medium", "ours"),
        ("ours", "critical"),
    ]:
        assert risk_rank(lower) < risk_rank(higher)
    assert risk_rank("ours") == risk_rank("high")
