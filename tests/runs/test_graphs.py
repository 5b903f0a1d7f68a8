"""Any graph of steps, with any gates, decided in any order, gives what it gives without gates, minus what was denied.

The graphs, gates and orders are Hypothesis's. What is denied takes with it what depends on it, and nothing else. The
one invariant: a step that ran, ran once.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sayso
from sayso import Tool, Workflow
from tests.support.rounds import rounds
from tests.support.running import ids, yes

Graph = list[tuple[set[int], bool, bool]]


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """Steps: which earlier ones each depends on, whether it is gated, and whether its gate says no."""
    size = draw(st.integers(1, 7))
    steps: Graph = []
    for number in range(size):
        needs = draw(st.sets(st.integers(0, number - 1), max_size=3)) if number else set[int]()
        steps.append((needs, draw(st.booleans()), draw(st.integers(0, 3)) == 0))
    return steps


def flow_of(graph: Graph, ran: list[str], *, gates: bool) -> Workflow:
    flow = Workflow(name="flow")
    for number, (needs, gated, _) in enumerate(graph):
        name = f"s{number}"

        def work(before: dict[str, str], name: str = name) -> str:
            ran.append(name)
            return f"{name}({','.join(before[each] for each in sorted(before))})"

        taken = sorted(f"s{n}" for n in needs)
        # A function that takes exactly the results that this step needs.
        hook = eval(f"lambda {', '.join(taken)}: dict({', '.join(f'{each}={each}' for each in taken)})")  # noqa: S307
        flow.step(Tool(work, name=name, requires_approval=gates and gated), before=hook)
    return flow


def without(graph: Graph) -> set[str]:
    """Return the steps that a no leaves: neither denied, nor behind one that is."""
    left: set[str] = set()
    for number, (needs, gated, denied) in enumerate(graph):
        if not (gated and denied) and all(f"s{n}" in left for n in needs):
            left.add(f"s{number}")
    return left


@pytest.mark.slow
@settings(max_examples=rounds(40, 1_000))
@given(graph=graphs(), data=st.data())
def test_gates_change_nothing_but_what_was_denied(graph: Graph, data: st.DataObject) -> None:
    sayso.configure(store="memory:")
    plain: list[str] = []
    expected: dict[str, Any] = flow_of(graph, plain, gates=False)().run().output
    ran: list[str] = []
    output = flow_of(graph, ran, gates=True)().run()
    while output.status.reason == "approval_required":
        waiting = {entry["approval_id"]: entry["runnable_name"] for entry in output.metadata["pending_approvals"]}
        chosen = data.draw(st.sets(st.sampled_from(ids(output)), min_size=1))
        decisions = {held: not graph[int(waiting[held][1:])][2] for held in chosen}
        before = list(ran)
        output = flow_of(graph, ran, gates=True)(parent_id=output.run_id, resume=decisions).run()
        assert ran[: len(before)] == before
    left = without(graph)
    assert Counter(ran) == Counter(left)
    assert Counter(plain) == Counter(expected.keys())
    if left == set(expected):
        assert output.status.code == "success"
        assert output.output == expected
    else:
        assert (output.status.code, output.status.reason) == ("cancelled", "approval_denied")


def test_a_yes_to_all_is_a_yes_to_all() -> None:
    sayso.configure(store="memory:")
    ran: list[str] = []
    graph: Graph = [(set(), True, False), ({0}, True, False), ({0, 1}, False, False)]
    output = flow_of(graph, ran, gates=True)().run()
    while output.status.reason == "approval_required":
        output = flow_of(graph, ran, gates=True)(parent_id=output.run_id, resume=yes(output)).run()
    assert output.output == {"s0": "s0()", "s1": "s1(s0())", "s2": "s2(s0(),s1(s0()))"}
