"""The run in which a call is made: a named run, or the run of the current thread or asyncio task.

A decision counts only in its run. `run("order-4721")` names a run that lasts across processes. Without a name, each
thread and each asyncio task has its own: a child task also sees its parents' decisions; siblings, other threads, forked
processes and jobs of a thread pool share nothing. A thread with its caller's context (`asyncio.to_thread`) is in its
caller's run. Leaving a run ends everything that began inside it. Invariant: the person for whom a call may be made
cannot decide it; in doubt, that is everybody for whom this process acts.
"""

from __future__ import annotations

import inspect
import os
import sys
import threading
import unicodedata
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import ContextDecorator, contextmanager
from contextvars import ContextVar, Token
from functools import cache, partial, wraps
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar, cast
from weakref import ref

from sayso.effects import Attempt, left_to_run
from sayso.errors import ConfigError
from sayso.gates import threads
from sayso.model.ids import new_run_id
from sayso.model.parameters import runs_later
from sayso.model.request import Execution, Request, State
from sayso.model.reviewer import PROGRAM, Escalation, Identity, Quorum, Reviewer
from sayso.model.run import RunUpdate
from sayso.stores.program import ProgramStore

_LONGEST_NAME = 200
_F = TypeVar("_F", bound="Callable[..., Any]")


class Occasion(NamedTuple):
    """Where a call stands and for whom it is made, and what its gate asks of an approval there.

    A key and a place both tell one call of a run from another. A place is where the run's own code stands, so a run
    that is resumed finds the request by it; a key is what the world calls the occasion, and finds the request for ever,
    wherever in the run it is used. A call may have both: the request is found by its key, and its place is recorded.

    Attributes:
        run_ids: The runs whose decisions count: the own run first, then those of parent tasks.
        adopted: Requests that were decided from here, by digest of their call.
        acts_for: The persons for whom the program acts, that of the innermost run first; none of them may decide.
        has_name: Whether the own run has a name, by which another process can go on with it.
        place: Where in the run the call stands, if the run tells its places apart.
        context: What the program knows about the call: JSON values.
        pool: The pool in whose thread the call stands, where nobody could come back to what is asked: nothing is asked.
        key: The key of this very call, where it is known before the gate makes one.
        quorum: Who must agree.
        escalation: Who else may decide when the request has waited for long.
        retries: How many further starts a call that failed may have; the record may give fewer.
        idempotent: Whether it may be started again however it ended, if the record says so too.
    """

    run_ids: Sequence[str]
    adopted: Mapping[str, str]
    acts_for: tuple[Identity, ...] = ()
    has_name: bool = True
    place: str = ""
    context: Mapping[str, Any] | None = None
    pool: str | None = None
    key: str | None = None
    quorum: Quorum = Quorum()
    escalation: Escalation | None = None
    retries: int = sys.maxsize
    idempotent: bool = True

    def lack_of(self, request: Request) -> str | None:
        """Return why a request that waits, or that was approved, is less than is asked for; None where it is not."""
        if request.quorum is not self.quorum and not request.quorum.covers(self.quorum):
            return f"it was asked of {request.quorum}, and the gate wants {self.quorum} now"
        if self.quorum.roles and self._is_too_open(request):
            return f"it is, or will be, open to {request.escalation} too, and the gate does not want that now"
        if request.execution is not None and (lacks := self._no_start_left(request, request.execution)) is not None:
            return lacks
        if not self.acts_for:
            return None
        if request.state is State.PENDING:
            new = [person for person in self.acts_for if person not in request.acts_for]
            return f"the program acts for {', '.join(map(str, new))} now, who could decide it" if new else None
        deciders = [vote.by for vote in request.votes]
        if request.decision is not None:
            deciders.append(request.decision.by)
        own = [by for by in deciders if any(by.may_be(person) for person in self.acts_for)]
        return f"it was decided by {own[0]}, for whom the program acts" if own else None

    def _is_too_open(self, request: Request) -> bool:
        """Say whether somebody decided, or may still decide, whom only an escalation lets in that is not the gate's."""
        theirs = request.escalation
        if theirs is None or (request.state is not State.PENDING and request.escalated_at is None):
            return False
        return theirs != self.escalation and not theirs.is_within(self.escalation)

    def _no_start_left(self, request: Request, last: Execution) -> str | None:
        """Return why an approval has no start left; the stricter of the record and the gate counts."""
        if request.idempotent and self.idempotent:
            return None
        before = last.attempt - (request.state is State.RUNNING)
        allowed = min(request.retries, self.retries)
        if before <= allowed:
            return None
        return f"it was started {before} time{'s' if before > 1 else ''}, and the gate allows {allowed + 1} now"

    def asking_for(
        self, quorum: Quorum, escalation: Escalation | None, retries: int, *, idempotent: bool
    ) -> Occasion:  # fmt: skip
        """Return this occasion with what a gate asks for there: its last four fields, for each call of the gate."""
        return Occasion(*self[:-4], quorum, escalation, retries, idempotent)

    def joined(self, request: Request) -> Occasion:
        """Return what is to be asked for in place of `request`: what it asked for, and what is asked for now."""
        also = tuple(person for person in request.acts_for if person not in self.acts_for)
        mine, theirs = self.escalation, request.escalation
        both = mine if mine is not None and mine.is_within(theirs) else theirs
        escalation = both if both is not None and both.is_within(mine) else None
        return self._replace(
            quorum=self.quorum.joined(request.quorum), acts_for=self.acts_for + also, escalation=escalation
        )


