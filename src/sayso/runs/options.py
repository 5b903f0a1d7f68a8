"""The options of tools, agents and workflows, for type checkers; `sayso.runs.runnable.Runnable` explains them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from datetime import timedelta
from typing import Any, TypedDict

from sayso.model.reviewer import Reviewer
from sayso.stores.base import Store

__all__ = ["CommonOptions", "RunnableOptions", "ToolOptions"]


class CommonOptions(TypedDict, total=False):
    """What all of them take, beside what each names itself."""

    requires_approval: bool | Callable[..., Any]
    approval_prompt: str | Callable[..., Any] | None
    approval_description: str | Callable[..., Any] | None
    approval_redact_keys: Collection[str]
    approval_redactor: Callable[[dict[str, Any]], Any] | None
    approval_ui: Any
    approval_kind: str | None
    expires: timedelta | str
    approval_expires: timedelta | str
    quorum: int
    roles: Collection[str]
    risk: str | None
    idempotent: bool
    verify: Callable[..., Any] | None
    store: Store | str | None
    tracing_provider: Any
    escalate_after: timedelta | str | None
    escalate_to: Collection[str | Reviewer]
    notify_arguments: bool


class ToolOptions(CommonOptions, total=False):
    """What tools take; `default_params` is apart, because it changes which arguments a call needs."""

    ambiguous: type[BaseException] | Collection[type[BaseException]]


class RunnableOptions(CommonOptions, total=False):
    """What agents and workflows take."""

    description: str | None
    default_params: Mapping[str, Any] | None
