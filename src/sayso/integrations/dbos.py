"""Sayso in DBOS (extra `dbos`): a step of a durable workflow waits for a person, across restarts.

`held_step` holds a step, whose workflow waits in `DBOS.recv`. `DBOSChannel` wakes it from the outbox, and
`wake_in_transaction` from the deciding transaction, where sayso and DBOS share a Postgres database. Invariant: a
message only wakes. The decision is read from sayso's store, and the call runs through `hold`: once, whatever DBOS
repeats.
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
from sayso.gates.held import HeldBase
from sayso.gates.hold import HoldOptions
from sayso.gates.signals import ConfirmationRequired
from sayso.integrations.tool_calls import ToolFunction, check_options, framework, is_in_loop, options_of
from sayso.model import duration

_dbos: Any = framework("dbos", "dbos", "DBOS")
_error: Any = framework("dbos._error", "dbos", "DBOS")

_RUN, _TOPIC = "dbos/", "sayso/"
_WAKING = frozenset({"approved", "running", "rejected", "feedback", "cancelled", "expired"})
_AWAY = (errors.StoreUnavailableError, errors.StoreBusyError)


def held_step(
    function: Callable[..., Any] | None = None, /, *, recheck: timedelta | str = "10m", **options: Unpack[HoldOptions]
) -> Any:  # fmt: skip
    """Hold a step: in place of `@DBOS.step()`, its calls in a workflow wait for a person and then run once.

    The workflow id is the run of the request, and the place of the call in the workflow its key. A workflow that is
    recovered, or that two executors run at once, finds the same request, and gets the result of the one call.

    Args:
        function: Sync or async, with annotated parameters; arguments and result are JSON values.
        recheck: After which time the workflow looks at the request although no message came.
        options: `when`, `effect`, `title`, `description`, `quorum`, `roles`, `redact`, `expires`, `approval_expires`,
            `context` and `store`, as for `sayso.hold`.

    Raises:
        TypeError: There is no such option.

    The step raises, beside what `function` does:
        ConfirmationRejected: One of its kinds: the answer was no.
        OutcomeUnknownError: The call was begun by a process that died; nobody knows whether it took effect.
        ConfigError: It was called outside of a workflow, or inside of another step.
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
    """A held function, and the way of its call through a workflow: attempts, and receiving between two of them.

    What an attempt returns is recorded by DBOS: `value`, or `waits` (the request), `until` (seconds since 1970) and
    `place` (run and key). The place is handed on, so that a fork of the workflow goes on with the first one's request.
    """

    def __init__(self, tool: ToolFunction, options: HoldOptions, recheck: float) -> None:
        self.tool, self._options, self._recheck = tool, options, recheck
        # A store that is away is waited for; whatever else an attempt raises is its end.
        self._step: dict[str, Any] = {
            "name": tool.name, "retries_allowed": True, "max_attempts": 12, "should_retry": _is_away
        }  # fmt: skip

    def call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if is_in_loop():
            raise errors.ConfigError(f"{self.tool.name} would block the event loop; make it an async function")
        given, place = self._given(args, kwargs), None
        while "value" not in (result := _dbos.DBOS.run_step(self._step, self._attempt, given, place)):
            span, place = self._span(result, is_first=place is None), result["place"]
            _dbos.DBOS.recv(_TOPIC + result["waits"], timeout_seconds=span)
        return result["value"]

    async def acall(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        given, place = self._given(args, kwargs), None
        while "value" not in (result := await _dbos.DBOS.run_step_async(self._step, self._aattempt, given, place)):
            span, place = self._span(result, is_first=place is None), result["place"]
            await _dbos.DBOS.recv_async(_TOPIC + result["waits"], timeout_seconds=span)
        return result["value"]

    def _attempt(self, given: dict[str, Any], place: list[str] | None) -> dict[str, Any]:
        run, key = place or _place()
        held = sayso.hold(self.tool.name, given, **self._filled(run, key))
        try:
            return {"value": held.once(self.tool.call)}
        except ConfirmationRequired as signal:
            return _waiting(signal, held, run, key)

    async def _aattempt(self, given: dict[str, Any], place: list[str] | None) -> dict[str, Any]:
        run, key = place or _place()
        held = await aio.hold(self.tool.name, given, **self._filled(run, key))
        try:
            return {"value": await held.once(self.tool.acall)}
        except ConfirmationRequired as signal:
            return _waiting(signal, held, run, key)

    def _filled(self, run: str, key: str) -> HoldOptions:
        tool = self.tool
        return options_of(self._options, key=key, run=run, schema=tool.schema, description=tool.description)

    def _given(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        if _dbos.DBOS.workflow_id is None or _dbos.DBOS.step_id is not None:
            raise errors.ConfigError(f"{self.tool.name} is held: call it in a DBOS workflow, outside of its steps")
        return self.tool.bind(args, kwargs)

    def _span(self, result: dict[str, Any], *, is_first: bool) -> float:
        if is_first and result["place"][0] != f"{_RUN}{_dbos.DBOS.workflow_id}":
            return 0.0  # a fork: the message may have gone to the first workflow before there was this one
        # DBOS records how the wait ended, so that a replay takes the same way although the clock says another time.
        return max(0.0, min(self._recheck, result["until"] - clock.now().timestamp() + 1.0))


def _is_away(error: BaseException) -> bool:
    return isinstance(error, _AWAY)


def _place() -> tuple[str, str]:
    return f"{_RUN}{_dbos.DBOS.workflow_id}", f"step-{_dbos.DBOS.step_id}"


def _waiting(signal: ConfirmationRequired, held: HeldBase, run: str, key: str) -> dict[str, Any]:
    request = held.request
    if request is None or signal.id != request.id:  # of a gate inside the function
        raise signal
    return {"waits": request.id, "until": request.expires_at.timestamp(), "place": [run, key]}


class DBOSChannel:
    """Wakes workflows when their calls are decided: `with sayso.channels.deliver(store, [DBOSChannel(url)]):`.

    It is a channel of the outbox: the message is recorded with the decision, and sent until DBOS has it.

    Args:
        system_database_url: DBOS's system database.
        name: Of the channel.
        options: For `DBOSClient`, such as `dbos_system_schema`.
    """

    def __init__(self, system_database_url: str, *, name: str = "dbos", **options: Any) -> None:
        self.name = name
        self._connect = functools.partial(_dbos.DBOSClient, system_database_url=system_database_url, **options)
        self._client: Any = None
        self._lock = threading.Lock()

    def send(self, notification: Notification) -> None:
        """Wake the workflow, if the call is decided."""
        if notification.event == "outcome":
            self.follow_up(notification, None)

    def follow_up(self, notification: Notification, reference: str | None) -> None:  # noqa: ARG002  each message is new
        """Wake the workflow; the same notification wakes it once."""
        run, state = notification.run_id, notification.state
        if not run.startswith(_RUN) or state not in _WAKING:
            return
        with self._lock:  # connected when first needed: DBOS may be down when this program starts
            self._client = self._client or self._connect()
        message, topic = {"request_id": notification.request_id, "state": state}, _TOPIC + notification.request_id
        try:
            self._client.send(
                run.removeprefix(_RUN), message, topic, idempotency_key=notification.id, send_to_forks=True
            )
        except _error.DBOSNonExistentWorkflowError as error:
            raise UndeliverableError("DBOS does not have this workflow any more") from error


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
EXCEPTION WHEN OTHERS THEN  -- no engine stands in the way of a decision: the workflow looks again by itself
    RAISE WARNING 'sayso: workflow % was not woken: %', workflow, SQLERRM;
    RETURN NULL;
END $wake$;
DROP TRIGGER IF EXISTS wake_dbos ON sayso.standing;
CREATE TRIGGER wake_dbos AFTER UPDATE ON sayso.standing FOR EACH ROW
WHEN (OLD.state = 'pending' AND NEW.state <> 'pending') EXECUTE FUNCTION sayso.wake_dbos()
"""


def wake_in_transaction(store: str, *, dbos_system_schema: str = "dbos") -> None:
    """Have a Postgres database send the message in each transaction that decides a call of a workflow.

    It makes a trigger that calls DBOS's own function `send_message`: whoever decides, by whatever program, wakes the
    workflow with the commit, and no channel is needed. Run it once, when both schemas are there, as their owner.

    Args:
        store: `postgresql://` address of the sayso store, whose database holds DBOS's system schema, too.
        dbos_system_schema: The name of that schema.

    Raises:
        ConfigError: The store is no Postgres database, or DBOS's schema is not in it. Nothing was changed.
        StoreError: The store cannot be opened.
    """
    import psycopg
    from psycopg import sql

    if not store.startswith(("postgresql://", "postgres://")):
        raise errors.ConfigError(f"wake_in_transaction() takes the address of a Postgres store, not {store!r}")
    config.open_store(store).records("channel", limit=1)  # brings its schema up to date
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
