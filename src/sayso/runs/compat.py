"""Store names from other approval libraries, and the check that a store can issue the single right to start a call.

A program that passes `tracing_provider=JsonlTracingProvider.configured(_path=…)` gets a store of sayso. Invariant: a
store that cannot issue this right is rejected when a runnable is created, and never used without that protection.
"""

from __future__ import annotations

from pathlib import Path

from sayso import config, errors
from sayso.stores.base import Store


class InMemoryTracingProvider:
    """An alias of `store="memory:"`, whose content is lost when the process ends. Pass the class or `configured()`."""

    @classmethod
    def configured(cls) -> Store:
        """Return the store, the same one for the whole process."""
        return config.open_store("memory:")


class JsonlTracingProvider:
    """An alias of `store="jsonl:path"`."""

    @classmethod
    def configured(cls, *, _path: str | Path) -> Store:
        """Return the store in this file, the same object for the same file."""
        return config.open_store(f"jsonl:{_path}")


class SqliteTracingProvider:
    """An alias of `store="sqlite:///path"`."""

    @classmethod
    def configured(cls, *, _path: str | Path) -> Store:
        """Return the store in this file, the same object for the same file."""
        return config.open_store(f"sqlite:///{_path}")


def store_of(store: object = None, tracing_provider: object = None) -> Store | str | None:
    """Return the store from `store=` or its alias.

    Args:
        store: A store, its address, one of the classes here, or None for the configured store.
        tracing_provider: An alias of `store`.

    Raises:
        ConfigError: It is not a store, it cannot issue the single right to start a call, or both arguments were given.
    """
    if store is not None and tracing_provider is not None and store is not tracing_provider:
        raise errors.ConfigError("`store=` and `tracing_provider=` are two names of one setting; give one of them")
    given = store if tracing_provider is None else tracing_provider
    if given is None or isinstance(given, str):
        config.check_store(given, "store" if tracing_provider is None else "tracing_provider")
        return given
    if given is InMemoryTracingProvider or isinstance(given, InMemoryTracingProvider):
        return InMemoryTracingProvider.configured()
    if not isinstance(given, Store):
        option = "store" if tracing_provider is None else "tracing_provider"
        if given is JsonlTracingProvider or given is SqliteTracingProvider:
            raise errors.ConfigError(f"{option}= needs a file; give {given.__name__}.configured(_path=...)")
        raise errors.ConfigError(
            f"{option}= takes a sayso.stores.base.Store, not {given!r}, which could not prevent a call from starting"
            " twice (see docs/guides/write-a-store.md)"
        )
    return given


def claim_approval(parent_id: str, approval_id: str, run_id: str, *, store: object = None) -> bool:
    """Take the single right to execute an approved call: an alias of the store's verb `start`.

    It is for workers that execute the call themselves; a resumed runnable does this itself. Durable on return.

    Args:
        parent_id: The paused run.
        approval_id: The id of the request, as in `ApprovalEvent.approval_id`.
        run_id: A random id of the claimant. It is the fencing token, which the store's `finish` requires.
        store: As for `store_of`.

    Returns:
        True if the caller may execute the call; False if somebody else was first.

    Raises:
        NotApprovedError: No such call of this run is approved.
        StartRefusedError: The approval has ended.
    """
    where = config.open_store(store_of(store))
    if where.get(approval_id).run_id != parent_id:
        raise errors.NotApprovedError(approval_id, state=f"not of run {parent_id!r}")
    try:
        where.start(approval_id, run_id)
    except (errors.AlreadyStartedError, errors.OutcomeUnknownError):
        return False
    return True
