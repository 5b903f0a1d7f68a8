"""What the suite needs of pytest: asserts that show their values, and each mode of a driver as a test of its own."""

from __future__ import annotations

import pytest

pytest.register_assert_rewrite("tests.integrations.adapters.suite")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "mode" in metafunc.fixturenames and metafunc.cls is not None:
        metafunc.parametrize("mode", metafunc.cls.driver.modes)
