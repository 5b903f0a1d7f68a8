"""What would run, and what is asked.

Both are bound when they are asked: the canonical form is what a person is shown, what the fingerprint covers and
what an executor runs from. `repr` never shows it; what people see comes from the masked form.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

from sayso.model import canonical
from sayso.model.fingerprint import shown_digest

__all__ = ["Call", "Question"]


@dataclass(frozen=True)
class Call:
    """A function and the arguments it would run with.

    Attributes:
        tool: Qualified name, `module:function`.
        name: The function's own name.
        form: Canonical form of the arguments, as JSON text, with their real values.
        masked: The same with secrets masked; None where there are none.
        digest: Digest over tool, shape and form (see `sayso.model.fingerprint`).
        shape: The function's parameters and their types, as JSON text (see `sayso.model.shape`).
        shape_digest: Digest of that.
    """

    tool: str
    name: str
    form: str = field(repr=False)
    masked: str | None = field(repr=False)
    digest: str
    shape: str = field(repr=False)
    shape_digest: str

    @property
    def shown(self) -> dict[str, Any]:
        """The masked arguments as a tree of the canonical form, for `sayso.model.show`."""
        return cast("dict[str, Any]", canonical.load(self.shown_text))

    @property
    def shown_text(self) -> str:
        """The masked arguments as the text of their canonical form."""
        return self.form if self.masked is None else self.masked

    @property
    def shown_digest(self) -> str:
        """Digest of what a person was shown."""
        return shown_digest(self.shown_text)

    @property
    def arguments(self) -> dict[str, Any]:
        """The masked arguments as plain JSON values, by name."""
        return cast("dict[str, Any]", canonical.display(self.shown))


@dataclass(frozen=True)
class Question:
    """A typed question to a person.

    Attributes:
        text: What is asked; it comes from the program.
        digest: Digest over text, type and occasion.
        shape: The answer's type, as the shape of one field named `answer`.
        shape_digest: Digest of that.
    """

    text: str
    digest: str
    shape: str = field(repr=False)
    shape_digest: str

    @property
    def shown_digest(self) -> str:
        """Digest of what a person was shown."""
        return shown_digest(self.text)
