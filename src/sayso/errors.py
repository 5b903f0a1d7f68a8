"""The errors of sayso. Except for `OutcomeNotRecordedError`, each means that nothing was run or decided because of it.

    SaysoError
    ├── ConfigError                 a setting cannot be used
    ├── ArgumentError               an argument cannot be recorded exactly
    ├── PolicyError                 a rule, prompt, redactor or hook failed
    ├── StoreError                  the store failed
    │   ├── StoreUnavailableError   it cannot be opened or reached
    │   ├── StoreBusyError          other processes kept it locked for too long
    │   ├── StoreCorruptError       its content is not what sayso wrote
    │   ├── StoreVersionError       a newer sayso wrote it
    │   ├── StoreReadOnlyError      it cannot be written
    │   ├── StoreFullError          there is no space left
    │   ├── StoreForbiddenError     the server does not allow this token to do that
    │   └── StoreSealedError        arguments are encrypted with another key
    ├── AskRefusedError             the store did not accept a new request
    │   ├── KeyReusedError          the key was used in this run for another call
    │   ├── TooManyOpenError        too many requests of the run are pending
    │   └── TooManyOpenForTokenError  too many requests of the program are pending
    ├── RequestNotFoundError        no request has this id
    ├── AmbiguousIdError            several requests begin with this prefix
    ├── GrantNotFoundError          no grant has this id
    ├── RunNotFoundError            no run has this id
    ├── RunBusyError                another process is executing the run
    ├── RunChangedError             the program's code changed since the run began
    ├── ValueNotKeptError           a value cannot be stored while the run waits
    ├── DecisionRefusedError        a decision was not recorded; the request is unchanged
    │   ├── AlreadyDecidedError     somebody else decided first
    │   ├── RequestExpiredError     the request had expired
    │   ├── OwnRequestError         a requester cannot decide its own request
    │   ├── MissingRoleError        the reviewer has none of the required roles
    │   ├── AlreadyVotedError       each person counts once
    │   ├── ClaimedError            another reviewer has claimed the request
    │   ├── NotUndoneError          the decision cannot be undone (any more)
    │   ├── NotClaimedError         the request is not claimed, so it cannot be released
    │   ├── StaleViewError          the call changed since it was shown
    │   ├── GrantRefusedError       the grant cannot be made like this
    │   ├── WrongKindError          a call cannot be answered, a question cannot be approved
    │   ├── InvalidChangesError     the changed arguments do not fit the function's types
    │   ├── InvalidAnswerError      the answer does not fit the question's type
    │   ├── ReasonMissingError      the decision needs a reason
    │   └── NotUnknownError         the outcome is not unknown, so it cannot be resolved
    ├── StartRefusedError           a call was not started
    │   ├── AlreadyStartedError     it was started before
    │   ├── NotApprovedError        it is not approved (any more)
    │   │   └── GrantEndedError     the grant or budget that approved it no longer does
    │   ├── ApprovalHeldError       its reviewer can still undo the approval; it can start later
    │   ├── ApprovalExpiredError    its approval has expired
    │   ├── EffectTakenError        another request has the same effect
    │   ├── StoppedError            somebody stopped every start with `sayso stop`
    │   ├── CallFailedError         a call with its key was started before and failed
    │   ├── OutcomeUnknownError     it was started, and its outcome is unknown
    │   └── AlteredRequestError     the stored call is not the one that was approved
    ├── EvidenceError               a receipt, an anchor or a checkpoint proves nothing
    ├── PurgeRefusedError           the request or run is still needed; nothing was removed
    ├── RunPurgedError              the run has ended, and its steps were removed
    └── OutcomeNotRecordedError     the call ran, but its outcome could not be recorded

Signals (`ConfirmationRequired`, `ConfirmationRejected`, ...) are in `sayso.gates.exceptions`. Every error has its facts
as attributes and can be pickled. An error about a request has its `id`.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, ClassVar, dataclass_transform

__all__ = [
    "AlreadyDecidedError", "AlreadyStartedError", "AlreadyVotedError", "AlteredRequestError", "AmbiguousIdError",
    "ApprovalExpiredError", "ApprovalHeldError", "ArgumentError", "AskRefusedError", "CallFailedError", "ClaimedError",
    "ConfigError", "DecisionRefusedError", "EffectTakenError", "EvidenceError", "GrantEndedError", "GrantNotFoundError",
    "GrantRefusedError", "InvalidAnswerError", "InvalidChangesError", "KeyReusedError", "MissingRoleError",
    "NotApprovedError", "NotClaimedError", "NotUndoneError", "NotUnknownError", "OutcomeNotRecordedError",
    "OutcomeUnknownError", "OwnRequestError", "PolicyError", "PurgeRefusedError", "ReasonMissingError",
    "RequestExpiredError", "RequestNotFoundError", "RunBusyError", "RunChangedError", "RunNotFoundError",
    "RunPurgedError", "SaysoError", "StaleViewError", "StartRefusedError", "StoppedError", "StoreBusyError",
    "StoreCorruptError", "StoreError", "StoreForbiddenError", "StoreFullError", "StoreReadOnlyError",
    "StoreSealedError", "StoreUnavailableError", "StoreVersionError", "TooManyOpenError", "TooManyOpenForTokenError",
    "ValueNotKeptError", "WrongKindError",
]  # fmt: skip


def _rebuild(kind: type[SaysoError], arguments: tuple[Any, ...], facts: dict[str, Any]) -> SaysoError:
    error = kind.__new__(kind, *arguments)
    error.args = arguments
    error.__dict__.update(facts)
    return error


class SaysoError(Exception):
    """Something is wrong; nothing was run or decided because of it."""

    def __reduce__(self) -> tuple[Any, ...]:
        # Subclasses build their message from facts, so the default, calling the class with `args`, would fail.
        return _rebuild, (type(self), self.args, dict(self.__dict__))


@dataclass_transform(eq_default=False)
class _Factual(SaysoError):
    """An error that formats `_message` with its facts: the annotated attributes, which the constructor takes."""

    facts: ClassVar[tuple[str, ...]] = ()
    _message: ClassVar[str] = ""

    def __init_subclass__(cls) -> None:
        cls.facts = (*cls.facts, *cls.__annotations__)
        if "_message" in cls.__dict__:  # a base class may take its message as an argument instead
            cls.__init__ = _Factual.__init__

    def __init__(self, *values: object, **named: object) -> None:
        given = {**dict(zip(self.facts, values, strict=False)), **named}
        if len(given) != len(values) + len(named) or not given.keys() <= {*self.facts}:
            raise TypeError(f"{type(self).__name__} takes {', '.join(self.facts)}")
        self.__dict__.update({name: tuple(fact) if isinstance(fact, list) else fact for name, fact in given.items()})  # pyright: ignore[reportUnknownArgumentType]
        Exception.__init__(self, self._message.format(self=self))


class _OfRequest(_Factual):
    request_id: str

    @property
    def confirmation_id(self) -> str:
        """Id of the request; also `approval_id`, `id` and `request_id`."""
        return self.request_id

    id = approval_id = confirmation_id


class ConfigError(SaysoError):
    """A setting cannot be used."""


class ArgumentError(_Factual):
    """An argument cannot be recorded exactly: it has no canonical form, or does not fit its type."""

    argument: str  # the path of the value, e.g. `order.lines[2].price`
    reason: str
    _message = "argument {self.argument!r} {self.reason}; the call was neither recorded nor run"


class PolicyError(_Factual):
    """A rule, prompt, redactor or hook of a gate raised an error or returned something invalid. The call did not run.

    `rule` is the name of what failed, e.g. `when=is_large (gate of pay)`.
    """

    rule: str
    reason: str
    _message = "{self.rule} {self.reason}; the call was not run"


class StoreError(SaysoError):
    """The store failed. The call that needed it does not run."""


class StoreUnavailableError(StoreError):
    """The store cannot be opened or reached."""


class StoreBusyError(StoreError):
    """Other processes kept the store locked for too long; a retry may help."""


class StoreCorruptError(StoreError):
    """The store's content is not what sayso wrote."""


