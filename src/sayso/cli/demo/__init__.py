"""`sayso demo`: a real destructive call on real files stops, is decided by a person, and runs once.

`tour` tells the two stories, `agent` is the program whose calls are held, `cast` starts and ends processes, `inbox` is
where a person or the simulated reviewer decides, `place` is the folder, `count` compares what the record promises with
what is on the disk. Only the command itself loads here: the agent's process passes this file, too.
"""

from __future__ import annotations

from pathlib import Path

import click

__all__ = ["demo"]


@click.command()
@click.option(
    "--dir", "folder", type=click.Path(file_okay=False, path_type=Path), help="Where to make the folder sayso-demo."
)
@click.option("--crash", "with_crash", is_flag=True, help="Kill the agent, twice, at the worst moments.")
@click.option("--model", metavar="NAME", help="Let a provider's model be the agent: openai:gpt-5 (extra `agent`).")
def demo(folder: Path | None, with_crash: bool, model: str | None) -> int:
    """Watch a deletion wait for a person, and happen once.

    A scripted agent tidies a folder of real files. Two harmless calls pass by rule, two deletions are held. On a
    terminal you decide, there or in the inbox that is opened; without one a simulated reviewer does, through the
    inbox's HTTP API.
    Nothing outside of the folder that it makes is touched, and the folder stays.
    """
    from sayso.cli.demo.tour import tour

    return tour(folder, with_crash=with_crash, model=model)