executing: ContextVar[tuple[Request, ...]] = ContextVar("sayso_executing", default=())
"""The requests whose calls, or whose `verify=`, run in this context: the innermost one last."""


@cache
def requester() -> Identity:
    """Return the identity of this program."""
    name = Path(sys.argv[0] if sys.argv else "").name or "python"
    try:
        return Identity(PROGRAM, name)
    except ValueError:  # a file name that cannot be shown as it is
        return Identity(PROGRAM, ascii(name).strip() or "python")


class Recalled(Protocol):
    """What a run recorded of one gated call."""

    @property
    def known(self) -> Attempt | None:
        """How it ended in an earlier pass; None where it has to be made."""
        ...

    def is_over(self, request: Request) -> bool:
        """Say whether the approval of this call was given until an instant that has come."""
        ...

    def snapshot(self, attempt: Attempt) -> RunUpdate | None:
        """Note what it gave; return what of the run is to be saved together with its outcome."""
        ...


class Memory(Protocol):
    """A run that calls its handlers again from their top, and knows which gated calls they had finished."""

    def recall(self, gate: Any, store: ProgramStore, arguments: Mapping[str, Any]) -> Recalled | None:
        """Return what is known of this call; None where the run cannot keep it."""
        ...


class Scope:
    """One run, as this process sees it.

    Attributes:
        run_id: Its id, or the name that it was given.
        parent: The scope of the task that began this one.
        acts_for: The persons for whom it acts, innermost run first.
        adopted: Requests decided from here, by digest of their call.
        raised: Requests that this run's calls wait for, or waited for, by id.
        responses: The responses given by `respond_to_confirmation` here, by id.
        memory: The calls that ended here before, where handlers are called again.
        at: The place in a journaled run; what is asked there belongs to this place.
        occasions: How often an equal question was answered here, by digest.
        outer: The run inside of which this one was opened.
        open_calls: Requests of calls that blocked here and may be made again (their timeout passed, or they failed with
            a try left), by digest of their call. Without a name, a call that blocks finds no others.
        ended: Why nothing that began here may wait or start any more; None while it may.
    """

    def __init__(
        self, run_id: str, *, parent: Scope | None = None, owner: _Owner | None = None,
        acts_for: tuple[Identity, ...] = (), outer: Scope | None = None,
    ) -> None:  # fmt: skip
        self.run_id = run_id
        self.parent = parent
        self.owner = owner
        self.outer = outer
        self.open_calls: dict[str, str] = {}
        self.ended: str | None = None
        self._waits: dict[object, Callable[[str], None]] = {}
        self.acts_for = acts_for
        self.adopted: dict[str, str] = {}
        self._occasion = Occasion((run_id,), self.adopted, acts_for, has_name=owner is None) if parent is None else None
        self.raised: dict[str, None] = {}
        self.responses: dict[str, dict[str, Any]] = {}
        self.memory: Memory | None = None
        self.at = ""
        self.occasions: dict[str, int] = {}

    def lineage(self) -> Iterator[Scope]:
        """Yield this scope and those of its parents."""
        scope: Scope | None = self
        while scope is not None:
            yield scope
            scope = scope.parent

    def forget(self, request_id: str) -> None:
        """Drop what is remembered of a request, when it was executed or cleared."""
        self.raised.pop(request_id, None)
        self.responses.pop(request_id, None)
        for known in (self.adopted, self.open_calls):
            if request_id in known.values():
                for digest in [digest for digest, found in known.items() if found == request_id]:
                    del known[digest]

    def executed(self, request: Request, attempt: Attempt) -> None:
        """Note that an approved call of this run was made; a start that is left counts in this run alone."""
        known: Scope | None = self
        while known is not None:
            known.forget(request.id)
            known = known.parent
        if attempt.raised is not None and self.owner is not None:
            self.open_calls[request.call.digest] = request.id  # a try may be left, or nobody knows how it ended

    def end(self, reason: str) -> None:
        """End every wait that began in this run, in whatever thread; its calls do not start any more."""
        with _ending:  # a wait that begins meanwhile is either among these, or sees that the run has ended
            self.ended = self.ended or reason
            waits = list(self._waits.values())
        for callback in waits:
            callback(self.ended)

    def on_end(self, callback: Callable[[str], None]) -> Callable[[], object]:
        """Call back with the reason when this run ends, or has ended; the returned function undoes that."""
        mine = object()
        with _ending:
            self._waits[mine] = callback
        if self.ended is not None:
            callback(self.ended)
        return partial(self._waits.pop, mine, None)

    def enclosing(self) -> Iterator[Scope]:
        """Yield this run and those inside of which it was opened."""
        scope: Scope | None = self
        while scope is not None:
            yield scope
            scope = scope.outer

    @property
    def pool(self) -> str | None:
        """The pool whose thread this nameless run belongs to: nobody could come back to it."""
        job = None if self.owner is None else self.owner.job
        return None if job is None or job.is_lent else job.pool

    def occasion_of_call(self, *, blocks: bool) -> Occasion:
        """Return where a call of this run is made.

        In a run without a name, no earlier decision counts for a call that blocks, and one that raises asks nothing in
        a pool's thread, where nobody could come back to it.
        """
        if self._occasion is not None and self.owner is None:
            return self._occasion
        if blocks:
            return Occasion(_OneCall(), self.open_calls, self.occasion.acts_for, has_name=False)
        pool = self.pool
        return self.occasion if pool is None else self.occasion._replace(pool=pool)

    @property
    def occasion(self) -> Occasion:
        """What the gate needs to know of this scope."""
        if self._occasion is not None and (self._occasion.has_name or not _acting):
            return self._occasion
        lineage = tuple(self.lineage())
        adopted: dict[str, str] = {}
        for scope in reversed(lineage):
            adopted |= scope.adopted
        return Occasion(tuple(scope.run_id for scope in lineage), adopted, _merged(_acting.values()), has_name=False)


