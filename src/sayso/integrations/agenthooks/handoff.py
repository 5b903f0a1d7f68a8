"""Holds a coding agent's tool call for a person, and hands the approved call over to the host, which runs it.

The start is recorded in the name of the host's process before the host is told to run the call. A later hook reports
the outcome. Invariant: a call that never reports is `unknown`, and no request is `done` before its call has run.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import NoReturn

from sayso import config, errors, policy
from sayso.config import requester
from sayso.gates.exceptions import ConfirmationRejected, ConfirmationRequired
from sayso.gates.gate import hold
from sayso.gates.held import Held
from sayso.integrations.agenthooks.hosts import HookEvent, Host, describe
from sayso.integrations.agenthooks.options import Answer, Entry, Options, Session, Settings, shape_of
from sayso.model import canonical, duration
from sayso.model.ids import new_token
from sayso.model.lifecycle import Outcome
from sayso.model.request import not_run
from sayso.policy import Verdict
from sayso.stores import workers
from sayso.stores.base import Store

_NEVER_REPORTED = "the session ended, and the host did not report how the call ended"
_SHELLS = frozenset({"sh", "bash", "dash", "zsh", "ksh", "fish", "busybox", "ash"})


def by_policy(host: Host, event: HookEvent, options: Options, settings: Settings) -> Answer:
    """Answer according to the policy file."""
    with _use_settings(settings):
        rules = policy.Policy.load(options.policy)
        verdict = rules.verdict(event.tool, event.arguments, run=event.session, agent=host.name, is_function=False)
        # Budgets count recorded calls, and a call that was told to be repeated keeps its request even if rules change.
        if verdict.kind != "allow" or verdict.is_recorded or _has_ticket(host, event, options):
            return hold_call(host, event, options, settings, verdict)
        if verdict.log:
            detail = {"tool": event.tool, "rule": verdict.rule, "call": describe(event)}
            _store(options).note(event.session, "allowed", requester(), detail)
        return Answer(0, host.allow)


def _has_ticket(host: Host, event: HookEvent, options: Options) -> bool:
    session = Session(host.name, event.session)
    if next(session.entries("ticket"), None) is None:
        return False  # true of most calls, which then need not open the store
    return next(session.entries("ticket", _shape(event, _store(options))), None) is not None


def _shape(event: HookEvent, store: Store) -> str:
    # Two hooks of one call may follow different settings with different stores.
    return shape_of(event.tool, event.arguments, event.folder, event.agent, store.url)


def hold_call(
    host: Host, event: HookEvent, options: Options, settings: Settings, verdict: Verdict | None = None
) -> Answer:
    """Ask a person about a call, wait, and start it for the host, or answer that it must be made again later."""
    session = Session(host.name, event.session)
    with _use_settings(settings), _exit_on_sigterm():
        store = _store(options)
        shape = _shape(event, store)
        held = _find_or_ask(host, event, store, verdict or policy.hold(), session, shape, settings.ignored)
        if held.state == "denied":
            return Answer(0, host.deny(held.message_for_model()))
        if held.state == "allowed":  # no person was needed when it was asked
            return Answer(0, host.allow)
        try:
            held.wait(duration.parse(options.wait))
            return _start(host, event, held, session, options, store)
        except ConfirmationRequired:
            session.add("ticket", [shape], {"key": _request_key(held)})
            return Answer(0, host.deny(
                f"Not run yet: a person must approve {held.id} ({describe(event)}). Make the same call again with"
                " the same arguments to wait for the decision. Do not work around it. If you have nothing else to"
                f" do and there is still no decision, tell the user that {held.id} waits in sayso."
            ))  # fmt: skip
        except ConfirmationRejected:
            if held.state in {"rejected", "feedback"} and next(session.entries("ticket", shape), None) is None:
                session.add("ticket", [shape], {"key": _request_key(held)})  # a repeated call gets the same refusal
            return Answer(0, host.deny(held.message_for_model()))
        except (SystemExit, KeyboardInterrupt):
            held.withdraw(f"{host.title} stopped waiting")
            raise


def _find_or_ask(
    host: Host, event: HookEvent, store: Store, verdict: Verdict, session: Session, shape: str, ignored: str | None
) -> Held:
    """Return the request of this call, or of an equal one of the session that was told to be repeated."""
    more = "" if ignored is None else f" ({ignored} is ignored; to trust it, run `sayso hook trust`)"

    def ask(key: str) -> Held:
        def policy_file() -> Verdict:
            return verdict

        about = host.about(event)
        about["description"] += more
        return hold(
            event.tool, event.arguments, key=key, run=event.session, store=store, when=policy_file, **about
        )  # fmt: skip

    for ticket in session.entries("ticket", shape):
        with suppress(errors.KeyReusedError):  # the policy now requires more than the request has
            held = ask(ticket.data["key"])
            if held.state in {"rejected", "feedback", "denied"}:
                return held
            if held.state in {"pending", "approved"} and ticket.take():
                return held
        ticket.take()
    return ask(event.call_id or f"{host.name}-{new_token()[:16]}")


def _start(host: Host, event: HookEvent, held: Held, session: Session, options: Options, store: Store) -> Answer:
    """Record the start for the host's process, and answer that the host may run the call."""
    me, note = _host_process(f"{host.name} {event.session}"), held.message_for_model()
    missing = ", ".join(sorted(set(event.arguments) - set(held.arguments)))
    if host.merges and missing:
        held.withdraw(f"{host.title} cannot remove an argument from a call")
        return Answer(0, host.deny(f"Not run: a person removed {missing} from the call, which {host.title} cannot do."))
    try:
        arguments = held.start(by=me)
    except errors.AlreadyStartedError:
        # A hook may be in two settings files. Both run for the same call, and both must allow it. If the same hook runs
        # again with this id, it is a different call that reuses the id while the first one still runs.
        entries = session.entries("running", event.call_id) if event.call_id else iter(())
        running = next((one for one in entries if one.data["request"] == held.id), None)
        if running is None or running.data["worker"] != me or not session.is_first(running.data["token"], *options):
            raise
        return Answer(0, host.approve(running.data["changed"], ""))
    except errors.EffectTakenError as taken:
        held.withdraw(taken.reason)  # open, it would keep others from the effect
        return Answer(0, host.deny(not_run(event.tool, taken.reason)))
    changed = None if canonical.is_same(arguments, event.arguments) else arguments
    names = [event.call_id] if event.call_id else [shape_of(event.tool, one) for one in (arguments, event.arguments)]
    execution = None if held.request is None else held.request.execution
    token = None if execution is None else execution.token
    data = {"request": held.id, "token": token, "worker": me, "note": note, "changed": changed, "store": store.url}
    try:
        session.is_first(token, *options)
        session.add("running", names, data)
    except OSError as error:
        held.fail(f"not run: {error}")
        raise
    return Answer(0, host.approve(changed, note))


