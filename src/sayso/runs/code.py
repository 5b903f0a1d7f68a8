"""Whether the code that goes on with a run is the code that began it, where that matters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sayso.runs.runnable import Runnable

__all__ = ["changes", "fingerprints"]


def fingerprints(runnable: Runnable) -> dict[str, str]:
    """Return the digest of what each runnable takes, by path; what it does inside may change freely."""
    return dict(_walk(runnable, runnable.name, ()))


def _walk(runnable: Runnable, path: str, above: tuple[int, ...]) -> Iterator[tuple[str, str]]:
    yield path, f"{runnable.kind}:{runnable.shape.digest}"
    if id(runnable) in above:
        return  # an agent that may call itself
    for name, part in runnable.parts().items():
        yield from _walk(part, f"{path}.{name}", (*above, id(runnable)))


def changes(known: Mapping[str, Any], runnable: Runnable) -> list[str]:
    """Return what stands in the way of going on, in sentences; new tools do not."""
    if known["name"] != runnable.name:
        return [f"this run was begun by {known['name']!r}, not by {runnable.name!r}"]
    now = fingerprints(runnable)
    problems: list[str] = []
    for path, digest in known["code"].items():
        if path not in now:
            problems.append(f"{path} is gone since the run was begun")
        elif now[path] != digest:
            problems.append(f"{path} takes other arguments than when the run was begun")
    return problems
