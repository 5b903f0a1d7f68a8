"""The page about the HTTP API lists what there is: every operation with who may, and every code with its status."""

from __future__ import annotations

import re
from pathlib import Path

from sayso.server import app
from sayso.server.api import problems
from sayso.server.app import endpoints

PAGE = "docs/reference/http-api.md"


def rows(root: Path, heading: str) -> list[list[str]]:
    """Return the cells of the table below a heading."""
    page = (root / PAGE).read_text(encoding="utf-8")
    part = page.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    return [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in part.splitlines()
        if "`" in line and line.startswith("|")
    ]


def test_every_operation_stands_on_the_page_with_who_may(root: Path) -> None:
    told = {
        (method, f"/api/v1/{path}"): kinds
        for kinds, cell in (row for row in rows(root, "What reviewers can do"))
        for method, path in re.findall(r"`([A-Z]+) ([^`]+)`", cell)
    }
    real = {
        (one.method, "/api" + re.sub(r":\w+}", "}", one.path)): "all" if len(one.kinds) == 3 else ", ".join(
            kind for kind in ("ask", "review", "admin") if kind in one.kinds
        )
        for one in endpoints()
        if not one.path.startswith("/v1/program/")
    }  # fmt: skip
    assert told == real
    assert all(set(one.kinds) == {"ask"} for one in endpoints() if one.path.startswith("/v1/program/"))


def test_every_code_stands_on_the_page_with_its_status(root: Path) -> None:
    told = {
        (status, code)
        for status, cell in re.findall(r"^\| (\d{3}) \| (.+?) \|", (root / PAGE).read_text("utf-8"), re.MULTILINE)
        for code in re.findall(r"`(\w+)`", cell)
    }
    codes = {code for one in endpoints() for code in app.codes_of(one)} | {"not_found", "method_not_allowed"}
    kinds = [problems.kinds()[code] for code in codes]
    assert told == {(str(kind.status), kind.code) for kind in kinds}
