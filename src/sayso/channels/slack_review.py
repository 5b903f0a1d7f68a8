"""Reviews in Slack: the message about a request, the modal that shows it, and the decisions that it submits.

Only workspace members whom the settings name as reviewers can decide. Every text from a program is a `plain_text`
object, in which Slack interprets no markup, mentions or links. The modal shows the whole call or does not open, and
carries the fingerprint of what it showed. An envelope that Slack sends again gets the same reply.
"""

from __future__ import annotations

import json
import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import datetime
from functools import partial
from typing import Any, cast

from sayso import clock, errors
from sayso.channels.registry import Notification
from sayso.channels.settings import ReviewerAllowlist
from sayso.model import canonical
from sayso.model.canonical.json_tree import MASK
from sayso.model.edit import is_read_only, is_target, schema_of
from sayso.model.rendering import value
from sayso.model.request import Request, State, changed
from sayso.model.reviewer import Reviewer
from sayso.model.schema import SchemaError
from sayso.model.text import escape
from sayso.reviews import Review
from sayso.stores.base import Store
from sayso.view import full_text
from sayso.view.full_text import status_line
from sayso.view.summary import is_high, short

REVIEW, CALLBACK = "sayso_review", "sayso_decide"

Block = dict[str, Any]
ROOM = 2_900  # characters; Slack accepts 3,000 in one text
_MOST_TEXTS = 12
_WIDTH = 72
_LONGEST_FIELD, _MOST_FIELDS = 300, 12
_LONGEST_NOTE = 2_000
_LONGEST_PROBLEM = 280
_NOTE = "Note, for the program and the record"
_AGAIN = "Another call has the same effect; explain in the note why it may happen again"
_CALL_VERBS = {"approve": "Approve", "reject": "Reject", "feedback": "Send back with the note"}
_QUESTION_VERBS = {"answer": "Answer", "reject": "Reject"}


def _text(text: str, room: int = ROOM) -> Block:
    """Return a `plain_text` object, truncated to `room` characters."""
    cut = text if len(text) <= room else f"{text[: room - 1]}…"
    return {"type": "plain_text", "text": cut or " ", "emoji": False}


def section(text: str) -> Block:
    """Return a section block."""
    return {"type": "section", "text": _text(text)}


def context(text: str) -> Block:
    """Return a context block, which Slack shows in small text."""
    return {"type": "context", "elements": [_text(text, 1_900)]}


def button(label: str, **more: str) -> Block:
    """Return a button; `more` can set `action_id`, `value`, `style` and `url`."""
    return {"type": "button", "text": _text(label, 70), **more}


def inbox_button(link: str | None) -> list[Block]:
    """Return the button that opens a request's page; an empty list if the inbox has no address."""
    return [] if link is None else [button("Open in the inbox", action_id="sayso_open", url=link)]


def post(fallback: str, blocks: Sequence[Block]) -> dict[str, Any]:
    """Return a message of these blocks; a lock screen shows `fallback`."""
    return {
        "text": fallback, "blocks": list(blocks), "mrkdwn": False, "unfurl_links": False, "unfurl_media": False,
        "parse": "none", "link_names": False,
    }  # fmt: skip


def message(notification: Notification, *, can_review: bool) -> dict[str, Any]:
    """Return the message for a notification; without `can_review` it has a link to the inbox but no Review button."""
    more = notification.line.removeprefix(notification.title).removeprefix("; ")
    program = [text for text in (notification.program_title, notification.summary) if text is not None]
    blocks = [
        section(notification.title),
        *([context(more)] if more else []),
        *([context("The program says, unverified:"), *map(section, program)] if program else []),
    ]
    if notification.arguments is not None:
        text = "\n".join(f"{escape(name)}: {value(item)}" for name, item in notification.arguments.items())
        too_long = "The arguments are too long for a message; Review shows them."
        blocks.append(section(text if len(text) <= ROOM else too_long))
    if notification.event == "test":
        return post("sayso: a test of this channel", blocks)
    buttons = inbox_button(notification.link)
    if can_review:
        buttons.insert(0, button("Review", action_id=REVIEW, value=notification.request_id, style="primary"))
    else:
        blocks.append(context("Decide this in the inbox, not in Slack."))
    if buttons:
        blocks.append({"type": "actions", "elements": buttons})
    return post(f"sayso: {short(notification.request_id)} waits for a person", blocks)


