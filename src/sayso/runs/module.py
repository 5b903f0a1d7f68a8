"""What a module returns: fields by name, as attributes and as items.

A prediction is a dict, so it is JSON where its fields are. A field that is called like one of dict's own methods
(`items`, `keys`, …) is reached as an item only.

What goes into a module and what comes out: names and types, from one line of text or from two pydantic models.

Text is read as Python's grammar reads a parameter list and is never evaluated: a type is looked up among those that
stand here, by its name. The invariant: whoever chooses the text chooses names and plain types, and nothing that runs.

`Module`: something that is called with inputs and gives a `Prediction`, and that can pause for a person in between.

A subclass writes the sync or the async half (`forward`, `resume` or `aforward`, `aresume`); the other half works
through it. Here is how a pause travels and which half is called; what a pause holds is the module's own business.
The invariant: a `resume_state` decides at most what the person's response says, and never more.
"""

from __future__ import annotations

import ast
import asyncio
import functools
import inspect
import json
import sys
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Literal, Optional, TypeVar, Union, cast

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from sayso import scope
from sayso.confirmation import ConfirmationRequired
from sayso.effects import offload
from sayso.errors import ConfigError
from sayso.model.schema import SchemaError
from sayso.runs.events import DeltaEvent
from sayso.runs.response import Response, respond, saved_of
from sayso.runs.run import in_loop

__all__ = ["Fields", "Module", "Prediction", "Signature", "tell"]


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

    def __delattr__(self, name: str) -> None:
        try:
            del self[name]
        except KeyError:
            raise AttributeError(name) from None

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self]

    def __repr__(self) -> str:
        return f"Prediction({', '.join(f'{name}={value!r}' for name, value in self.items())})"


if sys.version_info >= (3, 12):
    from typing import TypedDict
else:
    from typing_extensions import TypedDict  # pydantic asks for it before 3.12, and brings it


_PLAIN: dict[str, Any] = {
    **{kind.__name__: kind for kind in (str, int, float, bool, bytes, list, dict, tuple, set)},
    "Any": Any,
    "None": None,
}
_MOST, _DEEPEST = 2_000, 12  # characters, and brackets in brackets: more is no signature


