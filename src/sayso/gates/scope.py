"""The run in which a call is made: a named run, or the run of the current thread or asyncio task.

A decision applies only in its run. `run("order-4721")` names a run that lasts across processes. Without a name, each
thread and each asyncio task has its own: a child task also sees its parents' decisions; siblings, other threads, forked
processes and jobs of a thread pool share nothing. A pool's thread with its caller's context (`asyncio.to_thread`) is
like a child task; another thread that was given a context is in its run. Leaving a run ends everything that began
inside it. A `CallSite` has, for one call, the runs whose decisions apply, the
people it acts for, and what its gate requires. `FinishedCalls` is implemented by `sayso.runs`.
Invariant: a person for whom a call is made cannot decide it; outside a named run, that is everybody for whom this
process acts.
"""

from __future__ import annotations

import inspect
import os
import sys
import threading
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ContextDecorator
from contextvars import ContextVar, Token
from functools import partial, wraps
from itertools import islice
from types import FrameType
from typing import Any, NamedTuple, ParamSpec, Protocol, TypeVar, cast
from weakref import ref

from sayso.effects import Attempt, in_forked_child, left_to_run
from sayso.errors import ConfigError
from sayso.gates import interruptions
from sayso.model.ids import new_run_id
from sayso.model.parameters import runs_later
from sayso.model.request import Call, Request, State
from sayso.model.reviewer import Escalation, Identity, Quorum, Reviewer
from sayso.model.run import RunUpdate
from sayso.stores.program import ProgramStore

_F = TypeVar("_F", bound="Callable[..., Any]")
_P = ParamSpec("_P")
_T = TypeVar("_T")
_GENERATOR = inspect.CO_GENERATOR | inspect.CO_ASYNC_GENERATOR


class CallSite(NamedTuple):
    """Where a call is made and for whom, and what its gate requires of an approval there.

    A key and a place both distinguish the calls of a run. A place is the position in the run's own code, by which a
    resumed run finds the request. A key is the outside world's name for the occasion, and finds the request forever,
    anywhere in the run. A call may have both: the request is found by its key, and its place is recorded.

    Attributes:
        run_ids: The runs whose decisions apply: the own run first, then those of parent tasks.
        adopted: Requests that were decided here, by digest of their call.
        acts_for: The persons for whom the program acts, that of the innermost run first; none of them may decide.
        has_name: Whether the own run has a name or an id of its own, so that later calls of it can find a key.
        is_local: Whether that id was made by `sayso.run()` without a name, so that only this process comes back.
        place: The call's place in the run, if the run distinguishes places.
        context: What the program knows about the call: JSON values.
        pool: The thread pool in which the call is made, if no program could come back to it; then nothing is asked.
        key: The key of this call, if it is known before the gate computes one.
        quorum: Who must approve.
        escalation: Who else may decide after the request has waited for a while.
        retries: How often a failed call may be started again; the record may allow less.
        idempotent: Whether it may be started again however it ended, if the record says so too.
    """

    run_ids: Sequence[str]
    adopted: Mapping[str, str]
    acts_for: tuple[Identity, ...] = ()
    has_name: bool = True
    is_local: bool = False
    place: str = ""
    context: Mapping[str, Any] | None = None
    pool: str | None = None
    key: str | None = None
    quorum: Quorum = Quorum()
    escalation: Escalation | None = None
    retries: int = sys.maxsize
    idempotent: bool = True

    @property
    def name(self) -> str | None:
        """The name of the own run, by which another process can resume it; None if it was given none."""
        return self.run_ids[0] if self.has_name and not self.is_local else None

    def lack_of(self, request: Request) -> str | None:
        """Return why an open or approved request has less than is required; None if it has enough."""
        if request.quorum is not self.quorum and not request.quorum.covers(self.quorum):
            return f"it requires {request.quorum}, and the gate now requires {self.quorum}"
        theirs, last = request.escalation, request.execution
        if self.quorum.roles and theirs is not None and theirs != self.escalation:
            # Somebody may decide, or has decided, only because of an escalation that is not the gate's.
            is_open_to_them = request.state is State.PENDING or request.escalated_at is not None
            if is_open_to_them and not theirs.is_within(self.escalation):
                return f"its escalation lets {theirs} decide, and the gate's does not"
        if last is not None and not (request.idempotent and self.idempotent):
            before, allowed = last.attempt - (request.state is State.RUNNING), min(request.retries, self.retries)
            if before > allowed:
                times = f"{before} time{'s' if before > 1 else ''}"
                return f"it was started {times}, and the gate now allows {allowed + 1}"
        if not self.acts_for:
            return None
        if request.state is State.PENDING:
            new = [person for person in self.acts_for if person not in request.acts_for]
            return f"the program now acts for {', '.join(map(str, new))}, who could decide it" if new else None
        deciders = [vote.by for vote in request.votes]
        if request.decision is not None:
            deciders.append(request.decision.by)
        own = [by for by in deciders if any(by.may_be(person) for person in self.acts_for)]
        return f"it was decided by {own[0]}, for whom the program acts" if own else None

    def joined(self, request: Request) -> CallSite:
        """Return what to require in place of `request`: what it required, and what is required now."""
        also = tuple(person for person in request.acts_for if person not in self.acts_for)
        mine, theirs = self.escalation, request.escalation
        both = mine if mine is not None and mine.is_within(theirs) else theirs
        escalation = both if both is not None and both.is_within(mine) else None
        return self._replace(
            quorum=self.quorum.joined(request.quorum), acts_for=self.acts_for + also, escalation=escalation
        )


