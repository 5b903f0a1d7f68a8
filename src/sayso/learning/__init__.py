"""Learning from decisions: samples, preference pairs, a table, and a report that proposes rules.

Everything is computed from a store's requests, read newest first and page by page. Arguments are masked, and purged
requests are skipped. Nothing here changes a request, a gate or a rule. `findings` has the exports and the report,
`proposals` the rules.
"""

from __future__ import annotations

from sayso.learning.findings import (
    COLUMNS,
    PAIR_COLUMNS,
    Candidate,
    Edit,
    Reason,
    Report,
    Stamp,
    decided,
    decisions_by_person,
    label_of,
    pairs,
    report,
    rows,
    samples,
    table,
)
from sayso.learning.proposals import HASTE, Proposal, Share

__all__ = [
    "COLUMNS", "HASTE", "PAIR_COLUMNS", "Candidate", "Edit", "Proposal", "Reason", "Report", "Share", "Stamp",
    "decided", "decisions_by_person", "label_of", "pairs", "report", "rows", "samples", "table",
]  # fmt: skip
