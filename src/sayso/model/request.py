"""The request: the durable record of a held call or a question that waits for a person.

Requests are immutable: a transition (`sayso.model.lifecycle`) returns a new one, and a store makes it durable. The
message to the model that asked is also here; it is the same for every agent, adapter and page, and quotes and shortens
people's words. Invariant: no message about a call that did not run, or whose outcome is unknown, invites a repetition.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from operator import attrgetter
from typing import Any, Literal, cast

from sayso.model import canonical
from sayso.model.canonical import MASK
from sayso.model.ids import fingerprint, shown_digest
from sayso.model.redaction import Redaction, mark_secrets, scrub
from sayso.model.rendering import Change, brief, changes
from sayso.model.reviewer import PROGRAM, Escalation, Identity, Quorum, name_of
from sayso.model.text import escape

voter_of = attrgetter("by")
"""Returns who gave a vote."""


@dataclass(frozen=True)
class Call:
    """A function and the arguments it would run with.

    Attributes:
        tool: Qualified name, `module:function`.
        name: The function's own name.
        form: Canonical form of the arguments, as JSON text, with their real values.
        masked: The same with secrets masked; None if there are none.
        digest: Digest over tool, schema and form (see `sayso.model.ids`).
        schema: The function's parameters and their types, as JSON text (see `sayso.model.schema`).
        schema_digest: Digest of that.
    """

    tool: str
    name: str
    form: str = field(repr=False)
    masked: str | None = field(repr=False)
    digest: str
    schema: str = field(repr=False)
    schema_digest: str

    @property
    def shown(self) -> dict[str, Any]:
        """The masked arguments as a tree of the canonical form, for `sayso.view`."""
        return cast("dict[str, Any]", canonical.load(self.shown_text))

    @property
    def drawn(self) -> dict[str, Any]:
        """The same, with each mask as a secret value, so that it differs from a text of three stars."""
        tree = self.shown
        return tree if self.masked is None else cast("dict[str, Any]", mark_secrets(tree, canonical.load(self.form)))

    @property
    def shown_text(self) -> str:
        """The masked arguments as canonical JSON text."""
        return self.form if self.masked is None else self.masked

    @property
    def shown_digest(self) -> str:
        """Digest of what a person was shown."""
        return shown_digest(self.form if self.masked is None else self.masked)

    @property
    def arguments(self) -> dict[str, Any]:
        """The masked arguments as plain JSON values, by name."""
        text = self.shown_text
        tree = canonical.load(text)
        # Only a tagged value is displayed in another way than it is stored.
        return cast("dict[str, Any]", canonical.display(tree) if '"$' in text else tree)


@dataclass(frozen=True)
class Question:
    """A typed question to a person.

    Attributes:
        text: The question, in the program's words.
        digest: Digest over text, type and occasion.
        schema: The answer's type, as the schema of one field named `answer`.
        schema_digest: Digest of that.
    """

    text: str
    digest: str
    schema: str = field(repr=False)
    schema_digest: str

    @property
    def shown_digest(self) -> str:
        """Digest of what the reviewer was shown."""
        return shown_digest(self.text)


Verb = Literal["approve", "reject", "feedback", "answer", "cancel"]


@dataclass(frozen=True)
class Decision:
    """One decision by one person.

    Attributes:
        verb: What was decided.
        by: Who decided.
        at: When, in UTC, by the store's clock.
        channel: The channel that was used: `terminal`, `cli`, `python`, `web`, `slack`, …
        comment: The reviewer's words: for `reject` the reason, for `feedback` the message to the program.
        fingerprint: Identifies exactly the call or question that was decided.
        edited: Whether an approval carries changed arguments.
        answer: For `answer`, the canonical form of the value as JSON text; not in `repr`, because it may be a secret.
        again: For `approve`, that the call may start although another one with its effect has; `comment` is the reason.
        under: What gave this approval without a person: the id of a grant, or `budget` for a policy's budget.
        held_for: For `approve`, how long it can be undone; the call cannot start before that time is over.
        claimed: For an approval that can be undone, whose claim it ended; the undo gives that back.
    """

    verb: Verb
    by: Identity
    at: datetime
    channel: str
    comment: str | None
    fingerprint: str
    edited: bool = False
    answer: str | None = field(default=None, repr=False)
    again: bool = False
    under: str | None = None
    held_for: timedelta | None = None
    claimed: Identity | None = None

    @property
    def is_withdrawal(self) -> bool:
        """Whether the program withdrew the request, so that nobody decided."""
        return self.channel == PROGRAM and self.by.issuer == PROGRAM


class State(StrEnum):
    """The state of a request; `docs/explanation/concepts.md` draws the state machine."""

    PENDING = "pending"
    APPROVED = "approved"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    UNKNOWN = "unknown"
    REJECTED = "rejected"
    FEEDBACK = "feedback"
    ANSWERED = "answered"
    CANCELLED = "cancelled"
    EXPIRED = "expired"


MODEL_WORDS = "the model's words (unverified)"
"""The name in `Request.context` under which an adapter stores what a model wrote beside its call."""

LIVE = frozenset({State.PENDING, State.APPROVED, State.RUNNING, State.UNKNOWN})
FINAL = frozenset(State) - LIVE


@dataclass(frozen=True)
class Execution:
    """The last start of an approved call, and how it ended.

    What its end makes of the request (`sayso.model.lifecycle.finish`):
        done         done
        failed       failed; or approved, if it may start again (`idempotent`, or `attempt` is at most `retries`) and
                     its approval lasts; but unknown while `unresolved`, because an earlier start may have had the
                     effect
        unknown      unknown; with `idempotent`, a next start is allowed and makes this one `unresolved`
        suspended    approved, and the start counts in `stopped` in place of `attempt`

    Attributes:
        token: Fencing token; only its holder can record how the call ended.
        worker: The process that started it (see `sayso.stores.workers`).
        attempt: The number of this start, from 1; one that paused to ask is not counted.
        started_at: When the start was recorded, which is before the call ran.
        finished_at: When the outcome was recorded.
        result: Canonical form of the call's result for display, secrets masked, if it has one and it is small.
        error: The error's type and message, secrets masked.
        resolved_by: Who resolved an unknown outcome.
        stopped: How many starts of this approval paused to ask a person something else.
        unresolved: Whether an earlier start of this idempotent call had an unknown outcome that nobody has resolved.
            Whatever else ends such a request, e.g. a rejection, leaves it unknown.
        kept: For a call with a key, digest of the real result, which `Store.result` returns.
        not_kept: Why the store does not have the real result of such a call.
    """

    token: str = field(repr=False)
    worker: str
    attempt: int
    started_at: datetime
    finished_at: datetime | None = None
    result: str | None = field(default=None, repr=False)
    error: str | None = None
    resolved_by: Identity | None = None
    stopped: int = 0
    unresolved: bool = False
    kept: str | None = None
    not_kept: str | None = None

    @property
    def starts(self) -> int:
        """How many starts of this approval there were, including those that paused to ask."""
        return self.attempt + self.stopped


@dataclass(frozen=True)
class Request:
    """What is held, what was decided about it, and how it ended.

    Attributes:
        id: Random, prefixed `rq_`; knowing it gives no right.
        kind: `call` or `question`.
        run_id: The run in which a decision counts.
        fingerprint: Digest of what was asked, in its run.
        holds: Whether asking the same again in this run finds this request.
        subject: The proposed call, or the question.
        key: The occasion of the call in its run, e.g. a model's call id; it finds this request forever. If it is None,
            equal calls of the run share this request while it holds.
        effect: What the call does to the world, by a name that counts across runs and tools, e.g. `refund:A-4721`.
        title: The function's name for people, from the program.
        summary: What the call does, in one line, from the program.
        prompt: What the reviewer should read first, from the program.
        description: What the gate's author says about the function.
        risk: The gate's own word, e.g. `high`.
        rule: Why the call is held.
        context: Facts from the program (not from the agent), JSON values.
        requester: Who asked.
        on_behalf_of: The person for whom the requester acts; may not decide either.
        also_for: Further persons for whom it acts, from the surrounding runs; they may not decide either.
        process: The only process that can run this (see `sayso.stores.workers`), if its run has no name by which
            another process could resume it.
        place: Where in its run the call is; empty in the run of a plain program, in which equal calls are one.
        quorum: What an approval needs.
        created_at, expires_at: When it was asked, and when it expires if nobody decides.
        approval_window: How long an approval is valid.
        retries: How often a failed call may be started again.
        idempotent: Whether the call may be started again after an unknown outcome.
        redact: Argument names that the gate masks in addition to the default ones.
        channels: The only channels that are notified; empty for all.
        notify_arguments: Whether notifications may carry its arguments, masked.
        always: Whether a person must decide each call, so that no grant or budget can.
        approve_from_notification: Whether the policy lets its push notification have an Approve button.
        budgets: The budgets within which the policy allows it, each as text and name (see `sayso.model.grant`).
        escalation: Who else may decide after it has waited for a while.
        state: Its state.
        votes: Approvals of the call as it stands now, while the quorum is not met.
        decision: The decision that ended the wait.
        edited: The call as changed by reviewers; None if it is unchanged.
        returned: Why it waits again after an approval, e.g. the function's own types refused the edit.
        claimed_by, claimed_at: The reviewer who claimed it, and when.
        escalated_at: When the people in `escalation` were allowed to decide.
        approval_expires_at: When the approval ends.
        execution: The start of the approved call.
        purged_at: When its content was removed (see `sayso.model.journal`); None if it was not.
    """

    id: str
    kind: Literal["call", "question"]
    run_id: str
    fingerprint: str
    subject: Call | Question
    requester: Identity
    created_at: datetime
    expires_at: datetime
    approval_window: timedelta
    quorum: Quorum = Quorum()
    on_behalf_of: Identity | None = None
    also_for: tuple[Identity, ...] = ()
    process: str | None = None
    key: str | None = None
    effect: str | None = None
    title: str | None = None
    summary: str | None = None
    prompt: str | None = None
    description: str | None = None
    risk: str | None = None
    rule: str | None = None
    context: dict[str, Any] | None = None
    place: str = ""
    retries: int = 0
    idempotent: bool = False
    redact: tuple[str, ...] = ()
    channels: tuple[str, ...] = ()
    notify_arguments: bool = False
    escalation: Escalation | None = None
    always: bool = False
    approve_from_notification: bool = False
    budgets: tuple[tuple[str, str | None], ...] = ()
    state: State = State.PENDING
    holds: bool = True
    votes: tuple[Decision, ...] = ()
    decision: Decision | None = None
    edited: Call | None = None
    returned: str | None = None
    claimed_by: Identity | None = None
    claimed_at: datetime | None = None
    escalated_at: datetime | None = None
    approval_expires_at: datetime | None = None
    execution: Execution | None = None
    purged_at: datetime | None = None

    @property
    def request_id(self) -> str:
        """`id`, under the other names that this package's APIs use: `approval_id`, `confirmation_id`, `request_id`."""
        return self.id

    approval_id = confirmation_id = request_id

    @property
    def call(self) -> Call:
        """The proposed call; raises `TypeError` on a question."""
        if not isinstance(self.subject, Call):
            raise TypeError(f"request {self.id} is a question, it has no call")
        return self.subject

    @property
    def question(self) -> Question:
        """The question; raises `TypeError` on a call."""
        if not isinstance(self.subject, Question):
            raise TypeError(f"request {self.id} is a call, it has no question")
        return self.subject

    @property
    def effective(self) -> Call:
        """The call that would run now: the edited one, else the proposed one."""
        if self.edited is not None:
            return self.edited
        return self.subject if isinstance(self.subject, Call) else self.call

    @property
    def current_fingerprint(self) -> str:
        """Fingerprint of what a decision would now be about; differs from `fingerprint` after an edit."""
        return self.fingerprint if self.edited is None else self.fingerprint_of(self.edited.digest)

    @property
    def held_until(self) -> datetime | None:
        """The end of the time in which a vote can be undone, and its call cannot start; None if there is none."""
        if self.state is not State.APPROVED or self.decision is None:
            return None
        until = None
        for vote in (*self.votes, self.decision):
            if vote.held_for is not None and (until is None or until < vote.at + vote.held_for):
                until = vote.at + vote.held_for
        return until

    def fingerprint_of(self, digest: str) -> str:
        """Return the fingerprint that a call or question with this digest would have in place of this one."""
        return fingerprint(self.run_id, digest, self.place, self.key)

    @property
    def acts_for(self) -> tuple[Identity, ...]:
        """Every person for whom the requester acts."""
        return self.also_for if self.on_behalf_of is None else (self.on_behalf_of, *self.also_for)

    @property
    def is_final(self) -> bool:
        """Whether its state cannot change any more."""
        return self.state in FINAL

    @property
    def open_to(self) -> Escalation | None:
        """Who else may decide now, after an escalation."""
        return None if self.escalated_at is None else self.escalation

    @property
    def wanted_roles(self) -> frozenset[str]:
        """The roles of which a reviewer needs one, unless the escalation names them; empty means anybody may decide."""
        more = frozenset[str]() if self.open_to is None or not self.quorum.roles else frozenset(self.open_to.roles)
        return more.union(self.quorum.roles)

    def admits(self, by: Identity, roles: Collection[str]) -> bool:
        """Return whether the roles allow somebody to decide."""
        return self.quorum.admits(roles) or (self.open_to is not None and self.open_to.admits(by, roles))

    def message_for_model(self) -> str:
        """Return the message to the model that asked: what a person changed and wrote, and what not to do next.

        For an approved call it goes before the result, and is empty if the call was approved unchanged without a note.
        For any other request it is the whole text: why the call did not run or how it failed, and whether it may be
        tried again. Secrets are masked; people's words are quoted.
        """
        parts = list(_approval(self))
        if self.state is not State.APPROVED:
            parts += _ending(self)
        return without_secrets(self, " ".join(parts))

    @property
    def missing_votes(self) -> int:
        """How many more distinct reviewers must approve; 0 for a call that the policy allowed within its budgets."""
        if self.budgets and self.decision is not None and self.decision.under == "budget":
            return 0
        return self.quorum.missing(list(map(voter_of, self.votes)))

    @property
    def answer(self) -> Any:
        """The answer as plain JSON values; None before the question is answered."""
        if self.decision is None or self.decision.answer is None:
            return None
        return cast("Any", canonical.display(canonical.load(self.decision.answer)))["answer"]


