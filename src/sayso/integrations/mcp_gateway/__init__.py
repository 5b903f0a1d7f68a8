"""`sayso mcp-gateway`: a say-so in front of any MCP server.

gateway    one client's session: what is held, and what passes
occasions  which request answers for a call
call       how a held call waits, starts and ends
elicit     decisions of the client's own user
proxy      the connection to the server, and its tools
stdio      messages as lines; http: messages over streamable HTTP
"""
