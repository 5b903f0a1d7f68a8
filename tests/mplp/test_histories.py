"""No irreversible action without explicit human consent: whatever happens to a Confirm, nothing starts unless approved.

Every history is one that the state machine can make, in a real store; every document that can be read on the way is
judged by the protocol's frozen schemas, where they are at hand.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sayso.mplp import Confirm, TargetType
from sayso.mplp.schema import new_id
from sayso.stores.memory import MemoryStore
from sayso.stores.sqlite import SqliteStore
from tests.support.protocol import DATA, misfits, needs_frozen
from tests.support.rounds import rounds
from tests.support.submitting import STEPS, World

FREE = [TargetType.PLAN, TargetType.CONTEXT, TargetType.TRACE, TargetType.EXTENSION, TargetType.OTHER]


def by_frozen(schema: str, document: Any) -> None:
    assert misfits(schema, document) == []


def by_ours(schema: str, document: Any) -> None:
    if schema == "mplp-confirm":
        assert Confirm.parse(document).export() == document


def lived(world: World, steps: list[str]) -> World:
    for step in steps:
        world.take(step)
    return world


@pytest.mark.slow
@needs_frozen
@settings(max_examples=rounds(150, 1_000))
@given(kind=st.sampled_from(FREE), quorum=st.integers(1, 2), steps=st.lists(st.sampled_from(STEPS), max_size=8))
def test_every_history_exports_what_the_frozen_schemas_take(kind: TargetType, quorum: int, steps: list[str]) -> None:
    lived(World(MemoryStore(), kind, by_frozen, quorum), ["submit", *steps])


@pytest.mark.slow
@settings(max_examples=rounds(40, 1_000))
@given(kind=st.sampled_from(FREE[:2]), steps=st.lists(st.sampled_from(STEPS), min_size=8, max_size=25))
def test_no_history_starts_a_target_whose_confirm_is_not_approved(kind: TargetType, steps: list[str]) -> None:
    lived(World(MemoryStore(), kind, by_ours), ["submit", *steps])


@pytest.mark.slow
@settings(max_examples=rounds(10, 1_000), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(st.sampled_from(STEPS), min_size=4, max_size=12))
def test_no_history_on_disk_starts_a_plan_that_is_not_approved(steps: list[str], tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / f"{new_id()}.db")
    lived(World(store, TargetType.PLAN, by_ours), ["submit", *steps])
    store.close()


def test_some_history_starts_and_some_does_not(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "a.db")
    for kind in FREE[:2]:
        before = lived(World(store, kind, by_ours), ["submit", "carry", "reject", "carry"])
        assert before.started == []
        after = lived(World(store, kind, by_ours), ["submit", "approve", "carry", "carry", "fail"])
        assert after.started == ["approved"]
    store.close()


@pytest.mark.parametrize("end", ["reject", "mute", "feedback", "cancel", "withdraw", "process_rejected", "day"])
@pytest.mark.parametrize("kind", FREE[:2])
def test_no_other_end_than_an_approval_starts_anything(kind: TargetType, end: str) -> None:
    world = lived(World(MemoryStore(), kind, by_ours), ["submit", end, "carry"])
    assert world.started == []


@pytest.mark.parametrize("end", ["cancel", "day", "withdraw"])
def test_an_approval_that_was_taken_back_or_ran_out_starts_nothing(end: str) -> None:
    world = lived(World(MemoryStore(), TargetType.PLAN, by_ours), ["submit", "approve", end, "carry"])
    assert world.started == []
    assert [document["status"] for document in world.documents()] == ["cancelled"]


def test_the_frozen_schemas_are_looked_for_beside_the_checkout() -> None:
    assert DATA.parts[-2:] == ("shared", "mplp")