executing: ContextVar[tuple[Request, ...]] = ContextVar("sayso_executing", default=())
"""The requests whose call or `verify=` hook runs in this context, the innermost last."""


class Recalled(Protocol):
    """What a run has recorded about one gated call."""

    @property
    def known(self) -> Attempt | None:
        """How it ended in an earlier pass; None if it must be made."""
        ...

    def is_over(self, request: Request) -> bool:
        """Return whether the approval of this call was limited to a time that is over."""
        ...

    def snapshot(self, attempt: Attempt) -> RunUpdate | None:
        """Record its result; return what to save of the run together with its outcome."""
        ...


class FinishedCalls(Protocol):
    """A run that calls its handlers again from the beginning, and knows which gated calls they had finished."""

    def recall(self, gate: Any, store: ProgramStore, arguments: Mapping[str, Any]) -> Recalled | None:
        """Return what is known of this call; None if the run cannot store it."""
        ...


class Scope:
    """A run, as this process sees it.

    Attributes:
        run_id: Its id, or the name that it was given.
        parent: The scope of the task that started this one.
        acts_for: The persons for whom it acts, innermost run first.
        adopted: Requests that were decided here, by digest of their call.
        raised: Requests for which this run's calls wait or waited, by id.
        responses: The responses given with `respond_to_confirmation` here, by id.
        finished_calls: The calls that ended here before, if handlers are called again.
        at: The place in a journaled run; what is asked there belongs to this place.
        occasions: How often an equal question was answered here, by digest.
        outer: The run inside which this one was opened.
        open_calls: Requests of calls that blocked here and may be made again (their timeout passed, or they failed with
            a retry left), by digest of their call. Without a name, a blocking call finds no others.
        ended: Why nothing that began here may wait or start any more; None before that.
        is_left: Whether its block was left.
        generators: The frames of the generators inside of which this run was opened.
        is_in_generator: Whether a generator opened this run, or one around it.
        suspended: The frames of the generators with an open run that were suspended when this run was opened.
    """

    def __init__(
        self, run_id: str, *, parent: Scope | None = None, owner: _Owner | None = None,
        acts_for: tuple[Identity, ...] = (), outer: Scope | None = None, is_local: bool = False,
    ) -> None:  # fmt: skip
        self.run_id = run_id
        self.parent = parent
        self.owner = owner
        self.outer = outer
        self.open_calls: dict[str, str] = {}
        self.ended: str | None = None
        self.is_left = False
        self.generators: frozenset[FrameType] = frozenset()
        self.is_in_generator = False
        self.suspended: frozenset[FrameType] = frozenset()
        self._waits: dict[object, Callable[[str], None]] = {}
        self.acts_for = acts_for
        self.adopted: dict[str, str] = {}
        site = CallSite((run_id,), self.adopted, acts_for, has_name=owner is None, is_local=is_local)
        self._site = site if parent is None else None
        self.raised: dict[str, None] = {}
        self.responses: dict[str, dict[str, Any]] = {}
        self.finished_calls: FinishedCalls | None = None
        self.at = ""
        self.occasions: dict[str, int] = {}

    def lineage(self) -> Iterator[Scope]:
        """Yield this scope and those of its parents."""
        scope: Scope | None = self
        while scope is not None:
            yield scope
            scope = scope.parent

    def adopt(self, request: Request) -> None:
        """Let the decision on a call that was made here count for the next equal call; a key finds its own request."""
        if isinstance(request.subject, Call) and request.key is None:
            self.adopted[request.subject.digest] = request.id

    def forget(self, request_id: str) -> None:
        """Forget a request that was executed or cleared, in this scope and in those of its parents."""
        scope: Scope | None = self
        while scope is not None:
            scope.raised.pop(request_id, None)
            scope.responses.pop(request_id, None)
            for known in (scope.adopted, scope.open_calls):
                if request_id in known.values():
                    for digest in [digest for digest, found in known.items() if found == request_id]:
                        del known[digest]
            scope = scope.parent

    def end(self, reason: str) -> None:
        """End every wait that began in this run, in any thread; its calls can no longer start."""
        with _ending:  # a wait that begins meanwhile is either among these, or sees that the run has ended
            self.ended = self.ended or reason
            waits = list(self._waits.values())
        for callback in waits:
            callback(self.ended)

    def on_end(self, callback: Callable[[str], None]) -> Callable[[], object]:
        """Call back with the reason when this run ends or has ended; the returned function undoes that."""
        mine = object()
        with _ending:
            self._waits[mine] = callback
        if self.ended is not None:
            callback(self.ended)
        return partial(self._waits.pop, mine, None)

    def enclosing(self) -> Iterator[Scope]:
        """Yield this run and those inside which it was opened."""
        scope: Scope | None = self
        while scope is not None:
            yield scope
            scope = scope.outer

    @property
    def pool(self) -> str | None:
        """The thread pool to which this nameless run belongs, so that no program could come back to it."""
        job = None if self.owner is None else self.owner.job
        return None if job is None or job.is_lent else job.pool

    def call_site(self, *, blocks: bool) -> CallSite:
        """Return the call site for a call of this run.

        In a run without a name, a blocking call is a run of its own, to which no earlier decision applies, and one that
        raises asks nothing in a pool's thread, because no program could come back to it.
        """
        if self._site is not None and self.owner is None:
            return self._site
        if blocks:
            return CallSite((new_run_id(),), self.open_calls, self.site.acts_for, has_name=False)
        pool = self.pool
        return self.site if pool is None else self.site._replace(pool=pool)

    @property
    def site(self) -> CallSite:
        """What the gate needs to know about this scope."""
        if self._site is not None and (self._site.has_name or not _acting):
            return self._site
        lineage = tuple(self.lineage())
        adopted: dict[str, str] = {}
        for scope in reversed(lineage):
            adopted |= scope.adopted
        return CallSite(tuple(scope.run_id for scope in lineage), adopted, _merged(_acting.values()), has_name=False)


