"""What decisions teach, in the words of the page of figures: candidates for a rule, changes, stamps and reasons.

It is `sayso.learning`'s report, drawn as the command `sayso learn report` prints it. The invariant: nothing that came
from a program or a person is handed to a page unescaped, and nothing on it changes a gate.
"""

from __future__ import annotations

from typing import NamedTuple

from sayso.learning import Candidate, Edit, Report, Stamp
from sayso.model.text import escape
from sayso.server.chart import brief_span
from sayso.view.summary import name_of, token

__all__ = ["MOST", "Lessons", "lessons"]

MOST = 10_000
_MOST_ROWS = 20
_ROOM = 200


class _Candidate(NamedTuple):
    tool: str
    risk: str
    approved: str
    reviewers: int
    median: str
    is_hasty: bool
    went_wrong: int
    fields: list[tuple[str, str]]
    rule: str


class Lessons(NamedTuple):
    """A report in words, each list no longer than a page takes."""

    decisions: int
    is_cut: bool
    candidates: list[_Candidate]
    edits: list[tuple[str, str, str, str]]
    stamps: list[tuple[str, str, str, str, bool]]
    reasons: list[tuple[int, str, str]]


def lessons(found: Report) -> Lessons:
    """Return a report in words."""
    return Lessons(
        found.decisions,
        found.is_cut,
        [_candidate(one) for one in found.candidates[:_MOST_ROWS]],
        [_edit(one) for one in found.edits[:_MOST_ROWS]],
        [_stamp(one) for one in found.stamps[:_MOST_ROWS]],
        [
            (one.count, escape(one.words[:_ROOM]) or "without a word", ", ".join(map(token, one.tools[:3])))
            for one in found.reasons
        ],
    )


def _candidate(one: Candidate) -> _Candidate:
    return _Candidate(
        token(one.tool), token(one.risk) if one.risk else "", str(one.approved), one.reviewers, brief_span(one.median),
        one.is_hasty, one.went_wrong, [(token(name), escape(said)) for name, said in one.fields.items()],
        "" if one.rule is None else escape(one.rule, block=True),
    )  # fmt: skip


def _edit(one: Edit) -> tuple[str, str, str, str]:
    ways = [f"{count:,} {way}" for count, way in ((one.lowered, "lowered"), (one.raised, "raised")) if count]
    return token(one.tool), token(one.name), str(one.changed), ", ".join(ways)


def _stamp(one: Stamp) -> tuple[str, str, str, str, bool]:
    risk = token(one.risk) if one.risk else "-"
    return name_of(one.reviewer), risk, brief_span(one.median), str(one.hasty), one.is_warning
