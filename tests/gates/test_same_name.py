"""Functions that share a name: an approval of one runs no other.

What is around a function (the values in its closure) tells it apart, plain values by the fingerprint and all else in
one process; what has no name of its own is gated by a given one. The invariant: no call of one function is ever
answered by a request of another.
"""

from __future__ import annotations

import asyncio
import functools
import gc
import re
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

import sayso
from sayso import errors
from sayso.gates import captured_values
from sayso.gates.options import Gate
from sayso.model.request import State
from sayso.model.schema import Schema
from sayso.stores.base import Store
from tests.support.acting import aheld, approved, forked, held, running
from tests.support.ids import stable

PROGRAM = """
import sys, sayso
def make(env):
    @sayso.gate(wait="raise")
    def deploy(version: int) -> str:
        return f"{env} {version}"
    return deploy
with sayso.run("release"):
    try:
        print(make(sys.argv[1])(1))
    except sayso.ConfirmationRequired as held:
        print(held.confirmation_id)
"""


class Env(Enum):
    STAGING = "s"
    PROD = "p"


class Client:
    """Something that has no canonical form."""

    def __init__(self) -> None:
        self.paid: list[int] = []

    def pay(self, amount: int) -> str:
        self.paid.append(amount)
        return f"paid {amount}"


def deployer(env: Any, **options: Any) -> Callable[[int], Any]:
    @sayso.gate(wait="raise", **options)
    def deploy(version: int) -> Any:
        return env, version

    return deploy


def payer_of(client: Client, **options: Any) -> Callable[[int], str]:
    @sayso.gate(wait="raise", **options)
    def pay(amount: int) -> str:
        return client.pay(amount)

    return pay


# -- plain values ----------------------------------------------------------------------------------------------------

PAIRS: list[tuple[Any, Any]] = [
    ("staging", "prod"), (1, 2), (1, 1.0), (1, True), ("1", 1), (None, False), (b"a", b"b"), (b"a", "a"),
    (Decimal(1), Decimal("1.0")), (UUID(int=1), UUID(int=2)), (Path("/a"), Path("/b")), (Path("/a"), "/a"),
    (Env.STAGING, Env.PROD), (Env.STAGING, "s"), (date(2026, 1, 1), date(2026, 1, 2)),
    (datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 1)), (timedelta(1), timedelta(2)),  # noqa: DTZ001
    ((1, "a"), (1, "b")), (("a", ("b",)), ("a", ("c",))), ("", None),
]  # fmt: skip


@pytest.mark.parametrize("pair", PAIRS, ids=stable)
def test_plain_value_in_a_closure_is_part_of_the_call(pair: tuple[Any, Any]) -> None:
    one, other = map(deployer, pair)
    sayso.configure(store="memory:")
    request_id = approved(one, 1)
    assert held(other, 1).confirmation_id != request_id
    assert one(1) == (pair[0], 1)


@pytest.mark.parametrize("value", [pair[0] for pair in PAIRS], ids=stable)
def test_equal_values_in_a_closure_are_the_same_call(value: Any) -> None:
    sayso.configure(store="memory:")
    request_id = approved(deployer(value), 1)
    assert deployer(value)(1) == (value, 1)
    assert sayso.Review().get(request_id).state is State.DONE


def test_value_in_a_closure_is_part_of_the_call_in_another_process(tmp_path: Path) -> None:
    sayso.configure(store=f"sqlite:///{tmp_path / 'sayso.db'}")
    environment = {"SAYSO_STORE": f"sqlite:///{tmp_path / 'sayso.db'}"}
    staging = running(forked(PROGRAM, "staging", **environment))
    sayso.Review().approve(staging, by="ada")
    prod = running(forked(PROGRAM, "prod", **environment))
    assert re.fullmatch(r"rq_\w+", prod)
    assert prod != staging
    assert running(forked(PROGRAM, "staging", **environment)) == "staging 1"


def test_edit_is_of_the_function_that_asked(store: Store) -> None:
    staging, prod = deployer("staging"), deployer("prod")
    ours, theirs = held(staging, 1).confirmation_id, held(prod, 1).confirmation_id
    for request_id in (ours, theirs):
        sayso.Review().approve(request_id, by="ada", changes={"version": 2})
    assert staging(1) == ("staging", 2)
    assert prod(1) == ("prod", 2)


