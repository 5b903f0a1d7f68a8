"""`Module`, which takes inputs, returns a `Prediction` and can pause for a person; and its `Signature`.

A subclass implements the sync or the async half (`forward`, `resume` or `aforward`, `aresume`); the other half calls
it. A `resume_state` decides no more than the person's response: `yes`, `y`, `no`, `n`, a JSON object with changed
arguments, or feedback to the program; for a question, the response is the answer. A decision that was made meanwhile
through another channel takes precedence, and an invalid response decides nothing.

A signature has the names and types of a module's inputs and outputs, from one line of text or from two pydantic models.
The text is parsed with Python's grammar for parameter lists and never evaluated: types are looked up by name among
those listed here. A `Prediction` has the outputs by name, as attributes and as items.
"""

from __future__ import annotations

import ast
import asyncio
import functools
import inspect
import json
import sys
from collections.abc import AsyncGenerator, Callable, Collection, Coroutine, Generator, Iterable, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Literal, Optional, TypeVar, Union, cast

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from sayso import config, errors
from sayso.confirmation import ConfirmationRequired, ResumeState, respond_to_confirmation
from sayso.effects import offload
from sayso.errors import ConfigError
from sayso.gates import scope
from sayso.model.request import Call, Request, State
from sayso.model.schema import SchemaError
from sayso.reviews import Review
from sayso.runs.events import DeltaEvent
from sayso.runs.messages import read_arguments
from sayso.runs.state import in_loop
from sayso.stores.base import Store

if sys.version_info >= (3, 12):
    from typing import TypedDict
else:
    from typing_extensions import TypedDict  # pydantic requires it before 3.12, and installs it


class Prediction(dict[str, Any]):
    """The outputs of a module, e.g. `prediction.answer` or `prediction["answer"]`."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            there = ", ".join(self) or "none"
            raise AttributeError(f"this prediction has no field {name!r}; there are: {there}", name=name) from None

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self]

    def __repr__(self) -> str:
        return f"Prediction({', '.join(f'{name}={value!r}' for name, value in self.items())})"


_PLAIN_TYPES: dict[str, Any] = {
    **{kind.__name__: kind for kind in (str, int, float, bool, bytes, list, dict, tuple, set)},
    "Any": Any,
    "None": None,
}


class Fields:
    """The names and types of one side of a signature.

    Args:
        kind: A pydantic model, or a typed dict.
        names: Its fields, in order.
    """

    def __init__(self, kind: Any, names: Iterable[str]) -> None:
        self.names = tuple(names)
        self._kind = kind
        self._adapter: TypeAdapter[Any] = TypeAdapter(kind)

    @classmethod
    def of_model(cls, model: type[BaseModel]) -> Fields:
        """Return the fields of a pydantic model."""
        return cls(model, model.model_fields)

    @classmethod
    def of_types(cls, types: Mapping[str, Any]) -> Fields:
        """Return fields of these names and types."""
        kind = cast("Any", TypedDict)("Fields", dict(types))
        kind.__pydantic_config__ = ConfigDict(extra="forbid")
        return cls(kind, types)

    @property
    def schema(self) -> dict[str, Any]:
        """JSON Schema of an object with these fields."""
        schema = self._adapter.json_schema()
        schema.pop("title", None)
        return schema

    @property
    def words(self) -> str | None:
        """The docstring of the pydantic model, or None."""
        return self._kind.__doc__ if isinstance(self._kind, type) and issubclass(self._kind, BaseModel) else None

    @property
    def single_text(self) -> str | None:
        """The name of the field if there is only one and its type is text; else None."""
        properties = cast("dict[str, Any]", self.schema.get("properties", {}))
        (only, *others) = [*self.names, ""]
        return only if others == [""] and properties.get(only, {}).get("type") == "string" else None

    def validate(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Convert values to the types of the fields, by name.

        Raises:
            SchemaError: The values do not match; no problem quotes a value.
        """
        try:
            fitted = self._adapter.validate_python(dict(values))
        except ValidationError as error:
            problems: list[str] = []
            for one in error.errors(include_input=False, include_url=False):
                # A custom validator's message may quote the value; pydantic's own messages do not.
                is_own = one["type"] in {"value_error", "assertion_error"}
                where = ".".join(str(part) for part in one["loc"])
                message = "is refused by its own validator" if is_own else one["msg"]
                problems.append(f"{where}: {message}" if where else message)
            raise SchemaError(problems) from None
        return {name: fitted[name] if isinstance(fitted, dict) else getattr(fitted, name) for name in self.names}


