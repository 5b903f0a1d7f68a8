"""Groups alike calls into one row of a list, and into a table of what they share, where they differ, and outliers.

Calls are alike if they have the same function, requester and risk. The run is ignored, because an agent often has one
run for each customer.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from decimal import Context, Decimal
from itertools import accumulate, chain, islice
from posixpath import normpath
from statistics import median
from typing import Any, Literal, NamedTuple, cast
from urllib.parse import unquote

from sayso import clock
from sayso.model import cached_property, canonical
from sayso.model.canonical import Json
from sayso.model.canonical.json_tree import class_in, fields_of, items_of, tag_in
from sayso.model.duration import ago
from sayso.model.grant import is_id, number_of
from sayso.model.redaction import mark_secrets
from sayso.model.rendering import as_amount, brief, is_amount, money, separators, value
from sayso.model.request import Request, State
from sayso.model.reviewer import Reviewer, name_of
from sayso.model.text import escape, say
from sayso.server.pages.arguments import Argument, currency_code, draw, is_currency, names_currency
from sayso.server.pages.rendering import facts, missing_roles, risk_of, run_name
from sayso.stores.base import Filter, Store
from sayso.view import full_text
from sayso.view.similar import Own, own_words
from sayso.view.summary import short, time_left

FEWEST = 3
"""The fewest alike calls to fold; with two, opening the row would cost more than it saves."""

_FAR, _SHARE, _FEWEST_COMPARED = 3, 0.9, 4
_MOST_COLUMNS, _MOST_PARTS, _DEEPEST = 40, 12, 4
_LONG, _VALUE_ROOM, _GIST_ROOM, _HEAD_ROOM, _NAME_ROOM = 160, 40, 140, 120, 40
_MOST_DIGITS, _LONGEST_NUMBER = 15, 60
_MOST_FOLDERS, _MOST_JUDGED, _MOST_SIMILAR = 8, 50, 50
_ABSENT: Json = {"$absent": None}
_PLAIN = ""
_SIGN = re.compile(r"[/\\@<>{}$|=~^*`]")
_HOST = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^/\\]*")
_MAIL = re.compile(r"[^\s@/]+@([^\s@/]+)")
_WORD, _DIGIT, _SPACE = re.compile(r"[^\W_]+"), re.compile(r"\d"), re.compile(r"\s")

_EXACT = Context(prec=200)
_encoded = json.JSONEncoder(sort_keys=True).encode
_SAYS_NOTHING = {'"', "null", "true", "false", "[]", "{}", _encoded(_ABSENT)}

Key = tuple[str, str, str | None]
Source = Literal["argument", "fact", "author", "program"]


def group_key(request: Request) -> Key | None:
    """Return what similar calls share, decided or not; None for a question and for a call without its arguments."""
    if request.kind != "call" or request.purged_at is not None:
        return None
    return request.call.tool, request.requester.folded, request.risk


def pending_group_key(request: Request) -> Key | None:
    """Return the key that alike calls share; None for a request that is never grouped."""
    return group_key(request) if request.state is State.PENDING else None


def fold(requests: Sequence[Request]) -> list[list[Request]]:
    """Return requests in their order, with alike ones grouped at the place of the first of them.

    Calls whose arguments have nothing in common stay separate, because a group would hide what each of them does.
    """
    keys = [pending_group_key(request) for request in requests]
    groups: dict[Key, list[Request]] = {}
    for request, key in zip(requests, keys, strict=True):
        if key is not None:
            groups.setdefault(key, []).append(request)
    together = {key: group for key, group in groups.items() if len(group) >= FEWEST and _have_something_alike(group)}
    found: list[list[Request]] = []
    for request, key in zip(requests, keys, strict=True):
        if key is None or key not in together:
            found.append([request])
        elif request is together[key][0]:
            found.append(together[key])
    return found


def _have_something_alike(group: Sequence[Request]) -> bool:
    columns, count = _arguments(group[:_MOST_JUDGED]), min(len(group), _MOST_JUDGED)
    return all(column.is_common for column in columns) or any(
        column.texts[0] not in _SAYS_NOTHING
        if column.is_common
        else column.numbers
        or any(_is_most(often, count) for trait, often in Counter(chain(*column.traits)).items() if trait != _PLAIN)
        for column in columns
    )


# -- columns -------------------------------------------------------------------------------------------------------


class Cell(NamedTuple):
    """A value in a table.

    Attributes:
        shown: The value as drawn.
        head: For a long text, what it has of its own beside the others.
        is_unlike: Whether it is a long argument that differs from the others in more than `head` shows.
        pad: Zeros that align its decimals with the others.
        note: Why it is an outlier; empty if it is not.
        amount: The number, without groups, if its column is summed up.
        unit: Its currency; empty if there is none.
    """

    shown: Argument
    head: str = ""
    is_unlike: bool = False
    pad: str = ""
    note: str = ""
    amount: str = ""
    unit: str = ""


@dataclass(frozen=True)
class Column:
    """One argument, or one fact about the request, in all calls of a table.

    Attributes:
        name: The displayed name; an argument's is quoted if it is not an identifier.
        source: An argument, a fact from sayso, or a text of the gate's author or of the program.
        trees: The values in canonical form, masked.
        cells: The values as shown; a single one if all are equal.
        totals: The sums, if it is an amount.
        real: The values without masks, which are compared and never shown; None if none is masked.
        currencies: The currency of each value as a key for comparison, if it is an amount and arguments name one.
    """

    name: str
    source: Source
    trees: Sequence[Json]
    cells: Sequence[Cell] = ()
    totals: Sequence[str] = ()
    real: Sequence[Json] | None = field(default=None, repr=False)
    currencies: Sequence[tuple[str, ...]] = field(default=(), repr=False)

    @cached_property
    def texts(self) -> Sequence[str]:
        """The values as texts for comparison; unlike `==`, they distinguish 1, 1.0 and true."""
        return [f'"{tree}' if isinstance(tree, str) else _encoded(tree) for tree in self.trees]

    @cached_property
    def is_common(self) -> bool:
        """Whether all values are equal as shown."""
        return len(set(self.texts)) == 1

    @cached_property
    def is_same(self) -> bool:
        """Whether all values are equal, also without their masks."""
        return self.is_common and (self.real is None or len(set(map(_encoded, self.real))) == 1)

    @cached_property
    def traits(self) -> Sequence[Sequence[str]]:
        """The traits of each value (`_traits`); none for texts that are not arguments."""
        return [_traits(tree) if self.source == "argument" else [] for tree in self.trees]

    @cached_property
    def numbers(self) -> Sequence[Decimal]:
        """The values as numbers; empty if one is not a number or is too long or large, or if they are ids.

        A program may send a number of any size; within these limits the sum is exact and short.
        """
        if self.source != "argument" or is_id(self.name) or max(map(len, self.texts)) > _LONGEST_NUMBER:
            return []
        found = map(number_of, self.trees)
        numbers = [one for one in found if one is not None and abs(one.adjusted()) <= _MOST_DIGITS]
        return numbers if len(numbers) == len(self.trees) else []


def _arguments(requests: Sequence[Request]) -> list[Column]:
    """Return a column per argument or field of one; an argument is not split if that gives too many columns."""
    calls = [request.effective for request in requests]
    trees = [cast("Json", call.drawn) for call in calls]
    is_masked = any(call.masked is not None for call in calls)
    real: Sequence[Json] | None = [canonical.load(call.form) for call in calls] if is_masked else None
    rows = [fields_of(tree) or {} for tree in trees]
    names = dict.fromkeys(chain.from_iterable(rows))
    if len(names) > _MOST_COLUMNS:
        return [Column(say("(all arguments)"), "argument", trees, real=real)]
    found = list[Column]()
    for name in names:
        values = [row.get(name, _ABSENT) for row in rows]
        whole, room = (
            Column(_name(name), "argument", values, real=_field_values(real, name)),
            _MOST_COLUMNS - len(found),
        )
        parts = list(islice(_parts(whole, 1), max(room, 0) + 1)) if name.isidentifier() else []
        found += parts if 0 < len(parts) <= room else [whole]
    units = [map(_encoded, one.trees if one.real is None else one.real) for one in found if is_currency(one.name)]
    currencies = list(zip(*units, strict=True))
    return [
        replace(one, currencies=currencies) if is_amount(one.name) and not names_currency(one.name) else one
        for one in found
    ]


def _field_values(real: Sequence[Json] | None, name: str) -> Sequence[Json] | None:
    """Return the values of a field. If a redactor made it up, return the whole value that contains its source."""
    return None if real is None else [(fields_of(tree) or {}).get(name, tree) for tree in real]


def _parts(column: Column, depth: int) -> Iterator[Column]:
    """Yield a column for each field, named by its path, while all trees have the same fields and classes.

    The class is a column of its own, because `Archive(path)` and `Delete(path)` have the same fields.
    """
    trees, path = column.trees, column.name
    names = (fields_of(trees[0]) or {}) if depth < _DEEPEST else {}
    if not 0 < len(names) <= _MOST_PARTS or not all(name.isidentifier() for name in names):
        yield column
        return
    parts = [fields_of(tree) for tree in trees]
    if len({(tag_in(tree), class_in(tree), *(part or ())) for tree, part in zip(trees, parts, strict=True)}) > 1:
        yield column
        return
    named = class_in(trees[0])
    if named is not None:
        yield Column(f"{path} (class)", "argument", [named] * len(trees))
    for name in names:
        values = [_ABSENT if part is None else part.get(name, _ABSENT) for part in parts]
        yield from _parts(
            Column(f"{path}.{_name(name)}", "argument", values, real=_field_values(column.real, name)), depth + 1
        )


def _name(name: str) -> str:
    """Return a name for display: quoted if it could be taken for one of sayso's own, shortened if it is long."""
    return escape(name) if name.isidentifier() and len(name) <= _NAME_ROOM else brief(name, _NAME_ROOM)


