"""What tests of programs that use sayso need.

A clock that stands still, a reviewer and a model that follow a script, and the contract that every store must pass.

Nothing here is needed at run time, and no test runner is imported: `StoreContract` is a plain class whose
`test_…` methods pytest finds in a subclass. The one invariant: what passes here says nothing about time that passed,
because nothing here sleeps.
"""

from __future__ import annotations

from sayso.testing.contract import StoreContract
from sayso.testing.frozen import Clock, frozen_clock
from sayso.testing.reviewer import ScriptedReviewer
from sayso.testing.sample import sample_call, sample_edit, sample_question
from sayso.testing.scripted import Asked, ScriptedModel

__all__ = [
    "Asked",
    "Clock",
    "ScriptedModel",
    "ScriptedReviewer",
    "StoreContract",
    "frozen_clock",
    "sample_call",
    "sample_edit",
    "sample_question",
]
