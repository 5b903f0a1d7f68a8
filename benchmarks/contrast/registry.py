"""The subjects: what each is called, where its driver is, and what its environment holds. It imports none of them."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["ENVIRONMENTS", "GROUPS", "SUBJECTS", "Entry", "is_brief", "packages"]

ROOT = Path(__file__).resolve().parents[2]
_TABLE = ROOT / "tests" / "integrations" / "adapters" / "frameworks.toml"
GROUPS = {"alone": "frameworks alone", "peer": "peers", "sayso": "with sayso in front"}
ENVIRONMENTS = {
    "plain": [],
    "ctrlrun": ["ctrlrun>=0.12"],
    "holdpoint": ["holdpoint>=0.2"],
    "call4agents": ["call4agents>=0.5"],
    "awaithumans": ["awaithumans[server]>=0.1.12"],
    "agno": ["sqlalchemy[asyncio]>=2", "aiosqlite>=0.20"],
    "google_adk": ["google-adk[db]>=2.13"],
}
"""What is installed beside sayso, and beside what `frameworks.toml` names of the frameworks with an adapter."""
_CLOCK = "time-machine>=2.16"  # a month passes in the scenario `stale`


@dataclass(frozen=True)
class Entry:
    """One line of the table.

    Attributes:
        group: `alone`, `peer` or `sayso`.
        shown: What it is called there, with what asks the person.
        driver: Module in `drivers` and class.
        environment: Name of the environment it runs in.
        versions: The distributions whose versions are shown.
    """

    group: str
    shown: str
    driver: str
    environment: str
    versions: tuple[str, ...] = ()


SUBJECTS = {
    "plain": Entry("alone", "a function, approved by hand", "plain:Plain", "plain"),
    "langgraph": Entry("alone", "LangGraph `interrupt()`", "langgraph:Interrupt", "langgraph", ("langgraph",)),
    "langchain": Entry("alone", "LangChain HITL middleware", "langgraph:Middleware", "langgraph", ("langchain",)),
    "openai-agents": Entry(
        "alone", "OpenAI Agents `needs_approval`", "openai_agents:Alone", "openai_agents", ("openai-agents",)
    ),
    "pydantic-ai": Entry(
        "alone", "Pydantic AI deferred tools", "pydantic_ai:Alone", "pydantic_ai", ("pydantic-ai-slim",)
    ),
    "dspy": Entry("alone", "DSPy `ReAct`, which asks nobody", "dspy:Alone", "dspy", ("dspy",)),
    "fastmcp": Entry("alone", "FastMCP, input required", "fastmcp:Alone", "mcp", ("fastmcp", "mcp")),
    "agent-framework": Entry(
        "alone", "agent-framework `always_require`", "agent_framework:Alone", "agent_framework",
        ("agent-framework-core",),
    ),
    "strands": Entry("alone", "Strands `HumanInTheLoop`", "strands:Alone", "strands", ("strands-agents",)),
    "agno": Entry("alone", "Agno `requires_confirmation`", "agno:Alone", "agno", ("agno",)),
    "google-adk": Entry(
        "alone", "Google ADK `require_confirmation`", "google_adk:Alone", "google_adk", ("google-adk",)
    ),
    "llama-index": Entry(
        "alone", "LlamaIndex `wait_for_event`", "llama_index:Alone", "llama_index", ("llama-index-core",)
    ),
    "ctrlrun": Entry("peer", "ctrlrun", "peers:Ctrlrun", "ctrlrun", ("ctrlrun",)),
    "holdpoint": Entry("peer", "holdpoint", "peers:Holdpoint", "holdpoint", ("holdpoint",)),
    "call4agents": Entry("peer", "call4agents", "peers:Call4agents", "call4agents", ("call4agents",)),
    "awaithumans": Entry("peer", "awaithumans", "awaithumans:Awaithumans", "awaithumans", ("awaithumans",)),
    "gate": Entry("sayso", "`sayso.gate`", "plain:Gate", "plain", ("sayso",)),
    "sayso-langgraph": Entry(
        "sayso", "sayso, LangChain on LangGraph", "langgraph:Sayso", "langgraph", ("langgraph", "langchain")
    ),
    "sayso-openai-agents": Entry(
        "sayso", "sayso, OpenAI Agents", "openai_agents:Sayso", "openai_agents", ("openai-agents",)
    ),
    "sayso-pydantic-ai": Entry(
        "sayso", "sayso, Pydantic AI", "pydantic_ai:Sayso", "pydantic_ai", ("pydantic-ai-slim",)
    ),
    "sayso-dspy": Entry("sayso", "sayso, DSPy `ReAct`", "dspy:Sayso", "dspy", ("dspy",)),
    "sayso-fastmcp": Entry("sayso", "sayso, FastMCP", "fastmcp:Sayso", "mcp", ("fastmcp", "mcp")),
}  # fmt: skip


def packages(environment: str) -> list[str]:
    """Return what is installed in an environment beside sayso."""
    known = _frameworks()
    newest = known[environment]["newest"] if environment in known else []
    return [*newest, *ENVIRONMENTS.get(environment, []), _CLOCK]


def is_brief(entry: Entry) -> bool:
    """Return whether a subject has a line in the short table: a peer, or one of the main frameworks."""
    return entry.group == "peer" or (entry.group == "alone" and entry.environment in _frameworks()["main"])


def _frameworks() -> dict[str, Any]:
    return tomllib.loads(_TABLE.read_text(encoding="utf-8"))
