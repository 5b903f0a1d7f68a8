"""The card that a person decides by: the call comes first, the program's words stand apart, nothing is left out unsaid.

What is drawn of a single value is tested with `sayso.view`. The one invariant: no text of a program changes the
rows that show the call.
"""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Annotated, Any, Literal

import pydantic
import pytest
from pydantic import Field, SecretStr

import sayso
from sayso import config
from sayso.model import canonical
from sayso.model.rendering import quote_if_needed
from sayso.model.request import Execution, Request, State, changed
from sayso.model.reviewer import Identity, name_of
from sayso.model.schema import Schema
from sayso.testing import sample_call
from sayso.view import full_text, summary
from sayso.view.full_text import choices_of, decided, kinds_of, status_line
from tests.conftest import Clock

NOW = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)


@pytest.fixture(autouse=True)
def memory(clock: Clock) -> None:
    sayso.configure(store="memory:")


def ask(*args: Any, function: Any = None, run: str = "order-4721", **options: Any) -> Request:
    def post(note: str, amount: float = 320.0, **more: Any) -> None: ...

    with sayso.run(run), pytest.raises(sayso.ConfirmationRequired) as caught:
        sayso.gate(wait="raise", **options)(function or post)(*args)
    return config.default_store().get(caught.value.confirmation_id)


def rows(request: Request, width: int = 100, **kept: bool) -> list[str]:
    return full_text.ask_rows(request, NOW, width=width, **kept)


# -- the program's words ---------------------------------------------------------------------------------------

CHROME = (
    "note    'nothing'", "  amount  1.0", "asked by ada", "expires in 1d; no answer means no",
    "a approve   e edit",
    "| ", ": ", "(… 1 of 2 characters not shown …)", "rq_00000000 approved", "the program says, unverified:",
    "warning: none",
)  # fmt: skip


def hostile(seed: int) -> str:
    pick = random.Random(seed)
    alphabet = ["\n", "\r", "\t", " ", "'", '"', "\\", "\x1b[2J", "\x1b[1A", "\u202e", "\u2028", "\x85", "x", *CHROME]
    return "".join(pick.choice(alphabet) for _ in range(pick.randrange(1, 60)))


@pytest.mark.parametrize("width", [46, 60, 100])
def test_no_words_of_the_program_change_how_the_call_is_shown(width: int) -> None:
    plain = full_text.subject_rows(ask("A-4721"), width=width)
    for seed in range(200):
        text = hostile(seed)
        request = ask("A-4721", prompt=text, description=text, risk=text[:60] or None, run="r" + str(seed))
        drawn = rows(request, width)
        assert drawn[: len(plain)] == plain
        rest = drawn[len(plain) :]
        said = rest.index("  the program says, unverified:")
        assert all(row.startswith(("  warning: ", "         : ")) for row in rest[:said])
        assert sum(row.startswith("  asked by ") for row in drawn) == 1
        assert drawn[-1].split() == ["expires", "in", "1d;", "no", "answer", "means", "no"]


def test_a_call_in_the_program_s_words_is_marked_as_words() -> None:
    drawn = rows(ask("A-4721", prompt="one\n  post\n    note    'harmless'"))
    assert [row.strip() for row in drawn if "harmless" in row] == ["|     note    'harmless'"]


def test_no_argument_can_pass_for_another() -> None:
    def post(**more: str) -> None: ...

    names = ("amount  80.0\n    note", "x" + " " * 90 + "amount  80.0", "y\u3000\u3000amount")
    with sayso.run("r"), pytest.raises(sayso.ConfirmationRequired) as caught:
        sayso.gate(wait="raise")(post)(**dict.fromkeys(names, "v"), amount="320")
    request = config.default_store().get(caught.value.confirmation_id)
    for width in (46, 60, 100):
        drawn = full_text.subject_rows(request, width=width, full=True)
        starts = [row.split()[0] for row in drawn if not row.strip().startswith(("'", "|", ":", "(", "{", "}"))]
        assert starts.count("amount") == 0, drawn  # the only real one stands inside the braces of **more


