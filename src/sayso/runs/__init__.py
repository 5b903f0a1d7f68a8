"""Runs: agents, tools, workflows and modules that pause for a person and resume after a decision."""
