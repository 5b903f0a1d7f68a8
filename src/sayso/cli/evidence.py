"""What the commands about evidence share: whose key signs, how an instant is read, and how a file is written."""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

import click

from sayso import clock, config, errors
from sayso.audit.checkpoint import Checkpoint
from sayso.audit.signing import Signer, checked_key, signer_at
from sayso.model import duration

__all__ = ["checkpoint_values", "counted", "instant", "signed", "signer", "told", "trusted", "written_to"]


def instant(ctx: click.Context, param: click.Parameter, value: str | None) -> datetime | None:
    """Return what an option says of time: a day, an instant (in UTC where it has no zone), or a span ago (`90d`)."""
    if value is None:
        return None
    try:
        try:
            found = datetime.fromisoformat(value)
        except ValueError:
            return clock.now() - duration.parse(value)
        return found.replace(tzinfo=found.tzinfo or UTC).astimezone(UTC)
    except (OverflowError, errors.ConfigError) as error:
        said = f"{value!r} is no day, no instant and no span, as 2026-01-31 and 90d are"
        raise click.BadParameter(said, ctx, param) from error


def counted(count: int, what: str) -> str:
    """Return a number of things, as people say it."""
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"


def signer() -> Signer | None:
    """Return who signs here; raises `ConfigError` where a key is configured and cannot be used."""
    path = config.signing_key()
    return None if path is None else signer_at(path)


def trusted(key: str | None) -> str | None:
    """Return the public key that `--key` gave, itself or in a file."""
    if key is None:
        return None
    try:
        return checked_key(key)
    except errors.ConfigError as error:
        raise click.BadParameter(str(error), param_hint="--key") from error


def signed(key: str | None) -> str:
    """Say by whom something is signed."""
    return "NOT SIGNED" if key is None else f"signed by {key}"


def checkpoint_values(made: Checkpoint | None) -> dict[str, Any] | None:
    """Return what a checkpoint says, as programs are told it."""
    return None if made is None else made._asdict() | {"at": clock.written(clock.instant(made.at))}


def told(made: Checkpoint) -> str:
    """Return what a checkpoint says, for people: from when it is, over how much, and who signed it."""
    return (
        f"of {clock.instant(made.at):%Y-%m-%d %H:%M:%S}Z over {counted(made.rows, 'row')}"
        f" in {counted(made.chains, 'chain')}, {signed(made.key)}"
    )


@contextmanager
def written_to(path: Path, *, may_replace: bool = True) -> Generator[IO[str]]:
    """Let a file be written, for its owner alone; it stands there whole, or not at all.

    What is there and is no file, as `/dev/null` or a pipe, is written to as it is, and not replaced.

    Raises:
        ConfigError: It cannot be written.
    """
    if path.exists() and not path.is_file() and not path.is_dir():
        with path.open("w", encoding="utf-8", newline="") as file:
            yield file
        return
    part = path.with_name(f"{path.name}.part")
    try:
        if not may_replace and path.exists():
            raise errors.ConfigError(f"{path} is there already, and is not written over; nothing was written")
        with suppress(FileNotFoundError):
            part.unlink()
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8", newline="") as file:
            yield file
        part.replace(path)
    except OSError as error:
        raise errors.ConfigError(f"{path} cannot be written ({error.strerror}); nothing was written") from error
    finally:
        with suppress(OSError):
            part.unlink()