def test_no_name_that_a_redactor_makes_up_can_pass_for_an_argument() -> None:
    def post(amount: int) -> None: ...

    request = ask(320, function=post, redactor=lambda _: {"amount  80": "", "x\n    amount  70": ""})
    drawn = full_text.subject_rows(request, width=100)
    assert not [row for row in drawn if row.split()[0] == "amount"]
    assert '    "amount  80"' in drawn


@pytest.mark.parametrize("run", ["a run, on behalf of the boss", "x'; approved", "r (program)", "a\u2800b", "r" * 190])
def test_a_run_s_name_stays_inside_its_quotes(run: str) -> None:
    (named,) = [row.removeprefix("  in run").strip() for row in rows(ask("x", run=run)) if row.startswith("  in run")]
    assert named == quote_if_needed(run, 83)
    assert named[0] in "'\""


# -- nothing is left out unsaid --------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1_000, 10_000, 100_000, 900_000])
@pytest.mark.parametrize("place", [0.0, 0.1, 0.4, 0.6, 0.9, 1.0])
def test_a_marker_is_seen_or_the_view_is_not_whole(size: int, place: float) -> None:
    cut = int(size * place)
    request = ask("x" * cut + "MARKER" + "y" * (size - cut))
    brief = "".join(row.strip().lstrip("|: ") for row in full_text.subject_rows(request, width=100))
    assert "MARKER" in brief or not full_text.is_whole(request)
    whole = "".join(row.strip().lstrip("|: ") for row in full_text.subject_rows(request, width=100, full=True))
    assert "MARKER" in whole
    rows = "".join(full_text.subject_rows(request, width=100))
    assert full_text.is_whole(request) == (f"({size + 6:,} characters)" in rows and "not shown" not in brief)


@pytest.mark.parametrize("width", [46, 60, 80, 100])
def test_no_row_is_wider_than_asked_for(width: int) -> None:
    request = ask(
        "words of some length " * 40, prompt="p " * 500, description="d" * 500, run="r " * 99 + "r", risk="high " * 9
    )
    assert max(map(summary.columns, rows(request, width))) <= width


@pytest.mark.parametrize(("size", "width"), [(41, full_text.NARROW), (44, 64), (48, 68)])
def test_a_run_s_id_stands_whole_where_there_is_room(size: int, width: int) -> None:
    run = ("plan:" + "5" * 60)[:size]
    drawn = rows(ask("x", run=run), width)
    assert f"  in run         {run}" in drawn
    assert max(map(summary.columns, drawn)) <= width


@pytest.mark.parametrize("width", [46, 60, 80, 100])
def test_no_warning_is_wider_than_asked_for_and_none_is_cut(width: int) -> None:
    def both(names: dict[str, str], note: str) -> None: ...

    names = {
        "n" * 150 + "\u200b": "\u202e" * 3,
        "p\u0430ypal " * 9: "x\u05d0 warning: none " * 3,
        "\u4e2d\u200b" * 80: "v",
    }
    request = ask(
        names,
        "\u200b\u2060 p\u0430ypal\n" * 40,
        function=both,
        prompt="\u2800 \u05d0x",
        run="r \u2800x",
    )
    drawn = rows(request, width)
    assert max(map(summary.columns, drawn)) <= width
    warned = [row for row in drawn if row.startswith(("  warning: ", "         : "))]
    said = "".join(row[11:].removesuffix("<U+0020>").replace(" ", "") for row in warned)
    assert said == "".join(full_text.cautions(request)).replace(" ", "")


def test_letters_that_run_the_other_way_are_warned_of() -> None:
    for text, letter in [
        ("pay \u05d0\u05d1 320", "U+05D0"),
        ("\u05d0 a", "U+05D0"),
        ("a/\u0627/b", "U+0627"),
        ("a\u0663", "U+0663"),
    ]:
        (said,) = [one for one in full_text.cautions(ask(text)) if "right-to-left" in one]
        assert said.startswith(f"argument note: mixes right-to-left letters ({letter})")
    for text in ("\u05d0\u05d1 12,50", "plain", "\u00fcbung", "\u4e2d\u6587 abc", "\u0430\u0431"):
        assert not [one for one in full_text.cautions(ask(text)) if "right-to-left" in one]