def _request_key(held: Held) -> str:
    return "" if held.request is None else held.request.key or ""


# -- outcomes ------------------------------------------------------------------------------------------------------


def report(host: Host, event: HookEvent) -> Answer:
    """Record the outcome of a call that the host ran; at the end of a session, mark unreported calls as unknown."""
    session, note = Session(host.name, event.session), ""
    if event.kind == "end":
        for entry in session.entries("running"):
            _finish(entry, Outcome("unknown", error=_NEVER_REPORTED))
        session.clear()
        return Answer(0, "{}")
    name = event.call_id or shape_of(event.tool, event.arguments)
    entry = next(session.entries("running", name), None)
    if entry is not None:
        note = entry.data["note"]
        error = (
            event.error
            or f"{host.title} reported that the call {'was interrupted' if event.kind == 'unknown' else 'failed'}"
        )
        outcome = {
            "done": Outcome("done", not_kept="the host has the result"),
            "failed": Outcome("failed", error=error[:2_000]),
            "unknown": Outcome("unknown", error=error[:2_000]),
        }[event.kind]
        _finish(entry, outcome)
    return Answer(0, host.add_context(note) if note else "{}")


def _finish(entry: Entry, outcome: Outcome) -> None:
    with suppress(errors.StartRefusedError):  # a person has resolved it in the meantime
        config.open_store(entry.data["store"]).finish(entry.data["request"], entry.data["token"], outcome)
    entry.take()


# -- this process --------------------------------------------------------------------------------------------------


def _store(options: Options) -> Store:
    return config.open_store(options.store or config.store_address())


@contextmanager
def _use_settings(settings: Settings) -> Generator[None]:
    """Use these settings and no others inside the block, whatever folder the host starts its hooks in."""
    before = Path.cwd()
    os.chdir(settings.folder)
    try:
        with config.only_settings(None if settings.path is None else Path(settings.path), settings.digests):
            yield
    finally:
        os.chdir(before)


@contextmanager
def _exit_on_sigterm() -> Generator[None]:
    """Withdraw the request if the host stops the hook, which happens when its user interrupts the agent."""

    def stop(number: int, frame: FrameType | None) -> NoReturn:  # noqa: ARG001  the signature of a handler
        raise SystemExit(2)

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _host_process(otherwise: str) -> str:
    """Return the name of the process that runs this hook, skipping shells, or a name that never ends if none is found.

    While that process lives, the call may be running. When it is gone, a call that has not reported is `unknown`.
    """
    pid = workers.parent_of(os.getpid())
    while pid is not None and pid > 1:
        if workers.program_of(pid) not in _SHELLS:
            return workers.named(pid)
        pid = workers.parent_of(pid)
    return otherwise
