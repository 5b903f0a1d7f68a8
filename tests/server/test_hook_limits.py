"""What a hook may not do although it has signed: send without end, or speak for whom the settings leave out.

And what becomes of those who send what no hook has signed. Nothing decided is looked for in every test.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from sayso import clock as sayso_clock
from sayso import errors
from sayso.channels.settings import ReviewerAllowlist, allowed_reviewers
from sayso.channels.webhook import WebhookKeys
from sayso.model.request import Request, State
from sayso.model.reviewer import Identity, Quorum, Reviewer
from sayso.server import create_app, hooks
from sayso.server.auth.sign_in import Proxy, SignIn, networks
from sayso.stores.base import Store
from sayso.testing import sample_call
from tests.conftest import Clock
from tests.support.browsing import BASE
from tests.support.calling import code_of

SECRET, OTHER, WRONG = (f"whsec_{letter * 32}" for letter in "ABC")


@pytest.fixture(autouse=True)
def frozen(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DESK_SECRET", SECRET)
    monkeypatch.setenv("JIRA_SECRET", OTHER)


def tables(*reviewers: object, **more: Any) -> dict[str, Any]:
    people = list(reviewers) or ["ada"]
    return {
        "desk": {"secret_env": "DESK_SECRET", "reviewers": people, **more},
        "jira": {"secret_env": "JIRA_SECRET", "reviewers": ["ada"]},
    }


def client_of(store: Store, address: str = "10.0.0.1", **options: Any) -> TestClient:
    return TestClient(create_app(store, **{"hooks": tables(), **options}), base_url=BASE, client=(address, 50_000))


_ids = iter(range(1_000_000))


def send(client: TestClient, request: Request, subject: str = "ada", *, secret: str = SECRET, **more: Any) -> Any:
    said = {
        "request_id": request.id, "verb": "approve", "fingerprint": request.fingerprint,
        "reviewer": {"subject": subject},
    }  # fmt: skip
    body = json.dumps(said | more).encode()
    headers = WebhookKeys([secret], source="the test").headers(f"msg_{next(_ids)}", sayso_clock.now(), body)
    return client.post("/hooks/decisions", content=body, headers=headers)


# -- how often ---------------------------------------------------------------------------------------------------


def test_a_hook_that_sends_too_often_waits_and_no_other_does(memory: Store) -> None:
    client = client_of(memory, stranger_rate="3/hour")
    requests = [memory.ask(sample_call()) for _ in range(4)]
    assert [send(client, one).status_code for one in requests[:3]] == [200] * 3
    late = send(client, requests[3])
    assert code_of(late) == (429, "rate_limited")
    assert 3_000 < int(late.headers["retry-after"]) <= 3_600
    assert memory.get(requests[3].id).state is State.PENDING
    assert send(client, requests[3], secret=OTHER).status_code == 200


def test_what_a_hook_was_refused_for_its_rate_is_no_answer_that_stays(memory: Store) -> None:
    client, request = client_of(memory, stranger_rate="1/hour"), memory.ask(sample_call())
    send(client, memory.ask(sample_call()))
    assert code_of(send(client, request)) == (429, "rate_limited")
    assert len(memory.records("seen")) == 1


def test_what_nobody_has_signed_is_soon_refused_by_address_alone(memory: Store) -> None:
    app, request = create_app(memory, hooks=tables(), stranger_rate="3/hour"), memory.ask(sample_call())
    one, other = (TestClient(app, base_url=BASE, client=(host, 50_000)) for host in ("10.0.0.1", "10.0.0.2"))
    assert [send(one, request, secret=WRONG).status_code for _ in range(3)] == [401] * 3
    refused = send(one, request, secret=WRONG)
    assert code_of(refused) == (429, "rate_limited")
    assert int(refused.headers["retry-after"]) > 0
    assert send(other, request).status_code == 200


def test_no_signature_is_computed_and_no_body_read_for_who_sent_too_much(
    memory: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, request = client_of(memory, stranger_rate="2/hour"), memory.ask(sample_call())
    for _ in range(2):
        send(client, request, secret=WRONG)
    looked = list[str]()
    monkeypatch.setattr(WebhookKeys, "has_signed", lambda *_, **__: looked.append("signature"))
    real = hooks.read_bytes

    async def read(http: Any) -> bytes:
        looked.append("body")
        return await real(http)

    monkeypatch.setattr(hooks, "read_bytes", read)
    assert code_of(send(client, request, secret=WRONG)) == (429, "rate_limited")
    assert looked == []


def test_a_body_that_is_too_long_counts_as_unsigned(memory: Store) -> None:
    client = client_of(memory, stranger_rate="2/hour")
    answers = [client.post("/hooks/decisions", content=b"x" * 2_000_001).status_code for _ in range(3)]
    assert answers == [413, 413, 429]


def test_what_is_signed_is_not_counted_as_unsigned(memory: Store) -> None:
    client, request = client_of(memory, stranger_rate="2/hour"), memory.ask(sample_call())
    assert [send(client, request, verb="start").status_code for _ in range(2)] == [422] * 2
    assert send(client, request, secret=OTHER).status_code == 200


def test_behind_a_trusted_proxy_the_address_is_the_senders(memory: Store) -> None:
    ways = SignIn(proxy=Proxy(networks(["10.0.0.1"])))
    client, request = client_of(memory, stranger_rate="1/hour", sign_in=ways), memory.ask(sample_call())
    statuses = list[int]()
    for sender in ("203.0.113.1", "203.0.113.1", "203.0.113.2"):
        client.headers["x-forwarded-for"] = sender
        statuses.append(send(client, request, secret=WRONG).status_code)
    assert statuses == [401, 429, 401]


@pytest.mark.slow
def test_there_can_be_no_limit_for_hooks(memory: Store) -> None:
    client, request = client_of(memory, stranger_rate=None), memory.ask(sample_call())
    assert {send(client, request, secret=WRONG).status_code for _ in range(700)} == {401}


# -- for whom ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rules", "status"),
    [({}, 200), ({"reviewers": ["ada"]}, 200), ({"reviewers": ["hook-desk:ada"]}, 200), ({"reviewers": ["kim"]}, 403),
     ({"reviewers": ["local:ada"]}, 403), ({"role": "finance"}, 200), ({"role": "legal"}, 403),
     ({"reviewers": ["ada"], "role": "legal"}, 403)],
)  # fmt: skip
def test_a_hook_speaks_only_for_whom_the_server_lets_review(memory: Store, rules: dict[str, Any], status: int) -> None:
    client = client_of(memory, hooks=tables(roles=["finance"]), sign_in=SignIn(**rules))
    request = memory.ask(sample_call())
    answer = send(client, request)
    assert answer.status_code == status
    assert memory.get(request.id).state is (State.APPROVED if status == 200 else State.PENDING)
    if status == 403:
        assert code_of(answer) == (403, "not_admitted")


def test_each_person_of_a_hook_has_roles_of_their_own(memory: Store) -> None:
    people = ["ada", {"name": "bob", "roles": ["legal"]}, {"name": "kim", "roles": []}]
    client = client_of(memory, hooks=tables(*people, roles=["finance"]))
    for subject, role, code in [
        ("ada", "finance", None), ("ada", "legal", "missing_role"), ("bob", "legal", None),
        ("bob", "finance", "missing_role"), ("kim", "finance", "missing_role"),
    ]:  # fmt: skip
        request = memory.ask(sample_call(quorum=Quorum(1, frozenset({role}))))
        answer = send(client, request, subject)
        assert (answer.status_code, answer.json().get("code")) == (200 if code is None else 403, code), (subject, role)
        assert (memory.get(request.id).state is State.APPROVED) == (code is None)


def test_a_person_of_a_hook_may_be_of_another_issuer(memory: Store) -> None:
    client = client_of(memory, hooks=tables({"name": "ada", "issuer": "corp"}, "bob"))
    for subject, issuer in (("ada", "corp"), ("bob", "hook-desk")):
        request = memory.ask(sample_call())
        assert send(client, request, subject).status_code == 200
        decision = memory.get(request.id).decision
        assert decision is not None
        assert decision.by == Identity(issuer, subject)


@pytest.mark.parametrize(
    ("people", "said"),
    [([3], "must be a name"), ([{"roles": ["a"]}], "name is missing"), ([""], "name is missing"),
     ([{"name": "ada", "admin": True}], "admin is not known"), ([{"name": "ada", "roles": "a"}], "must be a list"),
     ([{"name": "ada", "roles": ["a\u200b"]}], "cannot be used"), (["ada", {"name": "ada"}], "twice")],
)  # fmt: skip
def test_people_who_cannot_be_used_open_no_hook(memory: Store, people: list[Any], said: str) -> None:
    with pytest.raises(errors.ConfigError, match=said):
        create_app(memory, hooks=tables(*people))


# -- the rule itself ---------------------------------------------------------------------------------------------


@pytest.fixture
def settings(place: Path) -> Path:
    return place / "sayso.toml"


def test_the_settings_say_who_may_review_beside_what_else_stands_there(settings: Path) -> None:
    assert allowed_reviewers() == ReviewerAllowlist()
    settings.write_text('[serve]\nport = 1\nreviewers = ["ada"]\nrequired_role = "ops"\n')
    settings.chmod(0o600)
    rule = allowed_reviewers()
    assert rule == ReviewerAllowlist(["ada"], "ops")
    assert rule.admits(Reviewer("ada", roles={"ops", "more"}))
    assert not rule.admits(Reviewer("ada"))
    assert not rule.admits(Reviewer("bob", roles={"ops"}))
    of_corp = ReviewerAllowlist(["corp:ada"])
    assert of_corp.admits(Reviewer("ada", issuer="corp"))
    assert not of_corp.admits(Reviewer("corp:ada", issuer="proxy"))  # a name that somebody gave themselves
    assert ReviewerAllowlist(["proxy:corp:ada"]).admits(Reviewer("corp:ada", issuer="proxy"))
    settings.write_text("[serve]\nrequired_role = 3\n")
    with pytest.raises(errors.ConfigError, match="required_role must be a string"):
        allowed_reviewers()
