"""8. After any error (policy, store, rendering, notification) the call does not run, and the error gives the reason."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import sayso
from sayso import errors
from sayso.stores.base import Filter
from tests.promises.world import World
from tests.support.acting import held


def broken(*_: Any, **__: Any) -> Any:
    raise RuntimeError("out of order")


FAULTS: dict[str, tuple[dict[str, Any], Any, type[Exception]]] = {
    "rule raises": ({"when": broken}, "a", errors.PolicyError),
    **{f"rule says {said!r}": ({"when": lambda said=said: said}, "a", errors.PolicyError)
       for said in (None, 0, 1, "", "no", {}, [], "allow")},
    "prompt raises": ({"prompt": broken}, "a", errors.PolicyError),
    "prompt is no text": ({"prompt": lambda: 1}, "a", errors.PolicyError),
    "argument has no form": ({}, object(), errors.ArgumentError),
    "store is a folder": ({"store": "sqlite:////"}, "a", errors.StoreError),
    "store is unknown": ({"store": "redis://nowhere"}, "a", errors.ConfigError),
}  # fmt: skip


def test_8_any_error_means_not_run(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[Any] = []

    def act(value: Any) -> None:
        ran.append(value)

    for what, (options, argument, error) in FAULTS.items():
        with pytest.raises(error) as caught:
            sayso.gate(wait="raise", **options)(act)(argument)
        assert len(str(caught.value)) > 20, what
    assert world.store.count(Filter()) == 0

    drawn_badly = held(sayso.gate(wait="raise", redactor=broken)(act), "a secret")
    assert "secret" not in str(drawn_badly)
    monkeypatch.setattr("sys.stderr", closed := (tmp_path / "err").open("w"))
    closed.close()
    held(sayso.gate(timeout="1ms")(act), "nobody can be told")

    request_id = held(pay := sayso.gate(wait="raise")(act), "approved").confirmation_id
    sayso.Review().approve(request_id, by="ada")
    world.store.close()
    world.path.write_bytes(b"not a database" * 1000)
    with pytest.raises(errors.StoreError):
        pay("approved")
    assert ran == []
