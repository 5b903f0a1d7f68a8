"""In which language the inbox speaks, and that its catalogues are whole.

The invariant: no text of ours on a page stands outside of the catalogue, and no text of anybody else goes through it.
"""

from __future__ import annotations

import ast
import html
import re
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from gettext import GNUTranslations
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple
from uuid import UUID

import pytest
from pydantic import Field
from starlette.applications import Starlette

import sayso
from sayso.model import canonical
from sayso.model.schema import Schema
from sayso.model.schema_validation import SchemaError
from sayso.model.text import speaking
from sayso.server import create_app
from sayso.server.language import asked_for, languages, translated
from sayso.server.pages.forms import Widget, with_problems
from sayso.stores.base import Store
from sayso.testing import sample_call
from tests.support.acting import held
from tests.support.browsing import BASE, Browser, browser, fields_of, text_of
from tests.support.pseudo import HEBREW, latin_in, left_in_latin
from tests.support.running import agent_of, ids, started

CATALOGUES = Path(__file__).parents[2] / "src" / "sayso" / "server" / "catalogues"
_PARTS = re.compile(r"%\(\w+\)s|%%|</?[a-z][^>]*>")


def shown_to(someone: Browser, address: str = "/settings", **headers: str) -> tuple[str, str]:
    """Return how a page begins, and its headings."""
    page = someone.get(address, headers={name.replace("_", "-"): value for name, value in headers.items()}).text
    return re.findall(r"<html[^>]*>", page)[0], " ".join(re.findall(r"<h1[^>]*>(.*?)</h1>", page, re.DOTALL))


def test_the_language_is_the_reviewers_own_then_the_browsers_then_english(app: Starlette, ada: Browser) -> None:
    german, chinese = '<html lang="de" dir="ltr">', '<html lang="zh-Hans" dir="ltr">'
    assert shown_to(ada) == ('<html lang="en" dir="ltr">', "Settings")
    assert shown_to(ada, accept_language="fr, de-AT;q=0.9, en;q=0.8") == (german, "Einstellungen")
    stranger = Browser(app, base_url=BASE)
    assert shown_to(stranger, "/", accept_language="zh-CN,zh;q=0.9") == (chinese, "登录")

    form = fields_of(ada.get("/settings").text)
    assert ada.submit("/settings/language", csrf=form["csrf"], tag="zh-Hans").status_code == 200
    assert shown_to(ada, accept_language="de") == (chinese, "设置")
    assert shown_to(ada, "/r/nothing", accept_language="de")[0] == chinese, "faults, too"
    again = browser(create_app(app.state.settings.store), "ada")
    assert shown_to(again)[0] == chinese, "it is the person's, not the browser's or the server's"
    assert shown_to(browser(app, "bob"))[0].startswith('<html lang="en"')

    assert ada.submit("/settings/language", csrf=form["csrf"], tag="xx").status_code == 200
    assert shown_to(ada, accept_language="de")[0] == german
    answer = ada.get("/settings", headers={"accept-language": "de"}).headers
    kept = {name: answer[name] for name in ("content-language", "vary", "cache-control")}
    assert kept == {"content-language": "de", "vary": "accept-language, cookie", "cache-control": "no-store"}


@pytest.mark.parametrize(
    ("accepted", "tag"),
    [
        ("", "en"), ("*", "en"), ("de", "de"), ("DE-ch", "de"), ("zh-TW", "zh-Hans"), ("zh", "zh-Hans"),
        ("zh-Hans-CN", "zh-Hans"), ("en-US,de", "en"), ("de;q=0, en", "en"), ("fr;q=1.0, de;q=0.2", "de"),
        ("de;q=0.1,zh-CN;q=0.5", "zh-Hans"), ("de;q=2", "en"), (";;,,-,=", "en"), ("de-" * 10_000, "de"),
    ],
)  # fmt: skip
def test_a_browsers_wish_is_read(accepted: str, tag: str) -> None:
    assert asked_for(accepted).tag == tag


