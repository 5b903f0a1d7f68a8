"""Reviewing in Slack: the modal that shows a request, and the decision that it sends.

The person is a member of the workspace whom the settings name as a reviewer; anybody else is told so and decides
nothing. Every text of a program is a `plain_text` object, in which Slack reads no markup, mentions or links. The modal
shows the whole call or does not open, and carries the fingerprint of what it showed. An envelope that Slack sends
again gets the same answer.
"""

from __future__ import annotations

import json
import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import datetime
from typing import Any, cast

from sayso import clock, errors
from sayso.channels.notification import Notification
from sayso.channels.settings import ReviewerAllowlist
from sayso.model import canonical
from sayso.model.canonical.tags import MASK, Json
from sayso.model.edit import is_target, schema_of
from sayso.model.request import Request, State
from sayso.model.reviewer import Reviewer
from sayso.model.schema import SchemaError
from sayso.model.text import escape
from sayso.reviews import Review
from sayso.stores.base import Store
from sayso.view import card
from sayso.view.arguments import value
from sayso.view.card import changed, stands
from sayso.view.summary import short

__all__ = [
    "CALLBACK",
    "REVIEW",
    "Desk",
    "Slack",
    "editable",
    "field_of",
    "is_high",
    "message",
    "modal",
    "notes",
    "outcome",
    "problems_in",
    "told",
]

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


def message(notification: Notification, *, can_review: bool) -> dict[str, Any]:
    """Return what is posted of a notification.

    Args:
        notification: The notification.
        can_review: Whether it is decided in Slack; otherwise it has a link only.
    """
    blocks = [_section(notification.title), *_more(notification), *_arguments(notification.arguments)]
    buttons = (
        [_button("Review", action_id=REVIEW, value=notification.request_id, style="primary")] if can_review else []
    )
    if notification.link is not None:
        buttons.append(_button("Open in the inbox", action_id="sayso_open", url=notification.link))
    if notification.event == "test":
        return _posted("sayso: a test of this channel", blocks)
    if not can_review:
        blocks.append(_line("This is decided in the inbox, not in Slack."))
    if buttons:
        blocks.append({"type": "actions", "elements": buttons})
    return _posted(f"sayso: {_short(notification)} waits for a person", blocks)


def outcome(notification: Notification) -> dict[str, Any]:
    """Return what a message becomes when its request was decided: the same words, the outcome, and no Review."""
    blocks = [_section(notification.title), _section(notification.outcome or notification.state)]
    if notification.link is not None:
        button = _button("Open in the inbox", action_id="sayso_open", url=notification.link)
        blocks.append({"type": "actions", "elements": [button]})
    return _posted(f"sayso: {_short(notification)} is {escape(notification.state)}", blocks)


def notes(words: str) -> dict[str, Any]:
    """Return a message to one person."""
    return _posted("sayso", [_section(words)])


def _posted(fallback: str, blocks: Sequence[Block]) -> dict[str, Any]:
    return {
        "text": fallback, "blocks": list(blocks), "mrkdwn": False, "unfurl_links": False, "unfurl_media": False,
        "parse": "none", "link_names": False,
    }  # fmt: skip


def _more(notification: Notification) -> list[Block]:
    """Return what the line of a notification says beyond its title."""
    more = notification.line.removeprefix(notification.title).removeprefix("; ")
    return [_line(more)] if more else []


def _short(notification: Notification) -> str:
    return short(notification.request_id)


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


Slack = Callable[[str, Mapping[str, Any]], Any]
"""Calls a method of Slack's Web API with its arguments; raises `OSError` where that failed."""

Reply = dict[str, Any]

_log = logging.getLogger("sayso.slack")

_IN_TIME = 2.0  # Slack shows a fault to whoever pressed Decide after three seconds
_MOST_ENVELOPES = 1_000
_NOT_HIGH = frozenset({"low", "medium", "moderate", "minor", "none"})
_BUSY = "This takes longer than usual. This window says how it ended."
_NOBODY = (
    "You are not known here as a reviewer, so nothing was decided. Whoever runs sayso can add your member id to the"
    " people of this channel."
)
_NOT_ADMITTED = (
    "The settings of this sayso do not let you review, so nothing was decided: [serve] reviewers or required_role"
    " leaves you out. Whoever runs sayso can add you, or the role to the people of this channel."
)


def is_high(risk: str | None) -> bool:
    """Say whether a risk is to be decided in the inbox: every word of a gate that does not say that it is small."""
    return risk is not None and risk.strip().casefold() not in _NOT_HIGH


class _Wrong(Exception):
    """A modal that decides nothing, with what is wrong by field."""

    def __init__(self, problems: dict[str, str]) -> None:
        super().__init__()
        self.problems = problems