class _Owner:
    """The process, the thread, the task and the job of a pool that a nameless scope was made for."""

    def __init__(self, task: Any, job: threads.Job | None) -> None:
        self.process = os.getpid()
        self.thread = threading.get_ident()
        self.task = None if task is None else ref(task)
        self.job = job

    @property
    def is_over(self) -> bool:
        return self.job is not None and self.job.is_over


class _OneCall(Sequence[str]):
    """The run of a single call; most calls are let through, and then it is never made."""

    def __init__(self) -> None:
        self._run_ids: Any = ()

    def __len__(self) -> int:
        return 1

    def __getitem__(self, index: Any) -> Any:
        if not self._run_ids:
            self._run_ids = (new_run_id(),)
        return self._run_ids[index]


# Whom the runs that are open in this process act for: a call outside of any run may come from one of them by a way
# that loses its context (a pool of threads). One key for each open run; setting, deleting and copying are single steps.
_acting: dict[object, tuple[Identity, ...]] = {}
_ending = threading.Lock()


def _after_fork() -> None:
    global _ending  # noqa: PLW0603  the thread that held it is not there in a forked child
    _ending = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)

_scope: ContextVar[Scope | None] = ContextVar("sayso_scope", default=None)


def current_task() -> Any:
    """Return the asyncio task that this is a part of, if there is one."""
    # Where asyncio is not loaded nobody can be in a task, and importing it costs more than the rest of sayso.
    # `current_task` raises outside of a loop, which costs more than all else here, hence the look for a loop first.
    asyncio = sys.modules.get("asyncio")
    if asyncio is None or asyncio._get_running_loop() is None:  # noqa: SLF001  documented for exactly this, in spite of its name
        return None
    return asyncio.current_task()