class StoreVersionError(StoreError):
    """A newer sayso wrote this store; upgrade to open it."""


class StoreReadOnlyError(StoreError):
    """The store cannot be written."""


class StoreFullError(StoreError):
    """There is no space left for the store."""


class StoreSealedError(StoreError):
    """Arguments in this store are encrypted with another key, or the key is missing."""


class StoreForbiddenError(StoreError):
    """The server does not know this token, or does not allow tokens of its kind to do that."""


class AskRefusedError(SaysoError):
    """The store did not accept a new request. Nobody is asked, and the call does not run. `reason` says why."""

    def __init__(self, reason: str) -> None:
        SaysoError.__init__(self, f"{reason}; nothing was asked, and the call was not run")
        self.reason = reason


class KeyReusedError(_OfRequest, AskRefusedError):
    """The key was used before in this run for another call, that of `request_id`. Nothing was recorded."""

    def __init__(self, run_id: str, key: str, *, request_id: str, what: str) -> None:
        AskRefusedError.__init__(
            self,
            f"the key {key!r} of run {run_id!r} was already used by {request_id} with {what}; use a new key for"
            " each call",
        )
        self.run_id, self.key, self.request_id = run_id, key, request_id


class TooManyOpenError(AskRefusedError):
    """The run `run_id` already has `limit` pending requests, the maximum."""

    def __init__(self, run_id: str, limit: int) -> None:
        super().__init__(
            f"{limit} requests of run {run_id!r} are already pending, which is the maximum; wait until people have"
            " decided some of them"
        )
        self.run_id, self.limit = run_id, limit


