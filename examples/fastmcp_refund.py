"""A server of FastMCP whose refund waits for a person, and a client that calls it.

    pip install "sayso[fastmcp]"
    python examples/fastmcp_refund.py

It waits; a second terminal decides: `sayso approve ID --set amount=30`, or `sayso reject ID -m "too much"`.
"""

import asyncio

from fastmcp import Client, FastMCP

from sayso.integrations.fastmcp import ApprovalMiddleware

server = FastMCP("shop", middleware=[ApprovalMiddleware(["refund"], wait="block")])


@server.tool
def refund(order_id: str, amount: float) -> str:
    """Refund an order."""
    return f"refunded {amount:.2f} for {order_id}"


async def main() -> None:
    """Call the tool as an agent's host would."""
    async with Client(server) as client:
        result = await client.call_tool("refund", {"order_id": "A-4721", "amount": 40}, raise_on_error=False)
        print("\n".join(block.text for block in result.content))


if __name__ == "__main__":
    asyncio.run(main())