class _Owner:
    """The process, thread, task and pool job for which a nameless scope was created."""

    def __init__(self, task: Any, job: interruptions.Job | None) -> None:
        self.process = os.getpid()
        self.thread = threading.get_ident()
        self.task = None if task is None else ref(task)
        self.job = job

    @property
    def is_over(self) -> bool:
        return self.job is not None and self.job.is_over


# The persons for whom the open runs of this process act: a call outside any run may come from one of them through a
# thread pool, which loses the context. One key per open run; setting, deleting and copying are atomic.
_acting: dict[object, tuple[Identity, ...]] = {}
_ending = threading.Lock()


@in_forked_child
def _after_fork() -> None:
    global _ending  # noqa: PLW0603  the thread that held it does not exist in the child
    _ending = threading.Lock()


_scope: ContextVar[Scope | None] = ContextVar("sayso_scope", default=None)
_MOST_IN_LINEAGE = 64
_handed: ContextVar[tuple[Scope, int] | None] = ContextVar("sayso_handed", default=None)
"""The scope that a task gave to the thread which it awaits, and that thread; see `in_this_run`."""


def current_task() -> Any:
    """Return the current asyncio task, if there is one."""
    # If asyncio is not loaded there is no task, and importing it costs more than the rest of sayso. Outside a loop
    # `current_task` raises, which costs more than everything else here, so check for a loop first.
    asyncio = sys.modules.get("asyncio")
    if asyncio is None or asyncio._get_running_loop() is None:  # noqa: SLF001  documented for exactly this use
        return None
    return asyncio.current_task()