def outcome(notification: Notification) -> dict[str, Any]:
    """Return the message for a decided request: the title, the outcome, and no Review button."""
    blocks = [section(notification.title), section(notification.outcome or notification.state)]
    if notification.link is not None:
        blocks.append({"type": "actions", "elements": inbox_button(notification.link)})
    return post(f"sayso: {short(notification.request_id)} is {escape(notification.state)}", blocks)


# -- the modal -------------------------------------------------------------------------------------------------


def modal(
    request: Request, now: datetime, *, link: str | None, same_effect: Sequence[Request] = ()
) -> dict[str, Any] | None:  # fmt: skip
    """Return the modal for a pending request, or None if the request is too long to be shown in full.

    Args:
        request: The request.
        now: The current time, to show how much time is left.
        link: The request's page; None if the inbox has no address.
        same_effect: Other requests with the same effect; if there are any, a reviewer can approve a repetition.
    """
    rows = full_text.subject_rows(request, width=_WIDTH, full=True)
    rest = full_text.ask_rows(request, now, width=_WIDTH, full=True, same_effect=same_effect)[len(rows) :]
    above, beside = _join_rows(rows), _join_rows(rest)
    if above is None or beside is None or len(above) + len(beside) > _MOST_TEXTS:
        return None
    what = "What would run" if request.kind == "call" else "What is asked"
    blocks = [_header(what), *map(section, above), _header("Context"), *map(section, beside)]
    if link is not None:
        blocks.append({"type": "actions", "elements": inbox_button(link)})
    blocks += _inputs(request, can_repeat=bool(same_effect))
    seen = {"id": request.id, "seen": request.current_fingerprint}
    return _window(
        short(request.id), blocks,
        callback_id=CALLBACK, private_metadata=json.dumps(seen), submit=_text("Decide", 24),
    )  # fmt: skip


def _window(title: str, blocks: Sequence[Block], **more: Any) -> dict[str, Any]:
    return {"type": "modal", "title": _text(title, 24), "close": _text("Close", 24), "blocks": list(blocks), **more}


def _header(text: str) -> Block:
    return {"type": "header", "text": _text(text, 140)}


def _join_rows(rows: Sequence[str]) -> list[str] | None:
    """Join rows into as few texts as Slack's limit allows; return None if a single row is too long."""
    texts: list[str] = []
    for row in rows:
        if len(row) > ROOM:
            return None
        if texts and len(texts[-1]) + 1 + len(row) <= ROOM:
            texts[-1] += f"\n{row}"
        else:
            texts.append(row)
    return texts


def _inputs(request: Request, *, can_repeat: bool) -> list[Block]:
    long = {"type": "plain_text_input", "action_id": "text", "multiline": True, "max_length": _LONGEST_NOTE}
    note = _input("note", f"{_NOTE}; rejecting a Confirm needs a reason" if is_target(request) else _NOTE, long, True)
    if request.kind == "question":
        return [_input("answer", "Your answer", long, True), _choice(_QUESTION_VERBS), note]
    changes = [
        _input(f"argument-{at}", escape(name), {"type": "plain_text_input", "action_id": "text", "initial_value": text})
        for at, (name, text) in enumerate(_editable(request).items())
    ]
    again = {"type": "checkboxes", "action_id": "again", "options": [_option("yes", "Approve it anyway")]}
    return [
        *([context("Change values here before you approve, or leave them as they are.")] if changes else []),
        *changes,
        _choice(_CALL_VERBS),
        *([_input("again", _AGAIN, again, True)] if can_repeat else []),
        note,
    ]


def _input(block_id: str, label: str, element: Block, is_optional: bool = False) -> Block:  # noqa: FBT001, FBT002  read in the lines above
    return {
        "type": "input", "block_id": block_id, "label": _text(label, 300), "element": element, "optional": is_optional
    }  # fmt: skip