# -- the message to the model that asked --------------------------------------------------------------------------

_WORDS_ROOM, _ERROR_ROOM, _MOST_CHANGES = 2_000, 2_000, 30
NOT_RUN = "not run: "
"""The beginning of the error of a start that was recorded, and ended before its call ran."""
_FINAL = "This is final: do not repeat this {what}. Choose another way, or tell the user."


def not_run(name: str, reason: str, *, may_change: bool = False) -> str:
    """Return the message about a call that did not run, for a reason that is not in a request."""
    advice = "Take this into account; call it again only if changed." if may_change else _FINAL.format(what="call")
    return f"{name} was not run: {reason}. {advice}"


def _approval(request: Request) -> Iterator[str]:
    decision = request.decision
    if decision is None or decision.verb not in {"approve", "answer"} or request.state is State.EXPIRED:
        return
    if request.edited is not None and request.purged_at is None:
        changes = [change.line() for change in changed(request.call, request.edited, request.redact)]
        listed = "; ".join(changes[:_MOST_CHANGES])
        more = f"; and {len(changes) - _MOST_CHANGES} more" if len(changes) > _MOST_CHANGES else ""
        yield (
            f"A person ({name_of(decision.by)}) changed the arguments before {request.call.name} ran: {listed}{more}."
            " The result is that of the changed call; do not repeat the call with the old arguments."
        )
    for one in request.votes if decision in request.votes else (*request.votes, decision):
        if one.comment:
            yield f"Note from {name_of(one.by)}: {brief(one.comment, _WORDS_ROOM)}."


