"""An MCP client, `sayso mcp-gateway`, and an MCP server behind it: a refund waits for a person and runs once.

    python examples/mcp_gateway.py

It needs no network and no other package: the client and the server here speak JSON-RPC in lines, as MCP does on stdio.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import sayso

SERVER = """
import json, sys
TOOL = {"name": "refund", "inputSchema": {"type": "object", "properties": {"amount": {"type": "number"}}}}
for line in sys.stdin:
    message = json.loads(line)
    amount = message["params"].get("arguments", {}).get("amount")
    results = {
        "tools/list": {"tools": [TOOL]},
        "tools/call": {"content": [{"type": "text", "text": f"refunded {amount}"}]},
    }
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": results[message["method"]]}), flush=True)
"""


def call(gateway: subprocess.Popen[str], number: int) -> str:
    """Call the tool as a client does, and return what the model reads."""
    params = {"name": "refund", "arguments": {"amount": 320}}
    message: dict[str, Any] = {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}
    if gateway.stdin is None or gateway.stdout is None:
        raise RuntimeError("the gateway has no pipes")
    print(json.dumps(message), file=gateway.stdin, flush=True)
    content = json.loads(gateway.stdout.readline())["result"]["content"]
    return " | ".join(part["text"] for part in content)


def main() -> None:
    """Call, approve with a change, and call again."""
    with tempfile.TemporaryDirectory() as folder:
        server, store = Path(folder, "server.py"), f"sqlite:///{folder}/sayso.db"
        server.write_text(SERVER, encoding="utf-8")
        command = [sys.executable, "-m", "sayso", "--store", store, "mcp-gateway", "--name", "shop", "--"]
        with subprocess.Popen(
            [*command, sys.executable, str(server)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as gateway:
            print(call(gateway, 1))
            review = sayso.Review(store, by="ada")
            review.approve(review.list().requests[0].id, changes={"amount": 80})
            print(call(gateway, 2))


if __name__ == "__main__":
    main()