def test_variable_is_read_when_the_call_is_made(store: Store) -> None:
    env = "staging"

    @sayso.gate(wait="raise")
    def deploy(version: int) -> str:
        return f"{env} {version}"

    approved(deploy, 1)
    env = "prod"
    held(deploy, 1)
    env = "staging"
    assert deploy(1) == "staging 1"


def loud(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def shout(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return shout


def by_helper(env: str) -> Callable[[int], str]:
    def where() -> str:
        return env

    def deploy(version: int) -> str:
        return f"{where()} {version}"

    return sayso.gate(wait="raise")(deploy)


def by_default(env: str) -> Callable[[int], str]:
    def where(env: str = env) -> str:
        return env

    def deploy(version: int) -> str:
        return f"{where()} {version}"

    return sayso.gate(wait="raise")(deploy)


def by_decorator(env: str) -> Callable[[int], str]:
    def deploy(version: int) -> str:
        return f"{env} {version}"

    return sayso.gate(wait="raise")(loud(deploy))


def by_partial(env: str) -> Callable[[int], str]:
    where = functools.partial(str, env)

    def deploy(version: int) -> str:
        return f"{where()} {version}"

    return sayso.gate(wait="raise")(deploy)


def by_default_of_decorator(env: str) -> Callable[[int], str]:
    def where(version: int) -> str:
        return f"{env} {version}"

    @functools.wraps(where)
    def deploy(*args: Any, _where: Callable[..., str] = where, **options: Any) -> str:
        return _where(*args, **options)

    return sayso.gate(wait="raise")(deploy)


def by_attribute_of_decorator(env: str) -> Callable[[int], str]:
    def where(version: int) -> str:
        return f"{env} {version}"

    @functools.wraps(where)
    def deploy(*args: Any, **options: Any) -> str:
        return vars(deploy)["__wrapped__"](*args, **options)

    return sayso.gate(wait="raise")(deploy)


BY = [by_helper, by_default, by_decorator, by_default_of_decorator, by_attribute_of_decorator, by_partial]


@pytest.mark.parametrize("make", BY)
def test_value_behind_another_function_is_part_of_the_call(store: Store, make: Callable[[str], Any]) -> None:
    staging, prod = make("staging"), make("prod")
    approved(staging, 1)
    held(prod, 1)
    assert make("staging")(1) == "staging 1"


class Counted:
    """A decorator that is a class."""

    def __init__(self, function: Callable[..., Any]) -> None:
        functools.update_wrapper(self, function)

    def __call__(self, **arguments: Any) -> Any:
        return vars(self)["__wrapped__"](**arguments)


def by_itself(env: str) -> Callable[[int], str]:
    def deploy(version: int) -> str:
        return f"{env} {version}"

    return deploy


def by_its_decorator(env: str) -> Callable[[int], str]:
    def deploy(version: int) -> str:
        return str(version)

    @functools.wraps(deploy)
    def there(version: int) -> str:
        return f"{env} {deploy(version)}"

    return there


@pytest.mark.parametrize("makes", [by_itself, by_its_decorator])
@pytest.mark.parametrize("wrap", [Counted, functools.cache])
def test_value_behind_an_object_that_wraps_a_function_is_part_of_the_call(
    store: Store, wrap: Any, makes: Callable[[str], Any]
) -> None:
    def make(env: str) -> Callable[[int], str]:
        return sayso.gate(wait="raise")(wrap(makes(env)))

    staging, prod = make("staging"), make("prod")
    approved(staging, 1)
    held(prod, 1)
    assert staging(1) == "staging 1"


def test_state_that_a_function_keeps_for_itself_asks_nobody_again(store: Store) -> None:
    tries = 0

    @sayso.gate(wait="raise", retries=1)
    def deploy(version: int) -> str:
        nonlocal tries
        tries += 1
        if tries == 1:
            raise OSError("not yet")
        return f"try {tries}"

    approved(deploy, 1)
    with pytest.raises(OSError, match="not yet"):
        deploy(1)
    assert deploy(1) == "try 2"


def test_function_without_a_closure_has_the_shape_that_it_always_had() -> None:
    def pay(amount: int) -> None: ...

    assert Gate(pay).schema.digest == Schema.of(pay).digest
    assert "around" not in Gate(pay).schema.text


# -- objects ---------------------------------------------------------------------------------------------------------


def test_function_with_another_object_is_refused_in_one_process(store: Store) -> None:
    ours, theirs = Client(), Client()
    one, other = payer_of(ours), payer_of(theirs)
    request_id = held(one, 10).confirmation_id
    for _ in range(2):
        with pytest.raises(errors.ConfigError, match=rf"two functions are gated as .*pay.*{request_id}.* name="):
            other(10)
        sayso.Review().approve(request_id, by="ada") if sayso.Review().get(request_id).state is State.PENDING else None
    assert one(10) == "paid 10"
    assert (ours.paid, theirs.paid) == ([10], [])
    held(other, 10)


def test_async_function_with_another_object_is_refused_in_one_process(store: Store) -> None:
    def make(client: Client) -> Callable[[int], Any]:
        @sayso.gate(wait="raise")
        async def pay(amount: int) -> str:
            return client.pay(amount)

        return pay

    async def main() -> None:
        ours, theirs = Client(), Client()
        one, other = make(ours), make(theirs)
        sayso.Review().approve((await aheld(one, 10)).confirmation_id, by="ada")
        with pytest.raises(errors.ConfigError, match="two functions"):
            await other(10)
        assert await one(10) == "paid 10"
        assert (ours.paid, theirs.paid) == ([10], [])

    asyncio.run(main())


def test_function_with_another_object_is_refused_after_the_call_has_paused(store: Store) -> None:
    def payer(client: Client) -> Callable[[int], str]:
        @sayso.gate(wait="raise", suspends=LookupError)
        def pay(amount: int) -> str:
            client.pay(amount)
            raise LookupError

        return pay

    mine, other = Client(), Client()
    pay, pay_by_other = payer(mine), payer(other)
    approved(pay, 5)
    with pytest.raises(LookupError):
        pay(5)
    with pytest.raises(errors.ConfigError, match="capture different objects"):
        pay_by_other(5)
    assert (mine.paid, other.paid) == ([5], [])


def test_function_with_the_same_object_finds_what_the_other_asked(store: Store) -> None:
    client = Client()
    one, other = payer_of(client), payer_of(client)
    approved(one, 10)
    assert other(10) == "paid 10"


def test_functions_with_other_objects_and_other_names_are_two(store: Store) -> None:
    ours, theirs = Client(), Client()
    one, other = payer_of(ours, name="pay by bank"), payer_of(theirs, name="pay by card")
    approved(one, 10)
    held(other, 10)
    assert one(10) == "paid 10"
    assert theirs.paid == []


def test_function_that_is_made_anew_for_every_call_goes_on(store: Store) -> None:
    sayso.Review().approve(held(payer_of(Client()), 10).confirmation_id, by="ada")
    gc.collect()
    assert payer_of(Client())(10) == "paid 10"


def test_function_that_calls_itself_is_the_same_when_it_is_made_anew(store: Store) -> None:
    def make() -> Callable[[int], int]:
        @sayso.gate(wait="raise", when=lambda n: n > 1)
        def down(n: int) -> int:
            return 0 if n == 0 else down(n - 1)

        return down

    first, second = make(), make()
    approved(first, 2)
    assert second(2) == 0


def test_object_that_says_nothing_of_itself_may_be_around_a_function(store: Store) -> None:
    class Proxy:
        def __getattribute__(self, name: str) -> Any:
            raise RuntimeError("nothing is bound to this proxy here")

    proxy = Proxy()

    @sayso.gate(wait="raise")
    def keep(version: int) -> bool:
        return type(proxy) is Proxy

    approved(keep, 1)
    assert keep(1) is True


def test_two_functions_with_one_given_name_are_kept_apart(store: Store) -> None:
    one = sayso.gate(name="clean", wait="raise")(lambda path: f"listed {path}")
    other = sayso.gate(name="clean", wait="raise")(lambda path: f"deleted {path}")
    approved(one, "/x")
    with pytest.raises(errors.ConfigError, match="two functions are gated as 'clean'"):
        other("/x")
    assert one("/x") == "listed /x"


def test_nothing_is_remembered_of_what_has_ended(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    captured_values._asked.clear()
    pay = payer_of(Client())
    approved(pay, 1)
    pay(1)
    assert len(captured_values._asked) == 0
    monkeypatch.setattr(captured_values, "_MOST", 10)
    for amount in range(20):
        held(pay, amount)
    assert len(captured_values._asked) == 10, "the oldest are forgotten"
    del pay
    gc.collect()
    assert len(captured_values._asked) == 0, "nor is anything kept of a function that is gone"


# -- given names -----------------------------------------------------------------------------------------------------


class Payer:
    """Pays."""

    def __init__(self, client: Client) -> None:
        self.client = client

    def __call__(self, amount: int) -> str:
        return self.client.pay(amount)

    def pay(self, amount: int) -> str:
        return self.client.pay(amount)

    @classmethod
    def refund(cls, amount: int) -> str:
        return f"{cls} {amount}"

    async def apay(self, amount: int) -> str:
        await asyncio.sleep(0)
        return self.client.pay(amount)


class Later:
    async def __call__(self) -> None:
        raise AssertionError


def pay_by(client: Client, amount: int) -> str:
    """Pay."""
    return client.pay(amount)


NAMELESS: dict[str, Callable[[Client], Callable[[int], str]]] = {
    "lambda": lambda client: lambda amount: f"{client.pay(amount)}",
    "partial": lambda client: functools.partial(pay_by, client),
    "bound method": lambda client: Payer(client).pay,
    "object": Payer,
}


@pytest.mark.parametrize("kind", [*NAMELESS, "class method", "builtin"])
def test_what_has_no_name_of_its_own_needs_a_given_one(kind: str) -> None:
    thing: Any = {"class method": Payer.refund, "builtin": [].append}.get(kind) or NAMELESS[kind](Client())
    with pytest.raises(TypeError, match=r"no name of its own.*name="):
        sayso.gate(wait="raise")(thing)


@pytest.mark.parametrize("kind", NAMELESS)
def test_given_name_is_what_is_shown_and_told_apart(store: Store, kind: str) -> None:
    ours = Client()
    pay: Any = sayso.gate(name="pay from ours", wait="raise")(NAMELESS[kind](ours))
    other: Any = sayso.gate(name="pay from theirs", wait="raise")(NAMELESS[kind](Client()))
    request_id = approved(pay, 10)
    held(other, 10)
    call = sayso.Review().get(request_id).call
    assert (call.tool, call.name) == ("pay from ours", "pay from ours")
    assert call.arguments == {"amount": 10}
    assert pay(10) == "paid 10"
    assert ours.paid == [10]


def test_async_method_with_a_given_name_is_held(store: Store) -> None:
    pay: Any = sayso.gate(name="pay from ours", wait="raise")(Payer(Client()).apay)

    async def main() -> None:
        sayso.Review().approve((await aheld(pay, 10)).confirmation_id, by="ada")
        assert await pay(10) == "paid 10"

    asyncio.run(main())


def test_object_whose_call_is_async_is_refused() -> None:
    with pytest.raises(TypeError, match="async __call__"):
        sayso.gate(name="later")(Later())


def test_same_given_name_with_other_values_is_another_call(store: Store) -> None:
    staging, prod = deployer("staging", name="deploy"), deployer("prod", name="deploy")
    approved(staging, 1)
    held(prod, 1)
    hidden: Any = sayso.gate(name="deploy", wait="raise")(functools.partial(divmod, 7))
    approved(hidden, 2)
    held(sayso.gate(name="deploy", wait="raise")(functools.partial(divmod, 8)), 2)  # type: ignore[arg-type]
    assert hidden(2) == (3, 1)


def test_given_name_outlives_the_functions_own(store: Store) -> None:
    def pay(amount: int) -> str:
        raise AssertionError

    def pay_out(amount: int) -> str:
        return f"paid {amount}"

    approved(sayso.gate(name="pay", wait="raise")(pay), 10)
    gc.collect()
    assert sayso.gate(name="pay", wait="raise")(pay_out)(10) == "paid 10"


def test_builtin_and_static_function_need_no_name(store: Store) -> None:
    class Tools:
        @staticmethod
        def double(amount: int) -> int:
            return 2 * amount

    double = sayso.gate(wait="raise")(Tools.double)
    approved(double, 2)
    assert double(2) == 4
    length: Any = sayso.gate(wait="raise")(len)
    approved(length, "abc")
    assert length("abc") == 3


def test_what_wraps_the_wrapper_of_a_tool_is_compared_with_what_it_captures() -> None:
    def delete(path: str) -> str:
        return path

    def below(root: str) -> Callable[..., Any]:
        inner = sayso.Tool(delete).function

        @functools.wraps(inner)  # it copies the attributes of what it wraps
        def joined(path: str) -> str:
            return inner(f"{root}/{path}")

        return joined

    gates = [Gate(below(root), named="delete") for root in ("/tmp/build", "/backups")]
    assert gates[0].schema.digest != gates[1].schema.digest
    assert Gate(below("/backups"), named="delete").schema.digest == gates[1].schema.digest
