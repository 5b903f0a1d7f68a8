"""What `sayso mcp-gateway --print-config` writes for each client."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from sayso.cli import main
from tests.support.commands import sayso

SERVER = ("--name", "files", "--", "npx", "server")
HOLD = '[[rules]]\ntool = "files/*"\nverdict = "hold"\n'


def printed(*options: str, client: str = "claude", before: tuple[str, ...] = ()) -> dict[str, Any]:
    return json.loads(sayso(*before, "mcp-gateway", "--print-config", client, *options, *SERVER).out)


def words(*options: str, before: tuple[str, ...] = ()) -> list[str]:
    return printed(*options, before=before)["mcpServers"]["files"]["args"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SAYSO_STORE", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path


def settings(folder: Path, text: str) -> None:
    (folder / "sayso.toml").write_text(text, encoding="utf-8")
    (folder / "sayso.toml").chmod(0o600)


@pytest.mark.parametrize(
    ("client", "key", "more"),
    [
        ("claude", "mcpServers", {}), ("cursor", "mcpServers", {}), ("vscode", "servers", {"type": "stdio"}),
        ("zed", "context_servers", {"env": {}}),
    ],
)  # fmt: skip
def test_each_client_gets_its_own_form(client: str, key: str, more: dict[str, Any], folder: Path) -> None:
    (server,) = printed(client=client).pop(key).values()
    assert server.pop("command") == str(Path(sys.executable).with_name("sayso"))
    assert server.pop("args")[-5:] == list(SERVER)
    assert server == more


def test_the_entry_names_store_folder_and_server(folder: Path) -> None:
    store = f"sqlite:///{folder}/state/sayso/sayso.db"
    assert words() == ["--store", store, "mcp-gateway", "--folder", str(folder), *SERVER]


def test_the_program_is_the_one_that_prints_it_with_its_full_path(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "bin").mkdir()
    (folder / "bin/sayso").write_text("#!/bin/sh\n", encoding="utf-8")
    (folder / "bin/sayso").chmod(0o700)
    monkeypatch.setenv("PATH", "bin")
    assert printed()["mcpServers"]["files"]["command"] == str(Path(sys.executable).with_name("sayso"))


def test_the_store_that_counts_here_is_written(folder: Path) -> None:
    assert words()[:3] == ["--store", f"sqlite:///{folder}/state/sayso/sayso.db", "mcp-gateway"]
    settings(folder, 'store = "sqlite:///here.db"\n')
    assert words()[:2] == ["--store", f"sqlite:///{folder}/here.db"]
    assert words(before=("--store", "sqlite:///other.db"))[:2] == ["--store", f"sqlite:///{folder}/other.db"]


def test_the_folder_whose_settings_count_is_written_and_a_policy_that_is_named(folder: Path) -> None:
    assert words()[3:5] == ["--folder", str(folder)]
    (folder / "below").mkdir()
    assert words("--folder", "below")[3:5] == ["--folder", f"{folder}/below"]
    assert "--policy" not in words()
    (folder / "strict.toml").write_text(HOLD, encoding="utf-8")
    (folder / "strict.toml").chmod(0o600)
    assert words("--policy", "strict.toml")[5:7] == ["--policy", f"{folder}/strict.toml"]


def test_a_folders_own_settings_count_only_if_they_are_trusted_or_named(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A client starts the gateway in a folder of its choice, which may have been cloned."""
    found: list[Any] = []

    async def serve(make: Any) -> None:
        found.append(make.args[0])

    def started(*options: str) -> tuple[Any, str]:
        found.clear()
        main(["mcp-gateway", *options, *SERVER])
        return (found[0] if found else None), capsys.readouterr().err

    monkeypatch.setattr("sayso.integrations.mcp_gateway.connection.serve_stdio", serve)
    monkeypatch.setenv("HOME", str(folder / "home"))
    settings(folder, 'store = "sqlite:///theirs.db"\n[[rules]]\ntool = "*"\nverdict = "allow"\n')
    gateway, err = started()
    assert gateway.policy is None
    assert "theirs" not in gateway.store.url
    assert f"--folder {folder}" in err
    assert f"sayso hook trust {folder}" in err
    gateway, err = started("--folder", ".")
    assert gateway.policy is not None
    assert gateway.store.url.endswith("theirs.db")
    assert not err
    assert sayso("hook", "trust", str(folder), "--yes").code == 0
    gateway, err = started()
    assert gateway.policy is not None
    assert not err
    settings(folder, 'store = "sqlite:///other.db"\n')
    gateway, err = started()
    assert gateway is None
    assert "has changed since you trusted" in err


def test_what_the_gateway_would_refuse_to_start_with_is_not_printed(folder: Path) -> None:
    settings(folder, HOLD)
    done = sayso("mcp-gateway", "--print-config", "claude", "--hold", "*", *SERVER)
    assert (done.code, done.out) == (2, "")
    assert "write the rules into the policy file" in done.err


def test_a_password_in_the_stores_address_is_not_printed(folder: Path) -> None:
    for address in ("postgresql://ada:hunter2@db.example/x", "postgresql://db.example/x?user=ada&password=hunter2"):
        for before, environment in ((("--store", address), {}), ((), {"SAYSO_STORE": address})):
            done = sayso(*before, "mcp-gateway", "--print-config", "claude", *SERVER, **environment)
            assert (done.code, done.out) == (1, "")
            assert "~/.pgpass" in done.err
            assert "hunter2" not in done.err
    assert words(before=("--store", "postgresql://ada@db.example:5432/x"))[1] == "postgresql://ada@db.example:5432/x"