@dataclass(frozen=True)
class Signature:
    """The inputs and outputs of a module."""

    inputs: Fields
    outputs: Fields

    @classmethod
    def of(cls, given: object) -> Signature:
        """Parse a signature.

        Args:
            given: Text such as `question, context -> answer: str, score: float`, where a field without a type is text
                and types are `str`, `int`, `float`, `bool`, `bytes`, `None`, `Any`, `list[…]`, `dict[…]`, `tuple[…]`,
                `set[…]`, `Optional[…]`, `Union[…]`, `Literal[…]` and `a | b`; or a pair of pydantic models.

        Raises:
            ConfigError: It is neither, or names an unknown type.
        """
        if isinstance(given, Signature):
            return given
        if isinstance(given, str):
            takes, arrow, gives = given.partition("->")
            if not arrow:
                raise ConfigError(f"the signature {given!r} has no '->' between inputs and outputs")
            inputs, outputs = _fields(takes, given), _fields(gives, given)
            both = sorted(inputs.keys() & outputs.keys())
            if both:
                raise ConfigError(f"the signature {given!r} has {both[0]!r} on both sides")
            return cls(Fields.of_types(inputs), Fields.of_types(outputs))
        pair = tuple(cast("list[object]", given)) if isinstance(given, tuple | list) else ()
        models = [one for one in pair if isinstance(one, type) and issubclass(one, BaseModel)]
        if len(pair) != 2 or len(models) != 2:
            raise ConfigError(f"a signature must be text or a pair of pydantic models, not {given!r}")
        if not all(model.model_fields for model in models):
            raise ConfigError("a signature needs at least one field on each side")
        return cls(Fields.of_model(models[0]), Fields.of_model(models[1]))


def _fields(side: str, text: str) -> dict[str, Any]:
    near = f"near {side.strip()!r}"
    try:
        # Parsed only; never compiled or evaluated.
        body = ast.parse(f"def side({' '.join(side.split())}): ...").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ConfigError(f"the signature {text!r} cannot be read {near}") from error
    function = body[0]
    if len(body) != 1 or not isinstance(function, ast.FunctionDef) or len(function.body) != 1:
        raise ConfigError(f"the signature {text!r} cannot be read {near}")
    given = function.args
    others = [given.vararg, given.kwarg, *given.kwonlyargs, *given.posonlyargs, *given.defaults, function.returns]
    if any(one is not None for one in others) or not given.args:
        raise ConfigError(f"the signature {text!r} needs plain fields, `name` or `name: type`, {near}")
    if any(one.arg.startswith("_") for one in given.args):
        raise ConfigError(f"the signature {text!r} has a field whose name begins with an underscore")
    if len({one.arg for one in given.args}) < len(given.args):
        raise ConfigError(f"the signature {text!r} has a name twice {near}")
    return {one.arg: str if one.annotation is None else _type(one.annotation) for one in given.args}


def _type(node: ast.expr) -> Any:
    match node:
        case ast.Constant(value=None):
            return None
        case ast.Name(id=name) if name in _PLAIN_TYPES:
            return _PLAIN_TYPES[name]
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            return Union[_type(left), _type(right)]  # noqa: UP007  `None | None` raises
        case ast.Subscript(value=ast.Name(id="Literal"), slice=inside):
            return Literal[tuple(map(_constant, _parts(inside)))]
        case ast.Subscript(value=ast.Name(id="tuple"), slice=ast.Tuple(elts=[one, ast.Constant(value=value)])) if (
            value is ...
        ):
            return tuple[_type(one), ...]
        case ast.Subscript(value=ast.Name(id=name), slice=inside):
            kinds = tuple(map(_type, _parts(inside)))
            if len(kinds) not in _GENERICS.get(name, (None, ()))[1]:
                raise ConfigError(f"the type {name}[…] cannot be used with {len(kinds)} types in a signature's text")
            return _GENERICS[name][0][kinds[0] if len(kinds) == 1 else kinds]
        case _:
            raise _unknown(node)


