"""The protocol's frozen schemas, examples and golden flow, from a folder beside the checkout.

`frozen(...)` reads one of these files, and visibly skips the test if they are missing. `misfits(...)` validates a
document with the frozen schemas and `jsonschema`. Invariant: no code of sayso takes part in this validation.
"""

from __future__ import annotations

import json
import re
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

import pytest

DATA = Path(__file__).resolve().parents[3] / "shared" / "mplp"
RFC_3339 = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)", re.ASCII)

needs_frozen = pytest.mark.skipif(
    not DATA.is_dir(), reason="THE FROZEN SCHEMAS ARE NOT HERE: ../shared/mplp is missing"
)


def frozen(name: str) -> Any:
    """Return the content of one of the frozen JSON files, without its authors' comment."""
    found = json.loads((DATA / name).read_text(encoding="utf-8"))
    return {key: value for key, value in found.items() if key != "$comment"} if "schemas/" not in name else found


@cache
def _validators() -> dict[str, Any]:
    import jsonschema
    import referencing

    files = [json.loads(file.read_text(encoding="utf-8")) for file in (DATA / "schemas").rglob("*.json")]
    resources = [(file["$id"], referencing.Resource.from_contents(file)) for file in files]
    registry = referencing.Registry().with_resources(resources)
    formats = jsonschema.FormatChecker(formats=())

    @formats.checks("date-time")
    def is_instant(value: object) -> bool:
        if not isinstance(value, str):
            return True
        try:
            return RFC_3339.fullmatch(value) is not None and datetime.fromisoformat(value) is not None
        except ValueError:
            return False

    return {
        file["$id"].rpartition("/")[2]: jsonschema.Draft7Validator(file, registry=registry, format_checker=formats)
        for file in files
    }


def misfits(schema: str, document: Any) -> list[str]:
    """Return how a document violates a frozen schema, e.g. `mplp-confirm`."""
    validator = _validators()[f"{schema}.schema.json"]
    return [f"/{'/'.join(map(str, error.path))}: {error.message}" for error in validator.iter_errors(document)]
