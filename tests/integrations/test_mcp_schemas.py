"""The tools of servers that others wrote, as they listed them, through the gateway (`mcp_tools.json`).

Each server was installed from npm or PyPI in the version that stands beside its tools. The first six have the 51 tools
that the gateway was first tried with.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import sayso
from sayso import errors
from sayso.model.request import State
from sayso.stores.base import Filter
from tests.integrations.mcp_peers import PATIENCE, Client, Server, text

SERVERS: list[dict[str, Any]] = json.loads(Path(__file__).with_name("mcp_tools.json").read_text(encoding="utf-8"))
every_server = pytest.mark.parametrize("row", SERVERS, ids=[row["server"] for row in SERVERS])


@pytest.fixture(autouse=True)
def store() -> None:
    sayso.configure(store="memory:")


def run(work: Coroutine[Any, Any, None]) -> None:
    async def bounded() -> None:
        await asyncio.wait_for(work, 2 * PATIENCE)

    asyncio.run(bounded())


def example(schema: dict[str, Any]) -> Any:
    """Return a value that a schema admits."""
    if "enum" in schema:
        return schema["enum"][0]
    if "anyOf" in schema:
        return example(schema["anyOf"][0])
    match schema.get("type"):
        case "object":
            return {name: example(schema["properties"][name]) for name in schema.get("required", ())}
        case "array":
            return [example(schema["items"])] * schema.get("minItems", 1)
        case "integer" | "number":
            return schema.get("minimum", 1)
        case "boolean":
            return True
        case _:
            return "https://example.org" if schema.get("format") == "uri" else "some text"


def test_the_six_servers_of_the_first_trial_have_51_tools() -> None:
    assert [len(row["tools"]) for row in SERVERS] == [14, 13, 9, 1, 12, 2, 1, 6, 5, 8]
    assert sum(len(row["tools"]) for row in SERVERS[:6]) == 51


@every_server
def test_the_list_of_a_foreign_server_passes_byte_for_byte(row: dict[str, Any]) -> None:
    async def work() -> None:
        server = Server(*row["tools"])
        client = Client(server)
        assert (await client.ask("tools/list"))["result"] == {"tools": row["tools"]}
        assert client.lines[0] == server.lines[0]

    run(work())


@every_server
def test_each_tool_of_a_foreign_server_waits_is_edited_by_its_schema_and_called_with_what_was_approved(
    row: dict[str, Any],
) -> None:
    async def work() -> None:
        server = Server(*row["tools"])
        client = Client(server, hold=("*",), wait="ticket")
        for tool in row["tools"]:
            schema = tool["inputSchema"]
            arguments = example(schema)
            jsonschema.validate(arguments, schema)
            assert text(await client.call(tool["name"], arguments)).startswith("Not run yet")
            [request] = sayso.config.open_store(None).list(Filter(states=frozenset({State.PENDING}))).requests
            for name in schema.get("properties", {}):
                with pytest.raises(errors.InvalidChangesError, match=name):
                    sayso.Review().approve(request.id, by="ada", changes={name: {"of": [None]}})
            sayso.Review().approve(request.id, by="ada")
            await client.call(tool["name"], arguments)
            assert server.calls[-1] == {"name": tool["name"], "arguments": arguments}
        assert len(server.calls) == len(row["tools"])

    run(work())
