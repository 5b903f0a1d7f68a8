"""`Module`: something that is called with inputs and gives a `Prediction`, and that can pause for a person in between.

A subclass writes the sync or the async half (`forward`, `resume` or `aforward`, `aresume`); the other half works
through it. Here is how a pause travels and which half is called; what a pause holds is the module's own business.
The invariant: a `resume_state` decides at most what the person's response says, and never more.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any, TypeVar

from sayso import scope
from sayso.confirmation import ConfirmationRequired
from sayso.effects import offload
from sayso.runs.events import DeltaEvent
from sayso.runs.prediction import Prediction
from sayso.runs.response import Response, respond, saved_of
from sayso.runs.run import in_loop

__all__ = ["Module", "tell"]

T = TypeVar("T")
_listener: ContextVar[Callable[[DeltaEvent], None] | None] = ContextVar("sayso_listener", default=None)


def tell(event: DeltaEvent) -> None:
    """Pass on a piece of text as it streams, to the `astream` around, if there is one."""
    listener = _listener.get()
    if listener is not None:
        listener(event)


class Module:
    """Base of what can pause for a person. Override `forward` or `aforward`, and `resume` or `aresume`.

    `resume_state=` of every call takes a `ResumeState`, a `ConfirmationRequired` (with `user_response=`, or alone:
    then what was decided elsewhere counts), or what the `to_dict` of either saved. A module without a `resume` of its
    own runs again from its beginning: what `confirm_first` holds then finds its decision.
    """

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for name, dress in _DRESSES.items():
            own = cls.__dict__.get(name)
            if inspect.isfunction(own) and "resume_state" not in inspect.signature(own).parameters:
                setattr(cls, name, dress(own))

    # -- begin -------------------------------------------------------------------------------------------------

    def __call__(self, *args: Any, **inputs: Any) -> Prediction:
        """Call `forward`."""
        return self.forward(*args, **inputs)

    def forward(
        self, *args: Any, resume_state: Any = None, user_response: Response = None, **inputs: Any
    ) -> Prediction:
        """Run to the end, or to the next pause.

        Args:
            args, inputs: The module's inputs.
            resume_state: A pause to go on from.
            user_response: What the person said, where `resume_state` does not say it.

        Raises:
            ConfirmationRequired: A person must decide first; it holds what is needed to go on.
            ConfirmationRejected: The answer was no.
            RuntimeError: Called inside a running event loop, and only the async half is written.
        """
        self._must_have("forward", "aforward")
        given = _given(resume_state, user_response)
        with _noted(saved_of(resume_state)[0]):
            return self._sync("forward", lambda: self.aforward(*args, **given, **inputs))

    async def aforward(
        self, *args: Any, resume_state: Any = None, user_response: Response = None, **inputs: Any
    ) -> Prediction:
        """Run without blocking the event loop; see `forward`. A module that is sync runs in a thread."""
        self._must_have("forward", "aforward")
        given = _given(resume_state, user_response)
        return await asyncio.to_thread(self.forward, *args, **given, **inputs)

    async def astream(self, *args: Any, **inputs: Any) -> AsyncGenerator[DeltaEvent | Prediction]:
        """Yield the models' text as it streams, of modules inside of this one as well, and at last the prediction.

        Takes and raises what `aforward` does. Leaving the loop early ends the work.
        """
        said: asyncio.Queue[DeltaEvent | None] = asyncio.Queue()
        token = _listener.set(said.put_nowait)
        try:
            work = asyncio.ensure_future(self.aforward(*args, **inputs))
        finally:
            _listener.reset(token)
        work.add_done_callback(lambda _: said.put_nowait(None))
        try:
            while (event := await said.get()) is not None:
                yield event
            yield await work
        finally:
            work.cancel()
            with suppress(asyncio.CancelledError, Exception):  # whoever left the loop no longer listens
                await work

    # -- go on -------------------------------------------------------------------------------------------------

    def resume(self, user_response: Response, saved: Any) -> Prediction:
        """Go on after a pause.

        Args:
            user_response: `yes`, `no`, changed arguments as a JSON object, or words to the program; None where it was
                decided elsewhere.
            saved: The `ConfirmationRequired`, or what `suspend` made of it.
        """
        self._must_have("resume", "aresume")
        with _noted(saved_of(saved)[0]):
            return self._sync("resume", lambda: self.aresume(user_response, saved))

    async def aresume(self, user_response: Response, saved: Any) -> Prediction:
        """Go on after a pause without blocking the event loop; see `resume`."""
        self._must_have("resume", "aresume")
        return await asyncio.to_thread(self.resume, user_response, saved)

    def suspend(self, exception: ConfirmationRequired) -> Any:
        """Return what `resume` needs to go on from a pause."""
        return self._sync("suspend", lambda: self.asuspend(exception))

    async def asuspend(self, exception: ConfirmationRequired) -> Any:
        """Return what `aresume` needs to go on from a pause: the exception itself, whose `to_dict` can be saved."""
        return exception

    # -- inside ------------------------------------------------------------------------------------------------

    def _must_have(self, *names: str) -> None:
        if not _overrides(self, *names):
            more = "; or go on by resume_state=" if "resume" in names else ""
            raise NotImplementedError(f"{type(self).__name__} has neither {' nor '.join(names)}{more}")

    def _sync(self, name: str, begin: Callable[[], Coroutine[Any, Any, T]]) -> T:
        if in_loop():
            whose = f"{type(self).__name__}.{name}"
            raise RuntimeError(f"{whose} is async inside, and an event loop is running here: use `await …a{name}(...)`")
        return asyncio.run(begin())


def _overrides(module: Module, *names: str) -> bool:
    return any(getattr(type(module), name) is not getattr(Module, name) for name in names)


def _given(resume_state: Any, user_response: Response) -> dict[str, Any]:
    given = {"resume_state": resume_state, "user_response": user_response}
    return {name: value for name, value in given.items() if value is not None}


@contextmanager
def _noted(saved: Any = None) -> Generator[None]:
    """Keep what the caller's run waits for where `get_confirmation_context` and `clear_all_confirmations` look."""
    here = scope.current()
    before = saved.confirmation_id if isinstance(saved, ConfirmationRequired) else None
    try:
        yield
    except ConfirmationRequired as signal:
        _forget(here, before)
        here.raised[signal.confirmation_id] = None
        raise
    _forget(here, before)


