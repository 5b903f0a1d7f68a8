"""What `log` does with evidence: verify the journal, write a checkpoint, write an anchor.

Invariant: a journal that verifies is not said to be complete, but for what somebody knows of it; and what nobody can
know is said each time.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sayso import audit
from sayso.audit.anchor import AnchorFile, anchor_text, read_anchor_file
from sayso.audit.checkpoint import CHAIN, History, checkpoint, history
from sayso.cli.desk import Desk
from sayso.cli.evidence import checkpoint_values, counted, signed, signer, told, trusted, written_to
from sayso.cli.say import WRONG, document, out, paint
from sayso.model.text import escape
from sayso.view.summary import token

__all__ = ["make_anchor", "make_checkpoint", "verify"]

_MOST = 50
_ALONE = "That the end of a chain was cut off together with its requests cannot be known from the store alone."
_CHECKED = (
    "That the newest checkpoints were cut off, with all that came after the one before them, cannot be known from the"
    " store alone, nor that all of it was and it began anew: an anchor that is kept elsewhere shows both."
)
_ANCHORED = "That what came after {witness} was cut off together with its requests cannot be known."
_UNSIGNED = "The newest of it is not signed: whoever can write the store could have written all of it anew."
_ANY_KEY = "Whoever can write the store can sign with a key of their own: --key PUBLIC says which one to believe."


def verify(desk: Desk, run_id: str | None, anchor: Path | None, key: str | None, *, as_json: bool) -> int:
    """Verify the journal, hold it to its checkpoints and to an anchor, and print what was found."""
    store, by = desk.store, trusted(key)
    mine = signer() if by is None else None
    held_to = None if anchor is None else read_anchor_file(anchor.expanduser(), trusted=by)
    if held_to is not None:
        held_to.must_be_of(store)
    past = history(store, trusted=by if mine is None else mine.key)
    known = [*past.known, *(() if held_to is None else held_to.known)]
    found = audit.verify(store, run_id=run_id, known=known)
    if run_id is not None and not found.rows and not found.broken:  # one that is known and gone is broken
        desk.must_know(run_id)
    broken = [*found.broken, *(audit.Break(CHAIN, past.last, reason) for reason in past.broken)]
    if by is not None and past.newest is None:
        broken.append(audit.Break(CHAIN, 0, f"there is no checkpoint, and {by} must have signed one"))
    if as_json:
        document(_document(found, broken, past, held_to))
    else:
        out(*_rows(found, broken, past, held_to), *_limits(past, held_to, is_held=by is not None or mine is not None))
    return WRONG if broken else 0


def _document(
    found: audit.Verified, broken: list[audit.Break], past: History, anchor: AnchorFile | None
) -> dict[str, Any]:
    return {
        "rows": found.rows, "chains": found.chains, "requests": found.requests, "unopened": found.unopened,
        "broken": [{"run": one.run_id, "seq": one.seq, "reason": one.reason} for one in broken],
        "checkpoints": past.number,
        "newest": checkpoint_values(past.newest),
        "anchor": checkpoint_values(None if anchor is None else anchor.checkpoint),
    }  # fmt: skip


def _rows(found: audit.Verified, broken: list[audit.Break], past: History, anchor: AnchorFile | None) -> list[str]:
    rows = [f"{counted(found.rows, 'row')} in {counted(found.chains, 'chain')}, {counted(found.requests, 'request')}"]
    if past.newest is not None:
        rows.append(f"{counted(past.number, 'checkpoint')}, the newest {told(past.newest)}")
    if anchor is not None:
        rows.append(f"held to {anchor.witness}, {signed(anchor.key)}")
    word = paint("BROKEN", "red")
    rows += [f"{word}  run {token(one.run_id)}: {escape(one.reason)}" for one in broken[:_MOST]]
    if len(broken) > _MOST:
        rows.append(f"({len(broken) - _MOST:,} more not shown; --json has all)")
    rows.append(
        "whole: every row follows from the one before, and every request stands as its rows say"
        if not broken
        else f"broken: {counted(len({one.run_id for one in broken}), 'chain')}"
    )
    if found.unopened:
        rows.append(
            f"{counted(found.unopened, 'request')} sealed: what was asked was not compared; set SAYSO_KEY for that"
        )
    return rows


def _limits(past: History, anchor: AnchorFile | None, *, is_held: bool) -> list[str]:
    """Say what cannot be known; `is_held` says whether a key is believed that did not come from the store."""
    if anchor is not None:
        rows = [_ANCHORED.format(witness=anchor.witness)]
    else:
        rows = [_ALONE if past.newest is None else _CHECKED]
    if len(past.keys) > 1:
        rows.append(f"Checkpoints are signed with {len(past.keys)} keys, in this order: {', '.join(past.keys)}.")
    signed_with = [past.newest.key] if past.newest is not None else []
    signed_with += [anchor.key] if anchor is not None else []
    if signed_with and not any(signed_with):
        rows.append(_UNSIGNED)
    elif signed_with and not is_held:
        rows.append(_ANY_KEY)
    return rows


def make_checkpoint(desk: Desk, *, as_json: bool) -> int:
    """Write a checkpoint where something happened since the last one, and print it."""
    store = desk.store
    before = history(store)
    after = checkpoint(store, signer(), since=before)
    is_new = after.number > before.number
    if as_json:
        document({"is_new": is_new, "checkpoints": after.number, "newest": checkpoint_values(after.newest)})
    elif after.newest is None:
        out("nothing stands in the journal yet, so there is no checkpoint")
    else:
        out(f"{'' if is_new else 'nothing happened since '}checkpoint {after.newest.seq} {told(after.newest)}")
    return 0


def make_anchor(desk: Desk, path: Path, *, as_json: bool) -> int:
    """Write an anchor of what stands in the store now."""
    who = signer()
    path = path.expanduser()
    with written_to(path, may_replace=False) as file:
        file.write(anchor_text(desk.store, who))
    made = read_anchor_file(path)
    if as_json:
        document({"file": str(path), "key": made.key, "anchor": checkpoint_values(made.checkpoint)})
    else:
        out(
            f"anchor {told(made.checkpoint)}, written to {escape(str(path))}",
            "  keep it where no writer of the store can reach it; `sayso log --verify --anchor FILE` compares",
        )
    return 0