class TooManyOpenForTokenError(AskRefusedError):
    """The program with the token `name` already has `limit` pending requests, the maximum."""

    def __init__(self, name: str, limit: int) -> None:
        super().__init__(
            f"{limit} requests of {name!r} are already pending, which is the maximum; wait until people have decided"
            " some of them"
        )
        self.name, self.limit = name, limit


class RequestNotFoundError(_OfRequest):
    """No request has this id or begins with this prefix."""

    _message = "no request {self.request_id!r} in this store; `sayso ls --all` lists all requests"


class AmbiguousIdError(_Factual):
    """Several requests begin with this prefix. `matches` has at most ten of their ids."""

    prefix: str
    matches: Sequence[str]
    _message = "{self.prefix!r} matches several requests ({self._listed}); give more of the id"

    @property
    def _listed(self) -> str:
        return ", ".join(self.matches)


class GrantNotFoundError(_Factual):
    """No grant has this id or begins with this prefix, or the grant has ended and cannot be agreed to."""

    grant_id: str
    _message = (
        "no grant {self.grant_id!r} is active in this store; `sayso grants ls --all` also lists those that have ended"
    )


class RunNotFoundError(_Factual):
    """No run has this id: it never paused, or is in another store."""

    run_id: str
    _message = "no run {self.run_id!r} is in this store; a run is stored when it first pauses"


class RunBusyError(_Factual):
    """The run is being executed, by this or another process; nothing was recorded here."""

    run_id: str
    _message = "run {self.run_id!r} is already being executed; nothing was done, wait until it pauses or ends"


class RunChangedError(_Factual):
    """The program's code changed since the run began, in a way that matters; the run is not resumed."""

    run_id: str
    reason: str
    _message = (
        "run {self.run_id!r} cannot be resumed with this program: {self.reason}; resume it with the code that began"
        " it, or begin a new run"
    )


class ValueNotKeptError(_Factual):
    """A value cannot be stored while the run waits, so it is not available afterwards. `whose` names the value."""

    whose: str
    reason: str
    _message = "the value of {self.whose} {self.reason}; return plain values, dataclasses or pydantic models"


class DecisionRefusedError(_OfRequest):
    """A decision was not recorded; the request is unchanged."""

    def __init__(self, request_id: str, message: str) -> None:
        SaysoError.__init__(self, message)
        self.request_id = request_id


class AlreadyDecidedError(DecisionRefusedError):
    """Somebody else decided first."""

    state: str
    by: str  # `subject@issuer`, or `subject` for a person of this machine
    at: datetime  # in UTC
    channel: str
    age: str
    _message = (
        "request {self.request_id} was already {self.state} by {self.by!r} ({self.channel}, {self.age}); nothing"
        " changed"
    )


class RequestExpiredError(DecisionRefusedError):
    """The request had expired, at `expired_at` (UTC)."""

    expired_at: datetime
    age: str
    _message = "request {self.request_id} expired {self.age}; nothing was decided, the program must ask again"


class OwnRequestError(DecisionRefusedError):
    """A requester, or the person on whose behalf it acts, cannot decide its own request."""

    by: str
    _message = "{self.by!r} asked for {self.request_id} and cannot decide it; somebody else must"


