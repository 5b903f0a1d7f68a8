"""In which language the inbox speaks, and that its catalogues are whole.

The invariant: no text of ours on a page stands outside of the catalogue, and no text of anybody else goes through it.
"""

from __future__ import annotations

import re
from gettext import GNUTranslations
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette

from sayso.server import create_app
from sayso.server.language import asked_for, languages
from tests.support.browsing import BASE, Browser, browser, fields_of

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

    from tests.support.catalogues import collected, compiled, updated

    source, stale = collected(), list[str]()
    for path in CATALOGUES.glob("*.po"):
        with path.open("rb") as file:
            kept = read_po(file, locale=path.stem)
        fresh = updated(path, source)
        stale += [f"{path.name}: {one.id!r}" for one in fresh if one.id and (one.id not in kept or not one.string)]
        stale += [f"{path.name}: {one.id!r} is said nowhere" for one in kept if one.id and one.id not in fresh]
        stale += [] if compiled(kept) == path.with_suffix(".mo").read_bytes() else [f"{path.stem}.mo"]
    assert stale == [], "`make words` brings them up to date"


def test_each_catalogue_is_offered_by_its_own_name() -> None:
    assert {tag: one.name for tag, one in languages().items()} == {
        "en": "English", "de": "Deutsch", "zh-Hans": "简体中文",
    }  # fmt: skip