def _facts(requests: Sequence[Request], now: datetime) -> Iterator[Column]:
    """Yield the other facts that the page of a call shows, if any of these calls has them."""
    rows = [dict[tuple[Source, str], str]() for _ in requests]
    for request, row in zip(requests, rows, strict=True):
        for name, text in [*facts(request, now), (say("run"), run_name(request.run_id))]:
            row["fact", name] = f"{row['fact', name]}, {text}" if ("fact", name) in row else text
        for name in full_text.TEXTS:
            if (text := getattr(request, name)) is not None:
                row["author" if full_text.is_authors(request, name) else "program", say(name)] = text
        if request.returned is not None and request.state is State.PENDING:
            row["program", say("waits again")] = request.returned
        for name, item in (request.context or {}).items():
            row["program", say("context: %(name)s", name=_name(name))] = value(mark_secrets(item))
    order: tuple[Source, ...] = ("fact", "author", "program")
    for source, name in sorted(dict.fromkeys(chain(*rows)), key=lambda key: order.index(key[0])):
        yield Column(name, source, [row.get((source, name), _ABSENT) for row in rows])


def _with_totals(column: Column, found: Sequence[Column]) -> Column:
    """Return a column with the sum of an amount; if an argument names the currency, one sum per currency.

    `found` are all columns, including those equal in all calls. With several arguments that name a currency, it is
    unclear which applies: no sum, unless each is equal in all calls.
    """
    numbers = column.numbers
    if not numbers or not is_amount(column.name):
        return column
    units = [""] * len(numbers)
    currencies = [one for one in found if one.source == "argument" and is_currency(one.name)]
    if not names_currency(column.name):
        if len(currencies) > 1 and not all(one.is_same for one in currencies):
            return column
        if any(one.is_common and not one.is_same for one in currencies):
            return column
        if len(currencies) == 1:
            # Only a plain currency code is shown without quotes, so that no other text is taken for one.
            units = [currency_code(tree) or _brief(tree) for tree in currencies[0].trees]
    sums: dict[str, Decimal] = {}
    for number, unit in zip(numbers, units, strict=True):
        sums[unit] = _EXACT.add(sums.get(unit, Decimal(0)), number)
    cells = [
        cell._replace(amount=f"{number:f}", unit=unit)
        for cell, number, unit in zip(column.cells, numbers, units, strict=False)  # a common value has one cell
    ]
    return replace(column, cells=cells, totals=[f"{money(total)} {unit}".rstrip() for unit, total in sums.items()])