def _ending(request: Request) -> Iterator[str]:
    is_call = isinstance(request.subject, Call)
    name = request.subject.name if isinstance(request.subject, Call) else "The question"
    execution = request.execution
    what, undone = ("call", _undone(name, execution)) if is_call else ("question", f"{name} was not answered")
    final = _FINAL.format(what=what)
    error = "" if execution is None or execution.error is None else brief(execution.error, _ERROR_ROOM)
    finder = None if execution is None or execution.resolved_by is None else name_of(execution.resolved_by)
    who, words = _decider(request)
    match request.state:
        case State.PENDING:
            yield f"{undone} yet: it waits for a person ({request.id}). Do not repeat this {what}."
        case State.REJECTED:
            yield f"{undone}: {who} rejected it{words}. {final}"
        case State.FEEDBACK:
            yield f"{undone}: {who} sent it back{words}. Take this into account; call it again only if changed."
        case State.CANCELLED:
            yield f"{undone}: {who} cancelled it{words}. {final}"
        case State.EXPIRED:
            unused = " before it was used" if execution is None else ""
            why = "nobody decided in time" if request.decision is None else f"its approval expired{unused}"
            yield f"{undone}: {why}, which counts as a rejection. {final}"
        case State.UNKNOWN:
            yield (
                f"{name} was started, and nobody knows whether it took effect: it may or may not have happened"
                f"{f' ({error})' if error else ''}. Do not repeat this call. Tell the user that a person must find"
                f" out ({request.id})."
            )
        case State.FAILED if finder is not None:
            yield f"{name} did not take effect, as {finder} found out{f' ({error})' if error else ''}."
        case State.FAILED:
            yield _failure(name, "" if execution is None else execution.error or "")
        case State.DONE if finder is not None:
            yield f"{name} took effect, as {finder} found out; its result is not known. Do not repeat this call."
        case _:
            pass  # the result, or the answer, says the rest


