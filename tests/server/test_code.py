"""How code and its changes are drawn on a page.

The invariant: what is shown is the text, letter by letter and escaped; marks are classes and never a part of it.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from decimal import Decimal
from html import unescape

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.applications import Starlette

import sayso
from sayso.model.request import changed
from sayso.server.pages.arguments import differences, highlighted, in_sight, language_of, zone_warnings
from sayso.stores.base import Store
from sayso.testing import sample_call, sample_edit
from tests.support.acting import held
from tests.support.browsing import Browser, browser, fields_of

naive = datetime.fromisoformat
SQL = "UPDATE orders\nSET refunded = TRUE -- 'all' of <b>\nWHERE id = 'A-4900' AND total > 12.5"


def words(marked: str) -> str:
    return unescape(re.sub(r"</?span[^>]*>", "", marked))


@pytest.mark.parametrize(
    ("name", "text", "language"),
    [
        ("query", SQL, "sql"), ("note", "select * from users", "sql"), ("note", "select one of them", None),
        ("sql", "VACUUM", "sql"), ("body", "--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b", "diff"),
        ("shell_command", "rm -rf /", "shell"), ("to", "kim@example.org", None), ("script_python", "x = 1", "python"),
    ],
)  # fmt: skip
def test_a_text_is_code_by_its_name_or_by_how_it_reads(name: str, text: str, language: str | None) -> None:
    assert language_of(name, text) == language


def test_the_parts_of_code_are_marked_by_classes() -> None:
    marked = highlighted(SQL, "sql")
    assert '<span class="h-k">UPDATE</span>' in marked
    assert '<span class="h-mi">12</span>' in marked
    assert "&lt;b&gt;" in marked
    assert "style=" not in marked
    assert words(marked) == SQL


@given(st.text(max_size=200), st.sampled_from(["sql", "diff", "python", "shell", "json"]))
def test_any_text_comes_out_as_it_went_in_with_nothing_of_it_as_markup(text: str, language: str) -> None:
    marked = highlighted(text, language)
    assert words(marked) == text
    assert re.fullmatch(r'(?:[^<>]|<span class="h-[a-z0-9]+">|</span>)*', marked)
    for line in marked.split("\n"):
        assert line.count("<span") == line.count("</span>")


@pytest.mark.parametrize("text", ["`" * 7_999, "@" * 7_999, "a" * 50_000])
def test_a_long_text_that_is_made_to_be_slow_is_drawn_all_the_same(text: str) -> None:
    for language in ("sql", "diff", "python", "shell", "json"):
        assert words(highlighted(text, language)) == text


def test_an_edit_of_a_text_is_shown_by_its_lines() -> None:
    text = "\n".join(f"line {number}" for number in range(20))
    request = sample_call(None, {"body": text, "to": "ada"})
    edit = sample_edit(request, body=text.replace("line 9", "line <9>"), to="bob")
    found = differences(changed(request.call, edit), request.call, edit)
    lined, plain = sorted(found, key=lambda one: one.change.path)
    assert [(line.sign, str(line.text)) for line in lined.lines] == [
        ("…", ""), *((" ", f"line {n}") for n in (6, 7, 8)), ("-", "line 9"), ("+", "line &lt;9&gt;"),
        *((" ", f"line {n}") for n in (10, 11, 12)), ("…", ""),
    ]  # fmt: skip
    assert (plain.lines, plain.change.after) == ((), '"bob"')


def test_an_edit_shows_decimal_numbers_as_the_page_does() -> None:
    for before, after, told in [
        (Decimal("320.00"), Decimal("1e2"), ("320.00", "100")),
        (12500.5, 80, ("12,500.50", "80")),
        (Decimal(5), "5", ("5", '"5"')),
        ("Decimal('5')", Decimal(5), ("\"Decimal('5')\"", "5")),
        (5, Decimal(5), ("5", "5 (changed where it is not shown)")),  # only the type differs
    ]:
        request = sample_call(None, {"amount": before})
        edit = sample_edit(request, amount=after)
        (found,) = differences(changed(request.call, edit), request.call, edit)
        assert (found.change.before, found.change.after) == told


@pytest.mark.parametrize(
    ("before", "after", "warning"),
    [
        (datetime(2026, 3, 1, 9, tzinfo=UTC), naive("2026-03-01T09:00"), "at lost its time zone"),
        (naive("2026-03-01T09:00"), datetime(2026, 3, 1, 9, tzinfo=UTC), "at now has a time zone; it had none"),
        (datetime(2026, 3, 1, 9, tzinfo=UTC), datetime(2026, 3, 2, 9, tzinfo=UTC), None),
        (naive("2026-03-01T09:00"), naive("2026-03-02T09:00"), None),
    ],
)  # fmt: skip
def test_a_time_zone_that_an_edit_moves_is_told(before: datetime, after: datetime, warning: str | None) -> None:
    request = sample_call(None, {"at": before})
    said = zone_warnings(request.call, sample_edit(request, at=after))
    assert (said == []) if warning is None else said[0].startswith(warning)


def test_the_page_shows_code_with_marks_and_an_edit_with_its_lines_and_warnings(ada: Browser) -> None:
    @sayso.gate(wait="raise")
    def run(query: str, at: datetime) -> None: ...

    request_id = held(run, SQL, datetime(2026, 3, 1, 9, tzinfo=UTC)).confirmation_id
    page = ada.get(f"/r/{request_id}").text
    assert '<span class="h-k">UPDATE</span>' in page
    assert f"sql, {len(SQL)} characters" in page
    fields = fields_of(page)
    changes = {name: given.replace("12.5", "99") for name, given in fields.items() if re.fullmatch(r"f\d", name)}
    changes |= {name: "2026-03-01T10:00:00" for name, given in changes.items() if given.startswith("2026")}
    preview = ada.decide(request_id, "preview", **changes).text
    lines = re.findall(r'<span class="line (\w+)">(.*?)</span>', preview)
    assert [sign for sign, _ in lines] == ["removed", "added"]
    assert "Warning: at lost its time zone" in preview


@pytest.mark.parametrize("language", [None, "sql", "python"])
def test_nothing_of_a_text_is_pushed_out_of_its_box_by_what_is_empty(language: str | None) -> None:
    text = "SELECT 1" + "\n \n" * 200 + "DELETE FROM orders" + " " * 400 + "WHERE TRUE\n\n\nEND"
    drawn = in_sight(highlighted(text, language))
    assert words(drawn) == "SELECT 1\n(399 empty lines)\nDELETE FROM orders<U+0020 x 400>WHERE TRUE\n\n\nEND"
    assert drawn.count('class="gap"') == 2
    assert in_sight("a\n<b>\n\n\n\nc") == "a\n&lt;b&gt;\n\n\n\nc"  # three empty lines stay


def test_an_edit_that_adds_empty_lines_says_how_many() -> None:
    before = sample_call(arguments={"body": "Dear Kim,\nyours, Ada"})
    after = sample_edit(before, body="Dear Kim,\n" + "\n" * 40 + "no money back,\nyours, Ada")
    (one,) = differences(changed(before.call, after), before.call, after)
    assert [(line.sign, words(line.text)) for line in one.lines] == [
        (" ", "Dear Kim,"), ("+", "(40 empty lines)"), ("+", "no money back,"), (" ", "yours, Ada")
    ]  # fmt: skip


def test_no_box_of_a_page_has_many_empty_lines(app: Starlette, store: Store) -> None:
    text = "As agreed." + "\n" * 60 + "And wire the rest."
    request_id = held(sayso.gate(wait="raise", prompt=text, description=text)(act), text).confirmation_id
    ada = browser(app, "ada")
    sayso.Review(store).comment(request_id, text, by="bob")
    for address in (f"/r/{request_id}", f"/bulk?id={request_id}"):
        page = re.sub(r"(?s)<textarea.*?</textarea>", "", ada.get(address).text)
        assert "(59 empty lines)" in page
        assert "\n\n\n\n\n\nAnd wire the rest." not in page.replace("| ", ""), address


def act(text: str) -> None: ...