def current() -> Scope:
    """Return the scope of this call; a new one where the thread or task has none yet."""
    scope = _scope.get()
    if scope is not None and scope.owner is None:
        return scope  # a named run is for everything that happens inside it
    task = current_task()
    if scope is not None and scope.owner is not None and _covers(scope.owner, task):
        return scope
    parent = scope if task is not None and scope is not None and not _is_strange(scope) else None
    job = None if task is not None else threads.job()
    fresh = Scope(new_run_id(), parent=parent, owner=_Owner(task, job))
    if job is None or not job.is_over:
        _scope.set(fresh)
    return fresh


def acts_for() -> tuple[Identity, ...]:
    """Return the persons for whom a call that is made here acts; outside of a named run, all whom this process may."""
    scope = _scope.get()
    if scope is not None and scope.owner is None:
        return scope.acts_for
    return _merged(_acting.values()) if _acting else ()


def covering() -> Scope | None:
    """Return the scope of this call if it has one already."""
    scope = _scope.get()
    if scope is None or scope.owner is None:
        return scope  # a named run is for everything that happens inside it
    return scope if _covers(scope.owner, current_task()) else None


def _covers(owner: _Owner, task: Any) -> bool:
    if owner.process != os.getpid() or owner.is_over:
        return False  # a forked child has its parent's context, and is somebody else; so is a pool's next caller
    if task is not None:
        return owner.task is not None and owner.task() is task
    if owner.thread == threading.get_ident():
        return True
    # Another thread without a task: it was handed this context on purpose, unless threads inherit by themselves.
    return not getattr(sys.flags, "thread_inherit_context", False)


def _is_strange(scope: Scope) -> bool:
    """Say whether a scope is of another process, or of a job that a pool's thread did earlier."""
    owner = scope.owner
    return owner is not None and (owner.process != os.getpid() or owner.is_over)