class MissingRoleError(DecisionRefusedError):
    """The reviewer has none of the required roles; any one of `roles` is enough."""

    by: str
    roles: Sequence[str]
    _message = "{self.by!r} needs the role {self._wanted} to decide {self.request_id}; nothing was decided"

    @property
    def _wanted(self) -> str:
        return " or ".join(map(repr, self.roles))


class AlreadyVotedError(DecisionRefusedError):
    """The reviewer has already approved: each person counts once. `missing` more reviewers must approve."""

    by: str
    missing: int
    _message = "{self.by!r} has approved {self.request_id} already; approvals by others still needed: {self.missing}"


class ClaimedError(DecisionRefusedError):
    """Another reviewer has claimed the request."""

    by: str
    at: datetime  # in UTC
    age: str
    _message = (
        "request {self.request_id} was claimed by {self.by!r} {self.age}; nothing was decided (`sayso release --force`"
        " removes the claim)"
    )


class NotClaimedError(DecisionRefusedError):
    """The request is not claimed, so it cannot be released."""

    _message = "request {self.request_id} is not claimed by anybody; nothing changed"


class NotUndoneError(DecisionRefusedError):
    """The decision cannot be undone: somebody else made it, its time is over, or its call has started."""

    reason: str
    _message = "the decision on {self.request_id} was not undone: {self.reason}; nothing changed"


class StaleViewError(DecisionRefusedError):
    """The call changed since it was shown, or was started again; `seen` and `current` are fingerprints or starts."""

    seen: str
    current: str
    _message = (
        "request {self.request_id} was changed since you looked (saw {self.seen:.12}, now {self.current:.12});"
        " look again, nothing was decided"
    )


class GrantRefusedError(DecisionRefusedError):
    """A grant cannot be made like this; nothing was decided."""

    reason: str
    _message = "no grant was made from {self.request_id}: {self.reason}. Nothing was decided"


class WrongKindError(DecisionRefusedError):
    """The verb does not fit the request: a call cannot be answered, a question cannot be approved."""

    kind: str
    verb: str
    instead: str
    _message = (
        "request {self.request_id} is a {self.kind} and does not accept {self.verb}; use {self.instead}. Nothing was"
        " decided"
    )


class InvalidChangesError(DecisionRefusedError):
    """The changed arguments do not fit the function's types; each problem is one line, `where: what is wrong`."""

    problems: Sequence[str]
    _message = "{self._listed} (nothing was decided on {self.request_id})"

    @property
    def _listed(self) -> str:
        return "; ".join(self.problems)


class InvalidAnswerError(DecisionRefusedError):
    """The answer does not fit the question's type; each problem is one line, `where: what is wrong`."""

    problems: Sequence[str]
    still_waits: bool = True
    _message = "{self._listed}"

    @property
    def _listed(self) -> str:
        waits = f"the question {self.request_id} still waits"
        so = waits if self.still_waits else f"the answer to {self.request_id} is not used, ask again"
        return f"{'; '.join(self.problems)} ({so})"


class ReasonMissingError(DecisionRefusedError):
    """The decision needs a reason, because it rejects a Confirm or allows an effect to happen again."""

    what: str = "the rejection of a Confirm"
    _message = "{self.what} needs a reason; nothing was decided on {self.request_id}"


class NotUnknownError(DecisionRefusedError):
    """The outcome is not unknown, so it cannot be resolved."""

    state: str
    hint: str
    _message = "request {self.request_id} is {self.state}, its outcome is not unknown; {self.hint}"


class StartRefusedError(_OfRequest):
    """A call was not started."""

    def __init__(self, request_id: str, message: str) -> None:
        SaysoError.__init__(self, message)
        self.request_id = request_id


class AlreadyStartedError(StartRefusedError):
    """The call was started before; an approval starts it once."""

    state: str  # `running`, `done` or `failed`
    at: datetime | None  # in UTC; None if unknown
    age: str
    _message = (
        "the call of {self.request_id} was already started {self.age} and is {self.state}; it was not started again"
    )


class NotApprovedError(StartRefusedError):
    """The request is not approved (any more), e.g. it was cancelled before its call was started."""

    state: str
    _message = "request {self.request_id} is {self.state}, not approved; the call was not run"


class GrantEndedError(NotApprovedError):
    """A grant or a policy's budget approved the call and no longer does. The call now waits for a person.

    `reason` names the grant or the budget, and what happened to it.
    """

    reason: str
    _message = "{self.reason}; the call of {self.request_id} was not run, it is {self.state} and waits for a person"


