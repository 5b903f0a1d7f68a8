"""Sayso in Inspect (extra `inspect-ai`): an approver, which approval policies can name, asks a person.

Inspect runs the tool, not this module. The start of a call is recorded before Inspect is told to run it, and the
sample's events report its outcome. Invariant: a call is never `done` before it has run, and a call that never reports
is `unknown` at the end of its sample. A call whose name is misspelt in the policy does not get here, so the names in a
task's policy are compared with the tools that its models are given.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any, ClassVar, cast

from sayso import aio, errors
from sayso.gates.exceptions import ConfirmationRejected
from sayso.gates.gate import HoldOptions
from sayso.integrations.tool_calls import HeldTools, ask_call, check_options, framework, plain, start_call
from sayso.model import canonical
from sayso.model.request import MODEL_WORDS, not_run

_approvals: Any = framework("inspect_ai.approval", "inspect-ai", "Inspect")
_hooks: Any = framework("inspect_ai.hooks", "inspect-ai", "Inspect")
_texts: Any = framework("inspect_ai.model", "inspect-ai", "Inspect")
_util: Any = framework("inspect_ai.util", "inspect-ai", "Inspect")
_samples: Any = framework("inspect_ai.log._samples", "inspect-ai", "Inspect")

_running = dict[tuple[str, str], aio.Held]()  # by sample and call
_notes = dict[tuple[str, str], str]()  # notes for the model about such calls
_policies = dict[str | None, tuple[HeldTools, set[str]]]()  # by task: what its policy names, and the tools seen


_NAME = "sayso/approval"


@_approvals.approver(name="approval")
def approval(
    quorum: int = 1, roles: Collection[str] = (), redact: Collection[str] = (), expires: str | None = None,
    approval_expires: str | None = None, effect: str | None = None, store: str | None = None, **options: Any,
) -> Any:  # fmt: skip
    """Return an approver that waits for a person, for `approval=` of a task or `--approval policy.yaml`.

    In a policy file its name is `sayso/approval`, with its options next to `name` and `tools`.

    Args:
        quorum, roles, redact, expires, approval_expires, effect, store: As for `sayso.hold`.
        options: `when` and the other options of `sayso.hold`; only in Python.
    """
    named = {
        "quorum": quorum, "roles": roles, "redact": redact, "expires": expires, "approval_expires": approval_expires,
        "effect": effect, "store": store,
    }  # fmt: skip
    options |= {name: value for name, value in named.items() if value is not None}
    check_options(options, "context")
    _Hooks.is_used = True

    async def approve(message: str, call: Any, view: Any, history: Any) -> Any:  # noqa: ARG001  names required by Inspect
        sample = _samples.sample_active()
        run = None if sample is None else sample.sample_uuid
        words = {MODEL_WORDS: message} if message else {}
        filled = cast("HoldOptions", {"context": {"sample": run, **words}, **options, "withdraw_on_exit": True})
        if run is not None:
            filled |= {"key": call.id, "run": run}
        try:
            held = await ask_call(call.function, call.arguments, filled)
            if held.state == "allowed":
                return _approvals.Approval(decision="approve")
            async with held:
                await held.wait()
            note, arguments = held.message_for_model(), await start_call(held)
        except ConfirmationRejected as no:
            return _approvals.Approval(decision="reject", explanation=no.message_for_model)
        except errors.SaysoError as error:  # raising it would end the sample
            return _approvals.Approval(decision="reject", explanation=not_run(call.function, str(error)))
        if run is None:  # no sample will report the outcome
            await held.unknown("Inspect runs it outside of a sample, so its outcome is not reported")
        else:
            _running[run, call.id] = held
            if note:
                _notes[run, call.id] = note
        if canonical.is_same(arguments, call.arguments):
            return _approvals.Approval(decision="approve", explanation=note or None)
        changed = replace(call, arguments=arguments)
        return _approvals.Approval(decision="modify", modified=changed, explanation=note)

    return approve


@_hooks.hooks(name="sayso", description="Records the outcomes of approved tool calls.")
class _Hooks(_hooks.Hooks):
    is_used: ClassVar[bool] = False

    def enabled(self) -> bool:
        return self.is_used

    async def on_task_start(self, data: Any) -> None:
        policy = data.spec.config.approval
        specs: list[Any] = [each.tools for each in policy.approvers if each.name == _NAME] if policy else []
        names = [
            name.strip() for spec in specs for name in ",".join([spec] if isinstance(spec, str) else spec).split(",")
        ]
        # As Inspect reads them: the beginning of a call, which may go on with its arguments.
        patterns = [f"{name.partition('(')[0].rstrip('*')}*" for name in names if name]
        _policies[data.eval_id] = HeldTools(patterns), set()

    async def on_task_end(self, data: Any) -> None:
        _policies.pop(data.eval_id, None)

    async def on_before_model_generate(self, data: Any) -> None:
        self._check_names(data)
        self._add_notes(data)

    def _check_names(self, data: Any) -> None:
        """Warn about a name that no tool matches; end the sample if a tool has a similar name.

        An exception of another class would only be logged.
        """
        policy, known = _policies.get(data.eval_id, (HeldTools(()), set[str]()))
        known.update(tool.name for tool in data.tools)
        try:
            for name in sorted(known):
                policy.holds(name, known, or_more=True)
        except (errors.ConfigError, RuntimeWarning) as error:
            raise _util.LimitExceededError("custom", value=1, limit=0, message=str(error)) from error

    def _add_notes(self, data: Any) -> None:
        """Tell the model a reviewer's changes and notes, because Inspect does not show it an approval's explanation."""
        sample = _samples.sample_active()  # its id here differs from the one in its events
        if sample is None:
            return
        for message in data.input:
            note = _notes.get((sample.sample_uuid, getattr(message, "tool_call_id", None) or ""))
            if note is None:
                continue
            if message.error is not None:
                message.error.message = _prepend_note(note, message.error.message)
            elif isinstance(message.content, str):
                message.content = _prepend_note(note, message.content)
            elif all(getattr(part, "text", None) != note for part in message.content):
                message.content = [_texts.ContentText(text=note), *message.content]

    async def on_sample_event(self, data: Any) -> None:
        event = data.event
        held = _running.pop((data.sample_id, event.id), None) if event.event == "tool" else None
        if held is None:
            return
        if event.error is None and not event.failed:
            await held.finish(plain(event.result))
        elif event.error is None or event.error.type in {"timeout", "cancelled"}:
            await held.unknown("the tool raised" if event.error is None else event.error.message)
        else:
            await held.fail(event.error.message)

    async def on_sample_end(self, data: Any) -> None:
        """Record started calls that never reported as `unknown`."""
        for key in [key for key in _notes if key[0] == data.sample_id]:
            del _notes[key]
        for key in [key for key in _running if key[0] == data.sample_id]:
            await _running.pop(key).unknown("the sample ended, and its events do not show how the call ended")


def _prepend_note(note: str, text: str) -> str:
    """Prepend a note to a result. The model sees the message in every later call, so a note is not added twice."""
    return text if text.startswith(note) else f"{note}\n\n{text}"
