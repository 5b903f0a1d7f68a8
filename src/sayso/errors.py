"""The tree of faults. A fault says that something is wrong, and that nothing ran or was decided because of it.

    SaysoError
    ├── ConfigError                 a setting cannot be used
    ├── ArgumentError               an argument cannot be bound to a request
    ├── PolicyError                 a rule, prompt, redactor or hook raised, or answered what it may not
    ├── StoreError                  the store cannot keep its promise
    │   ├── StoreUnavailableError   it cannot be opened or reached
    │   ├── StoreBusyError          others kept it locked for too long
    │   ├── StoreCorruptError       its content is not what this package wrote
    │   ├── StoreVersionError       a newer sayso wrote it
    │   ├── StoreReadOnlyError      it cannot be written
    │   ├── StoreFullError          there is no room left
    │   ├── StoreForbiddenError     the server does not let this token do that
    │   └── StoreSealedError        arguments are sealed with another key, or with one that is missing
    ├── AskRefusedError             what was asked was not taken
    │   ├── KeyReusedError          its key was used in this run for another call
    │   ├── TooManyOpenError        too many requests of the run wait already
    │   └── TooManyOpenForTokenError  too many requests of the program wait already
    ├── RequestNotFoundError        no request has this id
    ├── AmbiguousIdError            several requests begin with this prefix
    ├── RunNotFoundError            no run has this id
    ├── RunBusyError                somebody else has the run in hand
    ├── RunChangedError             the program's code is not the one that the run began with
    ├── ValueNotKeptError           a value cannot be kept while the run waits
    ├── DecisionRefusedError        a person's decision was not taken; nothing changed
    │   ├── AlreadyDecidedError     somebody was first
    │   ├── RequestExpiredError     it was too late
    │   ├── OwnRequestError         the requester cannot decide its own request
    │   ├── MissingRoleError        the reviewer has none of the roles
    │   ├── AlreadyVotedError       one person counts once
    │   ├── ClaimedError            another reviewer has taken the request on
    │   ├── NotClaimedError         there is nothing to release
    │   ├── StaleViewError          the call changed since it was shown
    │   ├── WrongKindError          a call cannot be answered, a question cannot be approved
    │   ├── InvalidChangesError     the changed arguments do not fit the function's types
    │   ├── InvalidAnswerError      the answer does not fit the question's type
    │   ├── ReasonMissingError      the decision needs a reason, and has none
    │   └── NotUnknownError         there is no unknown outcome to resolve
    ├── StartRefusedError           an approved call was not started
    │   ├── AlreadyStartedError     it has been started before
    │   ├── NotApprovedError        it is not approved (any more)
    │   ├── ApprovalExpiredError    the approval has ended
    │   ├── EffectTakenError        another request has its effect
    │   ├── CallFailedError         it was started before with its key, and failed
    │   ├── OutcomeUnknownError     it was started, and nobody can say how it ended
    │   └── AlteredRequestError     the stored call is not the one that was approved
    ├── EvidenceError               a receipt, an anchor or a checkpoint proves nothing
    ├── PurgeRefusedError           something can still happen to it; nothing was removed
    ├── RunPurgedError              the run has ended, and what it did was removed
    └── OutcomeNotRecordedError     the call ran, and the store could not be told

Signals (`ConfirmationRequired`, `ConfirmationRejected` and theirs) are not faults and live in `sayso.signals`.
Every fault carries its facts as attributes and survives pickling; one about a request has its `id`.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

__all__ = [
    "AlreadyDecidedError", "AlreadyStartedError", "AlreadyVotedError", "AlteredRequestError", "AmbiguousIdError",
    "ApprovalExpiredError", "ArgumentError", "AskRefusedError", "CallFailedError", "ClaimedError", "ConfigError",
    "DecisionRefusedError", "EffectTakenError", "EvidenceError", "InvalidAnswerError", "InvalidChangesError",
    "KeyReusedError", "MissingRoleError", "NotApprovedError", "NotClaimedError", "NotUnknownError",
    "OutcomeNotRecordedError", "OutcomeUnknownError", "OwnRequestError", "PolicyError", "PurgeRefusedError",
    "ReasonMissingError", "RequestExpiredError", "RequestNotFoundError", "RunBusyError", "RunChangedError",
    "RunNotFoundError", "RunPurgedError", "SaysoError", "StaleViewError", "StartRefusedError", "StoreBusyError",
    "StoreCorruptError", "StoreError", "StoreForbiddenError", "StoreFullError", "StoreReadOnlyError",
    "StoreSealedError", "StoreUnavailableError", "StoreVersionError", "TooManyOpenError",
    "TooManyOpenForTokenError", "ValueNotKeptError", "WrongKindError",
]  # fmt: skip


def _rebuild(kind: type[SaysoError], arguments: tuple[Any, ...], facts: dict[str, Any]) -> SaysoError:
    error = kind.__new__(kind, *arguments)
    error.args = arguments
    error.__dict__.update(facts)
    return error


class SaysoError(Exception):
    """Something is wrong; nothing ran and nothing was decided because of it."""

    def __reduce__(self) -> tuple[Any, ...]:
        # Subclasses build their message from facts, so the default (call the class with `args`) would not do.
        return _rebuild, (type(self), self.args, dict(self.__dict__))


class _OfRequest:
    """What is about one request has its id under each name that a face of this package gives it."""

    request_id: str

    @property
    def confirmation_id(self) -> str:
        """Id of the request; also `approval_id`, `id` and `request_id`."""
        return self.request_id

    id = approval_id = confirmation_id


class ConfigError(SaysoError):
    """A setting cannot be used."""


class ArgumentError(SaysoError):
    """An argument cannot be bound to a request: it has no canonical form, or does not come back from it.

    Attributes:
        argument: Where the value stands, e.g. `order.lines[2].price`.
        reason: What is wrong with it.
    """

    def __init__(self, argument: str, reason: str) -> None:
        super().__init__(f"argument {argument!r} {reason}; the call was neither recorded nor run")
        self.argument, self.reason = argument, reason


class PolicyError(SaysoError):
    """A rule, prompt, redactor or hook of a gate raised, or answered what it may not. The call did not run.

    Attributes:
        rule: The name of what failed, e.g. `when=is_large (gate of pay)`.
        reason: How it failed.
    """

    def __init__(self, rule: str, reason: str) -> None:
        super().__init__(f"{rule} {reason}; the call was not run")
        self.rule, self.reason = rule, reason


class StoreError(SaysoError):
    """The store cannot keep its promise. What was about to run does not run."""


class StoreUnavailableError(StoreError):
    """The store cannot be opened or reached."""


class StoreBusyError(StoreError):
    """Other processes kept the store locked for too long; trying again may help."""


class StoreCorruptError(StoreError):
    """The store's content is not what this package wrote."""