class StoppedError(StartRefusedError):
    """Somebody stopped every start of this store. The approval is not spent; the call can start after `sayso go`."""

    by: str
    at: datetime  # in UTC
    reason: str | None
    _message = (
        "every start was stopped by {self.by!r} at {self.at:%Y-%m-%d %H:%M:%S}Z{self._why}; the call of"
        " {self.request_id} was not run, and its approval is still valid. It can start after `sayso go`"
    )

    @property
    def _why(self) -> str:
        return "" if self.reason is None else f" ({self.reason})"


class ApprovalHeldError(StartRefusedError):
    """The reviewer can still undo the approval. The call can start when that time is over."""

    until: datetime  # in UTC, by the store's clock
    milliseconds: int  # that were left when the start was refused
    _message = (
        "the approval of {self.request_id} can be undone until {self.until:%H:%M:%S}Z; the call was not run, start it"
        " in {self.milliseconds} ms"
    )


class ApprovalExpiredError(StartRefusedError):
    """The approval expired before the call was started."""

    expired_at: datetime  # in UTC
    age: str
    _message = "the approval of {self.request_id} expired {self.age}; the call was not run, ask again"


class EffectTakenError(StartRefusedError):
    """Another request has the same effect, and is open, running, done or unknown, or its call stopped half-way."""

    effect: str
    other: str | None  # the id of the other request; None if it belongs to another program
    state: str  # of the other request
    _message = (
        "the call of {self.request_id} was not run: {self.reason}. It can start once that has ended without its effect."
        " To repeat it anyway, withdraw {self.request_id}, ask again, and have it approved with `--again` and a reason"
    )

    @property
    def reason(self) -> str:
        """Which request has the effect, without what a person can do about it."""
        is_open = self.state in {"pending", "approved", "running", "done", "unknown"}
        half_way = "" if is_open else ", after its call had been started and stopped half-way"
        name = self.other or "a request of another program"
        return f"its effect {self.effect!r} is taken by {name}, which is {self.state}{half_way}"


class CallFailedError(StartRefusedError):
    """The call with this key was started before and failed. It was not started again."""

    error: str | None  # its type and message, with secrets masked
    _message = "the call of {self.request_id} failed{self._why}; it was not started again. To ask again, use a new key"

    @property
    def _why(self) -> str:
        return "" if self.error is None else f": {self.error}"


class OutcomeUnknownError(StartRefusedError):
    """The call was started, and its outcome is unknown. It is not retried automatically.

    `running` says where it goes on, if that can be seen from here; nobody is asked about it then.
    """

    running: str | None = None
    _message = (
        "the call of {self.request_id} was started and its outcome is unknown; it was not run again.{self._advice}"
    )

    @property
    def _advice(self) -> str:
        where = "" if self.running is None else f" {self.running}; its outcome is recorded when it ends. Otherwise:"
        command = f"`sayso resolve {self.request_id} --happened` or `--did-not`"
        return f"{where} {'f' if where else 'F'}ind out whether it took effect, then run {command}"


class AlteredRequestError(StartRefusedError):
    """The stored record is not the one that was shown and approved: its fingerprint or another part of it differs."""

    what: str | None = None
    _message = "{self._altered}; the call was not run"

    @property
    def _altered(self) -> str:
        if self.what is None:
            return f"the stored arguments of {self.request_id} do not match the approved fingerprint"
        return f"the record of {self.request_id} was altered: {self.what}"


class EvidenceError(SaysoError):
    """A receipt, an anchor or a checkpoint was altered, or does not match what it is compared with."""


class PurgeRefusedError(_Factual):
    """The request or run with this `id` is not over or is still needed. Nothing of it was removed."""

    id: str
    reason: str
    _message = "{self.id} {self.reason}; nothing of it was removed"


class RunPurgedError(_Factual):
    """The run has ended and its steps were removed, so its result is unknown. It is not run again."""

    run_id: str
    _message = "run {self.run_id!r} has ended, and its steps were purged; it is not run again, begin a new run"


class OutcomeNotRecordedError(_OfRequest):
    """The call ran and returned `result`, but its outcome could not be recorded. The record will say `unknown`."""

    result: object
    reason: str
    _message = "the call of {self.request_id} ran, but its outcome could not be recorded: {self.reason}"