_SOME = range(1, 100)
_GENERICS: dict[str, tuple[Any, Collection[int]]] = {
    **dict.fromkeys(("list", "List"), (list, {1})), **dict.fromkeys(("set", "Set"), (set, {1})),
    **dict.fromkeys(("dict", "Dict"), (dict, {2})), **dict.fromkeys(("tuple", "Tuple"), (tuple, _SOME)),
    "Optional": (Optional, {1}), "Union": (Union, _SOME),
}  # fmt: skip
"""The generic types, and how many parameters each takes."""


def _parts(inside: ast.expr) -> list[ast.expr]:
    return inside.elts if isinstance(inside, ast.Tuple) else [inside]


def _constant(node: ast.expr) -> Any:
    match node:
        case ast.Constant(value=str() | bool() | int() | None as value):
            return value
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int(value))):
            return -value
        case _:
            raise _unknown(node)


def _unknown(node: ast.expr) -> ConfigError:
    return ConfigError(
        f"the type {ast.unparse(node)!r} is not known in a signature's text; known are {', '.join(_PLAIN_TYPES)},"
        " containers of them, Optional, Union and Literal. For types of your own, give a pair of pydantic models"
    )


Response = str | Mapping[str, Any] | None
"""The person's response; None if there is none here, so that the recorded decision applies."""


_YES, _NO = frozenset({"yes", "y"}), frozenset({"no", "n"})


def read_resume_state(state: Any, response: Response = None) -> tuple[Any, Response]:
    """Return the pause and the response of a `resume_state`.

    Args:
        state: A `ResumeState`, a `ConfirmationRequired`, or the `to_dict` of either; any other value is returned
            unchanged, for the module whose `asuspend` created it.
        response: Takes precedence over the response in a `ResumeState`.
    """
    if isinstance(state, Mapping):
        saved = cast("Mapping[str, Any]", state)
        if "exception" in saved and "user_response" in saved:
            state = ResumeState.from_dict(saved)
        elif "confirmation_id" in saved and "question" in saved:
            state = ConfirmationRequired.from_dict(saved)
    if isinstance(state, ResumeState):
        return state.exception, state.user_response if response is None else response
    return cast("Any", state), response


def record(store: Store, request: Request, response: Response, *, seen: str | None) -> None:
    """Record a response as a decision. Durable on return. If the request is already decided, nothing happens.

    Args:
        response: The person's response; None and whitespace mean no response.
        seen: The fingerprint of the call that an approval is for; None for the call as it was asked.

    Raises:
        InvalidChangesError: The changed arguments or their JSON are invalid; the request stays pending.
        DecisionRefusedError: The decision was refused for another reason; the request is unchanged.
    """
    text = response.strip() if isinstance(response, str) else response
    if request.state is not State.PENDING or text is None or text == "":
        return
    # If somebody else decided first, or the request expired, that result applies.
    with suppress(errors.AlreadyDecidedError, errors.RequestExpiredError):
        _decide(Review(store), request, text, request.fingerprint if seen is None else seen)


def _decide(review: Review, request: Request, answer: str | Mapping[str, Any], seen: str) -> None:
    if request.kind == "question":
        review.answer(request.id, answer)
        return
    if isinstance(answer, str) and answer.startswith("{"):
        answer, problem = read_arguments(answer)
        if problem is not None:
            raise errors.InvalidChangesError(request.id, [problem])
    match answer:
        case str() if answer.lower() in _YES:
            review.approve(request.id, seen=seen)
        case str() if answer.lower() in _NO:
            review.reject(request.id)  # a no to the call that was shown is one to a changed call, too
        case str():
            review.feedback(request.id, answer)
        case _ if not answer:
            # `{}` removes all arguments; merging it would approve the call unchanged, which the person did not want.
            review.approve(request.id, arguments={}, seen=seen)
        case _:
            review.approve(request.id, changes=answer, seen=seen)


