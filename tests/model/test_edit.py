"""A reviewer's edit: what was not touched stays to the byte."""

from typing import Any

import pytest

from sayso import errors, hold
from sayso.gates.exceptions import ConfirmationRequired
from sayso.gates.gate import gate
from sayso.gates.options import Gate
from sayso.model import canonical
from sayso.model.edit import edited_call
from sayso.model.redaction import Redaction
from sayso.model.request import Request
from sayso.stores.memory import MemoryStore


def charge(rate: float, note: str = "", password: str = "", tags: list[str] | None = None) -> None:
    """Stand for a function that is gated."""


def asked(*args: object, **kwargs: object) -> Request:
    store = MemoryStore()
    with pytest.raises(ConfirmationRequired) as held:
        gate(wait="raise", store=store)(charge)(*args, **kwargs)  # type: ignore[arg-type]
    return store.get(held.value.confirmation_id)


def real(request: Request, **changes: object) -> dict[str, object]:
    return canonical.decode(edited_call(request, changes).form, {})


def test_unchanged_argument_stays_as_it_was_even_where_validation_would_convert_it() -> None:
    values = real(asked(1, note="x"), note="y")
    assert values == {"rate": 1, "note": "y", "password": "", "tags": None}
    assert type(values["rate"]) is int


def test_masked_argument_left_as_shown_keeps_its_real_value() -> None:
    request = asked(1.0, password="hunter22", tags=["a"])
    shown = request.call.arguments
    assert shown["password"] == "***"
    edit = edited_call(request, arguments={**shown, "rate": 2.0})
    assert canonical.decode(edit.form, {})["password"] == "hunter22"
    assert "hunter22" not in str(edit.masked)


def test_edit_that_does_not_fit_says_where_and_decides_nothing() -> None:
    with pytest.raises(errors.InvalidChangesError, match=r"rate: .*nothing was decided"):
        real(asked(1.0), rate="a lot")


def test_own_key_of_a_gate_keeps_a_default_out_of_the_stored_shape() -> None:
    def tell(badge: str = "s3cret-default") -> None:
        """Stand for a function with a secret default."""

    assert "s3cret-default" in Gate(tell).schema.text
    assert "s3cret-default" not in Gate(tell, redact=("badge",), redaction=Redaction(("badge",))).schema.text


def test_a_mask_that_was_left_as_it_is_or_moved_never_runs_as_three_stars() -> None:
    def send(data: Any, note: str = "") -> None:
        """Stand for a function that takes anything."""

    store, secret = MemoryStore(), {"user": "kim", "password": "hunter22", "hosts": [{"token": "t1"}]}
    link = "https://u:hunter22@shop.example"

    def held(value: Any, **options: Any) -> Request:
        with pytest.raises(ConfirmationRequired) as caught:
            gate(wait="raise", store=store, **options)(send)(value, note="n")
        return store.get(caught.value.confirmation_id)

    shown = {"user": "bob", "password": "***", "hosts": [{"token": "***"}]}
    kept = [
        (secret, shown, {**secret, "user": "bob"}),
        (secret, {"user": "bob", "password": "***"}, {"user": "bob", "password": "hunter22"}),
        (secret, {"user": "***"}, {"user": "***"}),  # nothing was masked there
        (link, "https://u:***@shop.example/new", f"{link}/new"),
        ("kim", {"user": "***"}, {"user": "***"}),
    ]
    for value, edit, runs in kept:
        assert real(held(value), data=edit)["data"] == runs
    moved = [
        (secret, {"user": "bob", "passwd": "***"}), (secret, {"login": {"password": "***"}}),
        (secret, [{"password": "***"}]), (secret, {**shown, "more": [{"token": "***"}]}), (secret, "***"),
        (link, {"link": "https://u:***@shop.example"}), (link, ["https://u:***@shop.example"]),
    ]  # fmt: skip
    for value, edit in moved:
        with pytest.raises(errors.InvalidChangesError, match="write the secrets out"):
            real(held(value), data=edit)
    assert real(held("eve", redactor=lambda given: {"data": given["data"]}), note="***")["note"] == "n"


def test_a_mask_that_was_moved_to_an_argument_that_was_not_given_never_runs_as_three_stars() -> None:
    store, names = MemoryStore(), ("token", "secret", "note", "motto")
    schema = {"type": "object", "properties": {name: {} for name in names}}
    given = {"token": "t1", "secret": {"user": "kim"}, "note": "n"}
    request = store.get(hold("shop:pay", given, schema=schema, store=store).id or "")
    for edit in ({"motto": "***"}, {"motto": ["https://u:***@shop.example"]}):
        with pytest.raises(errors.InvalidChangesError, match=r"motto: .* write the secrets out"):
            edited_call(request, edit)
        with pytest.raises(errors.InvalidChangesError, match=r"motto: .* write the secrets out"):
            edited_call(request, arguments=edit)
    assert real(request, motto="m", token="***") == {**given, "motto": "m"}
    plain = store.get(hold("shop:pay", {"note": "n"}, schema=schema, store=store).id or "")
    assert real(plain, motto="***") == {"note": "n", "motto": "***"}  # there is no secret whose mask it could be
