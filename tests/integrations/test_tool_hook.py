"""`ToolHook`, which the adapters share, without a framework."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import sayso
from sayso.integrations.tool_calls import Call, PendingCalls, ToolHook
from sayso.stores.base import Store
from tests.support.acting import waiting_in

SCHEMA = {
    "type": "object",
    "properties": {"purge": {"anyOf": [{"type": "integer"}, {"type": "boolean"}, {"type": "number"}]}},
    "required": ["purge"],
}


@pytest.mark.parametrize(("before", "after"), [(1, True), (False, 0), (1, 1.0)])
def test_change_to_an_equal_value_of_another_type_is_what_runs(memory: Store, before: Any, after: Any) -> None:
    hook, ran = ToolHook(None, {"store": memory}), list[Any]()
    call = Call("clean", {"purge": before}, id="c1", conversation="thread-1", schema=SCHEMA)

    async def execute(approved: dict[str, Any]) -> str:
        ran.append(approved["purge"])
        return "cleaned"

    async def main() -> str:
        task = asyncio.ensure_future(hook.acall(call, execute))
        (request,) = await asyncio.to_thread(waiting_in, memory)
        sayso.Review(memory).approve(request.id, by="ada", changes={"purge": after})
        return (await task).text

    told = asyncio.run(main())
    assert [(type(value), value) for value in ran] == [(type(after), after)]
    assert "changed the arguments before clean ran" in told


@pytest.mark.parametrize(("own", "added"), [({"to": "bob"}, {"user": "ada"}), ({"to": "bob", "user": "root"}, {})])
def test_argument_that_the_model_gives_in_place_of_the_framework_is_shown(own: Any, added: Any) -> None:
    pending = PendingCalls()
    pending.show([("c1", "send", own)], "I send it.")
    assert pending.take("send", {**own, **added}, {"user"}) == ("c1", "I send it.", own)
