"""Short descriptions of similar requests, differences first, so that no two different ones look alike."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterator, Sequence
from itertools import accumulate, chain, pairwise
from typing import Any, NamedTuple

from sayso.model.canonical.json_tree import Json, fields_of
from sayso.model.rendering import as_amount, brief, is_light, quoted, shared_prefix, value
from sayso.model.request import Request
from sayso.model.text import escape
from sayso.view.full_text import program_text
from sayso.view.summary import empty_lines, gathered, is_empty

_BEFORE = 4  # characters of context before a difference; more where there is room
_SHORTEST = 12  # minimum characters for a part of a value, including ellipses
_SENSIBLE = 24  # minimum characters for a value that needs to show no difference
_LIGHT = 4_000
_WORD = re.compile(r"[\s/]")  # precedes a word
_TOKEN = re.compile(  # a word with its signs, an ideograph, or the end of a line with the next one's indent
    r"\n\s*|[\u2e80-\ua4cf\uac00-\ud7af]|[^\s\u2e80-\ua4cf\uac00-\ud7af]+"
)
_RUN, _CONTEXT = 3, 2  # words that are compared together, and words that are shown before a difference
_MOST_COMPARED = 1_000_000  # characters of all texts, which takes 0.3 s


class _Value(NamedTuple):
    """An argument of a call: its prefix, its text, a function that renders the text, and where it differs."""

    prefix: str
    text: str
    show: Callable[[str], str]
    marks: Sequence[int]

    @property
    def size(self) -> int:
        return len(self.text) + 2 * (self.show is quoted)

    @property
    def least(self) -> int:
        return min(self.size, _SHORTEST if self.marks else _SENSIBLE)


def arguments_apart(requests: Sequence[Request], limit: int, *, equal: bool = True) -> list[str]:
    """Return the arguments of each call in about `limit` characters; an empty text for requests of other kinds.

    Among calls of one function, differing arguments come first, and long texts show the parts that differ. Without
    `equal`, arguments that are the same in all calls are omitted, unless all arguments are.
    """
    found = [""] * len(requests)
    for places in _grouped([_function(request) for request in requests]):
        if _function(requests[places[0]]):
            lines = _lines([requests[at].effective.drawn for at in places], limit, equal=equal)
            for at, line in zip(places, lines, strict=True):
                found[at] = line
    return found


def words_apart(requests: Sequence[Request], limit: int) -> list[str]:
    """Return the program's own text on each request; empty if another call of the same function has the same text."""
    words, found = list(map(program_text, requests)), [""] * len(requests)
    for places in _grouped([_function(request) for request in requests]):
        texts = [words[at] for at in places]
        for at, text, marks in zip(places, texts, _differences(texts), strict=True):
            is_own = texts.count(text) == 1 or not _function(requests[at])
            found[at] = _parts(text, marks, quoted, limit) if text and is_own else ""
    return found


def _function(request: Request) -> str:
    return request.effective.tool if request.kind == "call" and request.purged_at is None else ""


def _grouped(keys: Sequence[Hashable]) -> Iterator[list[int]]:
    """Yield the indexes of equal keys, one list for each key."""
    groups: defaultdict[Hashable, list[int]] = defaultdict(list)
    for at, key in enumerate(keys):
        groups[key].append(at)
    yield from groups.values()


def _lines(calls: Sequence[dict[str, Any]], limit: int, *, equal: bool) -> list[str]:
    """Return the arguments of calls of one function, one line for each call."""
    named = [{name: as_amount(name, tree) for name, tree in (fields_of(call) or {}).items()} for call in calls]
    columns = {name: _column(name, named) for name in dict.fromkeys(name for call in named for name in call)}
    count = {name: len({one and (one.show, one.text) for one in column}) for name, column in columns.items()}
    # The argument with the most distinct values comes first, because it identifies a call best.
    order = sorted(columns, key=lambda name: -count[name])
    if not equal:
        order = [name for name in order if count[name] > 1] or order
    return [_line([one for name in order if (one := columns[name][at]) is not None], limit) for at in range(len(calls))]


