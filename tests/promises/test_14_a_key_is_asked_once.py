"""14. A key is asked once: it gives the same request and, once done, the same result."""

from __future__ import annotations

import pytest

import sayso
from sayso import audit, errors
from sayso.model.lifecycle import Outcome
from sayso.model.request import Decision, State
from sayso.model.reviewer import LOCAL, Identity
from sayso.stores.base import Filter
from sayso.testing.doubles import sample_call
from tests.promises.world import World

RACE = """
import os, sys, time
from sayso import config
from sayso.testing.doubles import sample_call

request = sample_call("order-4721", {"amount": 10}, key="call_1", effect="refund:A-4721")
store = config.open_store(sys.argv[1])
open(f"{sys.argv[2]}.ready.{os.getpid()}", "w").close()
while not os.path.exists(f"{sys.argv[2]}.go"):
    time.sleep(0.001)
print(store.ask(request).id)
"""


def test_14_a_key_is_asked_once_for_ever(world: World) -> None:
    ids = set(world.race(RACE, [()] * 10))
    assert len(ids) == 1
    (request_id,) = ids
    assert world.store.count(Filter()) == 1

    said = Decision("approve", Identity(LOCAL, "ada"), world.store.get(request_id).created_at, "test", None, "")
    world.store.decide(request_id, said, roles=(), seen=None)
    world.store.start(request_id, "t")
    world.store.finish(request_id, "t", Outcome("done", '{"result":"***"}', None, '{"result":"hunter2"}'))

    again = world.store.ask(sample_call("order-4721", {"amount": 10}, key="call_1", effect="refund:A-4721"))
    assert (again.id, again.state) == (request_id, State.DONE)
    assert world.store.result(request_id) == '{"result":"hunter2"}'

    with pytest.raises(errors.KeyReusedError, match=request_id):
        world.store.ask(sample_call("order-4721", {"amount": 11}, key="call_1"))
    assert world.store.count(Filter()) == 1


def test_14_what_a_key_was_asked_for_does_not_run_again_where_the_rule_lets_it_through_by_now(world: World) -> None:
    ran: list[int] = []

    def by_hold(when: bool, key: str) -> object:
        held = sayso.hold("pay", {"amount": 5}, key=key, run="order-1", when=lambda: when, store=world.store)
        return held.once(lambda arguments: ran.append(arguments["amount"]))

    def by_gate(when: bool, key: str) -> object:
        @sayso.gate(wait="raise", key=key, name="wire", when=lambda: when, store=world.store)
        def wire(amount: int) -> None:
            ran.append(amount)

        with sayso.run("order-1"):
            return wire(5)

    for call in (by_hold, by_gate):
        ran.clear()
        with pytest.raises(sayso.ConfirmationRequired) as held:
            call(True, call.__name__)
        with pytest.raises(sayso.ConfirmationRequired):  # nobody has decided
            call(False, call.__name__)
        sayso.Review(world.store).approve(held.value.id, by="ada", changes={"amount": 4})
        for when in (False, True, False):
            call(when, call.__name__)
        assert ran == [4]
        call(False, "another")  # of which nobody was asked
        assert ran == [4, 5]


def test_14_a_result_that_was_altered_is_not_given_to_who_asks_again(world: World) -> None:
    request = world.store.ask(sample_call("order-4721", key="call_1"))
    said = Decision("approve", Identity(LOCAL, "ada"), request.created_at, "test", None, "")
    world.store.decide(request.id, said, roles=(), seen=None)
    world.store.start(request.id, "t")
    world.store.finish(request.id, "t", Outcome("done", None, None, '{"result":10}'))
    world.by_hand("UPDATE record SET body = replace(body, '10', '99') WHERE kind = 'result'")
    with pytest.raises(errors.StoreCorruptError, match=request.id):
        world.store.result(request.id)
    world.by_hand("DELETE FROM record WHERE kind = 'result'")
    with pytest.raises(errors.StoreCorruptError, match=request.id):
        world.store.result(request.id)
    world.by_hand("UPDATE request SET progress = replace(progress, 'program', 'x'), state = 'failed'")
    with pytest.raises(errors.StoreCorruptError, match=request.id):
        world.store.ask(sample_call("order-4721", key="call_1"))


@pytest.mark.parametrize("statement", ["DELETE FROM request", "UPDATE request SET key_digest = NULL"])
@pytest.mark.parametrize("is_seen", [True, False], ids=["same process", "another process"])
def test_14_a_request_that_was_deleted_or_altered_frees_no_key(world: World, statement: str, *, is_seen: bool) -> None:
    ran: list[object] = []

    def pay(*, when: bool) -> None:
        sayso.hold("pay", {"n": 1}, key="k", run="order-1", when=lambda: when, store=world.store).once(ran.append)

    with pytest.raises(sayso.ConfirmationRequired) as held:
        pay(when=True)
    sayso.Review(world.store).approve(held.value.id, by="ada")
    pay(when=True)
    if not is_seen:
        world.store.close()
    world.by_hand(statement)
    for when in (True, False):
        with pytest.raises((errors.AlteredRequestError, errors.StoreCorruptError), match=held.value.id):
            pay(when=when)
    with pytest.raises((errors.AlteredRequestError, errors.StoreCorruptError), match=held.value.id):
        world.store.ask(sample_call("order-1", key="k"))
    assert world.store.ask(sample_call("order-2", key="k")).state is State.PENDING  # as in any other run
    assert ran == [{"n": 1}]
    assert [one.run_id for one in audit.verify(world.store).broken] == ["order-1"]
