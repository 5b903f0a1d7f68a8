"""A whole number as an option of a command, within bounds; what is none is called so, in the words of people."""

from __future__ import annotations

import click

__all__ = ["Number"]


class Number(click.IntRange):
    """Takes a whole number between bounds, both of which count."""

    name = "whole number"
