"""The examples of the frameworks that pause; those that wait for a second terminal are run by their adapters' tests."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.integrations.adapters.installed import framework

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
PAUSING = {
    "langgraph_refund.py": "langgraph.checkpoint.sqlite",
    "openai_agents_refund.py": "agents.testing",
    "pydantic_ai_refund.py": "pydantic_ai",
}


@pytest.mark.parametrize("name", PAUSING)
def test_agent_pauses_and_is_resumed_twice_with_one_refund(name: str) -> None:
    framework(PAUSING[name], name)
    words = [sys.executable, str(EXAMPLES / name)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("paid 160.00") == 1
    assert done.stdout.count("waits: refund") == 1
    assert done.stdout.count("the model is told: A person (ada) changed the arguments before refund ran") == 2
    assert done.stdout.count("refunded 160.00 for A-4721") == 2
