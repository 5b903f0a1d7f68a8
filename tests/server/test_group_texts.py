"""Long texts in a table of alike calls: no text is approved in a group without being read.

The invariant: a call starts ticked only if all in which its texts differ from the others' is in sight.
"""

from __future__ import annotations

import re

import pytest

from sayso import clock
from sayso.server.pages.alike import table_of
from sayso.stores.base import Store
from sayso.testing import sample_call
from sayso.view import similar
from sayso.view.similar import Own, own_words
from tests.server.test_groups import asked, group_of, ticks
from tests.support.browsing import Browser, text_of

LETTER = (
    "Dear {name},\n\nthank you for your order {order}. We are sorry that it arrived late: a storm closed the road to"
    " our warehouse for two days. We pay {amount} EUR back to your card within a week.\n\nYours,\nthe shop"
)
FILLED = [
    {"name": name, "order": f"A-{4700 + at}", "amount": 20 + at}
    for at, name in enumerate(["Kim Miller", "Bo", "Li Wei", "Ana", "Jo", "Max Mustermann", "Eva", "Tom", "Ida", "Uwe"])
]
MAILS = [
    "Dear Kim,\nyour invoice of May is paid. " + "Nothing else is due from you, and no letter will follow. " * 4,
    "Hello Bo,\nwe close your account on Friday. " + "All of your files are removed for good on that day. " * 4,
    "Li,\nas discussed, here is the password of the vault. " + "Please do not share it with anybody outside. " * 4,
    "Good day,\nwe accept your offer over 90,000 EUR. " + "The contract is signed and binding as of today. " * 4,
]


def letters(*texts: str) -> list[dict[str, str]]:
    return [{"subject": "Re: your order", "to": f"c{at}@a.example", "body": text} for at, text in enumerate(texts)]


def own(*texts: str, room: int = 120) -> list[Own]:
    return own_words(texts, room)


def test_letters_of_one_template_show_what_was_filled_in_wherever_it_is() -> None:
    found = own(*[LETTER.format(**one) for one in FILLED])
    assert [one.is_whole for one in found] == [True] * len(FILLED)
    for one, filled in zip(found, FILLED, strict=True):
        for value in filled.values():
            assert str(value) in one.excerpt
        assert "storm" not in one.excerpt
    assert found[1].excerpt == "Dear Bo, … your order A-4701. … We pay 21 …"


def test_a_text_with_more_or_less_than_the_others_is_not_shown_whole() -> None:
    usual = [LETTER.format(**one) for one in FILLED]
    changes = {
        "a word more": usual[3].replace("We pay", "We never pay"),
        "a word less": usual[3].replace("We are sorry that it", "We are sorry it"),
        "a sentence more": usual[3].replace("Yours,", "Send us a photo of your card.\n\nYours,"),
        "a word at its end": f"{usual[3]} PS",
        "another order": usual[3].replace("thank you for", "for").replace("the shop", "the shop thank you"),
        "a line less deep": usual[3].replace("\n\nYours,", "\n    Yours,"),
        "cut at its end": usual[3][:-60],
    }  # fmt: skip
    for what, text in changes.items():
        found = own(*usual[:3], text, *usual[4:])
        assert [at for at, one in enumerate(found) if not one.is_whole] == [3], what
    assert not any(one.is_whole for one in own(*MAILS))
    twice = usual[3].replace("Yours,", "We pay 23 EUR back to your card within a week.\n\nYours,")
    assert "We pay 23 EUR back to your card within a …" in own(*usual[:3], twice, *usual[4:])[3].excerpt


def test_few_texts_are_like_each_other_only_if_two_are() -> None:
    one, other = LETTER.format(**FILLED[0]), LETTER.format(**FILLED[1])
    assert not own(one)[0].is_whole
    assert [found.is_whole for found in own(one, other)] == [True, True]
    assert [found.is_whole for found in own(one, other, MAILS[0])] == [True, True, False]
    assert [found.is_whole for found in own("Yes.\nKim", "No.\nBo")] == [True, True]  # in sight, as short as they are
    ideographs = [
        f"亲爱的{name},您的订单因暴风雨延误了两天,我们非常抱歉。我们会在一周内退款。" * 2 for name in ("金", "李", "王")
    ]
    assert all(found.is_whole for found in own(*ideographs))


def test_texts_that_are_too_many_to_compare_are_not_shown_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [LETTER.format(**one) for one in FILLED]
    monkeypatch.setattr(similar, "_MOST_COMPARED", sum(map(len, texts)) - 1)
    assert own(*texts, room=10) == [Own(f"{text[:10]} …", is_whole=False) for text in texts]


def test_different_mails_are_read_before_they_are_ticked(store: Store, ada: Browser) -> None:
    ids = asked(store, *letters(*MAILS))
    page = group_of(ada)
    said = "Calls with a long text that is not like the others are not ticked: tick those that you have read."
    assert (ticks(page), said in text_of(page)) == (0, True)
    assert "4 with long texts that are not like the others" in text_of(page)
    table = page.partition("<table")[2].partition("</table>")[0]
    assert len(re.findall(r'<details class="long" open', table)) == 4, "without a script too, each is in sight"
    rejected = ada.get("/bulk?verb=reject&" + "&".join(f"id={one}" for one in ids)).text
    assert (ticks(rejected), said in text_of(rejected)) == (4, False)


def test_letters_of_one_template_are_ticked_and_the_first_is_read_in_full(store: Store, ada: Browser) -> None:
    texts = [LETTER.format(**one) for one in FILLED]
    asked(store, *letters(*texts, MAILS[0]))
    page = group_of(ada)
    assert ticks(page) == len(texts)
    bodies = [part.partition("</tbody>")[0] for part in page.split("<tbody>")[1:]]
    assert [(len(re.findall("<details", one)), len(re.findall("<details[^>]* open", one))) for one in bodies] == [
        (1, 1), (10, 1),
    ]  # fmt: skip
    assert "1 with a long text that is not like the others" in text_of(bodies[0])
    assert "The other 10" in text_of(bodies[1])


def test_what_the_program_says_is_no_text_to_be_read_first() -> None:
    made = [
        sample_call(arguments={"amount": 1 + at, "to": "kim"}, prompt=text, summary=f"Refund {at}\n{text}")
        for at, text in enumerate(MAILS)
    ]
    table = table_of(made, clock.now())
    assert (len(table["usual"]), len(table["unlike"])) == (4, 0)