def _notes(column: Column) -> Sequence[str]:
    """Return for each value why it is an outlier, or an empty text.

    A number is one if it is over 3 times the median of its column; amounts are compared with those of their currency.
    Any other value is one if it differs, while all others, or at least 9 in 10 values, are equal or share a trait.
    Facts are never judged.
    """
    if column.numbers and len(set(column.currencies)) > 1:
        return _notes_by_currency(column)
    count, numbers, texts, traits = len(column.trees), column.numbers, column.texts, column.traits
    if count < _FEWEST_COMPARED or column.source == "fact":
        return [""] * count
    (usual, often), *_ = Counter(texts).most_common(1)
    if _is_most(often, count):
        shown = as_amount(column.name, column.trees[texts.index(usual)])
        return _difference_notes([text == usual for text in texts], _brief(shown))
    if numbers:
        middle, signs = median(map(abs, numbers)), str.maketrans(",.", "".join(separators()))
        return [
            say("%(times)s times the median", times=f"{abs(one) / middle:,.1f}".translate(signs))
            if abs(one) > _FAR * middle > 0 else ""
            for one in numbers
        ]  # fmt: skip
    # Among equally frequent traits, the longest is the most specific, such as the innermost folder.
    shared = [(often, len(one), one) for one, often in Counter(chain(*traits)).items() if often < count]
    often, _, usual = max(shared, default=(0, 0, ""))
    if not _is_most(often, count):
        return [""] * count
    if usual.endswith("/"):
        shown = _brief(f"{usual}…")
    elif usual.startswith("@"):
        shown = _brief(f"…{usual}")
    elif usual == _PLAIN:
        shown = say("no sign such as / @ $")
    else:
        example = next(tree for tree, one in zip(column.trees, traits, strict=True) if usual in one)
        shown = say("like %(shown)s", shown=_brief(example))
    return _difference_notes([usual in one for one in traits], shown)