def test_what_is_whole_in_the_narrowest_view_is_whole_in_every_wider_one() -> None:
    for lines in range(90, 130, 3):
        request = ask("some words to be broken somewhere, " * 2 * lines)
        if full_text.is_whole(request):
            assert all(full_text.is_whole(request, width) for width in range(full_text.NARROW, 121, 10))


# -- labels ----------------------------------------------------------------------------------------------------


def test_a_plain_name_stands_as_it_is_and_any_other_in_quotes() -> None:
    assert [quote_if_needed(name) for name in ("order-4721", "ada@laptop", "übung", "a/b:c#1")] == [
        "order-4721", "ada@laptop", "übung", "a/b:c#1",
    ]  # fmt: skip
    for name in ("two words", "", "a'b", "a\u200bb", "a,b", "x" * 300, "<U+202E>"):
        assert quote_if_needed(name)[0] in "'\"", name
        assert len(quote_if_needed(name)) <= 90


def test_people_of_this_machine_need_no_issuer() -> None:
    assert name_of(Identity("local", "ada")) == "ada"
    assert name_of(Identity("corp sso", "ada (local)")) == '"ada (local)" ("corp sso")'


def test_a_span_that_has_just_begun_is_not_short_of_a_minute() -> None:
    assert summary.time_left(NOW + timedelta(hours=2), NOW + timedelta(milliseconds=30)) == "in 2h"
    assert summary.time_left(NOW, NOW) == "expired"


def test_a_request_past_its_end_does_not_expire_again() -> None:
    assert summary.expiry(NOW + timedelta(hours=2), NOW) == "expires in 2h"
    assert summary.expiry(NOW, NOW) == "expired"


# -- what became of it -----------------------------------------------------------------------------------------


def test_every_decision_names_who_and_through_which_channel() -> None:
    review = sayso.Review(channel="chat")
    approved = review.approve(ask("1").id, by="bob", comment="fine")
    rejected = review.reject(ask("2").id, "no\nway", by="bob")
    back = review.feedback(ask("3").id, "ask first", by="bob")
    cancelled = review.cancel(ask("4").id, by="bob")
    assert decided(approved, NOW) == 'approved by bob (chat, just now): "fine"'
    assert decided(rejected, NOW) == 'rejected by bob (chat, just now): "no\\nway"'
    assert decided(back, NOW) == 'sent back with feedback by bob (chat, just now): "ask first"'
    assert decided(cancelled, NOW) == "cancelled by bob (chat, just now)"
    assert status_line(approved, NOW) == f"{decided(approved, NOW)}; not started yet, the approval expires in 1d"
    assert status_line(ask("5"), NOW) == "pending, expires in 1d"


def test_an_end_says_what_it_was_the_end_of(clock: Clock) -> None:
    review, waiting = sayso.Review(channel="chat"), ask("1", expires="1h")
    granted = review.approve(ask("2", approval_expires="1h").id, by="bob")
    clock.tick(hours=2)
    assert decided(review.get(waiting.id), clock.at) == "expired 1 h ago; nobody decided"
    assert (
        decided(review.get(granted.id), clock.at)
        == "expired 1 h ago; approved by bob (chat, 2 h ago) and not used in time"
    )


def test_a_mask_in_what_a_program_says_or_gave_is_no_text_of_three_stars() -> None:
    request = replace(ask("1"), context={"customer": "C-17", "card": "***", "seen": ["***", "****"]})
    assert [row.strip() for row in rows(request) if row.strip().startswith("context  ")] == [
        'context  {"customer": "C-17", "card": ***, "seen": [***, "****"]}'
    ]
    result = canonical.encode({"result": {"token": "***", "total": 5}}).text
    ended = replace(request, execution=Execution("w", 1, 1, NOW, result=result))
    assert list(full_text.outcome_rows(ended)) == ['  returned {"token": ***, "total": 5}']


class User(pydantic.BaseModel):
    name: str
    password: str = ""
    pin: SecretStr = SecretStr("0000")
    iban: str = ""


