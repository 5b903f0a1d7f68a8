"""`sayso token`: made once, listed without their secrets, and ended at once."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from sayso.cli import main
from sayso.server.auth.tokens import Tokens
from sayso.stores.base import Store
from tests.conftest import Clock

TEXT = re.compile(r"sst_([0-9a-f]{16})_[0-9a-f]{64}")


def said(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    """Run a command; return its code and what it said on stdout and stderr."""
    code = main(words)
    out, err = capsys.readouterr()
    return code, out, err


@pytest.fixture(autouse=True)
def made(file_store: Store, clock: Clock) -> None:
    assert file_store.record("token", "none") is None  # the file is there from now on


def test_a_token_is_printed_once_and_alone_on_stdout(capsys: pytest.CaptureFixture[str], file_store: Store) -> None:
    code, out, err = said(capsys, "token", "new", "--kind", "review", "--name", "ada", "--role", "finance")
    found = TEXT.fullmatch(out.strip())
    assert code == 0
    assert found is not None
    assert "decides in this name" in err
    assert out.strip() not in err
    token = Tokens(file_store).find(out.strip())
    assert token is not None
    assert (token.id, token.kind, token.person.qualified, set(token.roles)) == (
        found[1], "review", "local:ada", {"finance"},
    )  # fmt: skip
    assert (token.expires_at - token.made_at).days == 90
    _, listed, _ = said(capsys, "token", "ls")
    assert found[1] in listed
    assert out.strip().rpartition("_")[2] not in listed


def test_a_token_is_made_as_json_with_an_issuer_and_an_end(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--kind", "review", "--name", "bot", "--issuer", "corp", "--expires", "2h", "--json"]
    _, out, err = said(capsys, "token", "new", *words)
    made = json.loads(out)
    assert err == ""
    assert TEXT.fullmatch(made["token"])
    assert (made["issuer"], made["expires_at"]) == ("corp", "2026-01-01T14:00:00Z")
    (listed,) = json.loads(said(capsys, "token", "ls", "--json")[1])
    assert {**listed, "token": made["token"]} == made


def test_the_list_says_which_are_good_for_how_long(capsys: pytest.CaptureFixture[str], clock: Clock) -> None:
    assert "no tokens" in said(capsys, "token", "ls")[1]
    for name, span in [("gone", "1h"), ("revoked", "9d"), ("good", "3d")]:
        _, out, _ = said(capsys, "token", "new", "--kind", "ask", "--name", name, "--expires", span)
        if name == "revoked":
            code, told, _ = said(capsys, "token", "revoke", out.split("_")[1])
            assert (code, "revoked" in told) == (0, True)
        clock.tick(hours=1)
    rows = said(capsys, "token", "ls")[1].splitlines()
    assert [re.split(r"  +", row)[2:] for row in rows] == [
        ["VALID FOR", "LAST USED", "NAME"], ["expired", "never", "gone"], ["revoked", "never", "revoked"],
        ["2d 23h", "never", "good"],
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["new", "--kind", "root", "--name", "a"], 2, "is not one of"), (["new", "--kind", "ask"], 2, "--name"),
        (["new", "--kind", "ask", "--name", " a"], 2, "no token was made"),
        (["new", "--kind", "review", "--name", "a", "--role", "b\u200b"], 2, "no token was made"),
        (["new", "--kind", "ask", "--name", "a", "--role", "b"], 2, "has no roles: it never decides; no token"),
        (["new", "--kind", "ask", "--name", "a", "--issuer", "https://x"], 2, "no token was made"),
        (["new", "--kind", "ask", "--name", "a", "--issuer", "corp"], 2, "has no issuer"),
        (["new", "--kind", "ask", "--name", "a", "--expires", "never"], 2, "--expires"),
        (["revoke", "0" * 16], 1, "nothing was changed"), (["revoke", "\x1b[2J"], 1, "U+001B"),
    ],
)  # fmt: skip
def test_what_cannot_be_done_makes_no_token(
    capsys: pytest.CaptureFixture[str], file_store: Store, words: list[str], code: int, told: str
) -> None:
    found = said(capsys, "token", *words)
    assert (found[0], found[1]) == (code, "")
    assert told in found[2]
    assert "\x1b" not in found[2]
    assert Tokens(file_store).all() == []


def test_a_token_may_be_the_first_thing_in_a_store(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    place = tmp_path / "new.db"
    command = ["--store", f"sqlite:///{place}", "token"]
    code, out, err = said(capsys, *command, "ls")
    assert (code, out) == (0, "no tokens; `sayso token new` makes one\n")
    assert "there is no store" in err
    assert said(capsys, *command, "revoke", "0" * 16)[0] == 1
    assert not place.exists()
    assert said(capsys, *command, "new", "--kind", "ask", "--name", "bot")[0] == 0
    assert place.exists()
    assert "bot" in said(capsys, *command, "ls")[1]
