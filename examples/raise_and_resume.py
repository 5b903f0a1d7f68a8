"""A call that raises instead of waiting: the program ends, and a later process goes on.

    python examples/raise_and_resume.py                                asks, saves the pause, ends
    python examples/raise_and_resume.py yes                            approves and runs it
    python examples/raise_and_resume.py no                             refuses it
    python examples/raise_and_resume.py '{"path": "/srv/older"}'       approves it with other arguments

The pause is plain JSON, here in `session.json`; a web application keeps it in its session. It holds no right: whether
the call may run stands in the store alone, so a decision by `sayso approve ID` counts just the same.
"""

import json
import sys
from pathlib import Path

import sayso

SESSION = Path("session.json")


@sayso.confirm_first
def delete(path: str) -> str:
    """Delete a folder."""
    return f"deleted {path}"


def ask() -> None:
    """Call it, and save the pause."""
    try:
        print(delete("/srv/old"))
    except sayso.ConfirmationRequired as held:
        SESSION.write_text(json.dumps(held.to_dict()), encoding="utf-8")
        print(held.question)


def resume(response: str) -> None:
    """Record what the person said, and call it again."""
    saved = sayso.ResumeState(json.loads(SESSION.read_text(encoding="utf-8")), response)
    if saved.user_response in {"yes", "no"}:
        sayso.respond_to_confirmation(saved.confirmation_id, approved=saved.user_response == "yes")
    else:
        sayso.respond_to_confirmation(saved.confirmation_id, data=json.loads(saved.user_response))
    try:
        print(delete("/srv/old"))
    except sayso.ConfirmationRejected as no:
        print(no.message)
    SESSION.unlink()


if __name__ == "__main__":
    with sayso.run("clean-up-2026-07"):  # the same name in both processes: decisions count in their run
        resume(sys.argv[1]) if len(sys.argv) > 1 else ask()