class Desk:
    """Where one channel's people decide.

    Args:
        store: Where the requests are.
        call: Slack's Web API.
        people: The reviewers by their member ids.
        team: The workspace whose members they are.
        inline: Whether what is risky is decided in Slack, too.
        base_url: How people reach the inbox; None where they do not.
        in_time: How many seconds a decision may take before Slack is answered without it.
        allowed: Who of these people may review at all.
    """

    def __init__(
        self, store: Store, call: Slack, people: Mapping[str, Reviewer], *, team: str, inline: bool,
        base_url: str | None, in_time: float = _IN_TIME, allowed: ReviewerAllowlist | None = None,
    ) -> None:  # fmt: skip
        self._store, self._call, self._people = store, call, people
        self._team, self._inline, self._base_url, self._in_time = team, inline, base_url, in_time
        self._allowed = allowed or ReviewerAllowlist()
        self._lock = threading.Lock()  # one envelope may come twice at once
        self._replies: OrderedDict[str, Future[Reply]] = OrderedDict()
        self._workers = ThreadPoolExecutor(4, thread_name_prefix="sayso-slack")

    def close(self) -> None:
        """Take no further decisions; one that is being taken is finished."""
        self._workers.shutdown(wait=False, cancel_futures=True)

    # -- Review ------------------------------------------------------------------------------------------------

    def pressed(self, payload: Mapping[str, Any]) -> None:
        """Open the modal for whoever pressed Review, or tell them why not; every other button needs nothing."""
        request_id = _pressed_review(payload)
        if request_id is None:
            return
        try:
            self._open(payload, request_id)
        except (errors.SaysoError, OSError) as fault:
            _log.warning("Review of %s could not be shown: %s", escape(request_id), fault)
            self._tell(payload, "This cannot be shown now; nothing was decided. Open it in the inbox, or try again.")

    def _open(self, payload: Mapping[str, Any], request_id: str) -> None:
        person = self._person(payload)
        if isinstance(person, str):
            self._tell(payload, person)
            return
        try:
            request = self._review(person).get(request_id)
        except (errors.RequestNotFoundError, errors.AmbiguousIdError):
            self._tell(payload, "This request is not in the store of this sayso; nothing was decided.")
            return
        view = self._modal(request)
        if isinstance(view, str):
            self._tell(payload, view)
        else:
            self._call("views.open", {"trigger_id": payload.get("trigger_id"), "view": view})

    def _modal(self, request: Request) -> dict[str, Any] | str:
        """Return what is shown of a request, or in words why it is not decided here."""
        if request.state is not State.PENDING:
            return f"It does not wait any more: {stands(request, clock.now())}."
        link = None if self._base_url is None else f"{self._base_url}/r/{request.id}"
        where = f"sayso show {request.id}" if link is None else link
        if self._is_elsewhere(request):
            return f"This is risky, and decided in the inbox: {where}"
        view = modal(request, clock.now(), link=link)
        return (
            f"This is too long to be shown whole in Slack, and decided in the inbox: {where}" if view is None else view
        )

    def _is_elsewhere(self, request: Request) -> bool:
        return is_high(request.risk) and not self._inline

    def _tell(self, payload: Mapping[str, Any], words: str) -> None:
        """Say something that only who pressed sees; where that fails, the log has to do."""
        channel, user = _part(payload, "channel").get("id"), _part(payload, "user").get("id")
        try:
            self._call("chat.postEphemeral", {"channel": channel, "user": user, **notes(words)})
        except (errors.SaysoError, OSError) as fault:
            _log.warning("nobody could be told in Slack: %s", fault)

    # -- Decide ------------------------------------------------------------------------------------------------

    def submitted(self, envelope_id: str, payload: Mapping[str, Any]) -> Reply:
        """Take the decision of a modal, once, and return what Slack is answered: a new view, or what is wrong."""
        with self._lock:
            reply = self._replies.get(envelope_id)
            if reply is None:
                reply = self._replies[envelope_id] = self._workers.submit(self._reply, payload)
                while len(self._replies) > _MOST_ENVELOPES:
                    self._replies.popitem(last=False)
        try:
            return reply.result(self._in_time)
        except TimeoutError:
            view_id = _part(payload, "view").get("id")
            reply.add_done_callback(lambda done: self._late(view_id, done))
            return _update(_BUSY)

    def _late(self, view_id: object, done: Future[Reply]) -> None:
        if done.cancelled():
            return
        reply = done.result()
        view = reply.get("view") or told("Nothing was decided: " + "; ".join(reply["errors"].values()))
        try:
            self._call("views.update", {"view_id": view_id, "view": view})
        except (errors.SaysoError, OSError) as fault:
            _log.warning("nobody could be told in Slack how a decision ended: %s", fault)

    def _reply(self, payload: Mapping[str, Any]) -> Reply:
        try:
            return _update(self._decided(payload))
        except _Wrong as wrong:
            return {"response_action": "errors", "errors": wrong.problems}
        except (errors.DecisionRefusedError, errors.RequestNotFoundError) as fault:
            return _update(escape(str(fault)))
        except Exception as fault:  # noqa: BLE001  the edge to Slack: whoever pressed must be told, whatever it was
            _log.error("a decision by Slack failed: %s", fault)
            return _update("The store does not answer, or something else failed; look in the inbox how it stands.")

    def _decided(self, payload: Mapping[str, Any]) -> str:
        person = self._person(payload)
        if isinstance(person, str):
            return person
        request_id, seen = _shown(payload)
        review, said = self._review(person), _Said(payload)
        request = review.get(request_id)
        if self._is_elsewhere(request):
            return "This is risky, and decided in the inbox; nothing was decided."
        after = _take(review, request, said, seen)
        return "\n".join([card.headline(after), stands(after, clock.now()), *_changes(request, after)])

    def _review(self, person: Reviewer) -> Review:
        return Review(self._store, reviewer=person, channel="slack")

    def _person(self, payload: Mapping[str, Any]) -> Reviewer | str:
        """Return the reviewer who pressed; in words why there is none, also for members of other workspaces."""
        user = _part(payload, "user")
        team = user.get("team_id") or _part(payload, "team").get("id")
        person = self._people.get(str(user.get("id"))) if team == self._team else None
        if person is None:
            return _NOBODY
        return person if self._allowed.admits(person) else _NOT_ADMITTED