def _outliers(columns: Sequence[Column], requests: Sequence[Request], others: Sequence[Request]) -> list[Sequence[str]]:
    """Return the notes of each column of these requests, compared with each other and with `others` as well.

    A value that stands out among these requests alone has a note that says so.
    """
    notes = [_notes(column) for column in columns]
    if not others:
        return notes
    found = _arguments([*requests, *others])
    wider = {one.name: one for one in found}
    if len(wider) < len(found):  # two long names look alike, and a value must not be compared with another argument's
        wider = {}
    for at, column in enumerate(columns):
        is_known = column.source == "argument" and column.name in wider
        wide = _notes(wider[column.name]) if is_known else [""] * len(requests)
        notes[at] = [
            one or (alone and say("%(why)s (in this table)", why=alone))
            for one, alone in zip(wide, notes[at], strict=False)
        ]
    return notes


def _notes_by_currency(column: Column) -> Sequence[str]:
    """Return the notes of amounts, each compared with those of its currency.

    Where too few have a currency to compare, and enough have another one, that is the note, unless the column of the
    currency has it.
    """
    count, places = len(column.trees), dict[tuple[str, ...], list[int]]()
    for at, currency in enumerate(column.currencies):
        places.setdefault(currency, []).append(at)
    often = max(map(len, places.values()))
    notes = [""] * count
    for found in places.values():
        if len(found) >= _FEWEST_COMPARED:
            found_notes = _notes(replace(column, trees=[column.trees[at] for at in found], currencies=()))
        elif often >= _FEWEST_COMPARED and not _is_most(often, count):
            found_notes = [say("only %(part)s of %(whole)s in this currency", part=len(found), whole=count)] * len(
                found
            )
        else:
            continue
        for at, note in zip(found, found_notes, strict=True):
            notes[at] = note
    return notes


def _is_most(often: int, count: int) -> bool:
    return often >= min(count - 1, _SHARE * count)


def _difference_notes(is_usual: Sequence[bool], shown: str) -> list[str]:
    count, often = len(is_usual), sum(is_usual)
    usual = say("all others") if often == count - 1 else say("%(part)s of %(whole)s", part=often, whole=count)
    return ["" if one else f"{usual}: {shown}" for one in is_usual]


def _traits(tree: Json) -> list[str]:
    """Return the traits of a text, by which texts can be similar; for a list, the traits that all of its items share.

    They are the folders of a path or URL, the domain of a mail address, else the shape of a text with digits and
    without spaces; and the absence of characters that occur in paths, addresses and commands.
    """
    items = items_of(tree)
    if items:
        first, *others = map(_traits, items)
        return [trait for trait in first if all(trait in one for one in others)]
    if not isinstance(tree, str):
        return []
    found = [] if _SIGN.search(tree) else [_PLAIN]
    if mail := _MAIL.fullmatch(tree):
        return [f"@{mail[1].casefold()}"]
    host = _HOST.match(tree)
    begin = host[0] if host else ""
    rest = unquote(tree[len(begin) :]).replace("\\", "/")
    if begin or "/" in rest:
        folders = normpath(rest or "/").split("/")[:-1][:_MOST_FOLDERS]
        return [
            place for place in accumulate((f"{one}/" for one in folders), initial=begin) if place not in (begin, "/")
        ]
    if _DIGIT.search(tree) and not _SPACE.search(tree):
        found.append(f"={_WORD.sub('w', tree)}")
    return found


