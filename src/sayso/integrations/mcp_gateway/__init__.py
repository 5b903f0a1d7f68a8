"""`sayso mcp-gateway`: a say-so in front of any MCP server.

`gateway` is one client's session: which request answers for a call, and how it waits, starts and ends; `connection` has
the server, its tools and the transports.
"""