def _entries(name: str) -> dict[Any, str]:
    with (CATALOGUES / name).open("rb") as file:
        found: dict[Any, str] = vars(GNUTranslations(file))["_catalog"]
    return {key: text for key, text in found.items() if key}


def test_a_translation_keeps_each_value_and_tag_and_fits_into_an_attribute() -> None:
    wrong: list[str] = []
    for path in CATALOGUES.glob("*.mo"):
        for key, text in _entries(path.name).items():
            message: str = key[0] if isinstance(key, tuple) else key
            if sorted(_PARTS.findall(message)) != sorted(_PARTS.findall(text)) or '"' in _PARTS.sub("", text):
                wrong.append(f"{path.name}: {message!r} {text!r}")
    assert wrong == []


def test_the_catalogues_have_each_text_of_the_sources_and_are_compiled() -> None:
    pytest.importorskip("babel", reason="the extra `test` brings Babel")
    from babel.messages.pofile import read_po

    from tests.support.catalogues import collected, compiled, texts_of, untranslated, updated

    source, stale = collected(), list[str]()
    for path in CATALOGUES.glob("*.po"):
        with path.open("rb") as file:
            kept = read_po(file, locale=path.stem)
        fresh = updated(path, source)
        stale += [f"{path.name}: {text} has no translation" for text in untranslated(fresh)]
        stale += [f"{path.name}: {one.id!r} is said nowhere" for one in kept if one.id and one.id not in fresh]
        is_compiled = texts_of(compiled(kept)) == texts_of(path.with_suffix(".mo").read_bytes())
        stale += [] if is_compiled else [f"{path.stem}.mo is not compiled from {path.name}"]
    todo = "run `make words`, translate each text that it lists into that language, and run it again"
    assert not stale, "\n".join([todo, *stale])


def test_no_text_to_translate_is_an_f_string() -> None:
    folders = [CATALOGUES.parents[1] / name for name in ("learning", "model", "server", "view")]
    found = [
        f"{path.name}:{call.lineno}"
        for folder in folders for path in sorted(folder.rglob("*.py"))
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in {"say", "say_n", "later"}
        and any(isinstance(text, ast.JoinedStr) for text in call.args[: 2 if call.func.id == "say_n" else 1])
    ]  # fmt: skip
    assert found == [], "write say('%(name)s ...', name=value): an f-string is in no catalogue"


def test_each_catalogue_says_how_numbers_are_written() -> None:
    found = {path.stem: _entries(path.name)["1,234.5"] for path in CATALOGUES.glob("*.mo")}
    wrong = {
        name: text for name, text in found.items() if re.fullmatch(r"1([^\d\s]|\xa0|\u202f)234(?!\1)\D5", text) is None
    }
    assert (wrong, found["de"]) == ({}, "1.234,5")


def test_amounts_are_written_as_in_the_readers_language(ada: Browser) -> None:
    def act(amount: Decimal, factor: float, note: str) -> None: ...

    pay = sayso.gate(wait="raise")(act)
    request_id = held(pay, Decimal("12500.5"), 1.5, "1.250,50").confirmation_id
    for language, amount, changed in (("en", "12,500.50", "1,250.00"), ("de", "12.500,50", "1.250,00")):
        ada.headers["accept-language"] = language
        page = ada.get(f"/r/{request_id}").text
        assert f"<div data-as-is>{amount}</div>" in page
        assert "<div data-as-is>1.5</div>" in page  # all other numbers are those of JSON
        assert (
            f'<del>{amount}</del> <span aria-hidden="true">→</span> <ins>{changed}</ins>'
            in ada.decide(request_id, "preview", f0="1250.00").text
        )
        assert f"amount={amount}" in text_of(ada.get("/").text)
    assert "Decimal(" not in page
    alike = [held(pay, Decimal(1000 * at) + Decimal("0.125"), 1.5, "same").confirmation_id for at in (1, 2, 3)]
    table = ada.get(f"/bulk?alike={alike[0]}&verb=approve").text
    assert all(amount in table for amount in ("1.000,125", "3.000,125"))
    assert sayso.Review().get(request_id).effective.arguments["amount"] == "12500.5"


