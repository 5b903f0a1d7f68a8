"""Hooks of coding agents: a command that Claude Code, Codex, Gemini CLI or Cursor runs before each tool call.

`command` answers a hook, parses its options and decides whose settings are trusted; it is fast to start. `hosts` has
each host's format, `handoff` asks a person and hands the approved call over to the host, and `settings` writes and
removes the entries in a host's settings.
"""
