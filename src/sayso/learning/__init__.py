"""What can be learned from decisions: samples, preference pairs, a table, and a report that proposes rules.

Everything is read from the requests of a store, newest first and one page at a time, by when they were asked. What
people may not see is masked here as everywhere, and what was purged is left out. The invariant: nothing in this room
changes a request, a gate or a rule; a rule is proposed as text, and a person pastes it or does not.
"""

from __future__ import annotations

from sayso.learning.dataset import COLUMNS, PAIR_COLUMNS, decided, pairs, rows, samples, table
from sayso.learning.findings import Candidate, Edit, Reason, Report, Share, Stamp, report

__all__ = [
    "COLUMNS",
    "PAIR_COLUMNS",
    "Candidate",
    "Edit",
    "Reason",
    "Report",
    "Share",
    "Stamp",
    "decided",
    "pairs",
    "report",
    "rows",
    "samples",
    "table",
]
