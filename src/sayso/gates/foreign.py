"""The gate of a call that is no Python function: a foreign tool, called with one dict that its schema describes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sayso.gates.captured import CapturedValues
from sayso.gates.options import Gate, tool_of
from sayso.model.parameters import Signature, chosen
from sayso.model.schema import Schema


def no_function(**_: Any) -> Any:
    """Stand in for the function of a held call."""
    raise RuntimeError("a held call has no function of its own")  # `once` brings one


class _ByName(Signature):
    """How a foreign tool is called: with one dict."""

    def __init__(self, names: tuple[str, ...]) -> None:
        super().__init__(no_function)
        self.names = names

    def spread(self, arguments: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return (dict(arguments),), {}


@dataclass(frozen=True, eq=False)
class ForeignGate(Gate):
    """The gate of a call that is no Python function: its schema is given, and its names are not known for sure."""

    given: Schema = field(default_factory=lambda: Schema.of_json({"type": "object"}))

    def __post_init__(self) -> None:
        tool = tool_of(no_function, self.named)
        derived = {
            "tool": tool, "name": tool, "signature": _ByName(self.given.names), "is_self_contained": True,
            "_bare": self.given, "captured": CapturedValues(no_function), "_by_captured": {},
            "_hook_arguments": {id(hook): chosen(hook) for hook in (self.when, self.effect) if callable(hook)},
        }  # fmt: skip
        self.__dict__.update(derived)
