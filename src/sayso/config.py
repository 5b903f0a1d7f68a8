"""Settings: the default store, the name of this program, the reviewer at this terminal, and the keys.

`configure` overrides environment variables (`SAYSO_STORE`, `SAYSO_TOKEN`, …), which override the settings file: the one
that `SAYSO_CONFIG` names, else `sayso.toml` in this folder or the nearest one above. If none of them names a store, it
is a file in the user's state directory. Tables of the file also configure channels and the server. A process opens each
store once per address.
"""

from __future__ import annotations

import getpass
import hashlib
import os
import socket
import stat
import sys
import threading
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, cast

from sayso import errors
from sayso.effects import in_forked_child
from sayso.model.reviewer import PROGRAM, Identity, Reviewer
from sayso.stores.base import Store

_FILE = "sayso.toml"
_TEXTS = ("base_url", "reviewer", "store")
_TABLES = ("channels", "evidence", "hooks", "mcp_server", "oidc", "policy", "rules", "serve")
_KNOWN = tuple(sorted((*_TEXTS, *_TABLES)))

_SERVERS = ("https://", "http://")
_POSTGRES = ("postgresql://", "postgres://")

_lock = threading.Lock()
_open: dict[str, Store] = {}
_chosen_store: Store | None = None
_tokens: dict[str, str] = {}  # by server address; a token is sent to no other server
_default: Store | None = None  # the store of the environment and the settings file, opened once
_chosen_reviewer: Reviewer | str | None = None
_chosen_program: str | None = None
pinned: tuple[Path | None, Mapping[str, str]] | None = None
"""What `only_settings` was given; None outside its block."""


@in_forked_child
def _after_fork() -> None:
    global _lock
    _lock = threading.Lock()  # the thread that held it does not exist in the child


