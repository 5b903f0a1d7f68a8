"""Makes the environments of the frameworks and runs the adapters' tests in them: `make test-frameworks`.

    python tests/integrations/adapters/environments.py             the main ones in one environment, at their newest
    python tests/integrations/adapters/environments.py langgraph   one alone, at its newest and at its lowest version
    python tests/integrations/adapters/environments.py each        each alone, at both

What follows behind `--` goes to pytest. The versions stand in `frameworks.toml`. An environment is made once, and again
when its versions or `pyproject.toml` change. The tests of a framework are the modules `test_NAME.py` here, in the
folder above and in `hooks`, and its page; none of them may be left out for want of a framework. What stands in `apart`
cannot live beside the rest: its programs are in an environment of their own, without this checkout, and on the tests'
`PATH`. What stands in `npm` is in the folder that `NODE_MODULES` names.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tomllib
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
TESTS = ROOT / "tests" / "integrations"
PLACE = ROOT / ".venv-frameworks"
TOOLS = [
    "pytest>=8.3",
    "pytest-xdist>=3.8",
    "pytest-timeout>=2.4",
    "hypothesis>=6.115",
]  # what the tests themselves need
PAGES = "tests/project/test_docs.py::test_examples_of_page_do_what_they_say"
LIMIT = 1_800.0  # seconds that the tests of one environment may take

Table = dict[str, dict[str, list[str]]]


def environment(name: str, packages: list[str]) -> Path:
    """Return the interpreter of an environment that holds these packages and this checkout."""
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    return installed(name, ["--editable", f"{ROOT}[crypto]", *TOOLS, *packages], project)


def installed(name: str, words: list[str], project: str = "") -> Path:
    """Return the interpreter of an environment with what pip installs for these words."""
    folder = PLACE / name
    wanted = "\n".join([*words, sys.version, project])
    python = folder / "bin" / "python"
    if is_new(folder, wanted):
        subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
        # Not compiled: most of what comes along is never imported.
        install = [python, "-m", "pip", "--disable-pip-version-check", "install", "-qq", "--no-compile"]
        subprocess.run([*install, *words], check=True)
        made(folder, wanted)
    return python


def from_npm(name: str, packages: list[str]) -> Path:
    """Return the folder with what npm installs for these words."""
    folder, wanted = PLACE / f"{name}-npm", "\n".join(packages)
    if is_new(folder, wanted):
        folder.mkdir(parents=True, exist_ok=True)
        install = ["npm", "install", "--prefix", folder, "--no-audit", "--no-fund", "--silent"]
        subprocess.run([*install, *packages], check=True)
        made(folder, wanted)
    return folder / "node_modules"


def is_new(folder: Path, wanted: str) -> bool:
    """Say whether a folder is not there yet, or holds something else than what is wanted."""
    stamp = folder / ".ready"
    if stamp.exists() and stamp.read_text(encoding="utf-8") == hashlib.sha256(wanted.encode()).hexdigest():
        return False
    print(f"setting up {folder.relative_to(ROOT)} (once)", flush=True)
    return True


def made(folder: Path, wanted: str) -> None:
    """Note what a folder holds."""
    (folder / ".ready").write_text(hashlib.sha256(wanted.encode()).hexdigest(), encoding="utf-8")


def tested(name: str, python: Path, tests: list[Path | str], words: list[str], beside: Table) -> bool:
    """Run the tests in an environment, with what their frameworks need beside it; return whether all passed."""
    set_up, path = {**os.environ, "SAYSO_FRAMEWORKS": "required"}, [os.environ["PATH"]]
    for one, row in beside.items():
        if "apart" in row:
            path.append(str(installed(f"{one}-apart", row["apart"]).parent))
    if npm := [package for row in beside.values() for package in row.get("npm", ())]:
        set_up["NODE_MODULES"] = str(from_npm("+".join(one for one in beside if "npm" in beside[one]), npm))
    command = [python, "-m", "pytest", "-n", "auto", "--dist", "worksteal", "-q", *words, *tests]
    print(f"\n== {name}", flush=True)
    try:
        done = subprocess.run(
            command, cwd=ROOT, timeout=LIMIT, check=False,
            env={**set_up, "PATH": os.pathsep.join(path)},
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        print(f"the tests in {name} did not end within {LIMIT:.0f} s")
        return False
    return done.returncode == 0


def runs(which: str, main: list[str], table: Table) -> list[tuple[str, list[str], list[Path | str], Table]]:
    """Return what is to be run: a name for the environment, its packages, the tests, and what stands beside it."""
    if which == "main":
        files = [HERE / "test_examples.py", *(path for name in main for path in files_of(name))]
        packages = [package for name in main for package in table[name]["newest"]]
        return [("main", packages, files, {name: table[name] for name in main})]
    chosen = list(table) if which == "each" else [which]
    return [
        (f"{name}-{at}", table[name][at], files_of(name), {name: table[name]})
        for name in chosen for at in ("newest", "lowest") if at in table[name]
    ]  # fmt: skip


def files_of(name: str) -> list[Path | str]:
    """Return the test modules of a framework, and the test of its page."""
    file = f"test_{name}.py"
    found = (HERE / file, TESTS / file, TESTS / f"test_{name}_http.py", TESTS / "hooks" / file)
    modules = [path for path in found if path.exists()]
    page = f"docs/guides/{name.replace('_', '-')}.md"
    text = (ROOT / page).read_text(encoding="utf-8") if (ROOT / page).exists() else ""
    return [*modules, *([f"{PAGES}[{page}]"] if "<!-- examples need: " in text else [])]


def main() -> int:
    """Do what the command line says; 1 where a test failed."""
    table = tomllib.loads((HERE / "frameworks.toml").read_text(encoding="utf-8"))
    main = table.pop("main")
    words = sys.argv[1:]
    own = words[: words.index("--")] if "--" in words else words
    which = own[0] if own else "main"
    if which not in {"main", "each", *table}:
        print(f"there is no framework {which!r}: main, each, {', '.join(table)}", file=sys.stderr)
        return 2
    failed: list[str] = []
    for name, packages, tests, beside in runs(which, main, table):
        if not tests or not tested(name, environment(name, packages), tests, words[len(own) + 1 :], beside):
            failed.append(name)
    print(f"\nfailed: {', '.join(failed)}" if failed else "\nall passed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