class run(ContextDecorator):  # noqa: N801  it is used as a function
    """Name the run of everything inside the block, whose `as` gets its id.

    Decisions count in their run, in this process and in any later one that names it again: a program that was
    stopped asks nothing twice. Give every piece of work a name of its own (an order's number, not the program's).

    Leaving the block, by its end, an error or a cancellation, ends every wait that began inside of it, in whatever
    thread or task: the call raises `ConfirmationCancelled` and does not run, whatever is decided later. In a run with a
    name its request stays pending for the next process of the run; in one without it is withdrawn.

    Args:
        name: At most 200 characters, none of them invisible; a new random id when not given.
        on_behalf_of: The person for whom the program acts; barred from deciding what it asks, whoever vouches for
            the name: `ada` bars every `ada`, and every `ada@host`; `ada@host` bars itself and `ada`. A run inside of
            another acts for the other's person as well. While the block is open, they are also barred from what this
            process asks outside of any run, as a thread of a pool does: it may be doing this run's work.

    As a decorator, `@sayso.run("tidy")`, it names a run for each call of a function; of an `async def`, until that has
    ended.

    Raises:
        ValueError: The name is empty, too long, or holds invisible characters.
        ConfigError: The decorated function is a generator or a context manager, whose body runs where its caller is; or
            the block is left in another context than it was entered in, as by a sync dependency of FastAPI.
        TypeError: A plain function that it decorates returned a coroutine or a generator, which has not run.
    """

    def __init__(self, name: str | None = None, *, on_behalf_of: Reviewer | Identity | str | None = None) -> None:
        self._name = None if name is None else checked_name(name)
        self._person = _identity(on_behalf_of)
        self._open: list[tuple[Scope, Token[Scope | None]]] = []

    def __enter__(self) -> str:
        run_id = new_run_id() if self._name is None else self._name
        self._open.append(_enter(run_id, self._person))
        return run_id

    def __exit__(self, *_: object) -> None:
        _leave(*self._open.pop())

    def __call__(self, function: _F) -> _F:
        """Return the function with a run around each of its calls."""
        named = getattr(function, "__qualname__", repr(function))
        if runs_later(function):
            raise ConfigError(
                f"{named} is a generator, or a context manager made of one: its body runs where its caller is, outside"
                " of the run; write `with sayso.run(...):` inside of it"
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

    def _recreate_cm(self) -> run:  # each call of a decorated function enters a run of its own
        return run(self._name, on_behalf_of=self._person)


@contextmanager
def entered(run_id: str) -> Generator[Scope]:
    """Do what `run` does for a run whose id is known to be one, and yield its scope."""
    scope, token = _enter(run_id, None)
    try:
        yield scope
    finally:
        _leave(scope, token)


def _enter(run_id: str, person: Identity | None) -> tuple[Scope, Token[Scope | None]]:
    before = _scope.get()
    acts_for = () if before is None else before.acts_for
    if person is not None:
        acts_for = _merged([(person, *acts_for)])
    scope = Scope(run_id, acts_for=acts_for, outer=covering())
    if scope.acts_for:
        _acting[scope] = scope.acts_for
    return scope, _scope.set(scope)


def _leave(scope: Scope, token: Token[Scope | None]) -> None:
    scope.end("its run was left while it waited")
    _acting.pop(scope, None)
    try:
        _scope.reset(token)
    except ValueError:
        if isinstance(sys.exc_info()[1], GeneratorExit):
            return  # a coroutine may be closed from a context that never had it
        raise ConfigError(
            f"the run {scope.run_id!r} was left in another context than it was entered in, and what was called in"
            " between was not in it; as a dependency of FastAPI, or a fixture, write the function that opens it as"
            " `async def`"
        ) from None


def _merged(groups: Iterable[tuple[Identity, ...]]) -> tuple[Identity, ...]:
    """Return everybody in these groups, each once."""
    return tuple(dict.fromkeys(person for group in list(groups) for person in group))


def checked_name(name: str) -> str:
    """Return a run's name that can be kept and shown as it is.

    Raises:
        TypeError: It is no text.
        ValueError: It cannot.
    """
    if not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance]  callers may be untyped
        raise TypeError(f"a run's name is a text, not {name!r}")
    if not name or name != name.strip() or len(name) > _LONGEST_NAME:
        raise ValueError(f"a run's name has 1 to {_LONGEST_NAME} characters and no white space around it, not {name!r}")
    is_plain = name.isascii() and name.isprintable()  # most are, and then no character needs to be looked up
    if not is_plain and any(unicodedata.category(c) in {"Cc", "Cf", "Cs", "Zl", "Zp"} for c in name):
        raise ValueError(f"a run's name must not hold invisible characters, as {name!r} does")
    return name


def _identity(person: Reviewer | Identity | str | None) -> Identity | None:
    if person is None or isinstance(person, Identity):
        return person
    if not isinstance(person, str | Reviewer):  # pyright: ignore[reportUnnecessaryIsInstance]  callers may be untyped
        raise TypeError(f"on_behalf_of= takes a name or a sayso.Reviewer, not {person!r}; no run was begun")
    return (Reviewer(person) if isinstance(person, str) else person).identity