class Fields:
    """The names and types of one side.

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
        """What the pydantic model's author wrote about it."""
        return self._kind.__doc__ if isinstance(self._kind, type) and issubclass(self._kind, BaseModel) else None

    @property
    def single_text(self) -> str | None:
        """The name of the only field, where there is one and it is text."""
        properties = cast("dict[str, Any]", self.schema.get("properties", {}))
        (only, *others) = [*self.names, ""]
        return only if others == [""] and properties.get(only, {}).get("type") == "string" else None

    def validate(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values by name, as their types.

        Raises:
            SchemaError: They do not fit; no problem contains a value.
        """
        try:
            fitted = self._adapter.validate_python(dict(values))
        except ValidationError as error:
            raise SchemaError([_problem(one) for one in error.errors(include_input=False, include_url=False)]) from None
        return {name: fitted[name] if isinstance(fitted, dict) else getattr(fitted, name) for name in self.names}

    def plain(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return values as JSON has them; what it has no form for becomes its `str`."""
        from pydantic_core import to_json

        return json.loads(to_json(dict(values), fallback=str, inf_nan_mode="strings"))


def _problem(error: Mapping[str, Any]) -> str:
    where = ".".join(str(part) for part in error["loc"])
    # A validator's own words may quote the value; those of pydantic do not.
    says = "is refused by its own validator" if error["type"] in {"value_error", "assertion_error"} else error["msg"]
    return f"{where}: {says}" if where else str(says)


@dataclass(frozen=True)
class Signature:
    """What a module takes and what it gives."""

    inputs: Fields
    outputs: Fields

    @classmethod
    def of(cls, given: object) -> Signature:
        """Return what is meant.

        Args:
            given: Text such as `question, context -> answer: str, score: float`, where a field without a type is text
                and types are `str`, `int`, `float`, `bool`, `bytes`, `None`, `Any`, `list[…]`, `dict[…]`, `tuple[…]`,
                `set[…]`, `Optional[…]`, `Union[…]`, `Literal[…]` and `a | b`; or a pair of pydantic models.

        Raises:
            ConfigError: It is neither, or names what there is not.
        """
        if isinstance(given, Signature):
            return given
        if isinstance(given, str):
            takes, gives = _sides(given)
            return cls(Fields.of_types(takes), Fields.of_types(gives))
        pair = tuple(cast("list[object]", given)) if isinstance(given, tuple | list) else ()
        models = [one for one in pair if isinstance(one, type) and issubclass(one, BaseModel)]
        if len(pair) != 2 or len(models) != 2:
            raise ConfigError(f"a signature is text or a pair of pydantic models, not {given!r}")
        if not all(model.model_fields for model in models):
            raise ConfigError("a signature needs at least one field on each side")
        return cls(Fields.of_model(models[0]), Fields.of_model(models[1]))


def _sides(text: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the fields on either side of the arrow; `->` may also stand inside of a `Literal`."""
    if len(text) > _MOST or _depth(text) > _DEEPEST:
        raise ConfigError(f"a signature has at most {_MOST:,} characters, and {_DEEPEST} brackets in each other")
    refusal: ConfigError | None = None
    for left, right in _cuts(text):
        try:
            found = _fields(left, text), _fields(right, text)
        except RecursionError:
            refusal = ConfigError(f"the signature {text[:40]!r} … is nested too deeply")
            continue
        except ConfigError as error:
            # The cut that reads furthest says what is wrong; a cut inside of quotes leaves no grammar at all.
            refusal = refusal or error
            continue
        _check_names(*found, text)
        return found
    raise refusal or ConfigError(f"the signature {text!r} has no '->' between what goes in and what comes out")


def _depth(text: str) -> int:
    return max(accumulate((letter in "([{") - (letter in ")]}") for letter in text), default=0)


def _cuts(text: str) -> Iterator[tuple[str, str]]:
    place = text.find("->")
    while place >= 0:
        yield text[:place], text[place + 2 :]
        place = text.find("->", place + 2)


def _check_names(takes: dict[str, Any], gives: dict[str, Any], text: str) -> None:
    both = sorted(takes.keys() & gives.keys())
    if both:
        raise ConfigError(f"the signature {text!r} has {both[0]!r} on both sides")


def _fields(side: str, text: str) -> dict[str, Any]:
    try:
        # Parsed and looked at; never compiled, never evaluated.
        body = ast.parse(f"def side({' '.join(side.split())}): ...").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ConfigError(f"the signature {text!r} cannot be read near {side.strip()!r}") from error
    function = body[0]
    if len(body) != 1 or not isinstance(function, ast.FunctionDef) or len(function.body) != 1:
        raise ConfigError(f"the signature {text!r} cannot be read near {side.strip()!r}")
    given = function.args
    others = [given.vararg, given.kwarg, *given.kwonlyargs, *given.posonlyargs, *given.defaults, function.returns]
    if any(one is not None for one in others) or not given.args:
        raise ConfigError(f"the signature {text!r} needs plain fields, `name` or `name: type`, near {side.strip()!r}")
    if any(one.arg.startswith("_") for one in given.args):
        raise ConfigError(f"the signature {text!r} has a field whose name begins with an underscore")
    if len({one.arg for one in given.args}) < len(given.args):
        raise ConfigError(f"the signature {text!r} has a name twice near {side.strip()!r}")
    return {one.arg: str if one.annotation is None else _type(one.annotation) for one in given.args}


def _type(node: ast.expr) -> Any:
    match node:
        case ast.Constant(value=None):
            return None
        case ast.Name(id=name) if name in _PLAIN:
            return _PLAIN[name]
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            return Union[_type(left), _type(right)]  # noqa: UP007  a union of None and None is no `|`
        case ast.Subscript(value=ast.Name(id=name), slice=inside):
            return _generic(name, inside)
        case _:
            raise _unknown(node)


def _generic(name: str, inside: ast.expr) -> Any:
    parts = inside.elts if isinstance(inside, ast.Tuple) else [inside]
    if name == "Literal":
        return Literal[tuple(_constant(part) for part in parts)]
    if name == "tuple" and len(parts) == 2 and isinstance(parts[1], ast.Constant) and parts[1].value is ...:
        return tuple[_type(parts[0]), ...]
    kinds = tuple(_type(part) for part in parts)
    match name, len(kinds):
        case (("list" | "List"), 1):
            return list[kinds[0]]
        case (("set" | "Set"), 1):
            return set[kinds[0]]
        case (("dict" | "Dict"), 2):
            return dict[kinds[0], kinds[1]]
        case (("tuple" | "Tuple"), n) if n:
            return tuple[kinds]
        case "Optional", 1:
            return Optional[kinds[0]]  # noqa: UP045  as above
        case "Union", n if n:
            return Union[kinds]  # noqa: UP007  as above
        case _:
            raise ConfigError(f"the type {name}[…] cannot be used with {len(kinds)} types in a signature's text")


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
        f"the type {ast.unparse(node)!r} is not known in a signature's text; there are {', '.join(_PLAIN)}, containers"
        " of them, Optional, Union and Literal. For types of your own, give a pair of pydantic models"
    )


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
