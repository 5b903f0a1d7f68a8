"""`sayso mcp-gateway`: a say-so in front of any MCP server.

`gateway` is one client's session: it finds the request of each call, waits, starts and finishes it. `connection` has
the server, its tools and the transports.
"""