def check_shown(signal: ConfirmationRequired, request: Request) -> None:
    """Check that a pause shows the call that waits, because a saved pause may have been altered.

    Raises:
        DecisionRefusedError: The pause shows a different call than would run; nothing was decided.
    """
    shown = None if signal.tool_call is None else signal.tool_call.args
    real = request.effective.arguments if isinstance(request.subject, Call) else None
    is_same = signal.confirmation_id == request.id and json.dumps(shown, sort_keys=True) == json.dumps(
        real, sort_keys=True
    )
    if not is_same:
        raise errors.DecisionRefusedError(
            request.id,
            f"the pause shows another call than request {request.id}; look again, nothing was decided",
        )


def respond(saved: Any, response: Response) -> None:
    """Record a response in the thread or task that makes the same call again, so that it finds the decision."""
    if not isinstance(saved, ConfirmationRequired):
        raise TypeError(f"cannot resume from {type(saved).__name__}: pass a ConfirmationRequired or a ResumeState")
    request_id = saved.confirmation_id
    store = config.store_with(request_id)
    if store is None:  # a signal without a request: keep the response for the module that raised it
        word = response.strip().lower() if isinstance(response, str) else None
        if word in _YES | _NO:
            respond_to_confirmation(request_id, approved=word in _YES)
        elif response is not None:
            status = None if word is None else "feedback"
            respond_to_confirmation(request_id, approved=word is None, data=response, status=status)
        return
    record(store, store.settle(request_id), response, seen=saved.fingerprint)
    scope.current().adopt(store.get(request_id))


T = TypeVar("T")
_listener: ContextVar[Callable[[DeltaEvent], None] | None] = ContextVar("sayso_listener", default=None)


def emit_delta(event: DeltaEvent) -> None:
    """Pass a piece of streamed text to the enclosing `astream`, if there is one."""
    listener = _listener.get()
    if listener is not None:
        listener(event)


