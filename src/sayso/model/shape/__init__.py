"""The shape of a call's arguments, or of a question's answer: which names and types it takes."""

from sayso.model.shape.whole import (
    Shape,
    ShapeError,
)

__all__ = [
    "Shape",
    "ShapeError",
]
