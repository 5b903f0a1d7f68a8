"""Sayso in DBOS (extra `dbos`): a step of a durable workflow waits for a person, across restarts.

`held_step` holds a step, whose workflow waits in `DBOS.recv`. `DBOSChannel` wakes it from the outbox, or
`wake_in_transaction` from the deciding transaction if sayso and DBOS share a Postgres database. Invariant: a message
only wakes the workflow. The decision is read from sayso's store, and the call runs through `hold`, so it runs once
whatever DBOS repeats.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Unpack

import sayso
from sayso import aio, clock, config, errors
from sayso.channels import Notification, UndeliverableError
from sayso.gates.exceptions import ConfirmationRequired
from sayso.gates.gate import HoldOptions
from sayso.gates.held import HeldBase
from sayso.integrations.tool_calls import ToolFunction, check_options, framework, must_not_block, options_of
from sayso.model import duration

_dbos: Any = framework("dbos", "dbos", "DBOS")
_error: Any = framework("dbos._error", "dbos", "DBOS")

_RUN, _TOPIC = "dbos/", "sayso/"
_WAKING = frozenset({"approved", "running", "rejected", "feedback", "cancelled", "expired"})
_AWAY = (errors.StoreUnavailableError, errors.StoreBusyError)


def held_step(
    function: Callable[..., Any] | None = None, /, *, recheck: timedelta | str = "10m", **options: Unpack[HoldOptions]
) -> Any:  # fmt: skip
    """Hold a step: use it instead of `@DBOS.step()`; calls in a workflow wait for a person and then run once.

    The workflow id is the run of the request, and the position of the call in the workflow is its key. A workflow that
    is recovered, or that two executors run at once, finds the same request and gets the result of the same call.

    Args:
        function: A sync or async function with annotated parameters; arguments and result are JSON values.
        recheck: The interval at which the workflow checks the request even without a message.
        options: `when`, `effect`, `title`, `description`, `quorum`, `roles`, `redact`, `expires`, `approval_expires`,
            `context` and `store`, as for `sayso.hold`.

    Raises:
        TypeError: There is no such option.

    In addition to the exceptions of `function`, the step raises:
        ConfirmationRejected: The call was refused; also one of its subclasses.
        OutcomeUnknownError: A process that started the call died, so it is unknown whether the call had its effect.
        ConfigError: The step was called outside a workflow, or inside another step.
    """
    if function is None:
        return functools.partial(held_step, recheck=recheck, **options)
    check_options(options, "context")
    step = _HeldStep(ToolFunction(function), options, duration.option("recheck", recheck).total_seconds())
    held: Any = step.acall if step.tool.is_async else step.call

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return held(args, kwargs)

    @functools.wraps(function)
    async def acall(*args: Any, **kwargs: Any) -> Any:
        return await held(args, kwargs)

    return acall if step.tool.is_async else call


class _HeldStep:
    """A held function. In a workflow, its call alternates between attempts and receiving messages.

    DBOS records the result of an attempt: `value`, or `waits` (the request), `until` (seconds since 1970) and `place`
    (run and key). The place is passed on, so that a fork of the workflow continues with the original request.
    """

    def __init__(self, tool: ToolFunction, options: HoldOptions, recheck: float) -> None:
        self.tool, self._options, self._recheck = tool, options, recheck
        # Retry only while the store is unavailable; any other exception ends the step.
        self._step: dict[str, Any] = {
            "name": tool.name, "retries_allowed": True, "max_attempts": 12, "should_retry": _is_away
        }  # fmt: skip

    def call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        must_not_block(self.tool.name, "make it an async function")
        given, place = self._bind(args, kwargs), None
        while "value" not in (result := _dbos.DBOS.run_step(self._step, self._attempt, given, place)):
            span, place = self._seconds_to_wait(result, is_first=place is None), result["place"]
            _dbos.DBOS.recv(_TOPIC + result["waits"], timeout_seconds=span)
        return result["value"]

    async def acall(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        given, place = self._bind(args, kwargs), None
        while "value" not in (result := await _dbos.DBOS.run_step_async(self._step, self._aattempt, given, place)):
            span, place = self._seconds_to_wait(result, is_first=place is None), result["place"]
            await _dbos.DBOS.recv_async(_TOPIC + result["waits"], timeout_seconds=span)
        return result["value"]

    def _attempt(self, given: dict[str, Any], place: list[str] | None) -> dict[str, Any]:
        run, key = place or _place()
        held = sayso.hold(self.tool.name, given, **self._hold_options(run, key))
        try:
            return {"value": held.once(self.tool.call)}
        except ConfirmationRequired as signal:
            return _wait_record(signal, held, run, key)

    async def _aattempt(self, given: dict[str, Any], place: list[str] | None) -> dict[str, Any]:
        run, key = place or _place()
        held = await aio.hold(self.tool.name, given, **self._hold_options(run, key))
        try:
            return {"value": await held.once(self.tool.acall)}
        except ConfirmationRequired as signal:
            return _wait_record(signal, held, run, key)

    def _hold_options(self, run: str, key: str) -> HoldOptions:
        tool = self.tool
        return options_of(self._options, key=key, run=run, schema=tool.schema, description=tool.description)

    def _bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        if _dbos.DBOS.workflow_id is None or _dbos.DBOS.step_id is not None:
            raise errors.ConfigError(f"{self.tool.name} is held: call it in a DBOS workflow, outside of its steps")
        return self.tool.bind(args, kwargs)

    def _seconds_to_wait(self, result: dict[str, Any], *, is_first: bool) -> float:
        if is_first and result["place"][0] != f"{_RUN}{_dbos.DBOS.workflow_id}":
            return 0.0  # a fork: the message may have gone to the original workflow before the fork existed
        # DBOS records how the wait ended, so a replay takes the same path even though the clock differs.
        return max(0.0, min(self._recheck, result["until"] - clock.now().timestamp() + 1.0))


def _is_away(error: BaseException) -> bool:
    return isinstance(error, _AWAY)


def _place() -> tuple[str, str]:
    return f"{_RUN}{_dbos.DBOS.workflow_id}", f"step-{_dbos.DBOS.step_id}"


def _wait_record(signal: ConfirmationRequired, held: HeldBase, run: str, key: str) -> dict[str, Any]:
    request = held.request
    if request is None or signal.id != request.id:  # raised by a gate inside the function
        raise signal
    return {"waits": request.id, "until": request.expires_at.timestamp(), "place": [run, key]}


class DBOSChannel:
    """Wakes workflows when their calls are decided: `with sayso.channels.deliver(store, [DBOSChannel(url)]):`.

    It is a channel of the outbox: the message is recorded with the decision, and retried until DBOS has it.

    Args:
        system_database_url: The URL of DBOS's system database.
        name: The channel's name.
        options: Options for `DBOSClient`, such as `dbos_system_schema`.
    """

    def __init__(self, system_database_url: str, *, name: str = "dbos", **options: Any) -> None:
        self.name = name
        self._connect = functools.partial(_dbos.DBOSClient, system_database_url=system_database_url, **options)
        self._client: Any = None
        self._lock = threading.Lock()

    def send(self, notification: Notification) -> None:
        """Wake the workflow if the call is decided."""
        if notification.event == "outcome":
            self.follow_up(notification, None)

    def follow_up(self, notification: Notification, reference: str | None) -> None:  # noqa: ARG002  messages are not edited
        """Wake the workflow; a repeated notification wakes it only once."""
        run, state = notification.run_id, notification.state
        if not run.startswith(_RUN) or state not in _WAKING:
            return
        with self._lock:  # connect on first use, as DBOS may be down when this program starts
            self._client = self._client or self._connect()
        message, topic = {"request_id": notification.request_id, "state": state}, _TOPIC + notification.request_id
        try:
            self._client.send(
                run.removeprefix(_RUN), message, topic, idempotency_key=notification.id, send_to_forks=True
            )
        except _error.DBOSNonExistentWorkflowError as error:
            raise UndeliverableError("DBOS no longer has this workflow") from error


_WAKE = """
CREATE OR REPLACE FUNCTION sayso.wake_dbos() RETURNS trigger LANGUAGE plpgsql AS $wake$
DECLARE
    workflow text := (SELECT substr(run_id, {start}) FROM sayso.asked WHERE id = NEW.id AND run_id LIKE '{run}%');