def test_how_far_an_amount_is_from_the_median_has_the_separators_of_the_language(store: Store, ada: Browser) -> None:
    last = [store.ask(sample_call(arguments={"amount": amount})).id for amount in (10, 10, 11, 12, 12_345)][-1]
    for language, times in (("en", "1,122.3"), ("de", "1.122,3"), ("zh", "1,122.3")):
        assert times in text_of(ada.get(f"/r/{last}", headers={"accept-language": language}).text), language


def test_no_sentence_stands_in_the_catalogue_of_another_language() -> None:
    german, chinese = _entries("de.mo"), _entries("zh_Hans.mo")
    words = {key: _PARTS.sub("", text) for key, text in chinese.items() if text == german.get(key)}
    assert [text for text in words.values() if len(re.findall("[a-zäöüß]{3,}", text)) > 1] == []


def test_no_text_is_said_inside_another_where_the_catalogues_do_not_find_it() -> None:
    said = re.compile(r"""\bf(["'])(?:(?!\1).)*\{say(?:_n)?\(\s*["']""")
    package = Path(sayso.__file__).parent
    assert [path.name for path in package.rglob("*.py") if said.search(path.read_text(encoding="utf-8"))] == []


def test_each_catalogue_is_offered_by_its_own_name() -> None:
    assert {tag: one.name for tag, one in languages().items()} == {
        "en": "English", "de": "Deutsch", "zh-Hans": "简体中文",
    }  # fmt: skip


# -- no text outside of the catalogue ------------------------------------------------------------------------------


def busy(store: Store) -> list[str]:
    """Record some of everything, all of it in Greek; return the addresses of the pages about it."""
    sayso.configure(store=store)

    def πλήρωσε(ποσό: int, προς: str = "νίκος", κείμενο: str | None = None) -> str:
        return "εντάξει"

    πλήρωσε.__module__, πλήρωσε.__qualname__ = "κατάστημα", "πλήρωσε"
    words = {"title": "τίτλος", "summary": "περίληψη", "description": "περιγραφή", "prompt": "ερώτημα"}
    pay = sayso.gate(wait="raise", risk="high", quorum=2, **words)(πλήρωσε)
    plain = sayso.gate(wait="raise", retries=2)(πλήρωσε)
    review = sayso.Review(reviewer="βασίλης")

    def asked_for_answer(text: str) -> str:
        with pytest.raises(sayso.ConfirmationRequired) as caught:
            sayso.ask(text, type=bool, wait="raise")
        return caught.value.confirmation_id

    def asked(call: Any, *given: Any) -> str:
        return held(call, *given).confirmation_id

    pending, edited, rejected, back, last = (asked(pay, 100 + at, "α\nβ") for at in range(5))
    alike = [asked(plain, 200 + at) for at in range(4)]
    review.approve(pending, comment="ναι")
    review.comment(pending, "@άντα δες")
    review.claim(pending)
    review.approve(edited, changes={"ποσό": 7})
    review.reject(rejected, "όχι")
    review.feedback(back, "αλλιώς")
    review.cancel(last)
    done = asked(plain, 300)
    review.approve(done)
    plain(300)
    lost = asked(plain, 301)
    review.approve(lost)
    review.grant(asked(plain, 1_000), count=3, lasts="1h", comment="για σήμερα")
    question = asked_for_answer("τι;")
    requests = [pending, question, edited, rejected, back, last, done, lost, alike[0]]
    return [
        "/", "/?state=pending&sort=risk&fold=no", "/?q=τίποτα", "/history", "/history?verb=answer", "/runs",
        "/insights", "/grants", "/settings",
        *(f"/r/{one}" for one in requests), f"/runs/{store.get(pending).run_id}",
        *(f"/bulk?alike={alike[0]}&{verb}" for verb in ("verb=approve", "verb=reject", "")), f"/bulk?id={pending}",
        "/r/τίποτα", "/nowhere", "/?from=τίποτα",
    ]  # fmt: skip


