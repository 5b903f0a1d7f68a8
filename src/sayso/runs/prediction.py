"""What a module returns: fields by name, as attributes and as items.

A prediction is a dict, so it is JSON where its fields are. A field that is called like one of dict's own methods
(`items`, `keys`, …) is reached as an item only.
"""

from __future__ import annotations

from typing import Any

__all__ = ["Prediction"]


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