class Module:
    """Base class of modules that can pause for a person. Override `forward` or `aforward`, and `resume` or `aresume`.

    `resume_state=` of every call takes a `ResumeState`, a `ConfirmationRequired` (with `user_response=`, or without it
    to use a decision made elsewhere), or the `to_dict` of either. A module without its own `resume` runs again from its
    start, and the calls that `confirm_first` holds then find their decisions.
    """

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for name, wrap in _WRAPPERS.items():
            own = cls.__dict__.get(name)
            if inspect.isfunction(own) and "resume_state" not in inspect.signature(own).parameters:
                setattr(cls, name, wrap(own))

    # -- start -------------------------------------------------------------------------------------------------

    def __call__(self, *args: Any, **inputs: Any) -> Prediction:
        """Call `forward`."""
        return self.forward(*args, **inputs)

    def forward(
        self, *args: Any, resume_state: Any = None, user_response: Response = None, **inputs: Any
    ) -> Prediction:
        """Run to the end, or to the next pause.

        Args:
            args, inputs: The module's inputs.
            resume_state: A pause to continue from.
            user_response: The person's response, if `resume_state` does not contain it.

        Raises:
            ConfirmationRequired: A person must decide first; the error contains the state to continue from.
            ConfirmationRejected: The call was refused.
            RuntimeError: Called inside a running event loop, and only the async half is implemented.
        """
        self._must_have("forward", "aforward")
        given = _given(resume_state, user_response)
        with _noted(resume_state):
            return self._sync("forward", lambda: self.aforward(*args, **given, **inputs))

    async def aforward(
        self, *args: Any, resume_state: Any = None, user_response: Response = None, **inputs: Any
    ) -> Prediction:
        """Run without blocking the event loop; see `forward`. A sync module runs in a thread."""
        self._must_have("forward", "aforward")
        given = _given(resume_state, user_response)
        return await asyncio.to_thread(scope.in_this_run(self.forward), *args, **given, **inputs)

    async def astream(self, *args: Any, **inputs: Any) -> AsyncGenerator[DeltaEvent | Prediction]:
        """Yield the models' streamed text, including that of nested modules, and finally the prediction.

        It takes the arguments of `aforward` and raises the same errors. Leaving the loop early cancels the work.
        """
        events: asyncio.Queue[DeltaEvent | None] = asyncio.Queue()
        token = _listener.set(events.put_nowait)
        try:
            work = asyncio.ensure_future(self.aforward(*args, **inputs))
        finally:
            _listener.reset(token)
        work.add_done_callback(lambda _: events.put_nowait(None))
        try:
            while (event := await events.get()) is not None:
                yield event
            yield await work
        finally:
            work.cancel()
            with suppress(asyncio.CancelledError, Exception):  # the consumer is gone and gets no error
                await work

    # -- resume ------------------------------------------------------------------------------------------------

    def resume(self, user_response: Response, saved: Any) -> Prediction:
        """Continue after a pause.

        Args:
            user_response: `yes`, `no`, changed arguments as a JSON object, or feedback to the program; None to use a
                decision made elsewhere.
            saved: The `ConfirmationRequired`, or the result of `suspend` for it.
        """
        self._must_have("resume", "aresume")
        with _noted(saved):
            return self._sync("resume", lambda: self.aresume(user_response, saved))

    async def aresume(self, user_response: Response, saved: Any) -> Prediction:
        """Continue after a pause without blocking the event loop; see `resume`."""
        self._must_have("resume", "aresume")
        return await asyncio.to_thread(scope.in_this_run(self.resume), user_response, saved)

    def suspend(self, exception: ConfirmationRequired) -> Any:
        """Return the state from which `resume` continues after a pause."""
        return self._sync("suspend", lambda: self.asuspend(exception))

    async def asuspend(self, exception: ConfirmationRequired) -> Any:
        """Return the state from which `aresume` continues: by default the exception, whose `to_dict` can be saved."""
        return exception

    # -- inside ------------------------------------------------------------------------------------------------

    def _must_have(self, *names: str) -> None:
        if not _overrides(self, *names):
            more = "; or resume with resume_state=" if "resume" in names else ""
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
def _noted(resume_state: Any, user_response: Response = None) -> Generator[tuple[Any, Response]]:
    """Record what the caller's run waits for, for `get_confirmation_context` and `clear_all_confirmations`.

    Yields the pause and the response, see `read_resume_state`.
    """
    here = scope.current()
    saved, response = read_resume_state(resume_state, user_response)
    signal: ConfirmationRequired | None = None
    try:
        yield saved, response
    except ConfirmationRequired as error:
        signal = error
    if isinstance(saved, ConfirmationRequired):
        here.forget(saved.confirmation_id)
    if signal is not None:
        here.raised[signal.confirmation_id] = None
        raise signal


def _resumable(own: Callable[..., Any]) -> Callable[..., Any]:
    """Let a module's `forward` take a `resume_state`."""

    @functools.wraps(own)
    def forward(
        self: Module, *args: Any, resume_state: Any = None, user_response: Response = None, **inputs: Any
    ) -> Any:
        with _noted(resume_state, user_response) as (saved, response):
            if saved is not None:
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
        with _noted(resume_state, user_response) as (saved, response):
            if saved is not None:
                if _overrides(self, "resume", "aresume"):
                    return await self.aresume(response, saved)
                await offload(scope.in_this_run(lambda: respond(saved, response)))
            return await own(self, *args, **inputs)

    return aforward


def _noting(own: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(own)
    def resume(self: Module, user_response: Response, saved: Any) -> Any:
        with _noted(saved):
            return own(self, user_response, saved)

    return resume


def _anoting(own: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(own)
    async def aresume(self: Module, user_response: Response, saved: Any) -> Any:
        with _noted(saved):
            return await own(self, user_response, saved)

    return aresume


_WRAPPERS = {"forward": _resumable, "aforward": _aresumable, "resume": _noting, "aresume": _anoting}