def test_changes_name_masked_values_and_show_none() -> None:
    def post(user: User, api_key: str, note: str) -> None: ...

    request = ask(
        User(name="a", password="old-password", iban="old-iban"), "old-api-key", "n", function=post, redact=["iban"]
    )
    edit = {
        "user": {"name": "b", "password": "new-password", "pin": "1111", "iban": "new-iban"},
        "api_key": "new-api-key",
    }
    after = sayso.Review().approve(request.id, by="bob", changes=edit)
    assert after.state is State.APPROVED
    found = {
        change.path: (change.before, change.after) for change in changed(request.call, after.effective, request.redact)
    }
    assert found["user.name"] == ('"a"', '"b"')
    assert {path for path, texts in found.items() if texts == ("***", "*** (changed)")} == {
        "user.password", "user.pin", "user.iban", "api_key",
    }  # fmt: skip
    assert not any("new-" in str(texts) or "old-" in str(texts) for texts in found.values())


def test_a_redactor_s_drawing_is_no_change() -> None:
    def pay(card_number: str, amount: int) -> None: ...

    request = ask(
        "4111111111111111", 10, function=pay, redactor=lambda arguments: {**arguments, "card_number": "…1111"}
    )
    after = sayso.Review().approve(request.id, by="bob", changes={"amount": 7})
    assert [change.line() for change in changed(request.call, after.effective)] == ["amount  10 -> 7"]
    other = ask("4111111111111111", 20, function=pay, redactor=lambda arguments: {**arguments, "card_number": "…1111"})
    after = sayso.Review().approve(other.id, by="bob", changes={"card_number": "4222222222222222"})
    (change,) = changed(other.call, after.effective)
    assert change.path == "card_number"
    assert "4222" not in change.line()


# -- hints -----------------------------------------------------------------------------------------------------


class Colour(Enum):
    RED = 1
    BLUE = 2


def test_kinds_are_said_in_words() -> None:
    def f(
        a: int, b: Annotated[float, Field(ge=0, le=500)], c: Literal["x", "y"], d: list[str], e: User, g: str | None,
        h: Colour, i: dict[str, int], *rest: int,
    ) -> None: ...  # fmt: skip

    kinds = kinds_of(Schema.of(f))
    assert kinds["a"] == "integer"
    assert kinds["b"] == "number, at least 0, at most 500"
    assert kinds["c"] == '"x" | "y"'
    assert kinds["d"] == "array of string"
    assert kinds["e"].startswith("object (name: string, password: string")
    assert kinds["g"] == "string or null"
    assert "RED" in kinds["h"]


def test_choices_are_those_of_the_type() -> None:
    assert choices_of(Schema.of_type(Literal["berlin", "lyon"])) == ["berlin", "lyon"]
    assert choices_of(Schema.of_type(int)) == []
    assert len(choices_of(Schema.of_type(Colour))) == 2


def test_how_often_one_approval_may_start_the_call_is_shown_where_it_is_not_once() -> None:
    drawn = {
        name: "\n".join(full_text.ask_rows(request, request.created_at, width=100))
        for name, request in {
            "once": sample_call(), "retries": sample_call(retries=2), "idempotent": sample_call(idempotent=True),
        }.items()
    }  # fmt: skip
    assert "may start" not in drawn["once"]
    assert "may start      up to 3 times, again after each failure" in drawn["retries"]
    assert "may start      again after each failure" in drawn["idempotent"]


def test_a_short_schema_with_any_number_of_parts_is_described_in_a_few_words() -> None:
    many: dict[str, Any] = {f"p{n}": {"$ref": "#/$defs/o"} for n in range(60)}
    schema = Schema.of_json(
        {"type": "object", "properties": many, "$defs": {"o": {"properties": many, "type": "object"}}}
    )
    described = kinds_of(schema)
    assert len(described) == 60
    assert max(map(len, described.values())) < 20_000
    alternatives = {"anyOf": [{"$ref": "#/$defs/a"}] * 500}
    schema = Schema.of_json({"type": "object", "properties": {"x": alternatives}, "$defs": {"a": alternatives}})
    assert kinds_of(schema)["x"].count("…") < 1_000


def test_a_pattern_is_for_programmers_alone() -> None:
    def act(code: Annotated[str, Field(pattern="^[A-Z]{3}$", max_length=3)]) -> None: ...

    schema = Schema.of(act)
    assert kinds_of(schema) == {"code": 'string, length at most 3, matching "^[A-Z]{3}$"'}
    assert kinds_of(schema, plain=True) == {"code": "text, length at most 3, in a special format"}
