"""Calls the refund tool of the server on docs/guides/fastmcp.md."""

import asyncio

from fastmcp import Client
from shop import server


async def main() -> None:
    async with Client(server) as client:
        result = await client.call_tool("refund", {"order_id": "A-4721", "amount": 320.0}, raise_on_error=False)
        print("\n".join(block.text for block in result.content))


asyncio.run(main())
