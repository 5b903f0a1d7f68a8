"""The API of reviewers: list what waits, look at a request, and decide it.

Each verb reads the request, validates the reviewer's input, and has the store take the decision in one transaction,
which checks everything again. A refused decision raises a `sayso.errors.DecisionRefusedError` and changes nothing.
`sayso.aio.Review` is the async version.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal, NoReturn, TypeVar

from sayso import clock, config, errors, telemetry
from sayso.model import canonical, duration, lifecycle
from sayso.model.canonical.tags import dump
from sayso.model.edit import edited_call, schema_of
from sayso.model.escaping import storable
from sayso.model.grant import Grant
from sayso.model.ids import ID_LENGTH
from sayso.model.request import LIVE, Call, Decision, Request, State, Verb, build_decision
from sayso.model.reviewer import Identity, Reviewer
from sayso.model.schema import SchemaError
from sayso.reviews.teamwork import Teamwork, identity_of
from sayso.stores import worker
from sayso.stores.base import Filter, Page, Store
from sayso.stores.grants import Stop
from sayso.stores.request_store import is_lost
from sayso.stores.review import Search, requests_in
from sayso.stores.transaction import LEASE

_MOST_EARLIER = 2_000


@dataclass(frozen=True)
class RequestPage(Page):
    """A page of a list. A `for` loop over it goes through the whole list and fetches further pages as it goes.

    Where the list was asked for with `limit=`, the loop ends with this page. A page is true if it holds a request.
    It has no length and no index, because both could mean the page or the list: `len(page.requests)` and
    `page.requests[0]` are the page's, `Review.count(...)` counts the list.

    Attributes:
        requests: Those of this page.
        cursor: Where the next page begins; None at the end.
    """

    following: Callable[[str], RequestPage] | None = field(default=None, repr=False, compare=False)

    def __iter__(self) -> Iterator[Request]:
        yield from self.requests
        page = self
        while page.cursor is not None and page.following is not None:
            page = page.following(page.cursor)
            yield from page.requests

    def __bool__(self) -> bool:
        return bool(self.requests)

    if not TYPE_CHECKING:  # type checkers say by themselves that there is neither

        def __len__(self) -> NoReturn:
            raise TypeError("a page has no length: len(page.requests) is this page's, Review.count(...) the list's")

        def __getitem__(self, index: Any) -> NoReturn:
            raise TypeError(f"a page has no index: page.requests[{index!r}] is this page's, list(page) the whole list")


T = TypeVar("T")

_PAGE = 50


class Review(Teamwork):
    """The verbs of a reviewer on one store.

    What a verb changes is durable on return, and a refused decision changes nothing. Verbs take `by=`, who decides, and
    `channel=`, and return the request as it is then where they do not say otherwise.

    Args:
        store: A store or its address; None is the configured one.
        by: Who decides where a verb's own `by=` names nobody; None is the configured one (see `sayso.config`).
        reviewer: The same; the older name of it.
        channel: Through which channel the decisions come, as the record will say.
        sweeps: Whether looking first writes down what has expired or was broken off. Where looking must change
            nothing, as for a page that a browser reads ahead, it is shown so all the same, and decided by.
        undo_within: How long an approval can be undone; its call does not start before. None: it starts at once.
    """

    def __init__(
        self, store: Store | str | None = None, *, by: Reviewer | str | None = None,
        reviewer: Reviewer | str | None = None, channel: str = "python", sweeps: bool = True,
        undo_within: timedelta | str | None = None,
    ) -> None:  # fmt: skip
        who = _one("by", by, "reviewer", reviewer)
        self.store = config.open_store(store)
        self.channel = channel
        self.sweeps = sweeps
        self.undo_within = None if undo_within is None else duration.parse(undo_within)
        self._reviewer = Reviewer(who) if isinstance(who, str) else who

    # -- see ---------------------------------------------------------------------------------------------------

    def list(
        self, *, state: State | str | Collection[State | str] | None = None, run: str | None = None,
        tool: str | None = None, risk: str | None = None, agent: str | None = None,
        kind: Literal["call", "question"] | None = None, text: str | None = None,
        claimed_by: Reviewer | str | None = None, older_than: timedelta | str | None = None,
        cursor: str | None = None, limit: int | None = None, newest: bool = False, run_id: str | None = None,
        name: str | None = None,
    ) -> RequestPage:  # fmt: skip
        """Return requests, oldest first: a page of them, which a `for` loop follows to the end of the list.

        What has expired, and what was started by a process that is gone, is written down first (see `sweeps`). The
        filters have the same names in `sayso ls` and in the HTTP API; all that are given must fit.

        Args:
            state: One state or several; by default all that are not final. `"all"` for every one.
            run: Only of this run.
            tool: Only of this function, by its name or `module:name`.
            risk: Only with this risk word.
            agent: Only what this program asked, by its name or `issuer:name`.
            kind: Only calls, or only questions.
            text: Only with this in id, run, function, arguments, prompt or question.
            claimed_by: Only those that this reviewer has claimed.
            older_than: Only what was asked at least so long ago: `"1h"`, `"7d"` or a `timedelta`.
            cursor: `cursor` of the page before.
            limit: How many at most, up to 1,000, on the page and in a loop. Without it a page has 50, and a loop over
                it goes on with the next one until the list ends.
            newest: Newest first.
            run_id: The old name of `run`.
            name: The old name of `tool`.

        Raises:
            TypeError: A filter that there is not, or one under both of its names.
            ValueError: A state, cursor or limit that there is not.
            ConfigError: `older_than` is no span of time.
        """
        if limit is not None and not 0 < limit <= 1000:
            raise ValueError(f"limit must be between 1 and 1,000, not {limit}")
        search = self._search(
            state=state, run=_one("run", run, "run_id", run_id), tool=_one("tool", tool, "name", name), risk=risk,
            agent=agent, kind=kind, text=text, claimed_by=claimed_by, older_than=older_than,
        )  # fmt: skip
        return self._page(search, cursor, limit=limit, newest=newest)

    def count(
        self, *, state: State | str | Collection[State | str] | None = None, run: str | None = None,
        tool: str | None = None, risk: str | None = None, agent: str | None = None,
        kind: Literal["call", "question"] | None = None, text: str | None = None,
        claimed_by: Reviewer | str | None = None, older_than: timedelta | str | None = None,
    ) -> int:  # fmt: skip
        """Return how many requests `list` would give with these filters, on all pages together; raises as it does."""
        if self.sweeps:
            self.store.sweep()
        search = self._search(
            state=state, run=run, tool=tool, risk=risk, agent=agent, kind=kind, text=text, claimed_by=claimed_by,
            older_than=older_than,
        )  # fmt: skip
        return search.count(self.store)

    def _search(
        self, *, state: State | str | Collection[State | str] | None, run: str | None, tool: str | None,
        risk: str | None, agent: str | None, kind: Literal["call", "question"] | None, text: str | None,
        claimed_by: Reviewer | str | None, older_than: timedelta | str | None,
    ) -> Search:  # fmt: skip
        now = clock.now()
        claimer = Reviewer(claimed_by) if isinstance(claimed_by, str) else claimed_by
        wanted = Filter(
            states=_states(state), run_id=run, name=tool, risk=risk, text=text, kind=kind,
            claimed_by=None if claimer is None else claimer.identity, at=None if self.sweeps else now,
        )  # fmt: skip
        return Search(wanted, agent, None if older_than is None else now - duration.parse(older_than))

    def _page(self, search: Search, cursor: str | None, *, limit: int | None, newest: bool) -> RequestPage:
        if self.sweeps:
            self.store.sweep()
        page = search.page(self.store, cursor=cursor, limit=limit or _PAGE, newest=newest)
        requests = page.requests if self.sweeps else tuple(map(self._as_it_stands, page.requests))
        following = partial(self._page, search, limit=None, newest=newest) if limit is None else None
        return RequestPage(requests, page.cursor, following)

    def get(self, request_id: str) -> Request:
        """Return a request by its id or by a beginning of it that fits no other; `rq_` may be left out.

        Raises:
            TypeError: It is no text.
            RequestNotFoundError: There is none.
            AmbiguousIdError: There are several.
        """
        _must_be_id(request_id)
        try:
            request = self.store.get(request_id)
        except errors.RequestNotFoundError:
            request = self.store.get(self.find(request_id))
        # Only what time or a dead worker may have changed needs to be written down first.
        now = clock.now()
        if request.state is State.RUNNING or lifecycle.is_due(request, now) or lifecycle.escalate(request, now):
            return self.store.settle(request.id) if self.sweeps else self._as_it_stands(request)
        return request

    def _as_it_stands(self, request: Request) -> Request:
        """Return what `Store.settle` would write, and write nothing."""
        now, execution = clock.now(), request.execution
        change = lifecycle.expire(request, now) or lifecycle.escalate(request, now)
        is_started = change is None and request.state is State.RUNNING
        if is_started and execution is not None:
            is_gone = worker.is_gone(execution.worker)
            if is_gone or is_lost(request, now, lambda: self.store.record(LEASE, request.id)):
                change = lifecycle.abandon(request, is_lost=not is_gone)
        return request if change is None else change.request

    def find(self, request_id: str) -> str:
        """Return the whole id for an id or the beginning of one; raises as `get` does."""
        _must_be_id(request_id)
        prefix = request_id if request_id.startswith("rq_") else f"rq_{request_id}"
        if prefix == "rq_":
            raise errors.RequestNotFoundError(request_id)
        matches = self.store.match(prefix)
        if prefix in matches or len(matches) == 1:
            return prefix if prefix in matches else matches[0]
        if not matches:
            raise errors.RequestNotFoundError(request_id)
        raise errors.AmbiguousIdError(request_id, matches)

    def program_is_gone(self, request: Request) -> bool:
        """Say whether the program that asked has surely ended, and its run had no name.

        Then nobody comes back for the decision by itself: an approval runs nothing, unless another program takes the
        request up by its id (`respond_to_confirmation`). False where the request is final, and where it cannot be
        known from here (another machine, another container).
        """
        return request.process is not None and not request.is_final and worker.is_gone(request.process)

    def same_effect(self, request: Request) -> Sequence[Request]:
        """Return the other requests with the effect of this one, in the order they were asked.

        While one of them runs, was done, is unknown, or is open and was asked earlier, this one does not start
        unless it is approved with `again`.
        """
        found = () if request.effect is None else self.store.by_effect(request.effect)
        return [other for other in found if other.id != request.id]

    # -- decide ------------------------------------------------------------------------------------------------

    def approve(
        self, request_id: str, *, by: Reviewer | str | None = None, changes: Mapping[str, Any] | None = None,
        arguments: Mapping[str, Any] | None = None, comment: str | None = None, seen: str | None = None,
        again: bool = False, channel: str | None = None,
    ) -> Request:  # fmt: skip
        """Approve a call, as it stands or with other arguments. Durable on return.

        Where the gate asks for a quorum, the request stays `pending` until enough distinct reviewers have approved
        the same call; changed arguments begin the count anew.

        Args:
            request_id: Id, or a beginning of it that fits no other.
            by: Who approves.
            changes: New values for some arguments, merged over the call as it stands.
            arguments: All arguments, in place of those that stand; `{}` leaves only defaults. A value that equals
                the masked one shown stays what it really is.
            comment: The program is told, and the record keeps it.
            seen: Fingerprint of what was looked at (`Request.current_fingerprint`); refused if it changed since.
            again: Let the call start although another request with its effect runs, was done or may have happened;
                `comment` has to say why. Where a quorum is needed, all who approve have to say it.
            channel: Through which channel, instead of this review's.

        Raises:
            ReasonMissingError: `again` has no comment.
            InvalidChangesError: The arguments do not fit the function's types.
            DecisionRefusedError: Another of its kinds.
            RequestNotFoundError: There is no such request.
        """
        if not isinstance(again, bool):  # pyright: ignore[reportUnnecessaryIsInstance]  callers may be untyped
            raise TypeError(f"again is True or False, not {again!r}; nothing was decided")
        if changes is None and arguments is None:
            return self._decide(request_id, "approve", by, comment, seen, channel, again=again)
        request = self.get(request_id)
        if request.state is not State.PENDING:  # let the store say who was first
            return self._decide(request.id, "approve", by, comment, seen, channel, again=again)
        edited = edited_call(request, changes, arguments)
        if edited.digest == request.effective.digest:
            edited = None  # nothing was changed: a plain approval
        # Without `seen` it is this edit's base that must still stand when the decision is taken.
        looked_at = request.current_fingerprint if seen is None else seen
        return self._decide(request.id, "approve", by, comment, looked_at, channel, edited=edited, again=again)

    def reject(
        self, request_id: str, comment: str | None = None, *, by: Reviewer | str | None = None,
        seen: str | None = None, channel: str | None = None,
    ) -> Request:  # fmt: skip
        """Say no to a call or question; the program gets `comment` as the reason.

        Durable on return; raises as `approve`.
        """
        return self._decide(request_id, "reject", by, comment, seen, channel)

    def feedback(
        self, request_id: str, comment: str, *, by: Reviewer | str | None = None, seen: str | None = None,
        channel: str | None = None,
    ) -> Request:  # fmt: skip
        """Send a call back with words to the program; it does not run. Durable on return; raises as `approve`."""
        return self._decide(request_id, "feedback", by, comment, seen, channel)

    def answer(
        self, request_id: str, value: Any, *, by: Reviewer | str | None = None, comment: str | None = None,
        channel: str | None = None,
    ) -> Request:  # fmt: skip
        """Answer a question; the value is validated by the question's type first. Durable on return.

        Raises:
            InvalidAnswerError: The value does not fit; the question still waits.
            DecisionRefusedError: Another of its kinds.
        """
        request = self.get(request_id)
        if request.kind != "question" or request.state is not State.PENDING:
            return self._decide(request.id, "answer", by, comment, None, channel)
        try:
            answer = dump(schema_of(request).fit({"answer": canonical.form_of(value)}))
        except SchemaError as error:
            raise errors.InvalidAnswerError(request.id, error.problems) from None
        except errors.ArgumentError as error:
            raise errors.InvalidAnswerError(request.id, [f"the answer {error.reason}"]) from None
        return self._decide(request.id, "answer", by, comment, None, channel, answer=answer)

    def cancel(
        self, request_id: str, comment: str | None = None, *, by: Reviewer | str | None = None,
        channel: str | None = None,
    ) -> Request:  # fmt: skip
        """Abort the run at this request, also where it was approved and not started.

        Durable on return; raises as `approve`.
        """
        return self._decide(request_id, "cancel", by, comment, None, channel)

    def undo(self, request_id: str, *, by: Reviewer | str | None = None, channel: str | None = None) -> Request:
        """Take back an approval, or a vote, of one's own within `undo_within`: it waits again. Durable on return.

        Raises:
            NotUndoneError: It is somebody else's, the time is over, or the call has started; nothing changed.
        """
        return self.store.undo(self.find(request_id), self._who(by).identity, channel=channel or self.channel)

    # -- care --------------------------------------------------------------------------------------------------

    def claim(self, request_id: str, *, by: Reviewer | str | None = None, channel: str | None = None) -> Request:
        """Take a pending request on: until it is released, nobody else can decide it. Durable on return.

        Raises:
            ClaimedError: Somebody else has it.
            DecisionRefusedError: Another of its kinds.
        """
        who = self._who(by)
        return self.store.claim(self.find(request_id), who.identity, roles=who.roles, channel=channel or self.channel)

    def assign(
        self, request_id: str, to: Reviewer | Identity | str, *, by: Reviewer | str | None = None,
        force: bool = False, channel: str | None = None,
    ) -> Request:  # fmt: skip
        """Let another reviewer take a pending request on, as if they had claimed it. Durable on return.

        A `Reviewer` must have the roles that it needs; of an `Identity` or a name of this machine, they are not known
        before it decides. `force` takes it from somebody else who has it. Raises as `claim`.
        """
        who, roles = self._who(by), to.roles if isinstance(to, Reviewer) else None
        return self.store.assign(
            self.find(request_id), who.identity, to=identity_of(to), to_roles=roles, roles=who.roles, force=force,
            channel=channel or self.channel,
        )  # fmt: skip

    def release(
        self, request_id: str, *, by: Reviewer | str | None = None, force: bool = False, channel: str | None = None
    ) -> Request:
        """Give a claimed request back; `force` frees what somebody else claimed, and the record says so.

        Raises:
            NotClaimedError: Nobody has it.
            ClaimedError: Somebody else has it, and `force` was not given.
        """
        who = self._who(by)
        return self.store.release(
            self.find(request_id), who.identity, roles=who.roles, force=force, channel=channel or self.channel
        )

    def extend(
        self, request_id: str, span: timedelta | str, *, by: Reviewer | str | None = None, channel: str | None = None
    ) -> Request:
        """Let a pending request, or an unused approval, end `span` from now. Durable on return; raises as `approve`."""
        who = self._who(by)
        return self.store.extend(
            self.find(request_id), who.identity, roles=who.roles, span=duration.parse(span),
            channel=channel or self.channel,
        )  # fmt: skip

    def resolve(
        self, request_id: str, *, happened: bool, by: Reviewer | str | None = None, comment: str | None = None,
        force: bool = False, channel: str | None = None,
    ) -> Request:  # fmt: skip
        """Say whether a call had its effect whose outcome is unknown. Durable on return.

        If it did not, its approval is spent all the same, unless the gate allows further tries. A call whose worker
        ran on another machine or in another container stays `running` when that worker dies, because nobody can see
        it from here; `force` takes your word that it is gone.

        Raises:
            TypeError: `happened` is no bool: `"no"` would be true.
            NotUnknownError: The outcome is not unknown.
            DecisionRefusedError: Another of its kinds.
        """
        if not isinstance(happened, bool):  # pyright: ignore[reportUnnecessaryIsInstance]  callers may be untyped
            raise TypeError(f"happened is True or False, not {happened!r}; nothing was decided")
        who, words = self._who(by), storable(comment)
        return self.store.resolve(
            self.find(request_id), who.identity, roles=who.roles, happened=happened, comment=words,
            channel=channel or self.channel, force=force,
        )  # fmt: skip

    # -- grants and the stop -----------------------------------------------------------------------------------

    def grant(
        self, request_id: str, *, count: int, lasts: timedelta | str, by: Reviewer | str | None = None,
        changes: Mapping[str, Any] | None = None, comment: str | None = None, seen: str | None = None,
        here: bool = False, without: Collection[str] = (), at_most: Mapping[str, Any] | None = None,
        exactly: Collection[str] = (), channel: str | None = None,
    ) -> Grant:  # fmt: skip
        """Approve a call, and the next ones like it. Durable on return.

        The next calls keep all fields as they are in this one, and numbers may be smaller, from 0 on; a number whose
        name is that of an id stays equal. Where the gate needs two people, the grant does: whoever approves the same
        request with the same terms agrees to it.

        Args:
            request_id: Id, or a beginning of it that fits no other.
            count: How many more calls may start.
            lasts: When the grant ends, from now: `"1h"`.
            by: Who approves.
            changes: New values for some arguments; the grant is drawn from the changed call.
            comment: The program is told, and the record keeps it.
            seen: Fingerprint of what was looked at.
            here: Only in the run of this request; else in every run of the same program.
            without: Paths of fields that may be anything: `["note", "order.remark"]`.
            at_most: Smaller bounds of numbers, by path.
            exactly: Paths of numbers that must stay equal.
            channel: Through which channel, instead of this review's.

        Raises:
            GrantRefusedError: The gate wants a person for every call, or the terms are wider than the call.
            DecisionRefusedError: As for `approve`.
        """
        request, who, channel = self.get(request_id), self._who(by), channel or self.channel
        edited = None if changes is None or request.state is not State.PENDING else edited_call(request, changes)
        if edited is not None and edited.digest == request.effective.digest:
            edited = None
        words = storable(comment)
        decision = Decision("approve", who.identity, clock.now(), channel, words, "", edited is not None)
        looked_at = request.current_fingerprint if seen is None and edited is not None else seen
        after, grant = self.store.grant(
            request.id, decision, who=who, seen=looked_at, edited=edited, lasts=duration.parse(lasts), count=count,
            here=here, without=tuple(without), at_most=at_most, exactly=tuple(exactly),
        )  # fmt: skip
        telemetry.decided(after, "approve", channel)
        return grant

    def preview_grant(
        self, request_id: str, *, changes: Mapping[str, Any] | None = None, here: bool = False,
        without: Collection[str] = (), at_most: Mapping[str, Any] | None = None, exactly: Collection[str] = (),
        since: timedelta | str = "30d",
    ) -> tuple[Grant, Sequence[Request]]:  # fmt: skip
        """Return the grant that `grant` would make, and the earlier requests that it would have let through.

        Nothing is written. `since` says how far back it looks; of a tool no more than 2,000 requests are read.
        """
        request, now = self.get(request_id), clock.now()
        call = request.effective if changes is None else edited_call(request, changes)
        grant = Grant.of(
            request, call, count=1, until=now + timedelta(hours=1), now=now, here=here,
            without=tuple(without), at_most=at_most, exactly=tuple(exactly),
        )  # fmt: skip
        wanted, oldest = Filter(name=grant.tool, kind="call"), now - duration.parse(since)
        earlier = islice(requests_in(self.store, wanted, since=oldest), _MOST_EARLIER)
        return grant, [one for one in earlier if one.id != request.id and grant.lacks(one) is None]

    def grants(self, *, ended: bool = False) -> Sequence[Grant]:
        """Return the grants that count, newest first; with `ended`, those that were revoked or used up as well."""
        return self.store.grants(ended=ended)

    def agree(self, grant_id: str, *, by: Reviewer | str | None = None, channel: str | None = None) -> Grant:
        """Agree to a grant of another reviewer, where the gate needs several people. Durable on return."""
        found = self.store.find_grant(grant_id)
        return self.store.agree(found.id, self._who(by), channel=channel or self.channel)

    def revoke(
        self, grant_id: str, *, by: Reviewer | str | None = None, reason: str | None = None, channel: str | None = None
    ) -> Grant:
        """End a grant; what it approved and has not started waits for a person. Durable on return."""
        found, words = self.store.find_grant(grant_id), storable(reason)
        by_whom = self._who(by).identity
        return self.store.revoke_grant(found.id, by_whom, channel=channel or self.channel, reason=words)

    def stop(self, *, by: Reviewer | str | None = None, reason: str | None = None, channel: str | None = None) -> Stop:
        """Block every start, approved ones too, until `go`; no approval is spent. Durable on return."""
        words = storable(reason)
        return self.store.stop(self._who(by).identity, channel=channel or self.channel, reason=words)

    def go(self, *, by: Reviewer | str | None = None, reason: str | None = None, channel: str | None = None) -> bool:
        """Let calls start again; return whether they were stopped. Durable on return."""
        words = storable(reason)
        return self.store.go(self._who(by).identity, channel=channel or self.channel, reason=words)

    def stopped(self) -> Stop | None:
        """Return who stopped every start, when and why; None while calls start."""
        return self.store.stopped()

    # -- inside ------------------------------------------------------------------------------------------------

    def _who(self, by: Reviewer | str | None) -> Reviewer:
        if by is None:
            return self._reviewer or config.default_reviewer()
        return Reviewer(by) if isinstance(by, str) else by

    def _decide(
        self, request_id: str, verb: Verb, by: Reviewer | str | None, comment: str | None, seen: str | None,
        channel: str | None, *, edited: Call | None = None, answer: str | None = None, again: bool = False,
    ) -> Request:  # fmt: skip
        who, channel = self._who(by), channel or self.channel
        words = None if comment is None else storable(comment)
        decision = build_decision(
            verb=verb, by=who.identity, at=clock.now(), channel=channel, comment=words, fingerprint="",
            edited=edited is not None, answer=answer, again=again,
            held_for=self.undo_within if verb == "approve" else None,
        )  # fmt: skip
        is_whole = isinstance(request_id, str) and len(request_id) == ID_LENGTH  # pyright: ignore[reportUnnecessaryIsInstance]
        whole = request_id if is_whole else self.find(request_id)
        after = self.store.decide(whole, decision, roles=who.roles, seen=seen, edited=edited)
        return telemetry.decided(after, verb, channel)


def _one(name: str, value: T | None, old: str, old_value: T | None) -> T | None:
    """Return what was given under one of two names."""
    if value is not None and old_value is not None:
        raise TypeError(f"{old}= is the old name of {name}=; give one of them. Nothing was done")
    return old_value if value is None else value


def _must_be_id(given: object) -> None:
    if not isinstance(given, str):
        raise TypeError(
            f"a verb takes the id of one request, a text such as 'rq_3f61…', not {given!r}; nothing was done"
        )


def _states(state: State | str | Collection[State | str] | None) -> frozenset[State]:
    if state is None:
        return LIVE
    if isinstance(state, str):
        return frozenset() if state == "all" else frozenset({_state(state)})
    return frozenset(map(_state, state))


def _state(given: State | str) -> State:
    try:
        return State(given)
    except ValueError:
        from difflib import get_close_matches

        near = get_close_matches(str(given), list(State), 1)
        meant = f"did you mean '{near[0]}'?" if near else ""
        known = ", ".join(State)
        raise ValueError(f"there is no state {given!r}; {meant or f'there are {known}, and all'}") from None