def _brief(tree: Json) -> str:
    return say("not given") if tree == _ABSENT else brief(tree, _VALUE_ROOM)


def _with_cells(column: Column, notes: Sequence[str]) -> Column:
    """Return a column with its cells; equal values with equal notes are drawn once."""
    is_once = column.is_common and len(set(notes)) == 1  # an amount may be usual in one currency, and not in another
    shown = [_as_argument(column, tree) for tree in (column.trees[:1] if is_once else column.trees)]
    if is_once or column.source == "fact":
        return replace(column, cells=[Cell(one, note=note) for one, note in zip(shown, notes, strict=False)])
    # Of a long text, the head is what it has of its own; every other value is in sight.
    owns = iter(own_words([one.text for one in shown if one.kind == "block"], _HEAD_ROOM))
    heads = [next(owns) if one.kind == "block" else Own("", is_whole=True) for one in shown]
    point = separators()[1] if is_amount(column.name) else "."
    decimals = [len(one.text.partition(point)[2]) for one in shown]
    is_plain = column.numbers and not any("E" in one.text.upper() for one in shown)  # nothing goes behind an exponent
    pads = ["0" * (max(decimals) - places) if is_plain else "" for places in decimals]
    pads = [f"{point}{pad}" if pad and not places else pad for pad, places in zip(pads, decimals, strict=True)]
    unlike = [not one.is_whole and column.source == "argument" for one in heads]
    return replace(column, cells=list(map(Cell, shown, [one.excerpt for one in heads], unlike, pads, notes)))


def _as_argument(column: Column, tree: Json) -> Argument:
    if tree == _ABSENT:
        return Argument(column.name, "absent", say("not given") if column.source == "argument" else "-")
    if column.source == "argument" or not isinstance(tree, str):
        return draw(column.name, tree)
    if column.source == "fact" or (len(tree) <= _LONG and "\n" not in tree):
        return Argument(column.name, "text", tree if column.source == "fact" else escape(tree))
    return Argument(column.name, "block", escape(tree, block=True), say("%(count)s characters", count=f"{len(tree):,}"))


# -- tables --------------------------------------------------------------------------------------------------------


def table_of(
    requests: Sequence[Request], now: datetime, comments: Mapping[str, Sequence[str]] | None = None,
    warnings: Mapping[str, Sequence[str]] | None = None, others: Sequence[Request] = (),
) -> dict[str, Any]:  # fmt: skip
    """Return alike calls as a table; `comments` and additional `warnings` are by request id.

    Arguments are compared with those of `others`, too (`similar_to`).

    Its columns are those with equal values (`common`), those whose values look equal but differ under their masks
    (`hidden`), and the others (`columns`). Its lines are the calls that stand out (`odd`), those with a long text that
    is not like the others (`unlike`), and the others (`usual`).
    """
    found = [*_arguments(requests), *_facts(requests, now)]
    notes = _outliers(found, requests, others)
    with_cells = [_with_cells(*pair) for pair in zip(found, notes, strict=True)]
    common = [one for one in with_cells if len(one.cells) == 1]
    columns = [_with_totals(one, found) for one in with_cells if len(one.cells) > 1]
    # Columns with outliers come first, so that they are on the screen however many columns there are.
    columns.sort(key=lambda column: not any(cell.note for cell in column.cells))
    lines: list[dict[str, Any]] = []
    for at, request in enumerate(requests):
        cells, written = [column.cells[at] for column in columns], (comments or {}).get(request.id, ())
        cautions = [*full_text.cautions(request), *(warnings or {}).get(request.id, ())]
        is_odd = bool(cautions or written) or any(of_one[at] for of_one in notes)
        unlike = {place for place, cell in enumerate(cells) if cell.is_unlike}
        lines.append({
            "request": request, "cells": cells, "cautions": cautions, "comments": written,
            "kind": "odd" if is_odd else "unlike" if unlike else "usual", "is_unlike": bool(unlike), "open": unlike,
        })  # fmt: skip
    odd, unlike, usual = ([line for line in lines if line["kind"] == kind] for kind in ("odd", "unlike", "usual"))
    for place, column in enumerate(columns):  # what the long texts share is read in the first of them
        long = (line for line in usual if line["cells"][place].shown.kind == "block")
        if column.source == "argument":
            for line in islice(long, 1):
                line["open"].add(place)
    return {
        "common": [column for column in common if column.is_same],
        "hidden": [column for column in common if not column.is_same], "compared": len(others),
        "columns": columns, "totals": any(column.totals for column in columns),
        "odd": odd, "unlike": unlike, "usual": usual,
    }  # fmt: skip


