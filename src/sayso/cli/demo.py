"""`demo`: runs the program `examples/demo/demo.py`, which a wheel ships inside the package."""

from __future__ import annotations

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import click

import sayso


def _loaded() -> click.Command:
    package = Path(sayso.__file__).parent
    shipped = package / "examples" / "demo" / "demo.py"
    program = shipped if shipped.is_file() else package.parents[1] / "examples" / "demo" / "demo.py"  # in a checkout
    spec = spec_from_file_location("sayso_demo", program)
    if spec is None or spec.loader is None:
        raise FileNotFoundError(program)
    module = sys.modules["sayso_demo"] = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.demo


demo = _loaded()
