"""The fixtures that pytest finds where sayso is installed, in a project that has nothing else."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import tomllib
from pathlib import Path

import pytest


@pytest.fixture
def project(tmp_path: Path, root: Path) -> Path:
    """An empty project, and beside it the entry points of this package as an installer would write them."""
    declared = tomllib.loads((root / "pyproject.toml").read_text())["project"]["entry-points"]["pytest11"]
    info = tmp_path / "installed" / "sayso_as_installed-1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: sayso-as-installed\nVersion: 1\n")
    lines = "".join(f"{name} = {target}\n" for name, target in declared.items())
    (info / "entry_points.txt").write_text(f"[pytest11]\n{lines}")
    made = tmp_path / "project"
    made.mkdir()
    return made


def run_pytest(project: Path, code: str, *options: str) -> tuple[int, str]:
    """Run a test file in the project, and return the exit code and what pytest wrote."""
    (project / "test_it.py").write_text(textwrap.dedent(code))
    paths = [str(project.parent / "installed"), *filter(None, sys.path)]
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path[:0] = {paths!r}; import pytest; sys.exit(pytest.main())",
         "-p", "no:cacheprovider", "-q", *options],
        cwd=project, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


def test_a_gate_is_tested_by_the_fixtures_alone(project: Path) -> None:
    code, said = run_pytest(project, """
        import pytest
        import sayso

        @sayso.gate(expires="24h")
        def pay(amount: int) -> str:
            return f"paid {amount}"

        @sayso.gate(wait="raise", expires="24h")
        def wire(amount: int) -> str:
            return f"wired {amount}"

        def test_a_blocking_gate(sayso_reviewer):
            with sayso_reviewer.approve(changes={"amount": 7}):
                assert pay(10) == "paid 7"
            assert sayso_reviewer.seen[0].call.arguments == {"amount": 10}

        def test_a_raising_gate(sayso_reviewer):
            with pytest.raises(sayso.ConfirmationRequired):
                wire(10)
            sayso_reviewer.approve().decide_next()
            assert wire(10) == "wired 10"

        def test_the_store_is_empty_and_expires_by_the_clock(sayso_store, sayso_clock):
            assert sayso.Review().count() == 0
            with pytest.raises(sayso.ConfirmationRequired) as held:
                wire(10)
            sayso_clock.tick("25h")
            assert sayso.Review().get(held.value.confirmation_id).state == "expired"
            assert sayso.Review().store is sayso_store
    """)  # fmt: skip
    assert code == 0, said
    assert "3 passed" in said


def test_a_step_that_was_not_used_fails_the_test_once(project: Path) -> None:
    code, said = run_pytest(project, """
        def test_forgets_to_call(sayso_reviewer):
            sayso_reviewer.approve()

        def test_forgets_to_call_in_the_block(sayso_reviewer):
            with sayso_reviewer.reject("no"):
                pass
    """)  # fmt: skip
    assert code == 1, said
    assert "1 failed, 1 passed, 1 error" in said
    assert "the step approve() was not needed" in said
    assert "the step reject('no') was not needed" in said


def test_the_configured_store_comes_back_after_a_test(project: Path) -> None:
    code, said = run_pytest(project, """
        import sayso
        from sayso import config
        from sayso.stores.memory import MemoryStore

        mine = MemoryStore()
        sayso.configure(store=mine, reviewer="ada")

        def test_one(sayso_store):
            assert config.default_store() is sayso_store
            assert config.default_reviewer().subject == "reviewer"

        def test_two():
            assert config.default_store() is mine
            assert config.default_reviewer().subject == "ada"
    """)  # fmt: skip
    assert code == 0, said


def test_a_run_that_uses_no_fixture_loads_nothing_but_the_plugin(project: Path) -> None:
    code, said = run_pytest(project, """
        import sys

        def test_what_is_loaded():
            loaded = sorted(name for name in sys.modules if name.partition(".")[0] == "sayso")
            small = ["sayso.gates", "sayso.gates.dialog"]
            assert loaded == ["sayso", *small, "sayso.testing", "sayso.testing.pytest_plugin"]
            assert not {"pydantic", "sqlite3"} & set(sys.modules)
    """, "-p", "no:asyncio", "-p", "no:anyio", "-p", "no:hypothesispytest", "-p", "no:schemathesis")  # fmt: skip
    assert code == 0, said


def test_the_fixtures_are_listed_with_what_they_are_for(project: Path) -> None:
    _, said = run_pytest(project, "", "--fixtures")
    for name in ("sayso_clock", "sayso_reviewer", "sayso_store"):
        assert f"{name} -- " in said