def _forget(here: scope.Scope, request_id: str | None) -> None:
    if request_id is not None:
        for known in here.lineage():
            known.forget(request_id)


def _resumable(own: Callable[..., Any]) -> Callable[..., Any]:
    """Let a module's `forward` take a `resume_state`."""

    @functools.wraps(own)
    def forward(
        self: Module, *args: Any, resume_state: Any = None, user_response: Response = None, **inputs: Any
    ) -> Any:
        if resume_state is None:
            with _noted():
                return own(self, *args, **inputs)
        saved, response = saved_of(resume_state, user_response)
        with _noted(saved):
            if _overrides(self, "resume", "aresume"):
                return self.resume(response, saved)
            respond(saved, response)
            return own(self, *args, **inputs)

    return forward


def _aresumable(own: Callable[..., Any]) -> Callable[..., Any]:
    """Let a module's `aforward` take a `resume_state`."""

    @functools.wraps(own)
    async def aforward(
        self: Module, *args: Any, resume_state: Any = None, user_response: Response = None, **inputs: Any
    ) -> Any:
        if resume_state is None:
            with _noted():
                return await own(self, *args, **inputs)
        saved, response = saved_of(resume_state, user_response)
        with _noted(saved):
            if _overrides(self, "resume", "aresume"):
                return await self.aresume(response, saved)
            await offload(lambda: respond(saved, response))
            return await own(self, *args, **inputs)

    return aforward


def _noting(own: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(own)
    def resume(self: Module, user_response: Response, saved: Any) -> Any:
        with _noted(saved_of(saved)[0]):
            return own(self, user_response, saved)

    return resume


def _anoting(own: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(own)
    async def aresume(self: Module, user_response: Response, saved: Any) -> Any:
        with _noted(saved_of(saved)[0]):
            return await own(self, user_response, saved)

    return aresume


_DRESSES = {"forward": _resumable, "aforward": _aresumable, "resume": _noting, "aresume": _anoting}
