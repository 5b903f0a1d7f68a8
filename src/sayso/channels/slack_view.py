"""What Slack shows: a message that says that something waits, and the modal in which it is decided.

Every text is a `plain_text` object, in which Slack reads no markup, mentions or links; the few words that it wants as
markup are ours alone. What does not fit into a modal whole is not decided there. The invariant: no text of a program
stands where Slack reads markup, and a modal that can approve shows all of the call.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from sayso.channels.notification import Notice
from sayso.model import canonical
from sayso.model.canonical.tags import MASK, Json
from sayso.model.edit import is_target
from sayso.model.request import Request
from sayso.model.text import escape
from sayso.view import card
from sayso.view.arguments import value
from sayso.view.summary import short

__all__ = [
    "CALLBACK", "REVIEW", "editable", "field_of", "message", "modal", "notes", "outcome", "problems_in", "told",
]  # fmt: skip

REVIEW, CALLBACK = "sayso_review", "sayso_decide"

Block = dict[str, Any]
_ROOM = 2_900  # of the 3,000 characters that Slack takes in one text
_MOST_TEXTS = 12
_WIDTH = 72
_LONGEST_FIELD, _MOST_FIELDS = 300, 12
_LONGEST_NOTE = 2_000
_LONGEST_TOLD = 280
_NO = "; to reject a Confirm, say why"
_CALL_VERBS = {"approve": "Approve", "reject": "Reject", "feedback": "Send back with the note"}
_QUESTION_VERBS = {"answer": "Answer", "reject": "Reject"}


def _plain(text: str, room: int = _ROOM) -> Block:
    cut = text if len(text) <= room else f"{text[: room - 1]}…"
    return {"type": "plain_text", "text": cut or " ", "emoji": False}


def _section(text: str) -> Block:
    return {"type": "section", "text": _plain(text)}


def _line(text: str) -> Block:
    return {"type": "context", "elements": [_plain(text, 1_900)]}


def _button(words: str, **more: str) -> Block:
    return {"type": "button", "text": _plain(words, 70), **more}


# -- the message -----------------------------------------------------------------------------------------------


def message(notice: Notice, *, can_review: bool) -> dict[str, Any]:
    """Return what is posted of a notice.

    Args:
        notice: The notice.
        can_review: Whether it is decided in Slack; otherwise it has a link only.
    """
    blocks = [_section(notice.title), *_more(notice), *_arguments(notice.arguments)]
    buttons = [_button("Review", action_id=REVIEW, value=notice.request_id, style="primary")] if can_review else []
    if notice.link is not None:
        buttons.append(_button("Open in the inbox", action_id="sayso_open", url=notice.link))
    if notice.event == "test":
        return _posted("sayso: a test of this channel", blocks)
    if not can_review:
        blocks.append(_line("This is decided in the inbox, not in Slack."))
    if buttons:
        blocks.append({"type": "actions", "elements": buttons})
    return _posted(f"sayso: {_short(notice)} waits for a person", blocks)


def outcome(notice: Notice) -> dict[str, Any]:
    """Return what a message becomes when its request was decided: the same words, the outcome, and no Review."""
    blocks = [_section(notice.title), _section(notice.outcome or notice.state)]
    if notice.link is not None:
        button = _button("Open in the inbox", action_id="sayso_open", url=notice.link)
        blocks.append({"type": "actions", "elements": [button]})
    return _posted(f"sayso: {_short(notice)} is {escape(notice.state)}", blocks)


def notes(words: str) -> dict[str, Any]:
    """Return a message to one person."""
    return _posted("sayso", [_section(words)])


def _posted(fallback: str, blocks: Sequence[Block]) -> dict[str, Any]:
    return {
        "text": fallback, "blocks": list(blocks), "mrkdwn": False, "unfurl_links": False, "unfurl_media": False,
        "parse": "none", "link_names": False,
    }  # fmt: skip


def _more(notice: Notice) -> list[Block]:
    """Return what the line of a notice says beyond its title."""
    more = notice.line.removeprefix(notice.title).removeprefix("; ")
    return [_line(more)] if more else []


def _short(notice: Notice) -> str:
    return short(notice.request_id)


def _arguments(arguments: Mapping[str, Any] | None) -> list[Block]:
    if arguments is None:
        return []
    said = "\n".join(f"{escape(name)}: {value(item)}" for name, item in arguments.items())
    return [_section(said if len(said) <= _ROOM else "The arguments are too long for a message; Review shows them.")]


# -- the modal -------------------------------------------------------------------------------------------------


def modal(request: Request, now: datetime, *, link: str | None) -> dict[str, Any] | None:
    """Return the modal in which a pending request is decided; None where it is too long to be shown whole."""
    rows = card.subject_rows(request, width=_WIDTH, full=True)
    rest = card.ask_rows(request, now, width=_WIDTH, full=True)[len(rows) :]
    what = "What would run" if request.kind == "call" else "What is asked"
    above, beside = _texts(rows), _texts(rest)
    if above is None or beside is None or len(above) + len(beside) > _MOST_TEXTS:
        return None
    blocks = [_header(what), *map(_section, above), _header("Beside it"), *map(_section, beside)]
    if link is not None:
        button = _button("Open in the inbox", action_id="sayso_open", url=link)
        blocks.append({"type": "actions", "elements": [button]})
    blocks += _inputs(request)
    seen = {"id": request.id, "seen": request.current_fingerprint}
    return {
        "type": "modal", "callback_id": CALLBACK, "private_metadata": json.dumps(seen),
        "title": _plain(short(request.id), 24), "submit": _plain("Decide", 24), "close": _plain("Leave it", 24),
        "blocks": blocks,
    }  # fmt: skip


def told(words: str) -> dict[str, Any]:
    """Return a modal that only says something."""
    return {"type": "modal", "title": _plain("sayso", 24), "close": _plain("Close", 24), "blocks": [_section(words)]}


def _header(words: str) -> Block:
    return {"type": "header", "text": _plain(words, 140)}


def _texts(rows: Sequence[str]) -> list[str] | None:
    """Return rows as few texts that Slack takes; None where one row alone is too long."""
    texts: list[str] = []
    for row in rows:
        if len(row) > _ROOM:
            return None
        if texts and len(texts[-1]) + 1 + len(row) <= _ROOM:
            texts[-1] += f"\n{row}"
        else:
            texts.append(row)
    return texts


def _inputs(request: Request) -> list[Block]:
    if request.kind == "question":
        answer = {"type": "plain_text_input", "action_id": "text", "multiline": True, "max_length": _LONGEST_NOTE}
        return [
            _input("answer", "Your answer", answer, is_optional=True),
            _input("verb", "Your decision", _choice(_QUESTION_VERBS)),
            _input("note", "Note, for the program and the record", _note(), is_optional=True),
        ]
    fields = editable(request)
    changes = [
        _input(field_of(at), escape(name), {"type": "plain_text_input", "action_id": "text", "initial_value": text})
        for at, (name, text) in enumerate(fields.items())
    ]
    return [
        *([_line("Change a value here before you approve, or leave all as they are.")] if changes else []),
        *changes,
        _input("verb", "Your decision", _choice(_CALL_VERBS)),
        _input(
            "note",
            f"Note, for the program and the record{_NO if is_target(request) else ''}",
            _note(),
            is_optional=True,
        ),
    ]


def _input(block_id: str, label: str, element: Block, *, is_optional: bool = False) -> Block:
    return {
        "type": "input", "block_id": block_id, "label": _plain(label, 300), "element": element,
        "optional": is_optional,
    }  # fmt: skip


def _choice(verbs: Mapping[str, str]) -> Block:
    # None of them is chosen beforehand, so that nobody approves by pressing one button.
    options = [{"text": _plain(words, 70), "value": verb} for verb, words in verbs.items()]
    return {"type": "radio_buttons", "action_id": "verb", "options": options}


def _note() -> Block:
    return {"type": "plain_text_input", "action_id": "text", "multiline": True, "max_length": _LONGEST_NOTE}


def field_of(at: int) -> str:
    """Return the name of the field in which the value of an argument can be changed."""
    return f"argument-{at}"


def editable(request: Request) -> dict[str, str]:
    """Return the arguments that can be changed in Slack, as the text that stands in each field.

    These are plain values in one line, in which nothing is hidden or masked; the inbox can change the others.
    """
    found = {name: text for name, tree in request.effective.shown.items() if (text := _text(tree)) is not None}
    return dict(list(found.items())[:_MOST_FIELDS])


def _text(tree: Json) -> str | None:
    if tree == MASK or tree is None or isinstance(tree, dict | list):
        return None
    text = tree if isinstance(tree, str) else json.dumps(canonical.display(tree))
    is_plain = text and len(text) <= _LONGEST_FIELD and text == text.strip() == escape(text)
    return text if is_plain and '"' not in text else None


def problems_in(problems: Sequence[str], names: Mapping[str, str]) -> dict[str, str]:
    """Return problems of an edit by the field at which Slack shows them.

    Args:
        problems: One line each, `where: what is wrong`.
        names: The fields by the name of the argument.
    """
    found: dict[str, str] = {}
    for problem in problems:
        field = names.get(problem.partition(":")[0], "verb")
        found.setdefault(field, escape(problem)[:_LONGEST_TOLD])
    return found
