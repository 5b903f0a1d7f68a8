"""Each framework has an adapter, an extra, a page, a program and a place in the common suite: a walk over the table."""

from __future__ import annotations

import ast
import builtins
import re
import tomllib
from collections.abc import Iterable
from pathlib import Path

# What the modules of the frameworks share, and what is no agent framework: a server of tools, two durable engines.
SHARED = {"functions", "mcp_server", "replay", "shown", "tool_calls", "dbos", "temporal"}
# Rows of `frameworks.toml` that are none either.
RECIPES = {"main", "mcp", "coding_agents", "schedulers", "airflow"}
# Where a framework's extra, page, program or tests are not named after its module.
NAMED = {
    "claude_agent": ("claude", "coding-agents", "frameworks/claude_agent_refund.py", "adapters/test_claude_agent.py"),
    **{
        name: (name.replace("_", "-"), name.replace("_", "-"), f"{name}_refund.py", f"adapters/test_{name}.py")
        for name in ("dspy", "fastmcp", "langgraph", "openai_agents", "pydantic_ai")
    },
}
SHORT = "other-frameworks"  # the page that has a section for each adapter that only waits in place
READERS_OWN = {
    "model",
    "refund",
    "prompt",
}  # what a section of it takes from its reader, beside the framework's imports
LONGEST = 250  # lines of an adapter
TAKE_FUNCTIONS = ("llama_index", "smolagents")


def test_each_adapter_has_an_extra_a_page_a_program_and_a_place_in_the_suite(root: Path) -> None:
    modules = {path.stem for path in (root / "src/sayso/integrations").glob("[a-z]*.py")} - SHARED
    rows = tomllib.loads((root / "tests/integrations/adapters/frameworks.toml").read_text("utf-8"))
    extras = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]

    def text(path: str) -> str:
        return (root / path).read_text("utf-8") if (root / path).exists() else ""

    missing = [
        f"{path.name} has more than {LONGEST} lines, and the adapters share what they have in common in tool_calls.py"
        for name in sorted(modules)
        if (path := root / f"src/sayso/integrations/{name}.py").exists()
        and len(path.read_text("utf-8").splitlines()) > LONGEST
    ]
    pausing = text("tests/integrations/adapters/test_examples.py")
    for name in sorted(modules | rows.keys() - SHARED - RECIPES - {*TAKE_FUNCTIONS}):
        dashed = name.replace("_", "-")
        own = (dashed, SHORT, f"frameworks/{name}_refund.py", f"adapters/test_{name}.py")
        extra, page, program, file = NAMED.get(name, own)
        guide, tests = text(f"docs/guides/{page}.md"), text(f"tests/integrations/{file}")
        is_run = program in tests + pausing or "(AdapterSuite)" in tests  # the suite runs it
        found = {
            "an adapter": name in modules,
            f"the extra {extra}": extra in extras,
            f"a place in docs/guides/{page}.md": re.search(rf"`{name}`|sayso\.integrations\.{name}\b", guide),
            f"examples/{program}": f"sayso.integrations.{name} import" in text(f"examples/{program}"),
            f"a test of examples/{program}": is_run,
            f"a suite in tests/integrations/{file}": "(AdapterSuite)" in tests,
            "a row in frameworks.toml": {"newest", "lowest"} <= rows.get(name, {}).keys(),
        }
        missing += [f"{name} has not {what}" for what, there in found.items() if not there]
    for name in TAKE_FUNCTIONS:
        suite, module = text("tests/integrations/adapters/test_functions.py"), name.replace("_", "")
        if f'"{name}"' not in suite or module not in suite or not text(f"examples/frameworks/{name}_refund.py"):
            missing.append(f"{name} has not a program that test_functions.py runs, or no place there")
        if name.replace("_", "-") not in extras:
            missing.append(f"{name} has not the extra {name.replace('_', '-')}")
    assert missing == []


