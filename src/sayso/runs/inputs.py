"""What a workflow takes: what its steps take and no earlier step gives them, by the steps' own types.

So a model that is offered the workflow as a tool sees what to give, a wrong input is refused before the first step,
and a value of a program's own class finds its way back after a pause. What several steps can do without, each by
another default, is no input: each keeps its own. The invariant: one name means one thing to all steps.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable, Mapping
from inspect import Parameter
from typing import Annotated, Any, NamedTuple

from sayso.model.signature import fields_of, hints_of

__all__ = ["Taken", "inputs_of"]

_OWN = object()
_VARIABLE = {Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD}


class Taken(NamedTuple):
    """What one step takes.

    Attributes:
        function: Behind it.
        before: The steps before it, whose results it may take by their names.
        given: Arguments that it is given by the workflow's author.
        optional: Arguments that it can do without.
    """

    function: Callable[..., Any]
    before: Collection[str]
    given: Mapping[str, Any]
    optional: Collection[str]


def inputs_of(steps: Iterable[Taken], hooks: Iterable[Callable[..., Any]] = ()) -> inspect.Signature:
    """Return the signature of a workflow of these steps; `hooks` are its own, which may ask for more."""
    found: dict[str, Parameter] = {}
    takes_any = False
    for step in steps:
        for parameter in _parameters(step):
            takes_any |= parameter.kind is Parameter.VAR_KEYWORD
            if parameter.kind not in _VARIABLE:
                found[parameter.name] = _joined(found.get(parameter.name), parameter)
    for hook in hooks:
        for name, parameter in inspect.signature(hook).parameters.items():
            if parameter.kind not in _VARIABLE:
                found.setdefault(name, Parameter(name, Parameter.KEYWORD_ONLY, annotation=Any))
    more = [Parameter("inputs", Parameter.VAR_KEYWORD, annotation=Any)] if takes_any and "inputs" not in found else []
    return inspect.Signature([*(p for p in found.values() if p.default is not _OWN), *more])


def _parameters(step: Taken) -> Iterable[Parameter]:
    hints = hints_of(inspect.unwrap(step.function))
    parameters = inspect.signature(step.function).parameters
    said = fields_of(parameters.values(), lambda: hints)
    for name, parameter in parameters.items():
        if name in step.before or name in step.given:
            continue
        annotation = hints.get(name, Any if isinstance(parameter.annotation, str) else parameter.annotation)
        default = parameter.default
        if name in said and said[name].is_required:
            annotation, default = Annotated[said[name].info.annotation, said[name].info], Parameter.empty
        if parameter.kind in _VARIABLE:
            yield parameter
        elif name in step.optional and default is Parameter.empty:
            continue  # it makes one of its own, unless a caller of the step gives one
        else:
            yield Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
    for hook in filter(callable, step.given.values()):
        for name in inspect.signature(hook).parameters:
            if name not in step.before:
                yield Parameter(name, Parameter.KEYWORD_ONLY, annotation=Any)


def _joined(known: Parameter | None, new: Parameter) -> Parameter:
    if known is None:
        return new
    typed = new if known.annotation in {Any, Parameter.empty} else known
    if known.default is Parameter.empty or new.default is Parameter.empty:
        return typed.replace(default=Parameter.empty)
    is_shared = type(known.default) is type(new.default) and known.default == new.default
    return typed.replace(default=known.default if is_shared else _OWN)
