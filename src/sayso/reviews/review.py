"""The API of reviewers: list and decide requests, claim, comment, grant, delegate, snooze, and stop all starts.

Each verb reads the request, validates the reviewer's input, and calls the store, which checks everything again and
records the decision in one transaction. A refused decision raises a `sayso.errors.DecisionRefusedError` and changes
nothing. `sayso.aio.Review` is the async version.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from itertools import islice
from typing import Any, Literal

from sayso import audit, clock, config, errors, telemetry
from sayso.model import canonical, duration, lifecycle
from sayso.model.canonical.json_tree import dump
from sayso.model.edit import edited_call, schema_of
from sayso.model.grant import Grant
from sayso.model.ids import ID_LENGTH
from sayso.model.request import Call, Decision, Request, State, Verb
from sayso.model.reviewer import LOCAL, Delegation, Identity, Reviewer
from sayso.model.schema import SchemaError
from sayso.model.teamwork import LONGEST, Comment, comments_in
from sayso.model.text import is_blank, storable
from sayso.reviews.search import RequestPage, Search, states_of
from sayso.stores import workers
from sayso.stores.base import Filter, Store
from sayso.stores.grants import Stop
from sayso.stores.program import change_due
from sayso.stores.review import requests_in
from sayso.stores.transaction import LEASE

_MOST_EARLIER = 2_000
_PAGE = 50


class Review:
    """The verbs of a reviewer on one store.

    What a verb changes is durable on return, and a refused decision changes nothing. Verbs take `by=`, who decides.
    Unless they say otherwise, they return the request after the change.

    Args:
        store: A store or its address; None is the configured one.
        by: Who decides if a verb's own `by=` is not given; None is the configured reviewer (see `sayso.config`).
        reviewer: The older name of `by`.
        channel: The channel that the record names for the decisions.
        sweeps: Whether reading first records what has expired or was interrupted. If it is False, reading changes
            nothing (e.g. for a page that a browser prefetches), but gives the same results.
        undo_within: How long an approval can be undone; its call cannot start earlier. None: it can start at once.
    """

    def __init__(
        self, store: Store | str | None = None, *, by: Reviewer | str | None = None,
        reviewer: Reviewer | str | None = None, channel: str = "python", sweeps: bool = True,
        undo_within: timedelta | str | None = None,
    ) -> None:  # fmt: skip
        if by is not None and reviewer is not None:
            raise TypeError("reviewer= is the old name of by=; give one of them. Nothing was done")
        who = reviewer if by is None else by
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
        cursor: str | None = None, limit: int | None = None, newest: bool = False,
    ) -> RequestPage:  # fmt: skip
        """Return requests, oldest first: one page, over which a `for` loop iterates the whole list.

        Requests that have expired, and those started by a process that is gone, are recorded first (see `sweeps`). The
        filters have the same names in `sayso ls` and in the HTTP API; a request must match all that are given.

        Args:
            state: One state or several; by default all that are not final. `"all"` for every state.
            run: Only requests of this run.
            tool: Only calls of this function, by its name or `module:name`.
            risk: Only requests with this risk word.
            agent: Only requests of this program, by its name or `issuer:name`.
            kind: Only calls, or only questions.
            text: Only requests with each of these words in id, run, function, arguments, prompt or question.
            claimed_by: Only requests that this reviewer has claimed.
            older_than: Only requests that were asked at least this long ago: `"1h"`, `"7d"` or a `timedelta`.
            cursor: The `cursor` of the previous page.
            limit: The maximum number of requests, up to 1,000, both on the page and in a loop. Without it a page has
                50, and a loop over it continues to the end of the list.
            newest: Newest first.

        Raises:
            TypeError: A filter does not exist.
            ValueError: A state, cursor or limit is not valid.
            ConfigError: `older_than` is not a duration.
        """
        if limit is not None and not 0 < limit <= 1000:
            raise ValueError(f"limit must be between 1 and 1,000, not {limit}")
        search = self._search(
            state=state, run=run, tool=tool, risk=risk, agent=agent, kind=kind, text=text, claimed_by=claimed_by,
            older_than=older_than,
        )  # fmt: skip
        return self._page(search, cursor, limit=limit, newest=newest)

    def count(
        self, *, state: State | str | Collection[State | str] | None = None, run: str | None = None,
        tool: str | None = None, risk: str | None = None, agent: str | None = None,
        kind: Literal["call", "question"] | None = None, text: str | None = None,
        claimed_by: Reviewer | str | None = None, older_than: timedelta | str | None = None,
    ) -> int:  # fmt: skip
        """Return how many requests `list` would return with these filters, on all pages; raises as it does."""
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
            states=states_of(state), run_id=run, name=tool, risk=risk, text=text, kind=kind,
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
        """Return a request by its id or a unique prefix of it; `rq_` may be left out.

        Raises:
            TypeError: The id is not a text.
            RequestNotFoundError: No request has this id.
            AmbiguousIdError: Several requests begin with it.
        """
        _must_be_id(request_id)
        try:
            request = self.store.get(request_id)
        except errors.RequestNotFoundError:
            request = self.store.get(self.find(request_id))
        # Only what time or a dead worker may have changed must be recorded first.
        now = clock.now()
        if request.state is State.RUNNING or lifecycle.is_due(request, now) or lifecycle.escalate(request, now):
            return self.store.settle(request.id) if self.sweeps else self._as_it_stands(request)
        return request

    def _as_it_stands(self, request: Request) -> Request:
        """Return the request that `Store.settle` would write, without writing."""
        change = change_due(request, clock.now(), lambda: self.store.record(LEASE, request.id))
        return request if change is None else change.request

    def find(self, request_id: str) -> str:
        """Return the full id for an id or a prefix of it; raises as `get` does."""
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
        """Return whether the program that asked has certainly ended, and its run had no name.

        Then no program resumes by itself: an approval runs nothing, unless another program takes the request up by its
        id (`respond_to_confirmation`). False if the request is final, or if this process cannot tell (the program is on
        another machine or in another container).
        """
        return request.process is not None and not request.is_final and workers.is_gone(request.process)

    def same_effect(self, request: Request) -> Sequence[Request]:
        """Return the other requests with the effect of this one, in the order in which they were asked.

        While one of them is running, done or unknown, has stopped half-way, or was asked earlier, is open and has not
        been started, this one cannot start unless it is approved with `again`.
        """
        found = () if request.effect is None else self.store.by_effect(request.effect)
        return [other for other in found if other.id != request.id]

    # -- decide ------------------------------------------------------------------------------------------------

    def approve(
        self, request_id: str, *, by: Reviewer | str | None = None, changes: Mapping[str, Any] | None = None,
        arguments: Mapping[str, Any] | None = None, comment: str | None = None, seen: str | None = None,
        again: bool = False,
    ) -> Request:  # fmt: skip
        """Approve a call, unchanged or with other arguments. Durable on return.

        If the gate requires a quorum, the request stays `pending` until enough distinct reviewers have approved the
        same call; changing arguments restarts the count.

        Args:
            request_id: Id, or a unique prefix of it.
            by: Who approves.
            changes: New values for some arguments, merged over those of the current call. A name that neither the call
                nor its schema has is refused, unless the schema says that there may be others.
            arguments: All arguments, replacing the current ones; `{}` leaves only defaults. A shown mask
                stands for its real value.
            comment: Sent to the program and recorded.
            seen: Fingerprint of what the reviewer saw (`Request.current_fingerprint`); refused if it changed since.
            again: Let the call start although another request with its effect is running, was done or may have
                happened; `comment` must say why. With a quorum, everybody who approves must give it.

        Raises:
            ReasonMissingError: `again` has no comment.
            InvalidChangesError: The arguments do not fit the function's types.
            DecisionRefusedError: Or a subclass.
            RequestNotFoundError: No request has this id.
        """
        if not isinstance(again, bool):  # pyright: ignore[reportUnnecessaryIsInstance]  callers may be untyped
            raise TypeError(f"again= takes True or False, not {again!r}; nothing was decided")
        if changes is None and arguments is None:
            return self._decide(request_id, "approve", by, comment, seen, again=again)
        request = self.get(request_id)
        if request.state is not State.PENDING:  # the store reports who decided first
            return self._decide(request.id, "approve", by, comment, seen, again=again)
        edited = edited_call(request, changes, arguments)
        if edited.digest == request.effective.digest:
            edited = None  # nothing was changed, so it is a plain approval
        # Without `seen`, the call that this edit is based on must still be current when the decision is recorded.
        looked_at = request.current_fingerprint if seen is None else seen
        return self._decide(request.id, "approve", by, comment, looked_at, edited=edited, again=again)

    def reject(
        self, request_id: str, comment: str | None = None, *, by: Reviewer | str | None = None, seen: str | None = None
    ) -> Request:
        """Reject a call or question; the program gets `comment` as the reason.

        Durable on return; raises as `approve`.
        """
        return self._decide(request_id, "reject", by, comment, seen)

    def feedback(
        self, request_id: str, comment: str, *, by: Reviewer | str | None = None, seen: str | None = None
    ) -> Request:
        """Send a call back with a message to the program; it does not run. Durable on return; raises as `approve`."""
        return self._decide(request_id, "feedback", by, comment, seen)

    def answer(
        self, request_id: str, value: Any, *, by: Reviewer | str | None = None, comment: str | None = None
    ) -> Request:
        """Answer a question. The value is first validated by the question's type. Durable on return.

        Raises:
            InvalidAnswerError: The value does not fit the type; the question is still pending.
            DecisionRefusedError: Or a subclass.
        """
        request = self.get(request_id)
        if request.kind != "question" or request.state is not State.PENDING:
            return self._decide(request.id, "answer", by, comment, None)
        try:
            answer = dump(schema_of(request).fit({"answer": canonical.form_of(value)}))
        except SchemaError as error:
            raise errors.InvalidAnswerError(request.id, error.problems) from None
        except errors.ArgumentError as error:
            raise errors.InvalidAnswerError(request.id, [f"the answer {error.reason}"]) from None
        return self._decide(request.id, "answer", by, comment, None, answer=answer)

    def cancel(self, request_id: str, comment: str | None = None, *, by: Reviewer | str | None = None) -> Request:
        """Abort the run at this request, even if it was approved and has not started.

        Durable on return; raises as `approve`.
        """
        return self._decide(request_id, "cancel", by, comment, None)

    def undo(self, request_id: str, *, by: Reviewer | str | None = None) -> Request:
        """Undo one's own approval or vote within `undo_within`; the request is pending again. Durable on return.

        Raises:
            NotUndoneError: It is somebody else's, its time is over, or the call has started; nothing changed.
        """
        return self.store.undo(self.find(request_id), self._who(by).identity, channel=self.channel)

    # -- care --------------------------------------------------------------------------------------------------

    def claim(self, request_id: str, *, by: Reviewer | str | None = None) -> Request:
        """Claim a pending request: until it is released, nobody else can decide it. Durable on return.

        If it needs several approvals, one is the claimer's; others can still give the rest, without changes.

        Raises:
            ClaimedError: Somebody else has claimed it.
            DecisionRefusedError: Or another subclass.
        """
        who = self._who(by)
        return self.store.claim(self.find(request_id), who.identity, roles=who.roles, channel=self.channel)

    def assign(
        self, request_id: str, to: Reviewer | Identity | str, *, by: Reviewer | str | None = None, force: bool = False
    ) -> Request:
        """Claim a pending request for another reviewer. Durable on return.

        A `Reviewer` must have a required role. The roles of an `Identity`, or of a name of this machine, are checked
        only when they decide. `force` takes it from another reviewer who has claimed it. Raises as `claim`.
        """
        who, roles = self._who(by), to.roles if isinstance(to, Reviewer) else None
        return self.store.assign(
            self.find(request_id), who.identity, to=_identity_of(to), to_roles=roles, roles=who.roles, force=force,
            channel=self.channel,
        )  # fmt: skip

    def release(self, request_id: str, *, by: Reviewer | str | None = None, force: bool = False) -> Request:
        """Release a claimed request. `force` releases another reviewer's claim, and the record says so.

        Raises:
            NotClaimedError: Nobody has claimed it.
            ClaimedError: Somebody else has claimed it, and `force` was not given.
        """
        who = self._who(by)
        return self.store.release(
            self.find(request_id), who.identity, roles=who.roles, force=force, channel=self.channel
        )

    def extend(self, request_id: str, span: timedelta | str, *, by: Reviewer | str | None = None) -> Request:
        """Let a pending request or unused approval end `span` from now. Durable on return; raises as `approve`."""
        who = self._who(by)
        return self.store.extend(
            self.find(request_id), who.identity, roles=who.roles, span=duration.parse(span), channel=self.channel
        )

    def resolve(
        self, request_id: str, *, happened: bool, by: Reviewer | str | None = None, comment: str | None = None,
        force: bool = False, start: int = 1,
    ) -> Request:  # fmt: skip
        """Record whether a call with an unknown outcome had its effect. Durable on return.

        If it did not, its approval is used up nevertheless, unless the gate allows retries. A call whose worker ran on
        another machine or in another container stays `running` when that worker dies, because this process cannot
        check; `force` takes your word that the worker is gone. `start` is the number of the start that you examined
        (`request.execution.starts`); a later start is not resolved.

        Raises:
            TypeError: `happened` is not a bool. (`"no"` would count as true.)
            NotUnknownError: The outcome is not unknown.
            StaleViewError: It was started again since.
            DecisionRefusedError: Or another subclass.
        """
        if not isinstance(happened, bool):  # pyright: ignore[reportUnnecessaryIsInstance]  callers may be untyped
            raise TypeError(f"happened= takes True or False, not {happened!r}; nothing was decided")
        who, words = self._who(by), storable(comment)
        return self.store.resolve(
            self.find(request_id), who.identity, roles=who.roles, happened=happened, comment=words,
            channel=self.channel, force=force, start=start,
        )  # fmt: skip

    # -- grants and the stop -----------------------------------------------------------------------------------

    def grant(
        self, request_id: str, *, count: int, lasts: timedelta | str, by: Reviewer | str | None = None,
        changes: Mapping[str, Any] | None = None, comment: str | None = None, seen: str | None = None,
        here: bool = False, without: Collection[str] = (), at_most: Mapping[str, Any] | None = None,
        exactly: Collection[str] = (),
    ) -> Grant:  # fmt: skip
        """Approve a call and the next ones like it. Durable on return.

        In the next calls, fields must be equal to those of this one, and numbers may be smaller, down to 0; a number
        that is named like an id must be equal. If the gate needs two people, so does the grant: a reviewer who approves
        the same request with the same terms agrees to it.

        Args:
            request_id: Id, or a unique prefix of it.
            count: How many more calls may start.
            lasts: How long the grant lasts, from now: `"1h"`.
            by: Who approves.
            changes: New values for some arguments; the grant is derived from the changed call.
            comment: Sent to the program and recorded.
            seen: Fingerprint of what the reviewer saw.
            here: Whether it applies in this request's run only, instead of every run of the same program.
            without: Paths of fields that may have any value: `["note", "order.remark"]`.
            at_most: Lower upper bounds for numbers, by path.
            exactly: Paths of numbers that must be equal.

        Raises:
            GrantRefusedError: The gate requires a person for every call, or the terms are wider than the call.
            DecisionRefusedError: As for `approve`.
        """
        request, who = self.get(request_id), self._who(by)
        edited = None if changes is None or request.state is not State.PENDING else edited_call(request, changes)
        if edited is not None and edited.digest == request.effective.digest:
            edited = None
        words = storable(comment)
        decision = Decision("approve", who.identity, clock.now(), self.channel, words, "", edited is not None)
        looked_at = request.current_fingerprint if seen is None and edited is not None else seen
        after, grant = self.store.grant(
            request.id, decision, who=who, seen=looked_at, edited=edited, lasts=duration.parse(lasts), count=count,
            here=here, without=tuple(without), at_most=at_most, exactly=tuple(exactly),
        )  # fmt: skip
        telemetry.decided(after, "approve", self.channel)
        return grant

    def preview_grant(
        self, request_id: str, *, changes: Mapping[str, Any] | None = None, here: bool = False,
        without: Collection[str] = (), at_most: Mapping[str, Any] | None = None, exactly: Collection[str] = (),
        since: timedelta | str = "30d",
    ) -> tuple[Grant, Sequence[Request]]:  # fmt: skip
        """Return the grant that `grant` would create, and the earlier requests that it would have allowed.

        Nothing is written. `since` limits how far back it looks; at most 2,000 requests of the tool are read.
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
        """Return the grants in force, newest first; with `ended`, also those that were revoked or used up."""
        return self.store.grants(ended=ended)

    def agree(self, grant_id: str, *, by: Reviewer | str | None = None) -> Grant:
        """Agree to another reviewer's grant, if the gate needs several people. Durable on return."""
        found = self.store.find_grant(grant_id)
        return self.store.agree(found.id, self._who(by), channel=self.channel)

    def revoke(self, grant_id: str, *, by: Reviewer | str | None = None, reason: str | None = None) -> Grant:
        """End a grant. Calls that it approved and that have not started wait for a person. Durable on return."""
        found, who = self.store.find_grant(grant_id), self._who(by).identity
        return self.store.revoke_grant(found.id, who, channel=self.channel, reason=storable(reason))

    def stop(self, *, by: Reviewer | str | None = None, reason: str | None = None) -> Stop:
        """Block every start, even of approved calls, until `go`. No approval is used up. Durable on return."""
        return self.store.stop(self._who(by).identity, channel=self.channel, reason=storable(reason))

    def go(self, *, by: Reviewer | str | None = None, reason: str | None = None) -> bool:
        """Let calls start again; return whether they were stopped. Durable on return."""
        return self.store.go(self._who(by).identity, channel=self.channel, reason=storable(reason))

    def stopped(self) -> Stop | None:
        """Return who stopped every start, when and why; None if calls can start."""
        return self.store.stopped()

    # -- work together ------------------------------------------------------------------------------------------

    def comment(self, request_id: str, text: str, *, by: Reviewer | str | None = None) -> Request:
        """Comment on a request in any state, for its other reviewers. Durable on return.

        The journal stores it, with the names after an `@` as mentions. It decides nothing, is not sent to the program,
        and values that are masked in the call are masked in it.

        Raises:
            ValueError: The text is empty or longer than 20,000 characters; nothing was written.
        """
        words = storable(text).strip()
        if is_blank(words) or len(words) > LONGEST:
            raise ValueError(f"a comment has 1 to {LONGEST:,} characters, not {len(words):,}; nothing was written")
        who, whole = self._who(by), self.find(request_id)
        return self.store.comment(whole, who.identity, text=words, channel=self.channel)

    def comments(self, request_id: str) -> Sequence[Comment]:
        """Return the comments on a request, oldest first."""
        request = self.get(request_id)
        return comments_in(audit.entries(self.store, run_id=request.run_id, request_id=request.id))

    def mentions(self, *, by: Reviewer | str | None = None) -> frozenset[str]:
        """Return the ids of requests with a comment that mentions this reviewer, without a later comment by them.

        While they stand in for somebody, mentions of that person count too.
        """
        return self.store.mentions(self._who(by).identity)

    def delegate(
        self, to: Reviewer | Identity | str, until: datetime | timedelta | str, *, by: Reviewer | str | None = None
    ) -> Delegation:
        """Record that this reviewer is away and that `to` stands in. Durable on return.

        `to` can then decide what is assigned to this reviewer, and sees it in lists together with the reviewer's
        mentions. It gives no role and no vote: `to` decides in their own name, and only what they may decide anyway. It
        ends automatically, replaces an earlier one, and is not followed further than one step.

        Args:
            to: Who stands in; a text is the name of a person of this machine.
            until: An instant, a duration from now, or ISO 8601 (UTC if it has no offset): `"3d"`, `"2026-11-27 09:00"`.
            by: Who is away.

        Raises:
            ConfigError: `until` is neither a time nor a duration.
            ValueError: The time is past, or they named themselves; nothing was changed.
        """
        end = duration.until(until, self.store.now())
        return self.store.delegate(self._who(by).identity, to=_identity_of(to), until=end, channel=self.channel)

    def end_delegation(self, *, by: Reviewer | str | None = None) -> bool:
        """Record that this reviewer is back; return whether they were away. Durable on return."""
        return self.store.end_delegation(self._who(by).identity, channel=self.channel)

    def delegations(self) -> Sequence[Delegation]:
        """Return the delegations that are in force."""
        return self.store.delegations()

    def snooze(
        self, request_id: str, span: datetime | timedelta | str | None, *, by: Reviewer | str | None = None
    ) -> Request:  # fmt: skip
        """Hide a pending request from this reviewer's inbox for a while; None shows it again. Durable on return.

        `span` may also be an instant, as in `delegate`. For everybody else the request is unchanged, and so is its end.
        Raises `DecisionRefusedError` if it would expire before.
        """
        until = None if span is None else duration.until(span, self.store.now())
        return self.store.snooze(self.find(request_id), self._who(by).identity, until=until)

    def snoozed(self, *, by: Reviewer | str | None = None) -> Mapping[str, datetime]:
        """Return the ids of the pending requests that this reviewer has snoozed, and until when."""
        return self.store.snoozes(self._who(by).identity)

    # -- inside ------------------------------------------------------------------------------------------------

    def _who(self, by: Reviewer | str | None) -> Reviewer:
        if by is None:
            return self._reviewer or config.default_reviewer()
        return Reviewer(by) if isinstance(by, str) else by

    def _decide(
        self, request_id: str, verb: Verb, by: Reviewer | str | None, comment: str | None, seen: str | None, *,
        edited: Call | None = None, answer: str | None = None, again: bool = False,
    ) -> Request:  # fmt: skip
        who = self._who(by)
        decision = Decision(
            verb=verb, by=who.identity, at=clock.now(), channel=self.channel, fingerprint="",
            comment=None if comment is None else storable(comment),
            edited=edited is not None, answer=answer, again=again,
            held_for=self.undo_within if verb == "approve" else None,
        )  # fmt: skip
        if not isinstance(request_id, str) or len(request_id) != ID_LENGTH:  # pyright: ignore[reportUnnecessaryIsInstance]
            request_id = self.find(request_id)
        after = self.store.decide(request_id, decision, roles=who.roles, seen=seen, edited=edited)
        return telemetry.decided(after, verb, self.channel)


def _must_be_id(given: object) -> None:
    if not isinstance(given, str):
        raise TypeError(f"pass the id of one request, a string such as 'rq_3f61…', not {given!r}; nothing was done")


def _identity_of(who: Reviewer | Identity | str) -> Identity:
    """Return the identity of a reviewer; a text is the name of a person of this machine."""
    return Identity(LOCAL, who) if isinstance(who, str) else who.identity if isinstance(who, Reviewer) else who