BEGIN
    IF EXISTS (SELECT 1 FROM {schema}.workflow_status WHERE workflow_uuid = workflow) THEN
        PERFORM {schema}.send_message(
            workflow, json_build_object('request_id', NEW.id, 'state', NEW.state), '{topic}' || NEW.id, NEW.link
        );
    END IF;
    RETURN NULL;
EXCEPTION WHEN OTHERS THEN  -- an error must not prevent a decision: the workflow also polls
    RAISE WARNING 'sayso: workflow % was not woken: %', workflow, SQLERRM;
    RETURN NULL;
END $wake$;
DROP TRIGGER IF EXISTS wake_dbos ON sayso.standing;
CREATE TRIGGER wake_dbos AFTER UPDATE ON sayso.standing FOR EACH ROW
WHEN (OLD.state = 'pending' AND NEW.state <> 'pending') EXECUTE FUNCTION sayso.wake_dbos()
"""


def wake_in_transaction(store: str, *, dbos_system_schema: str = "dbos") -> None:
    """Let a Postgres database send the message in each transaction that decides a workflow's call.

    It creates a trigger that calls DBOS's function `send_message`. Every decision, from any program, then wakes the
    workflow on commit, and no channel is needed. Run it once, after both schemas exist, as their owner.

    Args:
        store: The `postgresql://` address of the sayso store, whose database also has DBOS's system schema.
        dbos_system_schema: The name of that schema.

    Raises:
        ConfigError: The store is not a Postgres database, or does not have DBOS's schema. Nothing was changed.
        StoreError: The store cannot be opened.
    """
    import psycopg
    from psycopg import sql

    if not store.startswith(("postgresql://", "postgres://")):
        raise errors.ConfigError(f"wake_in_transaction() takes the address of a Postgres store, not {store!r}")
    config.open_store(store).records("channel", limit=1)  # updates the store's schema
    connection: psycopg.Connection[Any]
    with psycopg.connect(store) as connection:
        found = connection.execute("SELECT to_regproc(%s)", (f"{dbos_system_schema}.send_message",)).fetchone()
        if found is None or found[0] is None:
            raise errors.ConfigError(
                f"there is no function {dbos_system_schema}.send_message in this database; launch DBOS there first"
            )
        names = {"run": _RUN, "topic": _TOPIC, "start": len(_RUN) + 1}
        schema = sql.Identifier(dbos_system_schema).as_string(connection)
        connection.execute(_WAKE.format(schema=schema, **names).encode())