def similar_to(store: Store, requests: Sequence[Request]) -> list[Request]:
    """Return other calls of the function, requester and risk of these alike ones, decided or not.

    They are among the newest 50 calls of the function. So many alike calls are compared with each other alone.
    """
    if len(requests) >= _MOST_SIMILAR:
        return []
    first, own = requests[0], {one.id for one in requests}
    newest = store.list(Filter(kind="call", name=first.call.tool), limit=_MOST_SIMILAR, newest=True).requests
    return [one for one in newest if one.id not in own and group_key(one) == group_key(first)]


def outlier_notes(store: Store, request: Request) -> list[str]:
    """Return each argument in which a pending call stands out from similar ones, and why."""
    if pending_group_key(request) is None:
        return []
    columns = _arguments([request, *similar_to(store, [request])])
    notes = [(column.name, _notes(column)[0]) for column in columns if not column.is_common]
    return [say("%(name)s stands out (%(why)s)", name=name, why=note) for name, note in notes if note]


def repeat_notes(store: Store, request: Request, now: datetime) -> list[str]:
    """Return a note if its run has asked for a pending call before, and it was started: the newest such request."""
    if pending_group_key(request) is None:
        return []
    same = Filter(kind="call", run_id=request.run_id, name=request.call.tool)
    for one in store.list(same, limit=_MOST_SIMILAR, newest=True).requests:
        if one.fingerprint == request.fingerprint and one.execution is not None:
            known = {"id": short(one.id), "state": full_text.status_line(one, now)}
            if one.edited is None:
                return [say("this run has asked for the same call before: %(id)s %(state)s", **known)]
            return [say("this run has asked for the same call before, and it was changed: %(id)s %(state)s", **known)]
    return []


# -- one row of a list ---------------------------------------------------------------------------------------------


def folded_row(
    requests: Sequence[Request], now: datetime, to_me: Collection[str] = (), reader: Reviewer | None = None
) -> dict[str, Any]:
    """Return alike calls as one row of a list; `to_me` are the requests with a comment that mentions the reader.

    Outliers are counted among these calls alone: to read what was decided takes 4 ms for each row.
    """
    first = min(requests, key=lambda request: request.created_at)
    ends = min(request.expires_at for request in requests)
    (risk, level), lacks = risk_of(first), missing_roles(first, reader)
    effects = Counter(request.effect for request in requests if request.effect is not None)
    # Whether something may deceive the eye, or two of them would do the same.
    warned = [bool(full_text.cautions(one)) or effects.get(one.effect or "", 0) > 1 for one in requests]
    columns = _arguments(requests)
    notes = [_notes(column) for column in columns if not column.is_common]
    return {
        "id": requests[0].id,  # by which the others are found
        "name": escape(first.call.name), "calls": len(requests), "gist": _gist(columns), "risk": risk, "level": level,
        "requester": name_of(first.requester, 30), "at": clock.written(first.created_at),
        "asked": ago(first.created_at, now), "expires": clock.written(ends), "left": time_left(ends, now),
        "is_to_me": any(request.id in to_me for request in requests), "warns": any(warned),
        "lacks": lacks if all(missing_roles(one, reader) == lacks for one in requests) else "",
        "odd": sum(any(of_one) for of_one in zip(warned, *notes, strict=True)),  # how many stand out
    }  # fmt: skip


def _gist(columns: Sequence[Column]) -> str:
    """Return the common values and the totals, in one line."""
    differing = [_with_totals(column, columns) for column in columns if not column.is_common]
    parts = [
        say("%(name)s %(totals)s in total", name=one.name, totals=" + ".join(one.totals))
        for one in differing if one.totals
    ]  # fmt: skip
    parts += [
        f"{one.name}={_brief(as_amount(one.name, one.trees[0]))}" if one.is_same
        else say("%(name)s masked, not all the same", name=one.name)
        for one in columns if one.is_common
    ]  # fmt: skip
    parts += [
        say("%(count)s different %(name)s", count=len(set(one.texts)), name=one.name)
        for one in differing if not one.totals
    ]  # fmt: skip
    shown, room = list[str](), _GIST_ROOM
    for part in parts:
        room -= len(part)
        if shown and room < 0:
            return " · ".join([*shown, "…"])
        shown.append(part)
    return " · ".join(shown)
