"""Take guards away and count the schedules until the simulation notices: `python tests/simulation/guards_found.py`.

Each guard is one of `tests/mutants/guards.py`, removed in a copy of the package. Prints a row of the table in
`docs/assets/simulated-guards.txt` for each.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests" / "mutants"))

from guards import MUTANTS, Mutant  # noqa: E402  it stands beside the package

# Those of one process's rules that a schedule can reach; the others guard faces, texts, files and altered rows.
CHOSEN = (
    "an approval that can be undone starts nothing",
    "a start looks who else has its effect",
    "an effect that may have happened is taken",
    "a start that ran nothing frees no effect of an earlier one",
    "one open request for one call in one run",
    "an approval has an end",
    "an edit begins the count anew",
    "a quorum is met before the call is approved",
    "a call that was broken off is unknown",
    "a grant is kept to its fields",
    "a grant that has ended starts nothing",
    "a start takes from its grant or budget",
    "only an approved call is started",
    "an outcome stands",
    "an unknown outcome is not retried",
    "only the last token ends a call",
    "a start looks whether starts are stopped",
    "failed gives back to a budget",
    "a budget gets back nothing that an earlier start may have used",
    "a budget gets nothing back by the word of a call inside",
    "what has ended before it is recorded is approved by nobody",
    "a call that nobody runs any more is not kept running",
    "a worker that lives is not given up",
    "a worker that is gone is given up",
    "a claim keeps a request for one person",
    "a vote on other terms does not pass a claim",
    "more people may decide after the escalation only",
    "all of a quorum say that an effect may happen again",
    "only the holder of a run saves it",
    "a run is not taken from a holder whose lease lasts",
    "a run waits for the outcome of a call inside its handler",
)


def main() -> int:
    """Print a row for each guard."""
    seconds, words = sys.argv[1] if len(sys.argv) > 1 else "60", sys.argv[2:]
    for mutant in MUTANTS:
        if (mutant.guard in CHOSEN and not words) or any(word in mutant.guard for word in words):
            print(f"| {mutant.guard} | {_found(mutant, seconds)} |", flush=True)
    return 0


def _found(mutant: Mutant, seconds: str) -> str:
    with tempfile.TemporaryDirectory() as folder:
        package = Path(folder) / "sayso"
        shutil.copytree(ROOT / "src" / "sayso", package, ignore=shutil.ignore_patterns("__pycache__"))
        file = package / mutant.file
        text = file.read_text(encoding="utf-8")
        if mutant.old not in text:
            return "its text is not there"
        file.write_text(text.replace(mutant.old, mutant.new), encoding="utf-8")
        path = os.pathsep.join((folder, str(ROOT)))
        command = [sys.executable, "-m", "tests.simulation", "--seconds", seconds]
        environment = {**os.environ, "PYTHONPATH": path}
        done = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
        )  # fmt: skip
    last = (done.stdout.strip() or done.stderr.strip()).splitlines()[-1]
    found = re.match(r"schedule (\d+) \((\w+)\) broke a promise: (.*); faults", last)
    if found is None:
        return f"not found: {last}"
    what = re.sub(r"gr_\w+", "a grant", re.sub(r"rq_\w+", "a request", found[3]))[:140]
    return f"{int(found[1]) + 1:,} ({found[2]}) | {what}"


if __name__ == "__main__":
    sys.exit(main())