def test_no_text_of_a_page_stands_outside_of_the_catalogue(
    app: Starlette, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(languages(), "he", HEBREW)
    monkeypatch.setenv("SAYSO_PROGRAM", "πρόγραμμα")  # the test's own runner may have a Latin name
    addresses, wrong = busy(store), dict[str, list[str]]()
    someone, stranger = browser(app, "άντα"), Browser(app, base_url=BASE)
    asked = {"accept-language": "he"}
    pages = [(address, someone.get(address, headers=asked)) for address in addresses]
    pages += [(f"{address} outside", stranger.get(address, headers=asked)) for address in ("/", "/login?token=x")]
    for address, page in pages:
        assert '<html lang="he" dir="rtl">' in page.text, address
        if left := left_in_latin(page.text):
            wrong[address] = left
    assert wrong == {}


def test_the_steps_of_a_run_are_told_in_the_readers_language(
    app: Starlette, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(languages(), "he", HEBREW)
    monkeypatch.setenv("SAYSO_PROGRAM", "πρόγραμμα")  # the test's own runner may have a Latin name
    sayso.configure(store=store)

    def κοίτα(κωδικός: str) -> str:
        return "ναι"

    # Names have no Greek letters.
    tools = [sayso.Tool(κοίτα, name=str(at), requires_approval=at == 1) for at in range(2)]
    turns = [{"calls": [(one.name, {"κωδικός": "α"})], "text": "έτσι"} for one in tools]
    (request_id,) = ids(started(agent_of(tools, *turns, name="9"), prompt="δες το"))
    someone, run_id = browser(app, "άντα"), store.get(request_id).run_id
    for address, part in ((f"/r/{request_id}", 'id="story"'), (f"/runs/{run_id}", 'id="steps"')):
        page = someone.get(address, headers={"accept-language": "he"}).text
        section = page.partition(part)[2].partition("</section>")[0]
        assert "κωδικός" in section
        assert left_in_latin(section) == []
        german = someone.get(address, headers={"accept-language": "de"}).text
        assert 'erhielt {"κωδικός": "α"}; ergab "ναι"' in html.unescape(german)


def _unread(sentence: str) -> str:
    """Return the Latin words that are left of a sentence in Hebrew, without what its Greek values leave."""
    with speaking(HEBREW):
        return latin_in(translated(sentence))


def test_what_is_wrong_with_a_typed_value_is_said_in_the_readers_language() -> None:
    """Whoever checks it (our schema, jsonschema-rs, the function's own types, a JSON reader) says it in English."""

    class Pay(NamedTuple):
        to: Annotated[str, Field(min_length=2, max_length=3, pattern="^[α-ω]+$")]
        often: int
        part: Annotated[float, Field(gt=0, lt=5)]
        whole: Annotated[int, Field(ge=0, le=5, multiple_of=2)]
        total: Annotated[Decimal, Field(gt=0, max_digits=5, decimal_places=2)]
        day: date
        at: datetime
        hour: time
        span: timedelta
        made: UUID
        raw: bytes
        kind: Literal["α", "β"]
        yes: bool
        several: int | date | None
        names: Annotated[list[str], Field(min_length=1, max_length=2)]
        amounts: dict[str, int]

    wrong: dict[str, list[Any]] = {
        "to": ["α", "αβγδε", "12", 5], "often": ["α", 1.5, [], None], "part": [0, 5, "α"], "whole": [-2, 6, 3],
        "total": ["0", "1000000", "1.234", "α", True], "day": ["α", 5], "at": ["α"], "hour": ["α"], "span": ["α"],
        "made": ["α"], "raw": ["αβγ"], "kind": ["γ"], "yes": ["α"], "several": ["α"], "names": [[], ["α"] * 3, 5],
        "amounts": [{"α": "β"}, []],
    }  # fmt: skip
    stored = Schema.from_text(Schema.of(Pay).text)
    foreign = Schema.of_json({
        "type": "object", "required": ["α"], "additionalProperties": False,
        "properties": {"α": {"const": 5}, "β": {"format": "email"}, "γ": {"type": ["number", "null"], "maximum": 5},
                       "δ": {"type": "array", "uniqueItems": True, "maxItems": 1}, "ε": {"minProperties": 1},
                       "ζ": {"exclusiveMinimum": 1}, "η": {"exclusiveMaximum": 1}},
    })  # fmt: skip
    found: list[str] = []
    for schema, values in (
        *((schema, {name: one}) for schema in (Schema.of(Pay), stored) for name, ones in wrong.items() for one in ones),
        (foreign, {}), (foreign, {"α": 6, "β": "γ", "γ": 6, "δ": [1, 1], "ε": {}, "ζ": 1, "η": 1, "θ": 1}),
        (foreign, {"α": 5, "γ": "δ"}),
    ):  # fmt: skip
        with pytest.raises(SchemaError) as refused:
            schema.fit({**({"α": 5} if schema is foreign and values else {}), **values})
        found += [problem.partition(": ")[2] for problem in refused.value.problems]
    field, words = (
        Widget("text", path="x"),
        "input|string|integer|boolean|array|timezone|properties|YYYY|unable to parse",
    )
    shown = [with_problems([field], [f"x: {sentence}"])[0][0].problem or "" for sentence in found]
    assert [one for one in shown if re.search(words, one, re.IGNORECASE)] == [], "words for programmers"
    deep, twice = "[" * 99 + "]" * 99, '{"α":1,"α":2}'
    for text in ("", "{", "[1,]", '{"α": 1,}', '{"α" 1}', '"α', "1 2", "NaN", "1e999", deep, twice):
        with pytest.raises(ValueError) as fault:  # noqa: PT011  what it says is what is looked at
            canonical.strict_loads(text)
        found.append(str(fault.value))
    left = {sentence: words for sentence in found if (words := _unread(sentence))}
    assert set(left.values()) <= {"email", "NaN", "UUID"}, left


def test_a_sentence_of_nobody_here_stays_as_it_is() -> None:
    for sentence in ("the program said so", "always", "too much; too late", ""):
        with speaking(HEBREW):
            assert translated(sentence) == sentence
    assert translated("Input is shorter than 1 character") == "must have at least 1 character"


def test_why_a_form_was_refused_and_what_values_were_stands_in_the_readers_language(
    app: Starlette, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(languages(), "he", HEBREW)
    monkeypatch.setenv("SAYSO_PROGRAM", "πρόγραμμα")  # the test's own runner may have a Latin name
    sayso.configure(store=store)

    def πλήρωσε(ποσό: int, ποιος: str, κωδικός: str = "βγδ") -> None: ...

    πλήρωσε.__module__, πλήρωσε.__qualname__ = "κατάστημα", "πλήρωσε"
    pay, review = sayso.gate(wait="raise", redact=["κωδικός"])(πλήρωσε), sayso.Review(reviewer="βασίλης")
    for at in range(25):
        review.approve(held(pay, at, "άντα").confirmation_id)
    asked, strict = (
        held(pay, 320, "νίκος").confirmation_id,
        held(sayso.gate(wait="raise", always=True)(πλήρωσε), 5, "α"),
    )
    someone = browser(app, "άντα")
    someone.submit("/settings/language", csrf=fields_of(someone.get("/settings").text)["csrf"], tag="he")
    pages = [someone.get("/insights")]
    for request, verb, sent in (
        (asked, "approve", {"f0": "πολλά"}), (asked, "grant", {"count": "3", "lasts": "0"}),
        (asked, "grant", {"count": "0", "lasts": "1h"}),
        (asked, "grant", {"count": "3", "lasts": "1h", "without": "ψ"}),
        (asked, "preview-grant", {"count": "3", "lasts": "1h", "at_most:ποσό": "500"}),
        (strict.confirmation_id, "grant", {"count": "3", "lasts": "1h"}),
    ):  # fmt: skip
        form = fields_of(someone.get(f"/r/{request}").text)
        page = someone.submit(f"/r/{request}/{verb}", **{**form, **sent})
        assert (page.status_code, 'role="alert"' in page.text) == (422, True), verb
        pages.append(page)
    assert {page.request.url.path: left for page in pages if (left := left_in_latin(page.text))} == {}