def _choice(verbs: Mapping[str, str]) -> Block:
    # Nothing is preselected, so that a single click cannot approve.
    options = [_option(verb, label) for verb, label in verbs.items()]
    return _input("verb", "Your decision", {"type": "radio_buttons", "action_id": "verb", "options": options})


def _option(value: str, label: str) -> Block:
    return {"text": _text(label, 70), "value": value}


def _editable(request: Request) -> dict[str, str]:
    """Return the arguments that can be edited in Slack, each with the initial text of its input.

    These are plain one-line values in which nothing is hidden or masked; the others can be edited in the inbox.
    """
    if is_read_only(request):
        return {}
    found: dict[str, str] = {}
    for name, tree in request.effective.shown.items():
        if tree == MASK or tree is None or isinstance(tree, dict | list):
            continue
        text = tree if isinstance(tree, str) else json.dumps(canonical.display(tree))
        if 0 < len(text) <= _LONGEST_FIELD and text == text.strip() == escape(text) and '"' not in text:
            found[name] = text
    return dict(list(found.items())[:_MOST_FIELDS])


# -- the decision ----------------------------------------------------------------------------------------------

WebApi = Callable[[str, Mapping[str, Any]], Any]
"""Calls a method of the Web API with its arguments; raises `OSError` on failure."""

Reply = dict[str, Any]

_log = logging.getLogger("sayso.slack")

_IN_TIME = 2.0  # seconds; Slack shows the person an error after three
_MOST_ENVELOPES = 1_000
_BUSY = "This takes longer than usual. The result will appear in this window."
_NOBODY = (
    "You are not a known reviewer, so nothing was decided. The administrator of sayso can add your member"
    " id to the people of this channel."
)
_NOT_ADMITTED = (
    "You may not review here, so nothing was decided: `reviewers` or `required_role` under [serve] excludes"
    " you. The administrator of sayso can add you, or the role to the people of this channel."
)


def part(payload: Mapping[str, Any], *names: str) -> Mapping[str, Any]:
    """Return the nested object at this path of a Slack payload, or an empty one if it is missing."""
    for name in names:
        found = payload.get(name)
        payload = cast("Mapping[str, Any]", found) if isinstance(found, dict) else {}
    return payload


class _CannotReview(Exception):
    """The request cannot be decided in Slack; the message tells the person why."""


class _InvalidSubmission(Exception):
    """The submission is invalid and decides nothing; `problems` has a message for each field."""

    def __init__(self, problems: dict[str, str]) -> None:
        super().__init__()
        self.problems = problems


