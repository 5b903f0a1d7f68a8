"""`key`: make the key that signs checkpoints, anchors and receipts, and show its public half.

Invariant: the private half is never printed.
"""

from __future__ import annotations

from pathlib import Path

import click

from sayso import config
from sayso.audit.signing import make_key, signer_at
from sayso.cli.say import complain, out
from sayso.errors import ConfigError
from sayso.model.text import escape

__all__ = ["key", "new", "show"]


@click.group()
def key() -> None:
    """Make the key that signs evidence, or show its public half."""


@key.command(short_help="Make a private key, and print the public one.")
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path))
def new(file: Path) -> int:
    """Make a private key in FILE, for its owner alone, and print the public one.

    Name the file in sayso.toml, under [evidence], or in SAYSO_SIGNING_KEY; give the public key to whoever verifies.
    """
    out(make_key(file.expanduser()))
    complain(f"the private key is in {escape(str(file))}; checkpoints are signed where sayso.toml says [evidence] key")
    return 0


@key.command(short_help="Print the public half of a key.")
@click.argument("file", metavar="[FILE]", required=False, type=click.Path(path_type=Path))
def show(file: Path | None) -> int:
    """Print the public half of the key in FILE, else of the configured one."""
    path = file or config.signing_key()
    if path is None:
        raise ConfigError("no key is configured: `sayso key new FILE` makes one, and [evidence] key or"
                          " SAYSO_SIGNING_KEY names it")  # fmt: skip
    out(signer_at(path.expanduser()).key)
    return 0