def _column(name: str, calls: Sequence[dict[str, Json]]) -> list[_Value | None]:
    """Return one argument of each call; None for a call that lacks it."""
    prefix = f"{escape(name) if name.isidentifier() else quoted(name)}="
    texts, shows = list[str](), list[Callable[[str], str]]()
    for tree in (call[name] for call in calls if name in call):
        shows.append(quoted if isinstance(tree, str) else str)
        if isinstance(tree, str):
            lines = gathered(tree.split("\n"), is_empty) if tree.count("\n") > len("\n\n\n") else [tree]
            texts.append("\n".join(empty_lines(line) if isinstance(line, int) else line for line in lines))
        else:
            texts.append(value(tree) if is_light(tree, _LIGHT) else brief(tree, _LIGHT // 10))
    values = iter([_Value(prefix, *one) for one in zip(texts, shows, _differences(texts), strict=True)])
    return [next(values) if name in call else None for call in calls]


def _line(values: Sequence[_Value], limit: int) -> str:
    """Join as many values as fit; shorter values are shown in full first, and longer ones share the rest."""
    count, room = 0, limit
    for one in values:
        room -= len(one.prefix) + one.least + 2
        if count and room < 0:
            break
        count += 1
    taken, texts = values[:count], [""] * count
    room = limit - sum(len(one.prefix) + 2 for one in taken)
    by_need = sorted(range(count), key=lambda at: taken[at].size)
    for rank, at in enumerate(by_need):
        share = max(room // (count - rank), _SHORTEST)
        texts[at] = _parts(taken[at].text, taken[at].marks, taken[at].show, share)
        room -= len(texts[at])
    shown = [f"{one.prefix}{text}" for one, text in zip(taken, texts, strict=True)]
    return ", ".join([*shown, "…"] if count < len(values) else shown)


def _parts(text: str, marks: Sequence[int], show: Callable[[str], str], room: int) -> str:
    """Shorten a text to about `room` characters: the parts that begin just before each mark."""
    if len(text) <= room and len(show(text)) <= room:
        return show(text)
    most = max(room // _SHORTEST, 1)
    # The last marks come from the most similar texts.
    kept = [*marks[:1], *marks[len(marks) - most + 1 :]] if 1 < most < len(marks) else marks[-most:]
    width = max(room // max(len(kept), 1) - 5, _BEFORE + 2)
    spans = list[tuple[int, int]]()
    for mark in kept or [0]:
        start = max(min(mark - max(_BEFORE, width // 6), len(text) - width), 0)
        words = _WORD.search(text, start, mark) if start else None
        start = start if words is None else words.end()
        if spans and start <= spans[-1][1]:
            spans[-1] = spans[-1][0], max(start + width, spans[-1][1])
        else:
            spans.append((start, start + width))
    shown = " … ".join(show(text[start:end]) for start, end in spans)
    return f"{'… ' if spans[0][0] else ''}{shown}{' …' if spans[-1][1] < len(text) else ''}"


def _differences(texts: Sequence[str]) -> list[list[int]]:
    """Return, for each text, the sorted offsets at which it first differs from one of the others."""
    known = sorted(set(texts))
    if max(map(len, known)) < _SHORTEST - 1:
        return [[] for _ in texts]  # each is shown whole
    shared = [shared_prefix(one, other) for one, other in pairwise(known)]
    places: dict[str, list[int]] = {}
    for at, text in enumerate(known):
        before, behind = accumulate(reversed(shared[:at]), min), accumulate(shared[at:], min)
        found = {*before, *behind}
        places[text] = sorted(found)
    return [places[text] for text in texts]


class Own(NamedTuple):
    """What a text has of its own beside similar ones.

    Attributes:
        excerpt: The parts that few others have, in one line; if there are none, its beginning.
        is_whole: Whether it differs in nothing else from what the others share.
    """

    excerpt: str
    is_whole: bool


def own_words(texts: Sequence[str], room: int) -> list[Own]:
    """Return the parts of each text that fewer than 9 in 10 of the texts have, in about `room` characters.

    Texts are compared by each run of three words in them, so letters that come from one template share all but what was
    filled in. A text that lacks something that the others share is never shown whole.
    """
    places = [[one.span() for one in _TOKEN.finditer(text)] for text in texts]
    if sum(map(len, texts)) > _MOST_COMPARED:
        return [Own(_cut(text, room), is_whole=False) for text in texts]
    runs = [_runs(text, spans) for text, spans in zip(texts, places, strict=True)]
    fewest = max(min(len(texts) - 1, 0.9 * len(texts)), 2)
    shared = {run for run, often in Counter(chain(*runs)).items() if often >= fewest}
    found = list[Own]()
    for text, spans, own in zip(texts, places, runs, strict=True):
        known = {at + step - 1 for at, run in enumerate(own) if run in shared for step in range(_RUN)}
        excerpt = _excerpt(text, spans, [at for at in range(len(spans)) if at not in known])
        is_whole = len(excerpt) <= room and shared <= set(own)
        found.append(Own(_cut(excerpt or text, room), is_whole))
    return found


def _runs(text: str, spans: Sequence[tuple[int, int]]) -> list[tuple[str, int]]:
    """Return each run of three words of a text, whose ends count as words, and how often the text had it before."""
    words, seen = ["", *(text[start:end] for start, end in spans), ""], Counter[str]()
    found = list[tuple[str, int]]()
    for at in range(max(len(words) - _RUN + 1, 1)):
        run = " ".join(words[at : at + _RUN])
        found.append((run, seen[run]))
        seen[run] += 1
    return found


def _excerpt(text: str, spans: Sequence[tuple[int, int]], own: Sequence[int]) -> str:
    """Return the words at some places of a text, each with the words before it; empty for no places."""
    groups = list[tuple[int, int]]()
    for at in own:
        start = max(at - _CONTEXT, 0)
        if groups and start <= groups[-1][1] + 1:
            groups[-1] = groups[-1][0], at
        else:
            groups.append((start, at))
    if not groups:
        return ""
    parts = [" ".join(text[spans[first][0] : spans[last][1]].split()) for first, last in groups]
    begin, end = "… " if groups[0][0] else "", " …" if groups[-1][1] + 1 < len(spans) else ""
    return f"{begin}{' … '.join(parts)}{end}"


def _cut(text: str, room: int) -> str:
    return text if len(text) <= room else f"{text[:room]} …"
