"""What leaves fits the protocol's frozen schemas: judged by `jsonschema` over their files, and by nothing of sayso."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sayso.mplp import Confirm, LearningSample, NotConformantError, Plan, schema
from sayso.mplp.schema import id_of
from tests.support.protocol import DATA, frozen, misfits, needs_frozen
from tests.support.rounds import rounds

pytestmark = needs_frozen

GOLDEN = ("flow-05/input", "flow-05/expected")
EXAMPLES = ("examples/confirm.minimal.json", "examples/confirm.with-events.json")


@pytest.mark.parametrize("name", [*(f"{folder}/confirm.json" for folder in GOLDEN), *EXAMPLES])
def test_a_shipped_confirm_comes_back_as_it_was(name: str) -> None:
    document = frozen(name)
    assert misfits("mplp-confirm", document) == []
    assert Confirm.parse(json.dumps(document)).export() == document


@pytest.mark.parametrize("folder", GOLDEN)
def test_a_shipped_plan_comes_back_as_it_was(folder: str) -> None:
    document = frozen(f"{folder}/plan.json")
    assert misfits("mplp-plan", document) == []
    assert Plan.parse(document).export() == document


def test_the_shipped_sample_comes_back_as_it_was() -> None:
    document = frozen("examples/flow-05-confirm-sample.json")
    assert misfits("mplp-learning-sample-core", document) == []
    assert LearningSample.parse(document).export() == document


def test_the_comment_of_a_shipped_example_is_no_field_and_is_told_of() -> None:
    raw = (DATA / "examples/confirm.minimal.json").read_text(encoding="utf-8")
    assert misfits("mplp-confirm", json.loads(raw)) != []
    with pytest.raises(NotConformantError, match="comment"):
        Confirm.parse(raw)
    assert Confirm.parse(raw, strict=False).changes == ("/$comment: dropped, it is not a field of the protocol",)


def test_the_shipped_fixture_is_refused_where_it_is_wrong() -> None:
    document = frozen("fixtures/confirm_invalid_enum.json")
    with pytest.raises(NotConformantError) as caught:
        Confirm.parse(document)
    ours = {problem.partition(":")[0] for problem in caught.value.problems}
    assert ours == {problem.partition(":")[0] for problem in misfits("mplp-confirm", document)}
    assert "/status" in ours


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [("confirm", "mplp-confirm"), ("plan", "mplp-plan"), ("learning-sample", "mplp-learning-sample-core")],
)
def test_our_schemas_name_the_fields_that_theirs_name(ours: str, theirs: str) -> None:
    mine, frozen_one = (
        schema(ours),
        frozen(f"schemas/{'learning/' if 'learning' in theirs else ''}{theirs}.schema.json"),
    )
    more = {"feedback"} if ours == "learning-sample" else set()  # the Confirm module adds it to its samples
    assert set(mine["properties"]) - more == set(frozen_one["properties"])
    assert set(mine["required"]) == set(frozen_one["required"])


# -- three judges: ours, theirs over our schema, theirs over their own ---------------------------------------------

ID = st.sampled_from([id_of("case", number) for number in range(4)])
NO_ID = st.sampled_from(["", "plan-123", id_of("x").upper(), "123e4567-e89b-12d3-a456-426614174000", "x" * 36])
TEXT = st.text(max_size=8)
INSTANT = st.sampled_from(["2025-12-01T12:00:00.000Z", "2025-12-01T12:00:00+02:00", "2024-02-29T23:59:59.123456Z"])
NO_INSTANT = st.sampled_from(["2025-12-01T12:00:00", "2025-12-01", "2025-02-30T00:00:00Z", "now", ""])
ANY = st.one_of(st.none(), st.booleans(), st.integers(-2, 2), TEXT, st.lists(TEXT, max_size=2), st.just({}))
WORDS = {
    "target_type": ["context", "plan", "trace", "extension", "other"],
    "status": ["pending", "approved", "rejected", "cancelled"],
}


def maybe(good: Any, bad: Any = ANY) -> Any:
    """A value that is mostly good."""
    return st.integers(0, 11).flatmap(lambda chance: bad if chance == 0 else good)


def record(required: dict[str, Any], optional: dict[str, Any]) -> Any:
    """An object that mostly has what it needs, and sometimes what nobody knows."""
    whole = st.fixed_dictionaries(required, optional=optional)
    names = sorted(required)
    lacking = st.tuples(whole, st.sampled_from(names)).map(lambda p: {k: v for k, v in p[0].items() if k != p[1]})
    more = st.tuples(whole, ANY).map(lambda pair: pair[0] | {"unknown": pair[1]})
    return st.integers(0, 19).flatmap(lambda chance: (lacking, more)[chance] if chance < 2 else whole)


META = record(
    {"protocol_version": maybe(st.just("1.0.0"), TEXT), "schema_version": maybe(st.just("1.2.3"), TEXT)},
    {
        "created_at": maybe(INSTANT, NO_INSTANT), "created_by": maybe(TEXT), "updated_at": maybe(INSTANT, NO_INSTANT),
        "tags": maybe(st.lists(TEXT, max_size=3)), "updated_by": maybe(TEXT),
        "cross_cutting": maybe(st.lists(st.sampled_from(["security", "transaction"]), max_size=3)),
    },
)  # fmt: skip
REF = record(
    {"id": maybe(ID, NO_ID), "module": maybe(st.sampled_from(["plan", "core"]), TEXT)}, {"description": maybe(TEXT)}
)
GOVERNANCE = record({"locked": maybe(st.booleans())}, {"lifecyclePhase": maybe(TEXT), "lastConfirmRef": maybe(REF)})
TRACE = record(
    {"trace_id": maybe(ID, NO_ID), "span_id": maybe(ID, NO_ID)},
    {"attributes": maybe(st.dictionaries(TEXT, ANY, max_size=2)), "context_id": maybe(ID, NO_ID)},
)
EVENT = record(
    {
        "event_id": maybe(ID, NO_ID), "event_type": maybe(st.sampled_from(["confirm.decided", "a.b1"]), TEXT),
        "source": maybe(TEXT), "timestamp": maybe(INSTANT, NO_INSTANT),
    },
    {"trace_id": maybe(ID, NO_ID), "data": st.one_of(st.none(), st.just({"a": 1}), ANY)},
)  # fmt: skip
DECISION = record(
    {
        "decision_id": maybe(ID, NO_ID), "status": maybe(st.sampled_from(["approved", "rejected"]), TEXT),
        "decided_by_role": maybe(TEXT), "decided_at": maybe(INSTANT, NO_INSTANT),
    },
    {"reason": maybe(TEXT)},
)  # fmt: skip
CONFIRM = record(
    {
        "meta": maybe(META), "confirm_id": maybe(ID, NO_ID), "target_id": maybe(ID, NO_ID),
        **{name: maybe(st.sampled_from(words), TEXT) for name, words in WORDS.items()},
        "requested_by_role": maybe(TEXT), "requested_at": maybe(INSTANT, NO_INSTANT),
    },
    {
        "reason": maybe(TEXT), "trace": maybe(TRACE), "governance": maybe(GOVERNANCE),
        "decisions": maybe(st.lists(DECISION, max_size=1)), "events": maybe(st.lists(EVENT, max_size=1)),
    },
)  # fmt: skip
STEP = record(
    {"step_id": maybe(ID, NO_ID), "description": maybe(st.just("do"), TEXT), "status": maybe(st.just("pending"), TEXT)},
    {"agent_role": maybe(TEXT), "order_index": maybe(st.sampled_from([0, 3, 2.0])), "dependencies": maybe(st.just([]))},
)
PLAN = record(
    {
        "meta": maybe(META), "plan_id": maybe(ID, NO_ID), "context_id": maybe(ID, NO_ID),
        "title": maybe(st.just("t"), TEXT), "objective": maybe(st.just("o"), TEXT),
        "status": maybe(st.sampled_from(["draft", "failed"]), TEXT),
        "steps": maybe(st.lists(STEP, min_size=1, max_size=1)),
    },
    {"trace": maybe(TRACE), "events": maybe(st.lists(EVENT, max_size=1))},
)  # fmt: skip


def judged(kind: type[Confirm | Plan], theirs: str, document: Any) -> bool:
    """Say whether a document fits, after all judges have agreed on it."""
    try:
        parsed = kind.parse(document)
    except NotConformantError:
        parsed = None
    assert (parsed is None) == bool(misfits(theirs, document))
    if parsed is None:
        return False
    exported = parsed.export()
    assert misfits(theirs, exported) == []
    assert kind.parse(exported) == parsed
    return True


@pytest.mark.slow
@settings(max_examples=rounds(300, 1_000))
@given(document=CONFIRM)
def test_ours_and_theirs_agree_on_every_confirm(document: Any) -> None:
    judged(Confirm, "mplp-confirm", document)


@pytest.mark.slow
@settings(max_examples=rounds(150, 1_000))
@given(document=PLAN)
def test_ours_and_theirs_agree_on_every_plan(document: Any) -> None:
    judged(Plan, "mplp-plan", document)


@pytest.mark.slow
@settings(max_examples=rounds(150, 1_000))
@given(document=CONFIRM)
def test_what_is_taken_in_another_spelling_leaves_in_the_right_one(document: Any) -> None:
    try:
        parsed = Confirm.parse(document, strict=False)
    except NotConformantError:
        return
    assert misfits("mplp-confirm", parsed.export()) == []
    assert all(re.match(r"/\S*: ", change) for change in parsed.changes)