def _undone(name: str, execution: Execution | None) -> str:
    """Return the beginning of a message about a call that waits or was refused: what its starts did, if any."""
    error = "" if execution is None or execution.error is None else execution.error
    if execution is None or (execution.starts == 1 and error.startswith(NOT_RUN)):
        return f"{name} was not run"
    if execution.unresolved:
        how = "nobody knows whether it took effect"
    elif execution.resolved_by is not None:
        how = f"did not take effect, as {name_of(execution.resolved_by)} found out"
    elif execution.stopped and not error:
        how = "stopped half-way to ask a person"
    else:
        how = f"failed ({brief(error, _ERROR_ROOM)})" if error else "failed"
    return f"{name} was started, and {how}; it was not run again"


def _failure(name: str, error: str) -> str:
    if error.startswith(NOT_RUN):
        why = brief(error.removeprefix(NOT_RUN), _ERROR_ROOM)
        return f"{name} was not run: its start failed ({why}), and used up its approval."
    return f"{name} was run, and failed{f': {brief(error, _ERROR_ROOM)}' if error else ''}."


def _decider(request: Request) -> tuple[str, str]:
    """Return who decided, and their words as part of a sentence."""
    decision = request.decision
    if decision is None:
        return "nobody", ""
    who = "the program" if decision.is_withdrawal else name_of(decision.by)
    return who, f", in these words: {brief(decision.comment, _WORDS_ROOM)}" if decision.comment else ""


