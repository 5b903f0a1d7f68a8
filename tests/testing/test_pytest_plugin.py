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
         "-p", "no:cacheprovider", "-p", "no:schemathesis", "-q", *options],  # slow to load
        cwd=project, capture_output=True, text=True, check=False, timeout=300,
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


def test_every_test_is_on_a_store_in_memory_where_the_project_says_so(project: Path) -> None:
    (project / "pytest.ini").write_text("[pytest]\nsayso_memory_store = true\n")
    code, said = run_pytest(project, """
        import pytest
        import sayso

        @sayso.gate(wait="raise")
        def wire(amount: int) -> str:
            return f"wired {amount}"

        @pytest.mark.parametrize("time", [1, 2])
        def test_forgets_the_fixture(time):
            with pytest.raises(sayso.ConfirmationRequired):
                wire(1)
            assert sayso.Review().count() == 1
            assert sayso.Review().store.url == "memory:"

        def test_has_a_reviewer(sayso_reviewer):
            assert sayso_reviewer._review.store is sayso.Review().store
    """)  # fmt: skip
    assert (code, "3 passed" in said) == (0, True), said


def test_a_call_that_nobody_could_decide_fails_its_test_at_once_and_no_other_does(project: Path) -> None:
    code, said = run_pytest(project, """
        import asyncio
        import threading

        import pytest
        import sayso
        from sayso.testing import ScriptedReviewer

        @sayso.gate
        def pay(amount: int) -> str:
            return f"paid {amount}"

        @sayso.gate
        async def wire(amount: int) -> str:
            return f"wired {amount}"

        def decide():
            while not (waiting := [one.id for one in sayso.Review().list(state="pending")]):
                pass
            sayso.Review().approve(waiting[0])

        def test_hangs(sayso_store):
            try:
                pay(1)
            except Exception:
                pass

        def test_hangs_with_a_script_that_is_not_running(sayso_reviewer):
            pay(1)

        def test_hangs_in_a_loop(sayso_store):
            asyncio.run(wire(1))

        def test_asks_and_hangs(sayso_store, sayso_clock):
            sayso.ask("How many?", type=int)

        def test_decides_in_a_thread(sayso_store):
            thread = threading.Thread(target=decide)
            thread.start()
            assert pay(1) == "paid 1"
            thread.join()

        def test_calls_in_a_thread(sayso_store):
            thread = threading.Thread(target=pay, args=(1,))
            thread.start()
            decide()
            thread.join()

        def test_decides_in_a_task(sayso_store):
            async def both():
                task = asyncio.create_task(wire(1))
                await asyncio.sleep(0.01)
                decide()
                assert await task == "wired 1"
            asyncio.run(both())

        def test_decides_by_a_callback(sayso_store):
            async def later():
                asyncio.get_running_loop().call_later(0.01, decide)
                assert await wire(1) == "wired 1"
            asyncio.run(later())

        def test_decides_by_a_reviewer_of_its_own(sayso_store):
            with ScriptedReviewer().approve():
                assert pay(1) == "paid 1"

        def test_ends_by_itself(sayso_store):
            with pytest.raises(sayso.ConfirmationRequired):
                sayso.gate(lambda: 1, name="soon", timeout="10ms")()
            with pytest.raises(sayso.ConfirmationExpired):
                sayso.gate(lambda: 1, name="over", expires="50ms")()
    """)  # fmt: skip
    assert code == 1, said
    assert "4 failed, 6 passed" in said
    assert said.count("use the fixture sayso_reviewer") >= 4
    assert said.count("FAILED test_it.py::test_hangs") == 3


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
