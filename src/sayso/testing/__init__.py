"""Test helpers for programs that use sayso: a fixed clock, a scripted reviewer and model, and a contract for stores.

Pytest fixtures for these are in `sayso.testing.pytest_plugin`. Names are imported on first use, and none of them
imports a test runner: `StoreContract` is a plain class, and pytest collects its `test_…` methods from a subclass.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sayso.testing.contract import StoreContract as StoreContract
    from sayso.testing.doubles import Asked as Asked
    from sayso.testing.doubles import Clock as Clock
    from sayso.testing.doubles import ScriptedModel as ScriptedModel
    from sayso.testing.doubles import ScriptedReviewer as ScriptedReviewer
    from sayso.testing.doubles import frozen_clock as frozen_clock
    from sayso.testing.doubles import sample_call as sample_call
    from sayso.testing.doubles import sample_edit as sample_edit
    from sayso.testing.doubles import sample_question as sample_question

__all__ = [
    "Asked", "Clock", "ScriptedModel", "ScriptedReviewer", "StoreContract", "frozen_clock", "sample_call",
    "sample_edit", "sample_question",
]  # fmt: skip

if not TYPE_CHECKING:  # if a type checker saw it, every misspelt name would be Any

    def __getattr__(name: str) -> Any:
        if name not in __all__:
            raise AttributeError(f"module 'sayso.testing' has no attribute {name!r}")
        home = importlib.import_module(f"sayso.testing.{'contract' if name == 'StoreContract' else 'doubles'}")
        value = globals()[name] = getattr(home, name)
        return value
