"""One call of a run from end to end: find it, take it in hand, take the decisions, take the steps, hand it back."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from sayso import errors
from sayso.drive import offload
from sayso.gates import requester
from sayso.model import canonical
from sayso.model.ids import new_run_id
from sayso.model.run import RunState
from sayso.runs.code import changes, fingerprints
from sayso.runs.decide import Decider
from sayso.runs.events import Event, OutputEvent, RunStatus
from sayso.runs.frame import Frame, Leg
from sayso.runs.halt import Denied, Failed, Halt
from sayso.runs.journal import Journal
from sayso.runs.step import perform
from sayso.runs.values import Given
from sayso.stores.lease import Lease
from sayso.waiting import scope

if TYPE_CHECKING:
    from sayso.runs.run import Run

__all__ = ["ROOT", "take"]

ROOT = "input"
_log = logging.getLogger("sayso")


async def take(run: Run, emit: Callable[[Event], None]) -> OutputEvent:
    """Take a run from where it stands to its end, or to where it waits.

    First and later calls take the same way: a new run has an empty journal.
    """
    runnable = run.runnable
    decider = Decider(runnable.store, run.resolutions)
    try:
        journal = await _in_hand(run, decider)
    except errors.SaysoError as error:
        return _not_begun(run, error, await decider.run_id())
    run.begin(journal)
    leg = Leg(journal, emit, scope.current().place.acts_for)
    frame = Frame(leg, runnable, runnable.name, runnable.name)
    state = RunState.BROKEN
    try:
        given = await _input(run, frame)
        leg.notes = await decider.decide(journal)
        output = await _output(frame, given)
    except Halt as halt:
        return frame.output_event(halt.status)
    else:
        state = _state_of(output.status)
        return output
    finally:
        await _leave(journal, state)


async def _in_hand(run: Run, decider: Decider) -> Journal:
    """Return the journal of the run that was meant: a known one, taken in hand, or that of a new one."""
    runnable, store = run.runnable, run.runnable.store
    run_id = run.parent_id or run.run_id or await decider.run_id()
    if run_id is None:
        return Journal.new(store, new_run_id(), runnable.name, runnable.kind)
    lease = Lease()
    try:
        kept = await decider.verb(lambda: store.take_run(run_id, lease.holder))
    except errors.RunNotFoundError:
        if run.parent_id is not None:
            raise
        return Journal.new(store, run_id, runnable.name, runnable.kind)
    return Journal(store, kept.run, lease, kept.steps)


def _not_begun(run: Run, error: errors.SaysoError, run_id: str | None) -> OutputEvent:
    """Return the output of a run that could not be taken in hand."""
    claimed, failed = isinstance(error, errors.RunBusyError), isinstance(error, errors.StoreError)
    status = RunStatus(
        code="cancelled" if claimed else "error",
        reason="approval_already_claimed" if claimed else "store_failed" if failed else None,
        message=str(error),
    )
    told = None if claimed else {"type": type(error).__name__, "message": str(error)}
    name = run.runnable.name
    journal = Journal.new(run.runnable.store, run.parent_id or run.run_id or run_id or new_run_id(), name, "")
    return Frame(Leg(journal, _nobody, ()), run.runnable, name, name).output_event(status, error=told)


def _nobody(event: Event) -> None:
    """Listen to nothing."""


async def _input(run: Run, frame: Frame) -> dict[str, Any]:
    """Return what the run was called with: what the record says, else what is given now, noted for the record.

    Raises:
        Halt: The code is not what the run began with.
    """
    runnable, journal = run.runnable, frame.journal
    known = journal.at(ROOT)
    if known is None:
        try:
            given = runnable.signature.named(run.args, run.kwargs)
        except TypeError as error:
            raise Halt(RunStatus(code="error", message=str(error)), error) from error
        journal.put(ROOT, {"name": runnable.name, "given": Given(given), "code": fingerprints(runnable)})
        return given
    problems = changes(known, runnable)
    if problems:
        raise Halt(RunStatus(code="error", reason="run_changed", message="; ".join(problems)))
    return canonical.decode(known["given"], runnable.shape.classes)


async def _output(frame: Frame, given: dict[str, Any]) -> OutputEvent:
    try:
        value = await perform(frame, given)
    except Halt as halt:
        return frame.output_event(halt.status, error=_told(halt.cause) if halt.status.code == "error" else None)
    except Denied as denied:
        return frame.output_event(RunStatus(code="cancelled", reason="approval_denied", message=denied.message))
    except Failed as failed:
        error = {"type": failed.kind, "message": failed.message}
        return frame.output_event(RunStatus(code="error", message=str(failed)), error=error)
    return frame.output_event(RunStatus(code="success"), value)


def _told(cause: BaseException | None) -> dict[str, Any] | None:
    return None if cause is None else {"type": type(cause).__name__, "message": str(cause)}


def _state_of(status: RunStatus) -> RunState:
    match status.reason:
        case "approval_required" | "input_required":
            return RunState.PAUSED
        case "approval_already_claimed" | "stopped" | "outcome_unknown" | "run_changed" | "store_failed":
            return RunState.BROKEN
        case _:
            return RunState.ENDED


async def _leave(journal: Journal, state: RunState) -> None:
    try:
        if state is RunState.ENDED:
            await _withdraw(journal)
        await journal.leave(state)
    except errors.SaysoError:
        # The run's end is told all the same; what is not saved is done again by whoever resumes it.
        _log.exception("the run %s could not be handed back", journal.run_id)


async def _withdraw(journal: Journal) -> None:
    """Take back what a run that has ended still asks: nobody would hear the answer."""
    store = journal.store
    for request_id in {body["waits"] for _, body in journal.waiting()}:
        clear = partial(store.clear, request_id, requester(), "the run has ended")
        await (offload(clear) if store.blocks else _at_once(clear))


async def _at_once(verb: Callable[[], Any]) -> None:
    verb()