class SlackReviews:
    """Shows requests to the reviewers of one channel and applies their decisions.

    Args:
        store: The store with the requests.
        call: Calls Slack's Web API.
        people: The reviewers by Slack member id.
        team: The id of their workspace.
        inline: Whether risky requests can be decided in Slack, too.
        base_url: The inbox's address; None if it has none.
        in_time: How many seconds to wait for a decision to be stored before answering Slack that it is in progress.
        allowed: Which of these people may review at all.
    """

    def __init__(
        self, store: Store, call: WebApi, people: Mapping[str, Reviewer], *, team: str, inline: bool,
        base_url: str | None, in_time: float = _IN_TIME, allowed: ReviewerAllowlist | None = None,
    ) -> None:  # fmt: skip
        self._store, self._call, self._people = store, call, people
        self._team, self._inline, self._base_url, self._in_time = team, inline, base_url, in_time
        self._allowed = allowed or ReviewerAllowlist()
        self._lock = threading.Lock()  # two threads may get the same envelope at once; one decides
        self._replies: OrderedDict[str, Future[Reply]] = OrderedDict()
        self._workers = ThreadPoolExecutor(4, thread_name_prefix="sayso-slack")

    def close(self) -> None:
        """Accept no more decisions; a decision in progress completes."""
        self._workers.shutdown(wait=False, cancel_futures=True)

    def open_modal(self, payload: Mapping[str, Any]) -> None:
        """Open the modal for the person who pressed Review, or tell them why it cannot open; ignore other buttons."""
        actions: list[Any] = payload.get("actions") or []
        request_id = next((str(action["value"]) for action in actions if action["action_id"] == REVIEW), None)
        if request_id is None:
            return
        try:
            review = self._review(payload)
            view = self._modal(review, review.get(request_id))
            self._call("views.open", {"trigger_id": payload.get("trigger_id"), "view": view})
        except _CannotReview as why:
            words = str(why)
        except (errors.RequestNotFoundError, errors.AmbiguousIdError):
            words = "This request is not in the store; nothing was decided."
        except (errors.SaysoError, OSError) as fault:
            _log.warning("could not show the review of %s: %s", escape(request_id), fault)
            words = "This cannot be shown now; nothing was decided. Try again, or open it in the inbox."
        else:
            return
        channel, user = part(payload, "channel").get("id"), part(payload, "user").get("id")
        self._call_or_log("chat.postEphemeral", {"channel": channel, "user": user, **post("sayso", [section(words)])})

    def _modal(self, review: Review, request: Request) -> dict[str, Any]:
        if request.state is not State.PENDING:
            raise _CannotReview(f"It is no longer pending: {status_line(request, clock.now())}.")
        link = None if self._base_url is None else f"{self._base_url}/r/{request.id}"
        where = f"sayso show {request.id}" if link is None else link
        if self._needs_inbox(request):
            raise _CannotReview(f"This is risky and must be decided in the inbox: {where}")
        view = modal(request, clock.now(), link=link, same_effect=review.same_effect(request))
        if view is None:
            raise _CannotReview(f"This is too long for Slack and must be decided in the inbox: {where}")
        return view

    def _needs_inbox(self, request: Request) -> bool:
        return is_high(request.risk) and not self._inline

    def _call_or_log(self, method: str, content: Mapping[str, Any]) -> None:
        """Call the Web API to show the person something; log a failure."""
        try:
            self._call(method, content)
        except (errors.SaysoError, OSError) as fault:
            _log.warning("could not show a message in Slack: %s", fault)

    def _review(self, payload: Mapping[str, Any]) -> Review:
        """Return a `Review` for the person who pressed; raise `_CannotReview` if they may not review here."""
        user = part(payload, "user")
        team = user.get("team_id") or part(payload, "team").get("id")
        person = self._people.get(str(user.get("id"))) if team == self._team else None
        if person is None:
            raise _CannotReview(_NOBODY)
        if not self._allowed.admits(person):
            raise _CannotReview(_NOT_ADMITTED)
        return Review(self._store, reviewer=person, channel="slack")

    def decide(self, envelope_id: str, payload: Mapping[str, Any]) -> Reply:
        """Apply a modal's decision once for each envelope, and return the reply to Slack: a view, or errors."""
        with self._lock:
            reply = self._replies.get(envelope_id)
            if reply is None:
                reply = self._replies[envelope_id] = self._workers.submit(self._make_reply, payload)
                while len(self._replies) > _MOST_ENVELOPES:
                    self._replies.popitem(last=False)
        try:
            return reply.result(self._in_time)
        except TimeoutError:
            reply.add_done_callback(partial(self._send_late_reply, part(payload, "view").get("id")))
            return _update(_BUSY)

    def _send_late_reply(self, view_id: object, done: Future[Reply]) -> None:
        if done.cancelled():
            return
        reply = done.result()
        view = reply.get("view") or _update("Nothing was decided: " + "; ".join(reply["errors"].values()))["view"]
        self._call_or_log("views.update", {"view_id": view_id, "view": view})

    def _make_reply(self, payload: Mapping[str, Any]) -> Reply:
        try:
            return _update(self._apply_and_describe(payload))
        except _InvalidSubmission as wrong:
            return {"response_action": "errors", "errors": wrong.problems}
        except (_CannotReview, errors.DecisionRefusedError, errors.RequestNotFoundError) as fault:
            return _update(escape(str(fault)))
        except Exception as fault:  # noqa: BLE001  the person must be told of any failure
            _log.error("a decision in Slack failed: %s", fault)
            return _update(
                "Something went wrong, perhaps with the store; check in the inbox whether the decision was recorded."
            )

    def _apply_and_describe(self, payload: Mapping[str, Any]) -> str:
        review = self._review(payload)
        shown: dict[str, str] = json.loads(part(payload, "view").get("private_metadata") or "{}")
        request = review.get(shown.get("id", "?"))
        if self._needs_inbox(request):
            raise _CannotReview("This is risky and must be decided in the inbox; nothing was decided.")
        after = _apply(review, request, part(payload, "view", "state", "values"), shown["seen"])
        is_edited = after.kind == "call" and after.edited is not None and request.edited != after.edited
        changes = changed(request.effective, after.effective, after.redact) if is_edited else []
        return "\n".join(
            [full_text.headline(after), status_line(after, clock.now()), *(change.line() for change in changes)]
        )


