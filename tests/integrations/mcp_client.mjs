// The official TypeScript client: calls a tool of the server whose command line follows, and prints what it got.
//   node mcp_client.mjs NODE_MODULES TOOL ARGUMENTS COMMAND...
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";
const [modules, tool, given, command, ...args] = process.argv.slice(2);
const load = (path) => import(pathToFileURL(createRequire(modules + "/").resolve("@modelcontextprotocol/sdk/" + path)));
const { Client } = await load("client/index.js");
const { StdioClientTransport } = await load("client/stdio.js");
const client = new Client({ name: "ts", version: "1" });
await client.connect(new StdioClientTransport({ command, args, env: process.env }));
const { tools } = await client.listTools();
const said = await client.callTool({ name: tool, arguments: JSON.parse(given) });
console.log(JSON.stringify({ tools, first: said }));
process.stdin.once("data", async () => {
  const again = await client.callTool({ name: tool, arguments: JSON.parse(given) });
  console.log(JSON.stringify({ again }));
  await client.close();
  process.exit(0);
});
