"""Hooks of coding agents: a command that Claude Code, Codex, Gemini CLI or Cursor runs before each tool call.

`command` answers a hook and is quick to start; it also reads the options, and says whose settings count. `hosts` knows
each host's format, `handoff` asks a person and hands the approved call over to the host, `settings` writes and removes
the entries in the host's settings.
"""
