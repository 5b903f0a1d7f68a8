"""What can be wrong with a document of the protocol, or with what is done to one.

    SaysoError
    ├── NotConformantError          a document does not fit the protocol's schema
    ├── ConfirmNotFoundError        no Confirm has this id, no plan was submitted under it
    └── ConfirmRefusedError         the Confirm or plan cannot change in this way; nothing was decided
        ├── ConfirmLockedError      its governance is locked
        └── MismatchError           Confirm and target are not about the same thing

Invariant: whoever catches one knows that nothing was decided, asked or started.
"""

from __future__ import annotations

from collections.abc import Sequence

from sayso.errors import SaysoError

__all__ = [
    "ConfirmLockedError",
    "ConfirmNotFoundError",
    "ConfirmRefusedError",
    "MismatchError",
    "NotConformantError",
]

_SHOWN = 5


class NotConformantError(SaysoError):
    """A document does not fit the protocol's schema.

    Attributes:
        what: Which kind of document, e.g. `Confirm`.
        problems: One line each: a JSON pointer, and what is wrong there, e.g. `/target_id: 'plan-123' is no UUID v4`.
    """

    def __init__(self, what: str, problems: Sequence[str]) -> None:
        rest = "" if len(problems) <= _SHOWN else f"; and {len(problems) - _SHOWN} more"
        super().__init__(f"this {what} does not conform to the protocol: {'; '.join(problems[:_SHOWN])}{rest}")
        self.what = what
        self.problems = tuple(problems)


class ConfirmNotFoundError(SaysoError):
    """No Confirm, plan or request has this id.

    Attributes:
        wanted: The id that was looked for.
    """

    def __init__(self, wanted: str) -> None:
        super().__init__(f"no Confirm, plan or request {wanted!a} in this store; `sayso ls --all` lists what is there")
        self.wanted = wanted


class ConfirmRefusedError(SaysoError):
    """The Confirm or plan cannot change in this way.

    Attributes:
        confirm_id: Which Confirm, or the plan where there is none yet.
    """

    def __init__(self, confirm_id: str, reason: str) -> None:
        super().__init__(f"{reason}; nothing was changed")
        self.confirm_id = confirm_id
        self.reason = reason


class ConfirmLockedError(ConfirmRefusedError):
    """The Confirm's governance is locked."""

    def __init__(self, confirm_id: str) -> None:
        super().__init__(confirm_id, f"Confirm {confirm_id!a} is locked (governance.locked); unlock it first")


class MismatchError(ConfirmRefusedError):
    """The Confirm is about something else."""

    def __init__(self, confirm_id: str, target_id: str, other_id: str) -> None:
        super().__init__(confirm_id, f"Confirm {confirm_id!a} is about {target_id!a}, and this is {other_id!a}")
        self.target_id = target_id
        self.other_id = other_id
