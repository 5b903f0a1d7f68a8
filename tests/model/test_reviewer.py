"""Names of people and programs: one person is one, however the name is written, and no name hides anything."""

from __future__ import annotations

import unicodedata

import pytest

from sayso.model.reviewer import Identity, Quorum, Reviewer

# Seen as nothing, or as a space, whatever their category says.
BLANK = [
    "\u034f", "\ufe0f", "\ufe00", "\u115f", "\u1160", "\u2800", "\u3164", "\uffa0", "\u17b4", "\u180b", "\u00ad",
    "\u200b", "\u200d", "\u202e", "\u2066", "\ufeff", "\u00a0", "\u2003", "\u3000", "\ue000", "\U000f0000",
    "\U000e0041",    "\U000e0100", "\ufffc", "\u0378", "\x00", "\x1b", "\n", "\t", "\x7f", "\x85", "\u2028", "\ud800",
]  # fmt: skip


@pytest.mark.parametrize("blank", BLANK, ids=[f"U+{ord(blank):04X}" for blank in BLANK])
def test_no_name_holds_what_is_seen_as_nothing(blank: str) -> None:
    for name in (f"a{blank}da", f"ada{blank}", f"{blank}ada", blank):
        with pytest.raises(ValueError, match=r"control or invisible|white space") as refused:
            Reviewer(name)
        assert blank not in str(refused.value)
        with pytest.raises(ValueError, match=r"issuer"):
            Identity(name, "ada")
        with pytest.raises(ValueError, match=r"role"):
            Reviewer("ada", roles={"finance", name})


@pytest.mark.parametrize("colon", [":", "\uff1a", "\ufe55"])
def test_no_issuer_holds_a_colon_however_wide(colon: str) -> None:  # `folded` would be that of somebody else
    with pytest.raises(ValueError, match="contains a colon"):
        Identity(f"a{colon}b", "c")


def test_the_refusal_says_which_character_it_is() -> None:
    with pytest.raises(ValueError, match=r"U\+034F, U\+FE0F"):
        Reviewer("a\u034fd\ufe0fa")


def test_a_mark_cannot_stand_on_what_comes_before_the_name() -> None:
    with pytest.raises(ValueError, match="begins with a combining mark"):
        Reviewer("\u0301ada")


@pytest.mark.parametrize(
    "name",
    ["ada", "Ada Lovelace", "ada@laptop", "Zo\u00eb", "Zoe\u0308", "\u674e\u96f7", "\u05d0\u05d3\u05d4", "o'neill"],
)
def test_ordinary_names_are_kept_as_they_are(name: str) -> None:
    assert Reviewer(name).subject == name
    assert Identity("corp", name).qualified == f"corp:{name}"


TWINS = [
    ("ada", "ADA"), ("ada", "\uff41da"), ("Zo\u00eb", "Zoe\u0308"), ("stra\u00dfe", "STRASSE"), ("\ufb01n", "fin"),
    ("ada b", "ada  b"), ("\u03c3\u03c2", "\u03a3\u03a3"), ("\u212bke", "\u00e5KE"),
]  # fmt: skip


@pytest.mark.parametrize(("one", "other"), TWINS)
def test_a_quorum_counts_the_spellings_of_a_name_once(one: str, other: str) -> None:
    assert one != other
    first, second = Identity("local", one), Identity("Local", other)
    assert first.is_same(second)
    assert second.is_same(first)
    assert first.folded == second.folded
    assert (first.subject, second.subject) == (one, other)
    assert Quorum(2).missing([first, second]) == 1
    assert Quorum(2).missing([first, second, Identity("local", "bob")]) == 0


def test_folding_a_folded_name_changes_nothing() -> None:
    for code in range(0x20, 0x2FFFF):
        name = chr(code)
        if unicodedata.category(name)[0] not in "LNS":
            continue
        try:
            folded = Identity("local", f"a{name}").folded
        except ValueError:
            continue
        issuer, _, subject = folded.partition(":")
        assert Identity(issuer, subject).folded == folded, hex(code)