def configure(
    *, store: Store | str | None = None, token: str | None = None, reviewer: Reviewer | str | None = None,
    program: str | None = None,
) -> None:  # fmt: skip
    """Set the defaults of this process. What is not given stays unchanged.

    Args:
        store: `memory:`, `sqlite:///relative.db`, `sqlite:////absolute.db`, `jsonl:relative.jsonl`,
            `jsonl:///absolute.jsonl`, `postgresql://user@host/database`, `https://host` for a sayso server, or a store
            of your own.
        token: A token of the kind `ask`, for a sayso server. Defaults to `SAYSO_TOKEN`.
        reviewer: Who decides when a decision names nobody.
        program: The name under which this process asks. People see it, and grants and budgets belong to it. Defaults
            to `SAYSO_PROGRAM`, else the name of the script. A sayso server takes the token's name.

    Raises:
        ConfigError: The address names no store, or names a sayso server for which there is no token; or a name is
            invalid.
    """
    global _chosen_store, _chosen_reviewer, _chosen_program
    check_store(store)
    if reviewer is not None and not isinstance(reviewer, Reviewer):
        if not isinstance(reviewer, str):  # pyright: ignore[reportUnnecessaryIsInstance]  callers may be untyped
            raise errors.ConfigError(f"reviewer= takes a name or a sayso.Reviewer, not {reviewer!r}; nothing was set")
        _reviewer_named(reviewer)
    if program is not None:
        _check_program(program)
    if token is not None:
        if not isinstance(store, str) or not isinstance(token, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise errors.ConfigError("token= is for a sayso server; give its address too: configure(store=…, token=…)")
        with _lock:
            if _tokens.get(store) != token:
                _tokens[store] = token
                _open.pop(store, None)
    if store is not None:
        _chosen_store = open_store(store)
    if reviewer is not None:
        _chosen_reviewer = reviewer
    if program is not None:
        _chosen_program = program


@contextmanager
def use(*, store: Store | str, reviewer: Reviewer | str | None = None) -> Generator[None]:
    """Set the defaults of this process inside the block, as `configure` does, and restore the earlier ones after it."""
    global _chosen_store, _chosen_reviewer
    before = _chosen_store, _chosen_reviewer
    configure(store=store, reviewer=reviewer)
    try:
        yield
    finally:
        _chosen_store, _chosen_reviewer = before


@contextmanager
def only_settings(path: Path | None, digests: Mapping[str, str]) -> Generator[None]:
    """Inside the block, use this settings file and no other; None means no file at all.

    `digests` maps paths to SHA-256 digests. A file whose path is in it is refused if its text has another digest.
    """
    global pinned
    before, pinned = pinned, (path, digests)
    try:
        yield
    finally:
        pinned = before


def default_store_path() -> Path:
    """Return the path of this user's default store on this system."""
    if sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Application Support"
    else:
        base = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
    return base / "sayso" / "sayso.db"


def working_folder() -> str:
    """Return the folder in which this program runs.

    Raises:
        ConfigError: The folder was removed, so the settings and the policy that apply are unknown.
    """
    try:
        return os.getcwd()  # noqa: PTH109  a `Path` costs more than the whole search for a policy's file
    except FileNotFoundError:
        raise errors.ConfigError(
            "the working directory of this program was removed, so sayso.toml cannot be looked for; nothing was"
            " decided and nothing ran. Change to a directory that exists, or restart the program"
        ) from None


def named_file() -> str | None:
    """Return the absolute path in `SAYSO_CONFIG`, whether or not the file exists; None if the variable is not set.

    Raises:
        ConfigError: The variable is set, but empty.
    """
    named = os.environ.get("SAYSO_CONFIG")
    if named is None:
        return None
    if not named.strip():
        raise errors.ConfigError(
            "SAYSO_CONFIG is set but empty; nothing was decided and nothing ran. Set it to the path of the settings"
            " file, or unset it"
        )
    path = os.path.expanduser(named)  # noqa: PTH111  runs at every call of a gate, as `working_folder`
    return path if os.path.isabs(path) else os.path.join(working_folder(), path)  # noqa: PTH117, PTH118  the same


def settings_file() -> Path | None:
    """Return the settings file that applies here; None if there is none.

    It is the file that `SAYSO_CONFIG` names, else the nearest `sayso.toml` in this folder or above.

    Raises:
        ConfigError: `SAYSO_CONFIG` names a file that does not exist.
    """
    if pinned is not None:
        return pinned[0]
    named = named_file()
    if named is not None:
        if not os.path.exists(named):  # noqa: PTH110  False where it has no permission to look, as `Path` may raise
            raise errors.ConfigError(
                f"SAYSO_CONFIG names {named}, which does not exist; nothing was decided and nothing ran. Correct it, or"
                " unset it"
            )
        return Path(named)
    here = Path(working_folder())
    return next((folder / _FILE for folder in (here, *here.parents) if (folder / _FILE).is_file()), None)


def trusted_text(path: Path) -> str:
    """Return the text of a settings file, which decides where requests go, if only this user can have written it.

    Raises:
        ConfigError: Somebody else may write the file, or its digest is not the one given to `only_settings`.
        OSError, UnicodeDecodeError: The file cannot be read.
    """
    no_wait = getattr(os, "O_NONBLOCK", 0)  # opening a named pipe would otherwise wait for a writer
    with open(path, encoding="utf-8", opener=lambda name, flags: os.open(name, flags | no_wait)) as file:
        found = os.fstat(file.fileno())  # of the opened file: the path may name another file by now
        if not stat.S_ISREG(found.st_mode):
            raise errors.ConfigError(f"{path} is not a regular file and is not used")
        if hasattr(os, "geteuid"):
            strangers = {found.st_uid, path.lstat().st_uid} - {os.geteuid(), 0}
            if strangers:
                raise errors.ConfigError(
                    f"{path} belongs to another user (uid {min(strangers)}) and is not used, because it could send"
                    " requests elsewhere; make it your own (chown), remove it, or set SAYSO_STORE and SAYSO_REVIEWER"
                )
            if found.st_mode & 0o002 or (found.st_mode & 0o020 and not _is_private_group(found.st_gid)):
                raise errors.ConfigError(
                    f"{path} can be written by others and is not used, because they could send requests elsewhere;"
                    f" run `chmod go-w {path}`"
                )
        text = file.read()
    if not text.strip() and pinned is None and str(path) == named_file():
        raise errors.ConfigError(
            f"SAYSO_CONFIG names {path}, which is empty and is not used; if no settings are intended, write a comment"
            " into it"
        )
    digest = None if pinned is None else pinned[1].get(str(path))
    if digest is not None and hashlib.sha256(text.encode()).hexdigest() != digest:
        raise errors.ConfigError(f"{path} has changed since it was trusted, and is not used")
    return text


def _is_private_group(group: int) -> bool:
    """Return whether a group is the user's private group, which many systems assign to all of a user's files."""
    import grp
    import pwd

    try:
        ours, found = pwd.getpwuid(os.geteuid()), grp.getgrgid(group)
    except KeyError:
        return False
    return group == ours.pw_gid and found.gr_name == ours.pw_name and set(found.gr_mem) <= {ours.pw_name}


def _settings() -> tuple[dict[str, Any], Path | None]:
    """Return the parsed settings file and its path; an empty dict and None if there is no file."""
    path = settings_file()
    if path is None:
        return {}, None
    import tomllib

    try:
        settings: dict[str, Any] = tomllib.loads(trusted_text(path))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        raise errors.ConfigError(f"{path} cannot be read: {error}") from error
    unknown = sorted(set(settings) - set(_KNOWN))
    if unknown:
        raise errors.ConfigError(
            f"{path} has the unknown setting {unknown[0]!r}; the known settings are {', '.join(_KNOWN)}"
        )
    return settings, path


def _from_file(name: str) -> tuple[str | None, Path | None]:
    settings, path = _settings()
    value = settings.get(name)
    if value is not None and not isinstance(value, str):
        raise errors.ConfigError(f"{path}: {name} must be a string, not {type(value).__name__}")
    return value, path


def table(name: str) -> dict[str, Any]:
    """Return a table of the settings file unchecked, e.g. `[serve]`; empty if there is none.

    The caller validates the table's settings.

    Raises:
        ConfigError: The file cannot be used, or the setting is not a table.
    """
    settings, path = _settings()
    found = settings.get(name, {})
    if not isinstance(found, dict):
        raise errors.ConfigError(f"{path}: {name} must be a table, [{name}], not {type(found).__name__}")
    return cast("dict[str, Any]", found)


def channel_tables() -> dict[str, dict[str, Any]]:
    """Return the channels of the settings file by name: `[channels.ops]` has the key `ops`.

    Raises:
        ConfigError: The file cannot be used, or a channel is not a table.
    """
    found = table("channels")
    for name, settings in found.items():
        if not isinstance(settings, dict):
            raise errors.ConfigError(f"channels.{name} must be a table, [channels.{name}]; no message is sent")
    return found


def signing_key() -> Path | None:
    """Return the file of the key that signs evidence: `SAYSO_SIGNING_KEY`, else `key` in `[evidence]`, else None.

    Raises:
        ConfigError: The file cannot be used, or `[evidence]` has an unknown or invalid setting.
    """
    named = os.environ.get("SAYSO_SIGNING_KEY")
    if named:
        return Path(named).expanduser().absolute()
    found = table("evidence")
    unknown = sorted(set(found) - {"key"})
    if unknown:
        raise errors.ConfigError(
            f"[evidence] has the unknown setting {unknown[0]!r}, and its only setting is key; nothing was signed"
        )
    key, path = found.get("key"), settings_file()
    if key is None or path is None:
        return None
    if not isinstance(key, str) or not key:
        raise errors.ConfigError("[evidence] key must be the path of a private key, as a string; nothing was signed")
    return path.parent / Path(key).expanduser()  # relative to the settings file


def base_url() -> str | None:
    """Return the inbox's address without a trailing slash: `SAYSO_BASE_URL`, else `base_url` in the settings file.

    Links in messages begin with it. If it is None, messages carry no link.

    Raises:
        ConfigError: It is not an http:// or https:// address.
    """
    address = os.environ.get("SAYSO_BASE_URL") or _from_file("base_url")[0]
    if not address:
        return None
    is_plain = address.isascii() and address.isprintable() and " " not in address
    if not is_plain or not address.startswith(("https://", "http://")):
        raise errors.ConfigError(
            f"base_url must begin with https:// (or http://), but is {address!a}; no message is sent"
        )
    return address.rstrip("/")


def store_address() -> str:
    """Return the address of the default store."""
    return address_nearby() if _chosen_store is None else _chosen_store.url


def address_nearby() -> str:
    """Return the address that another program started here would use: the default store without `configure`.

    Raises:
        ConfigError: The settings file cannot be used.
    """
    from_environment = os.environ.get("SAYSO_STORE")
    if from_environment:
        return absolute(from_environment)
    address, path = _from_file("store")
    if address is None or path is None:
        return f"sqlite:///{default_store_path()}"
    if address.startswith(_SERVERS):
        raise errors.ConfigError(
            f"{path} names a sayso server, and is not used, because whoever can write this file could approve calls;"
            " set SAYSO_STORE and SAYSO_TOKEN"
        )
    # Relative to the settings file, not to the folder in which the program was started.
    scheme, name = _file_of(address)
    return f"{scheme}{path.parent / Path(name).expanduser()}" if scheme else address


def store_source() -> str:
    """Return where the address of the default store comes from: `SAYSO_STORE`, the settings file, or the default."""
    if os.environ.get("SAYSO_STORE"):
        return "from SAYSO_STORE"
    name, path = _from_file("store")
    if path is None:
        return "the default: there is no sayso.toml here or above, and SAYSO_CONFIG is not set"
    return f"from {path}" if name is not None else f"the default: {path} names none"


def _file_of(address: str) -> tuple[str, str]:
    """Return the scheme and the path of an address that names a file; two empty strings for any other address."""
    for scheme, begins in (("sqlite:///", "sqlite:///"), ("jsonl:", "jsonl://"), ("jsonl:", "jsonl:")):
        if address.startswith(begins) and address != begins:
            return scheme, address.removeprefix(begins)
    return "", ""


def absolute(address: str) -> str:
    """Return the address with its path made absolute, relative to the working folder."""
    scheme, name = _file_of(address)
    path = Path(name).expanduser()
    if scheme and not path.is_absolute():
        path = working_folder() / path
    return f"{scheme}{path}" if scheme else address


def default_store() -> Store:
    """Return the configured store; the first call opens it.

    Raises:
        ConfigError: A setting cannot be used.
    """
    global _default
    if _chosen_store is not None:
        return _chosen_store
    if _default is None:
        _default = open_store(store_address())
    return _default


def check_store(store: object, option: str = "store") -> None:
    """Check that a value is a store or the address of one, or None for the configured store. Opens nothing.

    Raises:
        ConfigError: It is none of these.
    """
    if store is None or isinstance(store, Store):
        return
    if not isinstance(store, str):
        raise errors.ConfigError(f"{option}= takes a store or the address of one, not {store!r}; nothing was opened")
    if not store.startswith(("memory:", "sqlite:///", "jsonl:", *_POSTGRES, *_SERVERS)):
        raise errors.ConfigError(f"{option}= {_no_store(store)}; nothing was opened")


def _no_store(address: str) -> str:
    return (
        f"{address!r} is not the address of a store; use 'memory:', 'sqlite:///path/to/file.db',"
        " 'jsonl:path/to/file.jsonl', 'postgresql://user@host/database', or 'https://host' of a sayso server"
    )


def open_store(store: Store | str | None) -> Store:
    """Return the store of an address; the same address gives the same object. None is the configured store.

    Raises:
        ConfigError: The address names no store.
    """
    if store is None:
        return default_store()
    if isinstance(store, Store):
        return store
    store = absolute(store)
    with _lock:
        if store not in _open:
            _open[store] = _make(store)
        return _open[store]


def stores_at_hand() -> list[Store]:
    """Return the configured store, followed by the other stores that this process has opened."""
    first = default_store()
    with _lock:
        return [first, *(store for store in _open.values() if store is not first)]


def store_with(request_id: str) -> Store | None:
    """Return the store that has the request, of those that this process has opened; None if none of them has it."""
    for store in stores_at_hand():
        with suppress(errors.RequestNotFoundError):
            store.get(request_id)
            return store
    return None


def _make(address: str) -> Store:
    key = os.environ.get("SAYSO_KEY") or None
    if address.startswith("memory:"):
        from sayso.stores.memory import MemoryStore

        return MemoryStore(address)
    if address.startswith("sqlite:///") and address != "sqlite:///":
        from sayso.stores.sqlite import SqliteStore

        return SqliteStore(address.removeprefix("sqlite:///"), key=key)
    if address.startswith("jsonl:") and address != "jsonl:":
        from sayso.stores.jsonl import JsonlStore

        return JsonlStore(_file_of(address)[1], key=key)
    if address.startswith(_POSTGRES):
        try:
            from sayso.stores.postgres import PostgresStore
        except ModuleNotFoundError as error:
            raise errors.ConfigError(
                f'postgresql:// needs the extra `postgres`: pip install "sayso[postgres]" ({error}); nothing was opened'
            ) from None
        return PostgresStore(address, key=key)
    if address.startswith(_SERVERS):
        from sayso.stores.http import HttpStore

        token = _tokens.get(address) or os.environ.get("SAYSO_TOKEN")
        if not token:
            raise errors.ConfigError(
                f"the sayso server {address} needs a token: set SAYSO_TOKEN, or configure(store=…, token=…); on the"
                " server, `sayso token new --kind ask --name NAME` makes one"
            )
        return HttpStore(address, token)
    raise errors.ConfigError(_no_store(address))


def default_reviewer() -> Reviewer:
    """Return who decides when a decision names nobody: `configure`, `SAYSO_REVIEWER`, the file, else user@host.

    Raises:
        ConfigError: The name is not a valid reviewer.
    """
    chosen = _chosen_reviewer or os.environ.get("SAYSO_REVIEWER") or _reviewer_nearby(working_folder(), named_file())
    return chosen if isinstance(chosen, Reviewer) else _reviewer_named(chosen)


@cache
def _reviewer_nearby(_: str, __: str | None) -> str | Reviewer:
    # Cached by folder and named file: the search for the file and the user costs more than a decision does. The keys
    # are strings because hashing a `Path` would cost a tenth of a decision.
    in_file = _from_file("reviewer")[0]
    if in_file:
        return in_file
    try:
        return _reviewer_named(f"{getpass.getuser()}@{socket.gethostname()}")
    except (ImportError, KeyError, OSError) as error:
        user = f"user id {os.geteuid()} has no name on this machine" if hasattr(os, "geteuid") else str(error)
        raise errors.ConfigError(f"the reviewer is unknown: {user}; set SAYSO_REVIEWER or pass a reviewer") from error


def _reviewer_named(name: str) -> Reviewer:
    try:
        return Reviewer(name)
    except ValueError as error:
        raise errors.ConfigError(
            f"the reviewer's name cannot be used: {error}; set SAYSO_REVIEWER or pass a reviewer"
        ) from error


def requester() -> Identity:
    """Return the identity under which this process asks: `configure`, `SAYSO_PROGRAM`, else the name of its script.

    Raises:
        ConfigError: The name is not valid.
    """
    chosen = _chosen_program or os.environ.get("SAYSO_PROGRAM")
    return _program_named(chosen) if chosen else _program_of(sys.argv[0] if sys.argv else "")


def _check_program(program: object) -> None:
    if not isinstance(program, str):  # callers may be untyped
        raise errors.ConfigError(f"program= takes a name, not {program!r}; nothing was set")
    _program_named(program)


@cache
def _program_named(name: str) -> Identity:
    try:
        return Identity(PROGRAM, name)
    except ValueError as error:
        raise errors.ConfigError(
            f"the program's name cannot be used: {error}; nothing ran. Correct SAYSO_PROGRAM or program="
        ) from error


@cache
def _program_of(script: str) -> Identity:
    path = Path(script)
    name = path.parent.name if path.name == "__main__.py" else path.name  # of the package, if it is run by `python -m`
    try:
        return Identity(PROGRAM, name or "python")
    except ValueError:  # a file name that cannot be displayed
        return Identity(PROGRAM, ascii(name).strip() or "python")
