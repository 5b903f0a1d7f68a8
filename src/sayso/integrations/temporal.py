"""Sayso in Temporal (extra `temporal`): an activity of a workflow waits for a person, across restarts.

`held_activity` holds an activity in a worker; `execute_held_activity` calls it from a workflow and waits.
`TemporalChannel` wakes workflows from the outbox. Invariant: an Update or a Signal only wakes a workflow. The activity
reads the decision from sayso's store and runs the call through `hold`, so it runs once whatever Temporal repeats.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from typing import Any, NoReturn, Unpack

from sayso import aio, errors
from sayso.channels import Notification, UndeliverableError
from sayso.gates.exceptions import ConfirmationRejected, ConfirmationRequired
from sayso.gates.gate import HoldOptions
from sayso.gates.held import HeldBase
from sayso.integrations.tool_calls import ToolFunction, check_options, framework, options_of

_activity: Any = framework("temporalio.activity", "temporal", "Temporal")
_workflow: Any = framework("temporalio.workflow", "temporal", "Temporal")
_client: Any = framework("temporalio.client", "temporal", "Temporal")
_common: Any = framework("temporalio.common", "temporal", "Temporal")
_fault: Any = framework("temporalio.exceptions", "temporal", "Temporal")
_service: Any = framework("temporalio.service", "temporal", "Temporal")

DECIDED = "sayso_decided"
"""The name of the Update and of the Signal that wake a workflow."""
_WAITS, _RUN, _WITHDRAW = "sayso.Waits", "temporal/", "withdraw "
_WAKING = frozenset({"approved", "running", "rejected", "feedback", "cancelled", "expired"})
_AWAY = (errors.StoreUnavailableError, errors.StoreBusyError)
_POLL = timedelta(seconds=30)
_SOON = timedelta(seconds=1)


# -- in a worker ---------------------------------------------------------------------------------------------------


def held_activity(function: Callable[..., Any] | None = None, /, **options: Unpack[HoldOptions]) -> Any:
    """Hold an activity: use it below `@activity.defn`; each call waits for a person and then runs once.

    The workflow id is the run of the request, and the position of the call in the workflow is its key, so retries,
    replays and resets find the same request and get the result of the same call.

    Args:
        function: A function with annotated parameters; arguments and result are JSON values. A sync function runs in a
            thread of the event loop's pool.
        options: `when`, `effect`, `title`, `description`, `quorum`, `roles`, `redact`, `expires`, `approval_expires`,
            `context` and `store`, as for `sayso.hold`.

    Raises:
        TypeError: There is no such option.

    The activity fails with an `ApplicationError` whose type is the name of the exception: `ConfirmationRejected` or a
    subclass, `OutcomeUnknownError`, or an exception of `function`. It is not retried. A call that waits fails with the
    type `sayso.Waits`, and is retried after 30 s unless `execute_held_activity` called it.
    """
    if function is None:
        return functools.partial(held_activity, **options)
    check_options(options, "context")
    tool = ToolFunction(function)

    @functools.wraps(function)
    async def run(*args: Any) -> Any:
        key, withdraws = _key()
        run_id, held = f"{_RUN}{_activity.info().workflow_id}", None
        try:
            filled = options_of(options, key=key, run=run_id, schema=tool.schema, description=tool.description)
            held = await aio.hold(tool.name, tool.bind(args, {}), **filled)
            return await (held.withdraw("the workflow was cancelled") if withdraws else held.once(tool.acall))
        except Exception as error:  # noqa: BLE001  every error is reported to Temporal
            _fail(error, held)

    return run


def _key() -> tuple[str, bool]:
    info = _activity.info()
    if info.workflow_id is None:
        raise errors.ConfigError("a held activity must be called by a workflow; nobody was asked")
    if info.activity_id.startswith(_WITHDRAW):
        return info.activity_id.removeprefix(_WITHDRAW), True
    is_ours = info.activity_id.startswith("held-")
    return info.activity_id if is_ours else f"{info.workflow_run_id}-{info.activity_id}", False


def _fail(error: Exception, held: HeldBase | None) -> NoReturn:
    """Raise the error that tells Temporal how an attempt ended, and whether to retry."""
    request = None if held is None else held.request
    if isinstance(error, ConfirmationRequired) and request is not None and error.id == request.id:
        raise _fault.ApplicationError(
            f"{request.id} waits for a person", request.id, request.expires_at.timestamp(), type=_WAITS,
            next_retry_delay=_POLL, category=_fault.ApplicationErrorCategory.BENIGN,
        ) from error  # fmt: skip
    is_spent = request is not None or isinstance(error, ConfirmationRejected | errors.SaysoError)
    if isinstance(error, _AWAY) or not is_spent:  # the store is unavailable, or a rule allowed the call
        raise error
    is_no = isinstance(error, ConfirmationRejected)
    category = _fault.ApplicationErrorCategory.BENIGN if is_no else _fault.ApplicationErrorCategory.UNSPECIFIED
    raise _fault.ApplicationError(
        str(error), type=type(error).__name__, non_retryable=True, category=category
    ) from error


# -- in a workflow -------------------------------------------------------------------------------------------------


class _Inbox:
    """The messages to one workflow execution, whose content is never trusted, and the number of its held calls."""

    def __init__(self) -> None:
        self.calls = 0
        self.decided: dict[str, tuple[str, str]] = {}  # state and outcome, by request
        _workflow.set_signal_handler(DECIDED, self._receive)
        _workflow.set_update_handler(DECIDED, self._update, validator=self._validate)

    def _receive(self, request_id: str, state: str, outcome: str) -> None:
        self.decided.setdefault(request_id, (state, outcome))

    def _update(self, request_id: str, state: str, outcome: str) -> str:
        self._receive(request_id, state, outcome)
        return "recorded"

    def _validate(self, request_id: str, state: str, outcome: str) -> None:  # noqa: ARG002  the signature of the Update
        known = self.decided.get(request_id)
        if known is not None and known[0] != state:
            raise _fault.ApplicationError(f"{request_id} was already decided: {known[1]}", type="AlreadyDecidedError")


def _inbox() -> _Inbox:
    instance = _workflow.instance()
    found = getattr(instance, "sayso_inbox", None)
    if found is None:
        found = instance.sayso_inbox = _Inbox()
    return found


async def execute_held_activity(
    held: Callable[..., Any] | str, *, args: Sequence[Any] = (), recheck: timedelta = timedelta(hours=1),
    retry_policy: Any = None, **options: Any,
) -> Any:  # fmt: skip
    """Execute a held activity from a workflow, and wait for the decision without a limit, even while no worker runs.

    Cancelling the workflow while it waits withdraws the request.

    Args:
        held: The activity, or its name.
        args: Its arguments.
        recheck: The interval at which the workflow checks the request even without a message.
        retry_policy, options: As for `workflow.execute_activity`; `start_to_close_timeout` limits an attempt, not the
            wait.

    Raises:
        _fault.ActivityError: The activity failed; the cause is an `ApplicationError`, see `held_activity`.
    """
    inbox, woken = _inbox(), set[str]()
    inbox.calls += 1
    key = f"held-{_workflow.info().original_execution_run_id}-{inbox.calls}"
    policy = retry_policy or _common.RetryPolicy()
    never = [*(policy.non_retryable_error_types or ()), _WAITS]
    execute = functools.partial(
        _workflow.execute_activity, held, args=args, retry_policy=replace(policy, non_retryable_error_types=never),
        **options,
    )  # fmt: skip
    try:
        while True:
            try:
                return await execute(activity_id=key)
            except _fault.ActivityError as error:
                cause = error.cause
                if not isinstance(cause, _fault.ApplicationError) or cause.type != _WAITS:
                    raise
            request_id, until = cause.details
            if request_id in woken:  # it was decided and waits again, as an edit was sent back
                inbox.decided.pop(request_id, None)
            left = max(_SOON, timedelta(seconds=until - _workflow.now().timestamp()) + _SOON)
            with suppress(TimeoutError):
                is_decided = functools.partial(inbox.decided.__contains__, request_id)
                await _workflow.wait_condition(is_decided, timeout=min(recheck, left))
                woken.add(request_id)
    except BaseException as error:
        if _fault.is_cancelled_exception(error):
            await execute(activity_id=_WITHDRAW + key)
        raise


# -- the channel ---------------------------------------------------------------------------------------------------


class TemporalChannel:
    """Wakes workflows when their calls are decided: `with sayso.channels.deliver(store, [TemporalChannel(connect)]):`.

    It is a channel of the outbox: the message is recorded with the decision, and retried until Temporal has it. An
    Update needs a worker's confirmation; if none arrives in time, it sends a Signal, which Temporal keeps for a worker.

    Args:
        connect: Creates the client, e.g. `lambda: Client.connect("localhost:7233")`.
        patience: How long to wait for a worker before sending the Signal.
        name: The channel's name.
    """

    def __init__(
        self, connect: Callable[[], Awaitable[Any]], *, patience: timedelta = timedelta(seconds=2),
        name: str = "temporal",
    ) -> None:  # fmt: skip
        self.name = name
        self._connect, self._patience = connect, patience

    def send(self, notification: Notification) -> None:
        """Wake the workflow if the call is decided."""
        if notification.event == "outcome":
            self.follow_up(notification, None)

    def follow_up(self, notification: Notification, reference: str | None) -> None:  # noqa: ARG002  messages are not edited
        """Wake the workflow; a repeated notification wakes it only once."""
        if notification.run_id.startswith(_RUN) and notification.state in _WAKING:
            asyncio.run(self._wake(notification))

    async def _wake(self, notification: Notification) -> None:
        client = await self._connect()  # a new one each time: a client belongs to an event loop, and decisions are rare
        handle = client.get_workflow_handle(notification.run_id.removeprefix(_RUN))
        state = "approved" if notification.state == "running" else notification.state
        words = [notification.request_id, state, notification.outcome or ""]
        try:
            try:
                await handle.start_update(
                    DECIDED, args=words, id=notification.id, wait_for_stage=_client.WorkflowUpdateStage.ACCEPTED,
                    rpc_timeout=self._patience,
                )  # fmt: skip
            except (_client.WorkflowUpdateRPCTimeoutOrCancelledError, _client.WorkflowUpdateFailedError):
                await handle.signal(DECIDED, args=words)
        except _service.RPCError as error:
            if error.status is _service.RPCStatusCode.NOT_FOUND:
                raise UndeliverableError("Temporal has no such workflow, or it has ended") from error
            raise
