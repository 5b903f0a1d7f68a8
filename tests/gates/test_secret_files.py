"""Secrets of a call on streams, in logs and in the store's files, with a key and without.

The invariant: with a key no file holds a secret; without one the arguments stand in a file of its owner's alone.
"""

from __future__ import annotations

import asyncio
import base64
import logging
import os
import stat
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

import sayso
from sayso import config
from sayso.model.request import State
from sayso.stores.base import Store
from tests.support.acting import held
from tests.support.canaries import FORMS, WORD, Program, assert_clean, assert_clean_error, canary, told_of


def test_waiting_is_announced_without_secrets(
    store: Store, program: Program, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr("sayso.gates.dialog.person_is_at_terminal", lambda: False)
    caplog.set_level(logging.DEBUG)
    act = program.gated(wait="block", timeout="1ms", prompt=program.everything)
    request_id = held(act, **program.arguments).confirmation_id
    sayso.Review().approve(request_id, by="ada")
    act(**program.arguments)
    out, err = capfd.readouterr()
    assert "act(" in err
    assert_clean(out, err, caplog.text, caplog.records)


def files_of(path: Path) -> list[Path]:
    return sorted(path.parent.glob(f"{path.name}*"))


def used_store(path: Path, program: Program) -> str:
    """Take a call with secrets through everything that writes, in a store of its own; return the request's id."""
    config.configure(store=f"sqlite:///{path}")
    review = sayso.Review()
    act = program.gated(prompt=program.everything, retries=1)
    with pytest.raises(sayso.ConfirmationDenied):
        program.gated(when=lambda: sayso.deny(program.everything()))(**program.arguments)
    request_id = held(act, **program.arguments).confirmation_id
    review.approve(request_id, by="ada", changes={"password": canary("edit")})
    program.ends += [ValueError(program.everything()), {"password": canary("result")}]
    with pytest.raises(ValueError, match=WORD):
        act(**program.arguments)
    act(**program.arguments)
    question = held(sayso.ask, "Password?", type=SecretStr, wait="raise").confirmation_id
    review.answer(question, canary("answer"), by="ada")
    assert review.get(request_id).state is State.DONE
    return request_id


def test_sealed_store_holds_no_secret_on_the_disk(
    program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SAYSO_KEY", base64.urlsafe_b64encode(os.urandom(32)).decode())
    path = tmp_path / "sealed" / "sayso.db"
    request_id = used_store(path, program)
    files = files_of(path)
    assert len(files) == 3
    for file in files:
        content = file.read_bytes()
        assert not any(form.encode() in content for form in FORMS), file
        assert b"alice" not in content
    config.default_store().close()
    assert all(not any(form.encode() in file.read_bytes() for form in FORMS) for file in files_of(path))
    assert_clean(*told_of(request_id))


def test_store_without_a_key_holds_arguments_in_a_file_of_its_owners_alone(program: Program, tmp_path: Path) -> None:
    path = tmp_path / "open" / "sayso.db"
    request_id = used_store(path, program)
    files = files_of(path)
    assert any(WORD.encode() in file.read_bytes() for file in files)
    assert [stat.S_IMODE(file.stat().st_mode) for file in files] == [0o600] * 3
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert_clean(*told_of(request_id))


DEFAULTS: tuple[Any, ...] = (canary("default"), canary("badge"), SecretStr(WORD))


def test_default_of_a_secret_parameter_is_not_written_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAYSO_KEY", base64.urlsafe_b64encode(os.urandom(32)).decode())
    config.configure(store=f"sqlite:///{tmp_path / 'sayso.db'}")
    seen: list[str] = []

    @sayso.gate(wait="raise", redact=["badge"])
    def login(password: str = DEFAULTS[0], badge: str = DEFAULTS[1], pin: SecretStr = DEFAULTS[2]) -> None:
        seen.append(password + badge + pin.get_secret_value())

    pause = held(login)
    assert_clean(*told_of(pause.confirmation_id))
    sayso.Review().approve(pause.confirmation_id, by="ada", arguments={})
    login()
    assert seen == [canary("default") + canary("badge") + WORD]
    assert all(WORD.encode() not in file.read_bytes() for file in files_of(tmp_path / "sayso.db"))


def test_async_call_keeps_its_secrets_the_same_way(store: Store, program: Program) -> None:
    @sayso.gate(wait="raise", prompt=lambda password: f"Use {password}?")
    async def act(password: str) -> str:
        raise ValueError(password)

    async def main() -> str:
        with pytest.raises(sayso.ConfirmationRequired) as caught:
            await act(canary("async"))
        assert_clean_error(caught.value)
        sayso.Review().approve(caught.value.confirmation_id, by="ada")
        with pytest.raises(ValueError, match=WORD):
            await act(canary("async"))
        return caught.value.confirmation_id

    assert_clean(*told_of(asyncio.run(main())))


def test_reviewers_own_words_are_passed_on_as_they_are(store: Store, program: Program) -> None:
    act = program.gated()
    request_id = held(act, **program.arguments).confirmation_id
    sayso.Review().reject(request_id, f"never type {canary('zero')}", by="ada")
    with pytest.raises(sayso.ConfirmationRejected, match=WORD):
        act(**program.arguments)
