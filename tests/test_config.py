"""Settings: what wins over what, what a file may say, and where the default store lies.

The settings of the developer's machine are out of reach (see `conftest`). The invariant: a setting that cannot be used
is refused by name, and nothing else is used in its place.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

import sayso
from sayso import config, errors
from sayso.model.reviewer import Identity, Reviewer
from sayso.stores.memory import MemoryStore
from sayso.stores.sqlite import SqliteStore
from sayso.testing.scene import refusal
from tests.conftest import forget_settings

Place = Path


def settings_file(place: Path, text: str) -> Path:
    path = place / "sayso.toml"
    path.write_text(text, encoding="utf-8")
    return path


# -- the store -------------------------------------------------------------------------------------------------------


def test_default_store_is_one_file_in_the_users_state_folder(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "linux")
    expected = place / "home" / ".local" / "state" / "sayso" / "sayso.db"
    assert config.default_store_path() == expected
    assert config.store_address() == f"sqlite:///{expected}"
    monkeypatch.setenv("XDG_STATE_HOME", str(place / "state"))
    assert config.default_store_path() == place / "state" / "sayso" / "sayso.db"


@pytest.mark.parametrize(
    ("platform", "where"),
    [("darwin", "Library/Application Support"), ("win32", "AppData/Local"), ("freebsd14", ".local/state")],
)
def test_state_folder_is_the_systems_own(
    place: Path, monkeypatch: pytest.MonkeyPatch, platform: str, where: str
) -> None:
    monkeypatch.setattr("sys.platform", platform)
    monkeypatch.delenv("LOCALAPPDATA", raising=False)
    assert config.default_store_path() == place / "home" / where / "sayso" / "sayso.db"


def test_nothing_is_written_before_the_store_is_used(place: Path) -> None:
    config.default_store()
    assert list((place / "home").rglob("*")) == []
    assert list(place.rglob("*.db")) == []


def test_configured_store_wins_over_environment_over_file_over_default(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert config.default_store().url.endswith("/sayso/sayso.db")
    forget_settings()
    settings_file(place, 'store = "sqlite:///from-file.db"')
    assert config.default_store().url == f"sqlite:///{place / 'from-file.db'}"
    forget_settings()
    monkeypatch.setenv("SAYSO_STORE", "sqlite:///from-environment.db")
    assert config.default_store().url == f"sqlite:///{place / 'from-environment.db'}"
    sayso.configure(store="sqlite:///configured.db")
    assert config.default_store().url == config.store_address() == f"sqlite:///{place / 'configured.db'}"
    assert config.address_nearby() == f"sqlite:///{place / 'from-environment.db'}"


def test_empty_environment_says_nothing(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAYSO_STORE", "")
    monkeypatch.setenv("SAYSO_REVIEWER", "")
    monkeypatch.setenv("SAYSO_KEY", "")
    settings_file(place, 'store = "memory:"\nreviewer = "ada"')
    assert isinstance(config.default_store(), MemoryStore)
    assert config.default_reviewer() == Reviewer("ada")


def test_where_the_folder_was_removed_nobody_guesses_which_settings_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    @sayso.gate(wait="raise", store="memory:")
    def pay() -> None: ...

    (tmp_path / "release").mkdir()
    monkeypatch.chdir(tmp_path / "release")
    (tmp_path / "release").rmdir()
    for lookup in (pay, config.default_reviewer, config.settings_file, lambda: config.open_store("jsonl:requests")):
        told = refusal(errors.ConfigError, lookup)
        assert "the working directory of this program was removed" in str(told)
    assert config.open_store(f"jsonl:{tmp_path}/requests").url == f"jsonl:{tmp_path}/requests"


def test_environment_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAYSO_STORE", "memory:first")
    first = config.default_store()
    monkeypatch.setenv("SAYSO_STORE", "memory:second")
    assert config.default_store() is first


ADDRESSES: list[tuple[str, Callable[[Path], str]]] = [
    ("sqlite:///here.db", lambda place: str(place / "here.db")),
    ("sqlite:///a/b.db", lambda place: str(place / "a" / "b.db")),
    ("sqlite:///../up.db", lambda place: str(place / ".." / "up.db")),
    ("sqlite:////tmp/abs.db", lambda _: "/tmp/abs.db"),
    ("sqlite:///~/mine.db", lambda place: str(place / "home" / "mine.db")),
    ("sqlite:///with space ü?#.db", lambda place: str(place / "with space ü?#.db")),
]


@pytest.mark.parametrize(("address", "path"), ADDRESSES)
def test_sqlite_address_names_a_file(place: Path, address: str, path: Callable[[Path], str]) -> None:
    store = config.open_store(address)
    assert isinstance(store, SqliteStore)
    assert store.url == f"sqlite:///{path(place)}"
    assert config.open_store(store.url) is store


def test_address_is_bound_when_the_store_is_opened(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = config.open_store("sqlite:///here.db")
    (place / "elsewhere").mkdir()
    monkeypatch.chdir(place / "elsewhere")
    assert config.open_store("sqlite:///here.db") is not store
    assert config.open_store(f"sqlite:///{place / 'here.db'}") is store


def test_memory_stores_are_one_for_each_name() -> None:
    assert config.open_store("memory:") is config.open_store("memory:")
    assert config.open_store("memory:a") is not config.open_store("memory:b")
    assert isinstance(config.open_store("memory:a"), MemoryStore)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://ada:hidden@db/x", "postgresql://ada:***@db/x"),
        ("postgresql://db/x?user=ada&password=hidden&sslmode=require", "postgresql://db/x?user=ada&password=***&sslmode=require"),
        ("postgresql://ada@db/x?sslpassword=hidden", "postgresql://ada@db/x?sslpassword=***"),
        ("postgresql://ada:hidden@db/x?password=hidden", "postgresql://ada:***@db/x?password=***"),
        ("https://approvals.example", "https://approvals.example"),
    ],
    ids=["as the user's", "parameter", "of a key", "both", "none"],
)  # fmt: skip
def test_password_in_an_address_is_not_shown(url: str, shown: str) -> None:
    store = config.open_store("memory:addressed")
    store.url = url
    assert store.public_url == shown


def test_store_of_ones_own_is_taken_as_it_is() -> None:
    store = MemoryStore()
    assert config.open_store(store) is store
    sayso.configure(store=store)
    assert config.default_store() is store
    assert config.open_store(None) is store
    assert config.store_address() == store.url


@pytest.mark.parametrize(
    "address",
    [
        "",
        " ",
        "sqlite:",
        "sqlite://",
        "sqlite:///",
        "memory",
        "sayso.db",
        "/tmp/x.db",
        "mysql://h/d",
        "redis://h",
    ],
)
def test_address_that_names_no_store_is_refused(address: str, monkeypatch: pytest.MonkeyPatch, place: Path) -> None:
    with pytest.raises(errors.ConfigError, match="is not the address of a store"):
        sayso.configure(store=address)
    with pytest.raises(errors.ConfigError, match="is not the address of a store"):
        config.open_store(address)
    if address:
        monkeypatch.setenv("SAYSO_STORE", address)
        with pytest.raises(errors.ConfigError, match="is not the address of a store"):
            config.default_store()
    assert list(place.glob("*.db")) == []


def test_what_configure_is_not_told_stays(place: Path) -> None:
    sayso.configure(store="memory:mine", reviewer="ada")
    sayso.configure(reviewer="bob")
    sayso.configure()
    assert config.default_store().url == "memory:mine"
    assert config.default_reviewer() == Reviewer("bob")
    with pytest.raises(errors.ConfigError):
        sayso.configure(store="nonsense")
    assert config.default_store().url == "memory:mine"


def test_review_and_gate_take_a_store_of_their_own() -> None:
    sayso.configure(store="memory:default")

    @sayso.gate(wait="raise", store="memory:own")
    def act() -> str:
        return "done"

    with pytest.raises(sayso.ConfirmationRequired) as caught:
        act()
    request_id = caught.value.confirmation_id
    with pytest.raises(errors.RequestNotFoundError):
        sayso.Review().get(request_id)
    sayso.Review("memory:own").approve(request_id, by="ada")
    assert act() == "done"


def test_confirmation_face_finds_a_request_in_any_store_of_the_process() -> None:
    sayso.configure(store="memory:default")

    @sayso.gate(wait="raise", store="memory:own")
    def act() -> str:
        return "done"

    with pytest.raises(sayso.ConfirmationRequired) as caught:
        act()
    sayso.respond_to_confirmation(caught.value.confirmation_id)
    assert sayso.get_confirmation_status(caught.value.confirmation_id) == "approved"
    assert act() == "done"


@pytest.mark.parametrize("key", ["short", "x" * 44, "not base64 !!", "A" * 20 + "!!" + "A" * 23 + "="])
def test_key_that_is_none_is_refused_before_anything_is_stored(
    place: Path, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    monkeypatch.setenv("SAYSO_KEY", key)
    with pytest.raises(errors.ConfigError, match="SAYSO_KEY") as caught:
        config.open_store("sqlite:///sealed.db")
    assert key not in str(caught.value)
    assert not (place / "sealed.db").exists()


# -- the file --------------------------------------------------------------------------------------------------------


def test_file_is_looked_for_in_this_folder_and_above(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings_file(place, 'store = "sqlite:///above.db"')
    deep = place / "a" / "b"
    deep.mkdir(parents=True)
    monkeypatch.chdir(deep)
    # A path in the file is meant from where the file lies.
    assert config.store_address() == f"sqlite:///{place / 'above.db'}"
    settings_file(deep, 'reviewer = "ada"')
    assert config.default_reviewer() == Reviewer("ada")
    assert config.store_address() == f"sqlite:///{config.default_store_path()}"


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("memory:", "memory:"), ("sqlite:////tmp/abs.db", "sqlite:////tmp/abs.db"),
        ("sqlite:///~/mine.db", "sqlite:///{place}/home/mine.db"), ("sqlite:///here.db", "sqlite:///{place}/here.db"),
    ],
)  # fmt: skip
def test_file_may_name_every_kind_of_store(place: Path, address: str, expected: str) -> None:
    settings_file(place, f'store = "{address}"')
    assert config.default_store().url == expected.format(place=place)


BAD_FILES: list[tuple[str, str]] = [
    ("store = ", "cannot be read"),
    ("store", "cannot be read"),
    ("[store", "cannot be read"),
    ("store = 'memory:'\nstore = 'memory:'", "cannot be read"),
    ("stroe = 'memory:'", "unknown setting 'stroe'"),
    ("[tool.sayso]\nstore = 'memory:'", "unknown setting 'tool'"),
    ("key = 'secret'", "unknown setting 'key'"),
    ("store = 5", "store must be a string, not int"),
    ("store = ['memory:']", "store must be a string, not list"),
]


@pytest.mark.parametrize(("text", "words"), BAD_FILES)
def test_file_that_cannot_be_used_is_refused_by_name(place: Path, text: str, words: str) -> None:
    path = settings_file(place, text)
    with pytest.raises(errors.ConfigError, match=words) as caught:
        config.default_store()
    assert str(path) in str(caught.value)


def test_file_that_is_no_text_is_refused(place: Path) -> None:
    (place / "sayso.toml").write_bytes(b'store = "\xff"')
    with pytest.raises(errors.ConfigError, match="cannot be read"):
        config.store_address()


@pytest.mark.timeout(120)
def test_pipe_in_the_place_of_a_file_is_refused_and_not_waited_for(place: Path) -> None:
    os.mkfifo(place / "rules.toml", mode=0o600)
    with pytest.raises(errors.ConfigError, match="not a regular file"):
        config.trusted_text(place / "rules.toml")


def test_file_that_names_no_store_is_refused(place: Path) -> None:
    settings_file(place, 'store = "mysql://h"')
    with pytest.raises(errors.ConfigError, match="is not the address of a store"):
        config.default_store()


def test_broken_file_does_not_matter_where_everything_is_said_otherwise(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings_file(place, "broken")
    monkeypatch.setenv("SAYSO_STORE", "memory:")
    monkeypatch.setenv("SAYSO_REVIEWER", "ada")
    assert isinstance(config.default_store(), MemoryStore)
    assert config.default_reviewer() == Reviewer("ada")


def test_file_that_others_can_write_is_refused(place: Path) -> None:
    path = settings_file(place, 'store = "memory:elsewhere"')
    path.chmod(0o646)
    for ask in (config.store_address, config.default_store, config.default_reviewer):
        with pytest.raises(errors.ConfigError, match="can be written by others") as refused:
            ask()
        assert f"chmod go-w {path}" in str(refused.value)
    path.chmod(0o644)
    assert config.store_address() == "memory:elsewhere"


def test_file_that_a_group_can_write_is_refused_unless_the_group_is_the_users_own(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = settings_file(place, 'store = "memory:ours"')
    path.chmod(0o664)
    user = SimpleNamespace(pw_gid=path.stat().st_gid, pw_name="ada")
    monkeypatch.setattr("pwd.getpwuid", lambda _: user)
    for name, members in (("staff", []), ("ada", ["bob"]), ("ada", ["ada", "bob"])):
        monkeypatch.setattr("grp.getgrgid", lambda _, n=name, m=members: SimpleNamespace(gr_name=n, gr_mem=m))
        with pytest.raises(errors.ConfigError, match="can be written by others"):
            config.store_address()
    for members in ([], ["ada"]):
        monkeypatch.setattr("grp.getgrgid", lambda _, m=members: SimpleNamespace(gr_name="ada", gr_mem=m))
        assert config.store_address() == "memory:ours"
    user.pw_gid += 1
    with pytest.raises(errors.ConfigError, match="can be written by others"):
        config.store_address()


def test_file_of_another_user_is_refused(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = settings_file(place, 'store = "memory:elsewhere"')
    owner = path.stat().st_uid
    monkeypatch.setattr("os.geteuid", lambda: owner)
    assert config.store_address() == "memory:elsewhere"
    monkeypatch.setattr("os.geteuid", lambda: owner + 1)
    if owner == 0:
        assert config.store_address() == "memory:elsewhere"  # root's files are trusted, root can do all of this anyway
        os.chown(path, 4242, -1)
    with pytest.raises(errors.ConfigError, match="belongs to another user"):
        config.store_address()
    monkeypatch.setenv("SAYSO_STORE", "memory:said")
    assert config.store_address() == "memory:said"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a link away")
def test_link_that_another_user_put_there_is_refused(place: Path) -> None:
    (place / "real").mkdir()
    real = settings_file(place / "real", 'store = "memory:elsewhere"')
    (place / "sayso.toml").symlink_to(real)
    assert config.store_address() == "memory:elsewhere"
    os.chown(place / "sayso.toml", 4242, -1, follow_symlinks=False)
    with pytest.raises(errors.ConfigError, match="belongs to another user"):
        config.store_address()


# -- the reviewer ----------------------------------------------------------------------------------------------------


def test_configured_reviewer_wins_over_environment_over_file_over_user_and_host(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("getpass.getuser", lambda: "user")
    monkeypatch.setattr(socket, "gethostname", lambda: "host")
    assert config.default_reviewer() == Reviewer("user@host")
    forget_settings()
    settings_file(place, 'reviewer = "of the file"')
    assert config.default_reviewer() == Reviewer("of the file")
    monkeypatch.setenv("SAYSO_REVIEWER", "of the environment")
    assert config.default_reviewer() == Reviewer("of the environment")
    sayso.configure(reviewer="configured")
    assert config.default_reviewer() == Reviewer("configured")
    given = Reviewer("ada", roles={"finance"}, issuer="github")
    sayso.configure(reviewer=given)
    assert config.default_reviewer() is given


@pytest.mark.parametrize("name", [" ", "a\nb", "a\u202eb", " ada"])
def test_reviewer_that_cannot_be_one_is_refused(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv("SAYSO_REVIEWER", name)
    with pytest.raises(errors.ConfigError, match="SAYSO_REVIEWER"):
        config.default_reviewer()


@pytest.mark.parametrize("error", [KeyError("uid"), OSError("no user"), ImportError("pwd")])
def test_nobody_decides_where_the_system_knows_no_user(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def getuser() -> Any:
        raise error

    monkeypatch.setattr("getpass.getuser", getuser)
    with pytest.raises(errors.ConfigError, match="SAYSO_REVIEWER"):
        config.default_reviewer()


# -- the program -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("script", "name"),
    [
        ("/srv/shop/main.py", "main.py"), ("/srv/bin/uvicorn", "uvicorn"), ("/lib/shop/__main__.py", "shop"),
        ("", "python"), ("-c", "-c"), ("/srv/a\nb.py", "'a\\nb.py'"),
    ],
)  # fmt: skip
def test_program_is_named_by_its_script(monkeypatch: pytest.MonkeyPatch, script: str, name: str) -> None:
    monkeypatch.setattr("sys.argv", [script])
    assert config.requester() == Identity("program", name)


def test_configured_program_wins_over_environment_over_script(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["/srv/bin/uvicorn"])
    monkeypatch.setenv("SAYSO_PROGRAM", "billing")
    assert config.requester() == Identity("program", "billing")
    sayso.configure(program="refunds")
    assert config.requester() == Identity("program", "refunds")


def test_program_that_cannot_be_one_is_refused_and_nothing_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    for wrong in ("a\u202eb", "", 7, ["shop"]):
        with pytest.raises(errors.ConfigError, match="program="):
            sayso.configure(program=cast("Any", wrong))
    monkeypatch.setenv("SAYSO_PROGRAM", " ")
    sayso.configure(store="memory:")

    @sayso.gate(wait="raise")
    def pay() -> None: ...

    with pytest.raises(errors.ConfigError, match="SAYSO_PROGRAM"):
        pay()
    assert not sayso.Review().list()


def test_two_programs_of_one_script_share_no_grant(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["/srv/bin/uvicorn"])
    sayso.configure(store="memory:", program="shop")

    @sayso.gate(wait="raise")
    def pay(amount: int) -> str:
        return "paid"

    with sayso.run("first"), pytest.raises(sayso.ConfirmationRequired) as held:
        pay(5)
    sayso.Review().grant(held.value.confirmation_id, count=5, lasts="1h", by="ada")
    with sayso.run("second"):
        assert pay(5) == "paid"
    sayso.configure(program="bank")
    with sayso.run("third"), pytest.raises(sayso.ConfirmationRequired):
        pay(5)