def without_secrets(request: Request, text: str) -> str:
    """Return a text with the values masked that are masked in the call of a request."""
    return scrub(text, secrets_in(request)) if text else text


def secrets_in(request: Request) -> frozenset[str]:
    """Return the masked values of a request's call, as proposed and as changed; none of a question or a purged call."""
    if not isinstance(request.subject, Call) or request.purged_at is not None:
        return frozenset()
    secrets = secrets_of_call(request.subject, request)
    return secrets if request.edited is None else secrets | secrets_of_call(request.edited, request)


def secrets_of_call(call: Call, request: Request) -> frozenset[str]:
    """Return the masked values of a stored call, whether masked by name or by a redactor that is not available here."""
    if call.masked is None:
        return frozenset()
    redaction, tree, masked = Redaction(request.redact), canonical.load(call.form), call.masked
    return redaction.secrets(tree) | {text for text in redaction.texts(tree) if text not in masked}


_CHANGED = f"{MASK} (changed)"


def changed(before: Call, after: Call, redact: Collection[str] = ()) -> list[Change]:
    """Return what an edit changes, for display: a masked value that changed is listed and stays masked.

    Args:
        before: The call before the edit.
        after: The call after it.
        redact: Names that the gate masks in addition to the default ones (`Request.redact`).
    """
    found: list[Change] = []
    old, new = canonical.load(before.form), canonical.load(after.form)
    seen, will = before.drawn, after.drawn
    is_secret = Redaction(redact).is_secret
    for name in {**old, **new}:
        real = changes(_only(old, name), _only(new, name), is_secret=is_secret)
        if not real:
            continue  # this also skips an unchanged value that a redactor draws in another way
        visible = changes(_only(seen, name), _only(will, name))
        paths, masks = {change.path for change in visible}, {None, MASK, _CHANGED}
        visible += [one for one in real if {one.before, one.after} <= masks and one.path not in paths]
        found += visible or [Change(escape(name), MASK, _CHANGED)]
    return found


def _only(tree: dict[str, Any], name: str) -> dict[str, Any]:
    return {name: tree[name]} if name in tree else {}


def notes_of(request: Request) -> list[str]:
    """Return the notes of those who decided; none if they were purged."""
    decisions = (*request.votes, request.decision) if request.purged_at is None else ()
    return [one.comment for one in decisions if one is not None and one.comment is not None]


def folded(text: str) -> str:
    """Return a text as it is searched: without case, and without what a row cannot contain.

    That is a zero byte (on Postgres) or a lone surrogate.
    """
    text = text.casefold().replace("\0", " ")
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def search_text(request: Request) -> str:
    """Return the text that `Filter.text` searches, folded; it never has masked values."""
    subject = request.subject
    found = (subject.tool, subject.shown_text[:4_000]) if isinstance(subject, Call) else (subject.text, None)
    is_new = request.decision is None and not request.votes
    notes = None if is_new else without_secrets(request, "\n".join(notes_of(request)))
    words = filter(None, (*found, request.prompt, request.title, request.summary, request.effect, notes))
    return folded("\n".join([request.id, request.run_id, request.requester.subject, *words]))