def _field_text(inputs: Mapping[str, Any], field: str) -> str | None:
    """Return the text that was submitted for a field; None if it is blank."""
    text = part(inputs, field, "text").get("value")
    return text if isinstance(text, str) and text.strip() else None


def _apply(review: Review, request: Request, inputs: Mapping[str, Any], seen: str) -> Request:
    note = _field_text(inputs, "note")
    match part(inputs, "verb", "verb", "selected_option").get("value"):
        case "approve":
            return _approve(review, request, inputs, seen)
        case "feedback":
            if note is None:
                raise _InvalidSubmission(
                    {"note": "Write a note that says what should be different. Nothing was decided."}
                )
            return review.feedback(request.id, note, seen=seen)
        case "reject":
            if note is None and is_target(request):
                raise _InvalidSubmission(
                    {"note": "Write a note with the reason; rejecting a Confirm needs one. Nothing was decided."}
                )
            return review.reject(request.id, note, seen=seen)
        case "answer":
            answer = _answer(request, _field_text(inputs, "answer"))
            return review.answer(request.id, answer, comment=note)
        case _:
            raise _InvalidSubmission({"verb": "Choose a decision. Nothing was decided."})


def _approve(review: Review, request: Request, inputs: Mapping[str, Any], seen: str) -> Request:
    fields = _editable(request) if request.state is State.PENDING and request.kind == "call" else {}
    names = {escape(name): f"argument-{at}" for at, name in enumerate(fields)}
    changes, problems = dict[str, Any](), list[str]()
    for at, (name, before) in enumerate(fields.items()):
        text = _field_text(inputs, f"argument-{at}")
        if text is None or text == before:
            continue
        try:
            changes[name] = schema_of(request).parse(name, text)
        except SchemaError as error:
            problems += error.problems
    if problems:
        raise _invalid(problems, names)
    note, is_again = _field_text(inputs, "note"), bool(part(inputs, "again", "again").get("selected_options"))
    if is_again and note is None:
        raise _InvalidSubmission(
            {"note": "Write a note that says why the effect may happen again. Nothing was decided."}
        )
    try:
        return review.approve(request.id, changes=changes or None, comment=note, seen=seen, again=is_again)
    except errors.InvalidChangesError as fault:
        raise _invalid(fault.problems, names) from None


def _answer(request: Request, text: str | None) -> object:
    if request.kind != "question" or request.state is not State.PENDING:
        return text  # `review.answer` rejects it with a reason
    if text is None:
        raise _InvalidSubmission({"answer": "Write an answer. Nothing was decided."})
    try:
        return schema_of(request).parse("answer", text)
    except SchemaError as error:
        raise _invalid(error.problems, {"answer": "answer"}) from None


def _invalid(problems: Sequence[str], names: Mapping[str, str]) -> _InvalidSubmission:
    """Assign each problem (`where: what is wrong`) to the input of that name."""
    found: dict[str, str] = {}
    for problem in problems:
        found.setdefault(names.get(problem.partition(":")[0], "verb"), escape(problem)[:_LONGEST_PROBLEM])
    return _InvalidSubmission(found)


def _update(words: str) -> Reply:
    return {"response_action": "update", "view": _window("sayso", [section(words)])}