def test_each_framework_without_a_pause_has_a_section_with_lines_of_its_program(root: Path) -> None:
    rows = tomllib.loads((root / "tests/integrations/adapters/frameworks.toml").read_text("utf-8"))
    shared = (root / "docs/guides/frameworks.md").read_text("utf-8")
    sections = (root / f"docs/guides/{SHORT}.md").read_text("utf-8").split("\n## ")[1:]
    wrong = list[str]()
    for name in sorted(rows.keys() - SHARED - RECIPES - NAMED.keys() | {*TAKE_FUNCTIONS}):
        extra = f'"sayso[{name.replace("_", "-")}]"'
        found = [section for section in sections if extra in section]
        if len(found) != 1:
            wrong.append(f"{name} has {len(found)} sections with {extra}")
            continue
        (text,) = found
        heading = text.splitlines()[0]
        program = (root / f"examples/frameworks/{name}_refund.py").read_text("utf-8").splitlines()
        code = "\n".join(re.findall(r"```python\n(.+?)```", text, re.DOTALL))
        lines = code.splitlines()
        other = imported(lines) - imported(program)
        own = READERS_OWN | {line.rpartition(" ")[2] for line in imported(program) if " import " in line}
        wrong += [f"{heading}: {problem}" for problem in problems_of(code, own)]
        lowest = rows.get(name, rows["functions"])["lowest"]
        wrong += [f"{heading}: {line!r} is not in its program" for line in sorted(other - {""})]
        wrong += [f"{heading} lacks {name}_refund.py"] * (f"`{name}_refund.py`" not in text)
        wrong += [f"{heading} names another version than {lowest}"] * all(
            each.partition("==")[2] not in text for each in lowest
        )
        wrong += [f"{heading} has {len(text.split())} words, more than 150"] * (len(text.split()) > 150)
        anchor = heading.lower().replace(" ", "-")
        wrong += [f"frameworks.md leads not to {anchor}"] * (f"]({SHORT}.md#{anchor})" not in shared)
    assert wrong == []


def test_what_the_suite_leaves_out_for_a_framework_is_listed_with_its_reason(root: Path) -> None:
    page = (root / "docs/guides/frameworks.md").read_text("utf-8")
    section = page.partition("## What some frameworks do not allow")[2].partition("\n## ")[0]
    limits = [line.casefold() for line in section.splitlines() if line.startswith("- ")]
    reasons = {
        name: left_out(root / f"tests/integrations/adapters/test_{file}.py")
        for name, file in {
            "Claude Agent SDK": "claude_agent", "FastMCP": "fastmcp", "agent-framework": "agent_framework",
            "AutoGen": "autogen", "CrewAI": "crewai", "Inspect": "inspect_ai", "LlamaIndex": "llama_index",
        }.items()
    }  # fmt: skip
    missing = [
        f"{name}: {reason}"
        for name, found in reasons.items()
        for reason in sorted(found)
        if not any(reason.casefold() in line and name.casefold() in line for line in limits)
    ]
    assert missing == []
    suites = {path.stem for path in (root / "tests/integrations/adapters").glob("test_*.py") if left_out(path)}
    assert len(suites) == len(reasons)


def left_out(path: Path) -> set[str]:
    """Return the reasons for which a driver's `cannot` leaves out cases of the common suite."""
    values, dicts = dict[str, ast.expr](), list[ast.Dict]()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        match node:
            case ast.AnnAssign(target=ast.Name("cannot"), value=ast.Dict() as each):
                dicts.append(each)
            case ast.Assign(targets=[ast.Name(name)], value=value):
                values[name] = value
            case _:
                pass
    reasons = [value for each in dicts for key, value in zip(each.keys, each.values, strict=True) if key is not None]
    return {ast.literal_eval(values[each.id] if isinstance(each, ast.Name) else each) for each in reasons}


def problems_of(code: str, own: set[str]) -> list[str]:
    """Return what keeps a page's code from running in a module that has these names of the reader's own."""
    try:
        compile(code, "page", "exec")
    except SyntaxError as error:
        return [str(error)]
    names = [node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Name)]
    bound = {node.id for node in names if isinstance(node.ctx, ast.Store)} | {*dir(builtins), *own}
    imports = [node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.ImportFrom)]
    bound |= {alias.asname or alias.name for node in imports for alias in node.names}
    return [f"{node.id!r} is not defined" for node in names if node.id not in bound]


def imported(lines: Iterable[str]) -> set[str]:
    """Return the lines, with a line for each imported name, as a page imports only what it uses."""
    found = set[str]()
    for line in map(str.strip, lines):
        module, is_import, names = line.partition(" import ")
        found |= {f"{module} import {name}" for name in names.split(", ")} if is_import else {line}
    return found