def current() -> Scope:
    """Return the scope of this call; creates one if the thread or task has none yet."""
    scope = _scope.get()
    while scope is not None and scope.owner is not None and scope.owner.is_over:
        scope = scope.parent  # of an earlier job of this context, which asgiref also gives back to its caller's task
    owner = None if scope is None else scope.owner
    if scope is not None and owner is None:
        if scope.suspended:
            _must_not_be_resumed(scope)
        return scope  # a named run applies to everything inside it
    task = current_task()
    is_here = owner is not None and _covers(owner, task)
    is_own_thread = owner is not None and owner.thread == threading.get_ident()
    job = None if task is not None or (is_here and is_own_thread) else interruptions.job()
    if is_here and (job is None or _handed.get() == (scope, threading.get_ident())):
        return cast("Scope", scope)
    # A scope of another process is no parent. One that a pool's thread got with its caller's context is no more than
    # that: it may be the one of the caller's parent, and so others' as well.
    is_parent = task is not None and owner is not None and owner.process == os.getpid()
    is_parent = is_parent or is_here
    fresh = Scope(new_run_id(), parent=scope if is_parent else None, owner=_Owner(task, job))
    for oldest in islice(fresh.lineage(), _MOST_IN_LINEAGE - 1, None):
        oldest.parent = None  # a program may begin one task after the other in one context, for ever
    if job is None or not job.is_over:
        _scope.set(fresh)
    return fresh


