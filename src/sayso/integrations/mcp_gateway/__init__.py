"""`sayso mcp-gateway`: a say-so in front of any MCP server.

`gateway` is one client's session, with how a held call waits, starts and ends; `occasions` says which request answers
for a call; `connection` has the server, its tools and the transports.
"""
