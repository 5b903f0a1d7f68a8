"""Which frameworks are installed here, and what it means where one is not."""

from __future__ import annotations

import importlib
import os
from typing import Any, NoReturn

import pytest

# Read at import: the fixture `place` takes every SAYSO variable out of the tests' environment.
_MUST = os.environ.get("SAYSO_FRAMEWORKS") == "required"


def framework(module: str, what: str) -> Any:
    """Return a framework's module; where it is absent, skip the caller's tests of what needs it.

    Raises:
        ImportError: It is absent, and must be there.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        if _MUST:
            raise
        pytest.skip(f"NOT TESTED: {what}, because {error.name} is not installed", allow_module_level=True)


def absent(program: str) -> NoReturn:
    """Skip what needs a program that is not installed.

    Raises:
        FileNotFoundError: It must be there.
    """
    if _MUST:
        raise FileNotFoundError(program)
    pytest.skip(f"NOT TESTED: {program}, which is not installed")