def in_this_run(function: Callable[_P, _T]) -> Callable[_P, _T]:
    """Return a function that is in this task's run also in a thread with its context that the task awaits."""
    here = current()

    def run_here(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        _handed.set((here, threading.get_ident()))  # in a context of its own, which its own threads inherit
        return function(*args, **kwargs)

    return run_here


def acts_for() -> tuple[Identity, ...]:
    """Return the persons for whom a call made here acts; outside a named run, all for whom this process acts."""
    scope = _scope.get()
    if scope is not None and scope.owner is None:
        return scope.acts_for
    return _merged(_acting.values()) if _acting else ()


def _covers(owner: _Owner, task: Any) -> bool:
    if owner.process != os.getpid() or owner.is_over:
        return False  # a forked child, or the pool's next caller, has the context but is somebody else
    if task is not None:
        return owner.task is not None and owner.task() is task
    if owner.thread == threading.get_ident():
        return True
    # Another thread without a task was given this context on purpose, unless threads inherit contexts automatically.
    return not getattr(sys.flags, "thread_inherit_context", False)


class run(ContextDecorator):  # noqa: N801  it is used as a function
    """Name the run of everything inside the block; `as` gets its id.

    A decision applies in its run, in this process and in any later one that names the run again, so a restarted program
    asks nothing twice. Give every piece of work its own name (an order's number, not the program's name).

    Leaving the block, at its end or by an error or cancellation, ends every wait that began inside it, in any thread or
    task: the call raises `ConfirmationCancelled` and does not run, whatever is decided later. If the run has a name,
    its request stays pending for the next process of the run; otherwise it is withdrawn.

    Args:
        name: At most 200 characters, none of them invisible; a new random id by default.
        on_behalf_of: The person for whom the program acts; may not decide what it asks, whoever vouches for the name:
            `ada` excludes every `ada` and every `ada@host`; `ada@host` excludes itself and `ada`. A run inside another
            one acts for that one's person too. While the block is open, they may not decide either what this process
            asks outside any run, e.g. in a thread of a pool, because it may be doing this run's work.

    As a decorator, `@sayso.run("tidy")`, it opens a run for each call of a function; for an `async def`, until that has
    ended.

    Raises:
        ValueError: The name is empty, too long, or contains invisible characters.
        ConfigError: The decorated function is a generator or a context manager, whose body runs in its caller's
            context; or the block is left in another context than it was entered in, as by a sync dependency of FastAPI,
            or before a run that was opened later, as by generators that are consumed in turn.
        TypeError: A decorated plain function returned a coroutine or a generator, which has not run.
    """

    def __init__(self, name: str | None = None, *, on_behalf_of: Reviewer | Identity | str | None = None) -> None:
        self._name = None if name is None else checked_name(name)
        person = Reviewer(on_behalf_of) if isinstance(on_behalf_of, str) else on_behalf_of
        if person is not None and not isinstance(person, Identity | Reviewer):  # pyright: ignore[reportUnnecessaryIsInstance]  callers may be untyped
            raise TypeError(f"on_behalf_of= takes a name or a sayso.Reviewer, not {person!r}; no run was begun")
        self._person = person.identity if isinstance(person, Reviewer) else person
        self._open: list[tuple[Scope, Token[Scope | None]]] = []

    def __enter__(self) -> str:
        run_id = new_run_id() if self._name is None else self._name
        # Not only the caller: a context manager or an ExitStack may open the run for a generator.
        generators = frozenset([frame for frame in _stack() if frame.f_code.co_flags & _GENERATOR])
        self._open.append(enter(run_id, self._person, generators, is_local=self._name is None))
        return run_id

    def __exit__(self, *_: object) -> None:
        leave(*self._open.pop())

    def __call__(self, function: _F) -> _F:
        """Return the function with a run around each of its calls."""
        named = getattr(function, "__qualname__", repr(function))
        if runs_later(function):
            raise ConfigError(
                f"{named} is a generator, or a context manager made of one: its body runs where its caller is, outside"
                " of the run; write `with sayso.run(...):` around the loop that consumes a generator, or inside of a"
                " context manager"
            )
        made: Callable[..., Any]
        if inspect.iscoroutinefunction(function):

            async def in_run_async(*args: Any, **kwargs: Any) -> Any:
                with self._recreate_cm():
                    return await function(*args, **kwargs)

            made = in_run_async
        else:

            def in_run(*args: Any, **kwargs: Any) -> Any:
                with self._recreate_cm():
                    value = function(*args, **kwargs)
                    left = left_to_run(value)
                    if left is None or left[1]:
                        return value
                    raise TypeError(
                        f"{named} returned {left[0]}, which would run outside of its run; make it `async def`"
                    )

            made = in_run
        return cast("_F", wraps(function)(made))

    def _recreate_cm(self) -> run:  # each call of a decorated function enters its own run
        return run(self._name, on_behalf_of=self._person)


def enter(
    run_id: str, person: Identity | None = None, generators: frozenset[FrameType] = frozenset(), *,
    is_local: bool = False,
) -> tuple[Scope, Token[Scope | None]]:  # fmt: skip
    """Enter a run with a valid id, as `run` does; return its scope and what `leave` needs."""
    before = _scope.get()
    acts_for = () if before is None else before.acts_for
    if person is not None:
        acts_for = _merged([(person, *acts_for)])
    is_here = before is None or before.owner is None or _covers(before.owner, current_task())
    scope = Scope(run_id, acts_for=acts_for, outer=before if is_here else None, is_local=is_local)
    scope.generators, outer = generators, scope.outer
    scope.is_in_generator = bool(generators) or (outer is not None and outer.is_in_generator)
    if outer is not None and outer.is_in_generator:
        open_frames = frozenset[FrameType]().union(*(run.generators for run in outer.enclosing()))
        scope.suspended = frozenset(open_frames.difference(_stack()))
        _must_not_be_resumed(outer)
    if scope.acts_for:
        _acting[scope] = scope.acts_for
    return scope, _scope.set(scope)


def leave(scope: Scope, token: Token[Scope | None]) -> None:
    """Leave a run, and end every wait in it.

    Raises:
        ConfigError: It is left in another context than it was entered in, or before a run that was opened later.
    """
    scope.end("its run was left while it waited")
    _acting.pop(scope, None)
    scope.is_left, scope.generators, scope.suspended = True, frozenset(), frozenset()  # frames keep values alive
    last, error = _scope.get(), sys.exc_info()[1]
    try:
        _scope.reset(token)
    except ValueError:
        if isinstance(error, GeneratorExit) or type(error).__name__ == "CancelledError":
            return  # a coroutine or generator may be closed in a context without it; by asyncio, also with the latter
        raise ConfigError(
            f"the run {scope.run_id!r} was left in another context than it was entered in, so the calls in between were"
            " not in the run; if a FastAPI dependency or a fixture enters it, make that function"
            " `async def`"
        ) from None
    now = _scope.get() if last is scope else last
    while now is not None and now.is_left:  # it was left before one that was opened later
        now = now.outer
    if now is not _scope.get():
        _scope.set(now)
    if last is not scope and last is not None and error is None:  # else that says why, or a generator ends
        raise ConfigError(
            f"the run {scope.run_id!r} was left before {last.run_id!r}, which was opened later. {_ADVICE}"
        )


def _must_not_be_resumed(scope: Scope) -> None:
    """Check that no generator goes on in a run that was opened while the generator was suspended in its own."""
    for frame in filter(scope.suspended.__contains__, _stack()):
        raise ConfigError(
            f"{frame.f_code.co_qualname} goes on in the run {scope.run_id!r}, which was opened while it was suspended,"
            f" and not in its own; nothing ran. {_ADVICE}"
        )


_ADVICE = (
    "A run that a generator opens is its consumer's as well until the generator leaves it: open it around the loop that"
    " consumes the generator, or around each part between two yields"
)


def _stack() -> list[FrameType]:
    """Return the frames that are executing here, the innermost first."""
    found, frame = list[FrameType](), inspect.currentframe()
    while frame is not None:
        found.append(frame)
        frame = frame.f_back
    return found


def _merged(groups: Iterable[tuple[Identity, ...]]) -> tuple[Identity, ...]:
    """Return all persons in these groups, each once."""
    return tuple(dict.fromkeys(person for group in list(groups) for person in group))


def checked_name(name: str) -> str:
    """Return a run's name if it can be stored and displayed.

    Raises:
        TypeError: The name is not a text.
        ValueError: The name cannot be stored or displayed.
    """
    if not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance]  callers may be untyped
        raise TypeError(f"a run's name is a string, not {name!r}")
    if not name or name != name.strip() or len(name) > 200:
        raise ValueError(f"a run's name has 1 to 200 characters and no white space around it, not {name!r}")
    is_plain = name.isascii() and name.isprintable()  # usually true, and then no character needs to be looked up
    if not is_plain and any(unicodedata.category(c) in {"Cc", "Cf", "Cs", "Zl", "Zp"} for c in name):
        raise ValueError(f"a run's name must not contain invisible characters, as {name!r} does")
    return name