class _Said:
    """What somebody filled into a modal."""

    def __init__(self, payload: Mapping[str, Any]) -> None:
        self._values = _part(_part(_part(payload, "view"), "state"), "values")

    @property
    def verb(self) -> str:
        """The decision; raises `_Wrong` where none is chosen."""
        chosen = _part(_part(_part(self._values, "verb"), "verb"), "selected_option").get("value")
        if not isinstance(chosen, str):
            raise _Wrong({"verb": "Choose one; nothing was decided."})
        return chosen

    def text(self, field: str) -> str | None:
        """Return what stands in a field; None where that is nothing."""
        text = _part(_part(self._values, field), "text").get("value")
        return text if isinstance(text, str) and text.strip() else None


def _take(review: Review, request: Request, said: _Said, seen: str) -> Request:
    note = said.text("note")
    match said.verb:
        case "approve":
            return _approve(review, request, said, seen)
        case "feedback":
            if note is None:
                raise _Wrong({"note": "Write what should be different; nothing was decided."})
            return review.feedback(request.id, note, seen=seen)
        case "reject":
            if note is None and is_target(request):
                raise _Wrong({"note": "Write why; the no to a Confirm needs a reason. Nothing was decided."})
            return review.reject(request.id, note, seen=seen)
        case "answer":
            return review.answer(request.id, _answer(request, said.text("answer")), comment=note)
        case _:
            raise _Wrong({"verb": "Choose one; nothing was decided."})


def _approve(review: Review, request: Request, said: _Said, seen: str) -> Request:
    fields = editable(request) if request.state is State.PENDING and request.kind == "call" else {}
    names = {escape(name): field_of(at) for at, name in enumerate(fields)}
    written = {name: said.text(field_of(at)) for at, name in enumerate(fields)}
    new = {name: text for name, text in written.items() if text is not None and text != fields[name]}
    changes, problems = dict[str, Any](), list[str]()
    for name, text in new.items():
        try:
            changes[name] = schema_of(request).parse(name, text)
        except SchemaError as error:
            problems += error.problems
    if problems:
        raise _Wrong(problems_in(problems, names))
    try:
        return review.approve(request.id, changes=changes or None, comment=said.text("note"), seen=seen)
    except errors.InvalidChangesError as fault:
        raise _Wrong(problems_in(fault.problems, names)) from None


def _answer(request: Request, text: str | None) -> object:
    if request.kind != "question" or request.state is not State.PENDING:
        return text  # the door says why not
    if text is None:
        raise _Wrong({"answer": "Write an answer; nothing was decided."})
    try:
        return schema_of(request).parse("answer", text)
    except SchemaError as error:
        raise _Wrong(problems_in(error.problems, {"answer": "answer"})) from None


def _changes(before: Request, after: Request) -> list[str]:
    if after.kind != "call" or after.edited is None or before.edited == after.edited:
        return []
    return [change.line() for change in changed(before.effective, after.effective, after.redact)]


def _update(words: str) -> Reply:
    return {"response_action": "update", "view": told(words)}


def _shown(payload: Mapping[str, Any]) -> tuple[str, str]:
    """Return which request a modal showed, and its fingerprint."""
    try:
        found: Any = json.loads(str(_part(payload, "view").get("private_metadata", "")))
        return str(found["id"]), str(found["seen"])
    except (KeyError, TypeError, ValueError):
        raise errors.RequestNotFoundError("?") from None


def _pressed_review(payload: Mapping[str, Any]) -> str | None:
    actions = payload.get("actions")
    for action in cast("list[Any]", actions) if isinstance(actions, list) else []:
        if isinstance(action, dict):
            named = cast("dict[str, Any]", action)
            if named.get("action_id") == REVIEW and isinstance(named.get("value"), str):
                return named["value"]
    return None


def _part(whole: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return an object inside what Slack sent; an empty one where there is none."""
    part = whole.get(name)
    return cast("Mapping[str, Any]", part) if isinstance(part, dict) else {}
