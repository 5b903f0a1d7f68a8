"""What a caller gives a run to go on with: decisions and answers by id, in the spellings of the approval face."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, cast

from pydantic import BaseModel, ConfigDict, Field, StrictBool

from sayso import clock

__all__ = ["ApprovalPolicyDecision", "ApprovalResolution", "Cancel", "Resolution", "resolutions_of"]

_CANCEL = "sayso.cancel"


class ApprovalPolicyDecision(BaseModel):
    """What a `requires_approval` callable may answer, instead of a bool.

    Attributes:
        required: Whether a person must approve the call.
        prompt, description, kind, ui: For this call, instead of the tool's own.
        metadata: Of yours; on the event.
    """

    required: StrictBool
    prompt: str | None = None
    description: str | None = None
    kind: str | None = None
    ui: dict[str, Any] | None = None
    metadata: dict[str, Any] = Field(default_factory=dict)


def _now_ms() -> int:
    return clock.microseconds(clock.now()) // 1000


class ApprovalResolution(BaseModel):
    """A decision about one held call.

    Attributes:
        approved: Whether it may run.
        reason: Why, or why not; the model is told.
        approver_id: Who decided; the configured reviewer when not given.
        comment: A note; it is recorded and told to the model after the reason.
        decided_at: Unix milliseconds; the instant of construction when not given. The record's own time is the store's.
        expires_at: Unix milliseconds from which on the decision does not count any more.
        override_input: With an approval: changed arguments, merged over those proposed and validated before it counts.
        metadata: Of yours, JSON values; kept with the decision.

    Raises:
        pydantic.ValidationError: A field that there is not: by a misspelt `override_input` the call would run as it is.
    """

    model_config = ConfigDict(extra="forbid")

    approved: StrictBool
    reason: str | None = None
    approver_id: str | None = None
    comment: str | None = None
    decided_at: int = Field(default_factory=_now_ms)
    expires_at: int | None = None
    override_input: dict[str, Any] | None = None
    metadata: dict[str, Any] = Field(default_factory=dict)

    def is_expired(self, now_ms: int | None = None) -> bool:
        """Say whether the decision does not count any more."""
        return self.expires_at is not None and (_now_ms() if now_ms is None else now_ms) >= self.expires_at


class Cancel(BaseModel):
    """A resume value that ends the whole run: nothing more runs, and the model is told nothing.

    Attributes:
        reason: Why; it becomes the status's message.
        type: In JSON, `{"type": "sayso.cancel", "reason": …}` stands for it.
    """

    type: Literal["sayso.cancel", "timbal.cancel"] = _CANCEL
    reason: str | None = None

    def __init__(self, reason: str | None = None, **fields: Any) -> None:
        super().__init__(reason=reason, **fields)


class Resolution:
    """One value of `resume=` or `approval_decisions=`, read as what it may be.

    What it is depends on the request: a call takes an approval, a question any value as its answer.

    Attributes:
        given: The value.
        cancel: Set where it is a `Cancel`.
    """

    def __init__(self, given: Any) -> None:
        self.given: Any = given
        self.cancel = _cancel_of(given)

    def approval(self) -> ApprovalResolution:
        """Return it as a decision about a call.

        Raises:
            TypeError: It is none: a text such as "no" is not taken for a yes.
            pydantic.ValidationError: A dict that is none.
        """
        if isinstance(self.given, ApprovalResolution):
            return self.given
        if isinstance(self.given, bool):
            return ApprovalResolution(approved=self.given)
        kind = type(self.given).__name__
        if kind != "dict":
            raise TypeError(
                "a decision about a call is True, False, an ApprovalResolution or a dict with the same fields,"
                f" not {kind}"
            )
        return ApprovalResolution.model_validate(self.given, strict=True)


def _cancel_of(given: Any) -> Cancel | None:
    if isinstance(given, Cancel):
        return given
    if isinstance(given, Mapping):
        fields = cast("Mapping[str, Any]", given)
        if fields.get("type") in {_CANCEL, "timbal.cancel"}:
            reason = fields.get("reason")
            return Cancel(reason if isinstance(reason, str) else None)
    return None


def resolutions_of(*given: Mapping[str, Any] | None) -> dict[str, Resolution]:
    """Return the values by id.

    Raises:
        TypeError: They are not given by id.
        ValueError: One id has two values: nobody can say which was meant.
    """
    found: dict[str, Resolution] = {}
    for values in given:
        if values is not None:
            if not isinstance(values, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]  callers may be untyped
                raise TypeError(f"decisions are given by id, in a dict, not as {type(values).__name__}")
            for request_id, value in values.items():
                if request_id in found and found[request_id].given != value:
                    raise ValueError(f"{request_id} is decided twice, by approval_decisions= and by resume=")
                found[request_id] = Resolution(value)
    return found