class StoreVersionError(StoreError):
    """A newer sayso wrote this store; upgrade to open it."""


class StoreReadOnlyError(StoreError):
    """The store cannot be written."""


class StoreFullError(StoreError):
    """There is no room left for the store to grow."""


class StoreSealedError(StoreError):
    """Arguments in this store are sealed with another key, or with one that is missing."""


class StoreForbiddenError(StoreError):
    """The server does not know this token, or does not let tokens of its kind do that."""


class AskRefusedError(SaysoError):
    """What was asked was not taken. Nobody will be asked, and the call does not run.

    Attributes:
        reason: What is wrong with it.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(f"{reason}; nothing was asked, and the call was not run")
        self.reason = reason


class KeyReusedError(_OfRequest, AskRefusedError):
    """The key was used in this run before, for another call. Nothing was recorded.

    Attributes:
        run_id: Which run.
        key: Which key.
        request_id: The request that was asked with it.
    """

    def __init__(self, run_id: str, key: str, *, request_id: str, what: str) -> None:
        super().__init__(
            f"the key {key!r} of run {run_id!r} was used before, by {request_id}, with {what}; give each call a key of"
            " its own"
        )
        self.run_id, self.key, self.request_id = run_id, key, request_id


class TooManyOpenError(AskRefusedError):
    """As many requests of the run wait for a person as may wait at a time.

    Attributes:
        run_id: Which run.
        limit: How many may.
    """

    def __init__(self, run_id: str, limit: int) -> None:
        super().__init__(f"{limit} requests of run {run_id!r} wait already; let people decide some of them first")
        self.run_id, self.limit = run_id, limit


class TooManyOpenForTokenError(AskRefusedError):
    """As many requests of the program wait for a person as may wait at a time: `limit`. Its token is called `name`."""

    def __init__(self, name: str, limit: int) -> None:
        super().__init__(f"{limit} requests of {name!r} wait already; let people decide some of them first")
        self.name, self.limit = name, limit


class RequestNotFoundError(_OfRequest, SaysoError):
    """No request has this id, or begins with this prefix.

    Attributes:
        request_id: The id or prefix that was looked for.
    """

    def __init__(self, request_id: str) -> None:
        super().__init__(f"no request {request_id!r} in this store; `sayso ls --all` lists what is there")
        self.request_id = request_id


class AmbiguousIdError(SaysoError):
    """Several requests begin with this prefix.

    Attributes:
        prefix: What was given.
        matches: Ids that begin with it, at most ten.
    """

    def __init__(self, prefix: str, matches: Sequence[str]) -> None:
        super().__init__(f"{prefix!r} fits several requests ({', '.join(matches)}); give more of the id")
        self.prefix = prefix
        self.matches = tuple(matches)


class RunNotFoundError(SaysoError):
    """No run has this id: it never waited for anybody, or it is kept in another store.

    Attributes:
        run_id: The id that was looked for.
    """

    def __init__(self, run_id: str) -> None:
        super().__init__(f"no run {run_id!r} is kept in this store; a run is kept from its first pause on")
        self.run_id = run_id


class RunBusyError(SaysoError):
    """Somebody else has the run in hand; nothing was written of it here.

    Attributes:
        run_id: Which run.
    """

    def __init__(self, run_id: str) -> None:
        super().__init__(f"run {run_id!r} is in other hands; nothing was done here, wait until it pauses or ends")
        self.run_id = run_id


class RunChangedError(SaysoError):
    """The program's code is not the one that the run began with, in a way that matters; it does not go on.

    Attributes:
        run_id: Which run.
        reason: What has changed.
    """

    def __init__(self, run_id: str, reason: str) -> None:
        super().__init__(
            f"run {run_id!r} cannot go on with this program: {reason}; resume it with the code that it began with,"
            " or begin a new run"
        )
        self.run_id, self.reason = run_id, reason


class ValueNotKeptError(SaysoError):
    """A value cannot be kept while the run waits, so who needs it after the pause cannot have it.

    Attributes:
        whose: What it is the value of.
        reason: Why it cannot be kept.
    """

    def __init__(self, whose: str, reason: str) -> None:
        super().__init__(f"the value of {whose} {reason}; return plain values, dataclasses or pydantic models")
        self.whose, self.reason = whose, reason


class DecisionRefusedError(_OfRequest, SaysoError):
    """A person's decision was not taken; the request is as it was.

    Attributes:
        request_id: The request that was to be decided.
    """

    def __init__(self, request_id: str, message: str) -> None:
        super().__init__(message)
        self.request_id = request_id


class AlreadyDecidedError(DecisionRefusedError):
    """Somebody was first.

    Attributes:
        state: The state the request is in.
        by: Who decided, `subject@issuer` or `subject` for local people.
        at: When, in UTC.
        channel: Through which channel.
    """

    def __init__(self, request_id: str, *, state: str, by: str, at: datetime, channel: str, age: str) -> None:
        super().__init__(
            request_id, f"request {request_id} was already {state} by {by!r} ({channel}, {age}); nothing changed"
        )
        self.state, self.by = state, by
        self.at, self.channel = at, channel


class RequestExpiredError(DecisionRefusedError):
    """It was too late: the request had expired.

    Attributes:
        expired_at: When it ended, in UTC.
    """

    def __init__(self, request_id: str, *, expired_at: datetime, age: str) -> None:
        super().__init__(
            request_id, f"request {request_id} expired {age}; nothing was decided, the program must ask anew"
        )
        self.expired_at = expired_at


class OwnRequestError(DecisionRefusedError):
    """The requester, or the person on whose behalf it acts, cannot decide its own request.

    Attributes:
        by: Who tried.
    """

    def __init__(self, request_id: str, *, by: str) -> None:
        super().__init__(request_id, f"{by!r} asked for {request_id} and cannot decide it; somebody else must")
        self.by = by


class MissingRoleError(DecisionRefusedError):
    """The reviewer has none of the roles that the gate asks for.

    Attributes:
        by: Who tried.
        roles: Any one of these would do.
    """

    def __init__(self, request_id: str, *, by: str, roles: Sequence[str]) -> None:
        wanted = " or ".join(repr(role) for role in roles)
        super().__init__(request_id, f"{by!r} needs the role {wanted} to decide {request_id}; nothing was decided")
        self.by = by
        self.roles = tuple(roles)


class AlreadyVotedError(DecisionRefusedError):
    """One person counts once.

    Attributes:
        by: Who voted already.
        missing: How many more distinct reviewers must agree.
    """

    def __init__(self, request_id: str, *, by: str, missing: int) -> None:
        super().__init__(
            request_id, f"{by!r} has approved {request_id} already; {missing} more, by somebody else, still needed"
        )
        self.by, self.missing = by, missing


class ClaimedError(DecisionRefusedError):
    """Another reviewer has taken the request on.

    Attributes:
        by: Who claimed it.
        at: When, in UTC.
    """

    def __init__(self, request_id: str, *, by: str, at: datetime, age: str) -> None:
        super().__init__(
            request_id,
            f"request {request_id} was claimed by {by!r} {age}; nothing was decided (`sayso release --force` frees it)",
        )
        self.by, self.at = by, at


class NotClaimedError(DecisionRefusedError):
    """There is nothing to release."""

    def __init__(self, request_id: str) -> None:
        super().__init__(request_id, f"request {request_id} is not claimed by anybody; nothing changed")


class StaleViewError(DecisionRefusedError):
    """The call was changed since it was shown.

    Attributes:
        seen: The fingerprint that the reviewer saw.
        current: The fingerprint that stands now.
    """

    def __init__(self, request_id: str, *, seen: str, current: str) -> None:
        super().__init__(
            request_id,
            f"request {request_id} was changed since you looked (saw {seen[:12]}, now {current[:12]});"
            " look again, nothing was decided",
        )
        self.seen, self.current = seen, current


class WrongKindError(DecisionRefusedError):
    """A call cannot be answered, a question cannot be approved."""

    def __init__(self, request_id: str, *, kind: str, verb: str, instead: str) -> None:
        super().__init__(
            request_id, f"request {request_id} is a {kind} and takes no {verb}; use {instead}. Nothing was decided"
        )
        self.kind, self.verb = kind, verb


class InvalidChangesError(DecisionRefusedError):
    """The changed arguments do not fit the function's types.

    Attributes:
        problems: One line each, `where: what is wrong`.
    """

    def __init__(self, request_id: str, problems: Sequence[str]) -> None:
        super().__init__(request_id, f"{'; '.join(problems)} (nothing was decided on {request_id})")
        self.problems = tuple(problems)


class InvalidAnswerError(DecisionRefusedError):
    """The answer does not fit the question's type.

    Attributes:
        problems: One line each, `where: what is wrong`.
    """

    def __init__(self, request_id: str, problems: Sequence[str], *, still_waits: bool = True) -> None:
        so = (
            f"the question {request_id} still waits"
            if still_waits
            else f"the answer to {request_id} is not used, ask anew"
        )
        super().__init__(request_id, f"{'; '.join(problems)} ({so})")
        self.problems = tuple(problems)


class ReasonMissingError(DecisionRefusedError):
    """A decision has no reason that needs one: the no to a Confirm, or that an effect may happen again."""

    def __init__(self, request_id: str, what: str = "the no to a Confirm") -> None:
        super().__init__(request_id, f"{what} needs a reason; nothing was decided on {request_id}: say why")


class NotUnknownError(DecisionRefusedError):
    """There is no unknown outcome to resolve.

    Attributes:
        state: The state the request is in.
    """

    def __init__(self, request_id: str, *, state: str, hint: str) -> None:
        super().__init__(request_id, f"request {request_id} is {state}, its outcome is not unknown; {hint}")
        self.state = state


class StartRefusedError(_OfRequest, SaysoError):
    """A call was not started.

    Attributes:
        request_id: The request whose call was to start.
    """

    def __init__(self, request_id: str, message: str) -> None:
        super().__init__(message)
        self.request_id = request_id


class AlreadyStartedError(StartRefusedError):
    """The one start of this approval has been used.

    Attributes:
        state: `running`, `done` or `failed`.
        at: When it was started, in UTC; None where that is not known.
    """

    def __init__(self, request_id: str, *, state: str, at: datetime | None, age: str) -> None:
        super().__init__(
            request_id, f"the call of {request_id} was already started {age} and is {state}; it was not started again"
        )
        self.state, self.at = state, at


class NotApprovedError(StartRefusedError):
    """The request is not approved, or not any more: somebody cancelled it before the call was started.

    Attributes:
        state: The state the request is in.
    """

    def __init__(self, request_id: str, *, state: str) -> None:
        super().__init__(request_id, f"request {request_id} is {state}, not approved; the call was not run")
        self.state = state


class ApprovalExpiredError(StartRefusedError):
    """The approval ended before the call was started.

    Attributes:
        expired_at: When it ended, in UTC.
    """

    def __init__(self, request_id: str, *, expired_at: datetime, age: str) -> None:
        super().__init__(request_id, f"the approval of {request_id} expired {age}; the call was not run, ask anew")
        self.expired_at = expired_at


class EffectTakenError(StartRefusedError):
    """Another request has the same effect: it runs, was done, may have happened, or was asked earlier and is open.

    Attributes:
        effect: What the call would do.
        other: Id of the other request; None where it is another program's.
        state: The state that one is in.
    """

    def __init__(self, request_id: str, *, effect: str, other: str | None, state: str) -> None:
        it = "another program's request" if other is None else other
        super().__init__(
            request_id,
            f"the effect {effect!r} of {request_id} is taken: {it} is {state}; the call was not run. It can start when"
            f" that one is known not to have happened. To do it again all the same, withdraw {request_id}, ask"
            " anew, and have that approved with `--again` and a reason",
        )
        self.effect, self.other, self.state = effect, other, state


class CallFailedError(StartRefusedError):
    """The call with this key was started before, and failed; it was not started again.

    Attributes:
        error: Type and message of its error, secrets masked; None where that is not known.
    """

    def __init__(self, request_id: str, *, error: str | None) -> None:
        why = "" if error is None else f": {error}"
        super().__init__(
            request_id, f"the call of {request_id} failed{why}; it was not started again, ask with a key of its own"
        )
        self.error = error


class OutcomeUnknownError(StartRefusedError):
    """The call was started, and nobody can say how it ended. It is not tried again by itself."""

    def __init__(self, request_id: str) -> None:
        super().__init__(
            request_id,
            f"the call of {request_id} was started and its outcome is unknown; it was not run again."
            f" Find out, then `sayso resolve {request_id} --happened` or `--did-not`",
        )


class AlteredRequestError(StartRefusedError):
    """The record is not the one that was shown and approved: its fingerprint or another part of it differs."""

    def __init__(self, request_id: str, what: str | None = None) -> None:
        if what is None:
            what = f"the stored arguments of {request_id} do not fit the fingerprint that was approved"
        else:
            what = f"the record of {request_id} was altered: {what}"
        super().__init__(request_id, f"{what}; not run")


class EvidenceError(SaysoError):
    """A receipt, an anchor or a checkpoint is not as it was written, or proves nothing about what it was held to."""


class PurgeRefusedError(SaysoError):
    """Something can still happen to the request, or its run still needs it. Nothing of it was removed.

    Attributes:
        id: Of the request or run.
    """

    def __init__(self, about: str, reason: str) -> None:
        super().__init__(f"{about} {reason}; nothing of it was removed")
        self.id = about


class RunPurgedError(SaysoError):
    """The run has ended, and its steps were removed: nobody can say what it did, and it is not begun again.

    Attributes:
        run_id: Which run.
    """

    def __init__(self, run_id: str) -> None:
        super().__init__(f"run {run_id!r} has ended, and what it did was purged; it is not begun again, take a new run")
        self.run_id = run_id


class OutcomeNotRecordedError(_OfRequest, SaysoError):
    """The call ran, and the store could not be told how it ended; the record will say `unknown`.

    Attributes:
        request_id: The request whose call ran.
        result: What the call returned.
    """

    def __init__(self, request_id: str, result: object, reason: str) -> None:
        super().__init__(f"the call of {request_id} ran, but its outcome could not be recorded: {reason}")
        self.request_id, self.result = request_id, result
