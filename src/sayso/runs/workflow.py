"""`Workflow`: a graph of steps, each of which runs as soon as its dependencies have results.

`graphlib` determines the order; independent steps run concurrently. Values are passed by name: a parameter with the
name of a step gets that step's result, and any other parameter gets the workflow's input of that name. Each step is a
place in the run, so a resumed run does only what is left. The inputs of a workflow are the parameters of its steps that
no earlier step provides, with the steps' types, so a model that gets the workflow as a tool sees them.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from graphlib import TopologicalSorter
from inspect import Parameter
from typing import Annotated, Any, ClassVar, NamedTuple, Unpack, cast

from sayso import errors
from sayso.gates.exceptions import trimmed
from sayso.model.parameters import fields_of, hints_of
from sayso.runs.agent import Tool
from sayso.runs.definition import Definition, RunnableOptions, checked_name
from sayso.runs.engine import run_step
from sayso.runs.events import Denied, Failed, fault_of, is_claimed
from sayso.runs.runnable import Runnable
from sayso.runs.state import LostValue, StepContext, current_step

_OWN = object()
_VARIABLE = {Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD}


class _Step(NamedTuple):
    """A step of a workflow.

    Attributes:
        before: The steps that were added before it, whose results it can take by name.
        depends_on: The steps that must end first.
        given: The arguments that the workflow's author provides.
    """

    runnable: Runnable
    before: Collection[str]
    depends_on: Collection[str]
    given: Mapping[str, Any]

    def parameters(self) -> Iterable[Parameter]:
        """Yield the parameters that the workflow's input must provide, with the step's types."""
        function = self.runnable.function
        hints = hints_of(inspect.unwrap(function))
        parameters = inspect.signature(function).parameters
        fields = fields_of(parameters.values(), lambda: hints)
        for name, parameter in parameters.items():
            if name in self.before or name in self.given:
                continue
            annotation = hints.get(name, Any if isinstance(parameter.annotation, str) else parameter.annotation)
            default = parameter.default
            if name in fields and fields[name].is_required:
                annotation, default = Annotated[fields[name].info.annotation, fields[name].info], Parameter.empty
            if parameter.kind in _VARIABLE:
                yield parameter
            elif name in self.runnable.default_params and default is Parameter.empty:
                continue  # the step creates the value, unless its caller passes one
            else:
                yield Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
        for hook in filter(callable, self.given.values()):
            for name in inspect.signature(hook).parameters:
                if name not in self.before:
                    yield Parameter(name, Parameter.KEYWORD_ONLY, annotation=Any)


def _signature_of(steps: Iterable[_Step], hooks: Iterable[Callable[..., Any]]) -> inspect.Signature:
    """Return the signature of a workflow with these steps; its `hooks` can require further inputs."""
    found: dict[str, Parameter] = {}
    takes_any = False
    for step in steps:
        for parameter in step.parameters():
            takes_any |= parameter.kind is Parameter.VAR_KEYWORD
            if parameter.kind not in _VARIABLE:
                found[parameter.name] = _joined(found.get(parameter.name), parameter)
    for hook in hooks:
        for name, parameter in inspect.signature(hook).parameters.items():
            if parameter.kind not in _VARIABLE:
                found.setdefault(name, Parameter(name, Parameter.KEYWORD_ONLY, annotation=Any))
    more = [Parameter("inputs", Parameter.VAR_KEYWORD, annotation=Any)] if takes_any and "inputs" not in found else []
    return inspect.Signature([*(p for p in found.values() if p.default is not _OWN), *more])


def _joined(known: Parameter | None, new: Parameter) -> Parameter:
    if known is None:
        return new
    typed = new if known.annotation in {Any, Parameter.empty} else known
    if known.default is Parameter.empty or new.default is Parameter.empty:
        return typed.replace(default=Parameter.empty)
    is_shared = type(known.default) is type(new.default) and known.default == new.default
    return typed.replace(default=known.default if is_shared else _OWN)


class Workflow(Runnable):
    """A graph of steps. Calling it with the steps' inputs returns a lazy run, whose output has each step's by name.

    Args:
        name: See `Runnable`.
        options: See `Runnable`.
    """

    kind: ClassVar[str] = "workflow"
    needs_values: ClassVar[bool] = True

    @trimmed
    def __init__(self, *, name: str = "workflow", **options: Unpack[RunnableOptions]) -> None:
        self._steps: dict[str, _Step] = {}
        checked_name(name)

        async def go(**inputs: Any) -> dict[str, Any]:
            return await self._flow(inputs)

        go.__name__ = go.__qualname__ = name
        self._hooks = [hook for hook in map(options.get, ("requires_approval", "approval_prompt")) if callable(hook)]
        vars(go)["__signature__"] = _signature_of((), self._hooks)
        # Its approval is valid until it ends; the history has its steps, and each of them starts only once.
        options.setdefault("idempotent", True)
        super().__init__(name=name, function=go, **options)

    @trimmed
    def step(
        self, step: Runnable | Callable[..., Any], /, *, name: str | None = None, depends_on: Collection[str] = (),
        **given: Any,
    ) -> Workflow:  # fmt: skip
        """Add a step and return the workflow.

        Args:
            step: A tool, agent, workflow or plain function.
            name: The name of the step; by default its own name.
            depends_on: Names of steps that must end first, in addition to those whose results it takes.
            given: Arguments for the step. A callable gets earlier results by parameter name, and returns the value.

        Raises:
            ConfigError: The name is in use, `depends_on` names a step that was not added before, or the step does not
                take one of the given arguments.
        """
        runnable = step if isinstance(step, Runnable) else Tool(step, name=name)
        key = checked_name(name or runnable.name)
        if key in self._steps:
            raise errors.ConfigError(f"{self.name} has a step {key!r} already; give this one another name=")
        if any(part is self for part in _within(runnable)):
            raise errors.ConfigError(f"step {key!r} is or contains {self.name} itself, which would never end")
        named = [depends_on] if isinstance(depends_on, str) else depends_on
        if not isinstance(named, Collection):  # pyright: ignore[reportUnnecessaryIsInstance]  callers may be untyped
            raise errors.ConfigError(f"depends_on= takes the names of steps, not {depends_on!r}")
        unknown = sorted(set(named) - set(self._steps))
        if unknown:
            raise errors.ConfigError(f"step {key!r} depends on {unknown[0]!r}, which is not a step added before it")
        strange = [] if runnable.signature.rest is not None else sorted(set(given) - set(runnable.signature.names))
        if strange:
            raise errors.ConfigError(f"step {key!r} is given {strange[0]!r}, which it does not take")
        taken = {parameter for parameter in runnable.signature.names if parameter in self._steps} - set(given)
        hooks = (hook for hook in given.values() if callable(hook))
        read = {name for hook in hooks for name in inspect.signature(hook).parameters if name in self._steps}
        steps = {**self._steps, key: _Step(runnable, tuple(self._steps), {*named, *taken, *read}, given)}
        vars(self.function)["__signature__"] = _signature_of(steps.values(), self._hooks)
        self._steps = steps
        # Its input and its masking derive from its steps.
        for known in ("gate", "schema", "shape", "signature", "_exact"):
            vars(self).pop(known, None)
        return self

    def check_names(self) -> None:
        """Check nothing yet, because its steps define its inputs, and each is checked when it is added."""

    def hidden(self) -> Collection[str]:
        """Return the names that its steps mask, because its input goes to them."""
        return {name for step in self._steps.values() for name in step.runnable.secrets()}

    def parts(self) -> Mapping[str, Runnable]:
        """Return the steps by name."""
        return {name: step.runnable for name, step in self._steps.items()}

    async def _flow(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """Run the steps, each as soon as its dependencies have results, and return the results by name."""
        context = cast("StepContext", current_step())
        sorter = TopologicalSorter({name: step.depends_on for name, step in self._steps.items()})
        sorter.prepare()  # there is no cycle, because steps name only earlier ones
        tasks: dict[asyncio.Future[Any], str] = {}
        results: dict[str, Any] = {}
        faults: list[BaseException] = []
        claimed, again = list[str](), set[str]()
        try:
            while (ready := sorter.get_ready()) or tasks or claimed:
                if not (ready or tasks):  # of steps with one key one is started; the others get its result, now
                    ready, claimed = tuple(claimed), []
                    again.update(ready)
                is_only = len(ready) == 1 and not tasks
                for name in ready:
                    work = self._run_step(context, name, {**inputs, **results}, inputs, is_only=is_only)
                    tasks[asyncio.ensure_future(work)] = name
                done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    name, fault = tasks.pop(task), task.exception()
                    if is_claimed(fault) and name not in again and len(self._steps) > 1:
                        claimed.append(name)
                    elif fault is None:
                        results[name] = task.result()
                        sorter.done(name)
                    else:
                        faults.append(fault)
        finally:
            for task in tasks:  # only a cancelled run has any
                task.cancel()
            if tasks:
                await asyncio.wait(tasks)
        return _output(results, faults)

    async def _run_step(
        self, context: StepContext, name: str, known: Mapping[str, Any], inputs: Mapping[str, Any], *, is_only: bool
    ) -> Any:  # fmt: skip
        step = self._steps[name]
        given = {wanted: _whole(known[wanted]) for wanted in step.runnable.signature.names if wanted in known}
        if step.runnable.signature.rest is not None:
            given = {**inputs, **given}
        for parameter, value in step.given.items():
            if callable(value):
                taken = (wanted for wanted in inspect.signature(value).parameters if wanted in known)
                given[parameter] = value(**{wanted: _whole(known[wanted]) for wanted in taken})
            else:
                given[parameter] = value
        child = context.child(step.runnable, name, (len(step.before),), is_only=is_only)
        return await run_step(child, given)


def _output(results: Mapping[str, Any], faults: Sequence[BaseException]) -> dict[str, Any]:
    """Return the results of the steps by name, or raise the fault that counts."""
    shown = {name: value.plain if isinstance(value, LostValue) else value for name, value in results.items()}
    if faults:
        fault = fault_of(faults)
        if isinstance(fault, Denied | Failed):
            fault.partial = shown
        raise fault
    return shown


def _within(runnable: Definition) -> Iterator[Definition]:
    """Yield a runnable and all runnables that it may call."""
    yield runnable
    for part in runnable.parts().values():
        yield from _within(part)


def _whole(value: Any) -> Any:
    """Return a step's result for another step; raise `Failed` if the value could not be stored."""
    if isinstance(value, LostValue):
        raise Failed("ValueNotKeptError", value.reason)
    return value
