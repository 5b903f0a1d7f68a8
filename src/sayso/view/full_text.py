"""Renders a request in full as rows of text: the call or question, warnings, the decision and the outcome.

`kinds_of` and `choices_of` describe accepted values, in a few words or as a list of choices, for prompts, editors and
error messages. Invariant: names and values from a program are escaped in the returned text.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from functools import partial
from typing import Any, cast

from sayso.model import canonical
from sayso.model.canonical.json_tree import Json, fields_of
from sayso.model.duration import ago
from sayso.model.redaction import Redaction, mark_secrets, masked_besides
from sayso.model.rendering import as_amount, brief, quote_if_needed
from sayso.model.request import Decision, Execution, Question, Request, State
from sayso.model.reviewer import TOKENS, name_of
from sayso.model.schema import Schema
from sayso.model.text import escape, later, say, say_n
from sayso.view import summary
from sayso.view.summary import columns, padded, short, time_left

_COMMENT_ROOM = 300
_NAMED = (later("waits again"), later("requester"), later("key"), later("context"), later("function"))
_RESULT_ROOM = 1_000
_EFFECTS_SHOWN = 3


def attribution(decision: Decision, now: datetime) -> str:
    """Describe who made a decision, through which channel and how long ago."""
    return f"{name_of(decision.by)} ({summary.channel_name(decision.channel)}, {ago(decision.at, now)})"


def decided(request: Request, now: datetime) -> str:
    """Describe who decided what, when and through which channel, or that nobody did."""
    decision = request.decision
    if request.state is State.EXPIRED:
        end = request.expires_at if request.approval_expires_at is None else request.approval_expires_at
        what = say("nobody decided")
        if decision is not None:
            what = say("approved by %(who)s and not used in time", who=attribution(decision, now))
        return say("expired %(ago)s; %(what)s", ago=ago(end, now), what=what)
    if decision is None:
        return say(str(request.state))
    words = "" if decision.comment is None else f": {brief(decision.comment, _COMMENT_ROOM)}"
    return verdict(request, decision, attribution(decision, now)) + words


def verdict(request: Request, decision: Decision, who: str) -> str:
    """Describe what was decided, and by whom."""
    match decision.verb:
        case "approve":
            text = later("approved by %(who)s") if request.edited is None else later("approved with changes by %(who)s")
        case "feedback":
            text = later("sent back with feedback by %(who)s")
        case "answer":
            text = later("answered %(answer)s by %(who)s")
        case "reject":
            text = later("rejected by %(who)s")
        case "cancel":
            text = later("cancelled by %(who)s")
    return say(text, who=who, answer=_answer(decision) if decision.verb == "answer" else "")


def status_line(request: Request, now: datetime) -> str:
    """Describe the status of a request in one line."""
    if request.state is State.PENDING:
        said = say("pending, expires %(when)s", when=time_left(request.expires_at, now))
        return f"{said}, {missing_approvals(request.missing_votes)}" if request.votes else said
    is_granted = (
        request.state is not State.EXPIRED and request.decision is not None and request.decision.verb == "approve"
    )
    execution = request.execution
    if is_granted:
        return f"{decided(request, now)}; {_progress(request, now)}"
    if execution is not None and execution.stopped:  # it may have had a part of its effect
        return f"{decided(request, now)}; {_stopped(execution)}"
    return decided(request, now)


def _answer(decision: Decision) -> str:
    answer = canonical.load(decision.answer or "{}").get("answer")
    if isinstance(answer, bool):
        return say("yes") if answer else say("no")
    return brief(answer, _COMMENT_ROOM)


def missing_approvals(count: int) -> str:
    """Return how many more reviewers must approve."""
    return say_n("%(num)s more reviewer must approve", "%(num)s more reviewers must approve", count)


def _progress(request: Request, now: datetime) -> str:
    execution = request.execution
    end = request.approval_expires_at
    match request.state:
        case State.APPROVED:
            what = say("not started yet")
            if execution is not None and execution.attempt == 0:
                what = _stopped(execution)
            elif execution is not None:
                failed = later("attempt %(attempt)s failed%(starts)s, it may be tried again")
                what = say(failed, attempt=execution.attempt, starts=_starts(execution))
            if request.held_until is not None and now < request.held_until:
                when = time_left(request.held_until, now)
                return say("can be undone, starts %(when)s at the earliest", when=when)
            if end is None:
                return what
            return say("%(what)s, the approval expires %(when)s", what=what, when=time_left(end, now))
        case State.RUNNING if execution is not None:
            return say(
                "running, started %(ago)s (attempt %(attempt)s%(starts)s)", ago=ago(execution.started_at, now),
                attempt=execution.attempt, starts=_starts(execution),
            )  # fmt: skip
        case State.UNKNOWN if execution is not None:
            which = say(" (start %(number)s)", number=execution.starts) if execution.starts > 1 else ""
            return say("started %(ago)s%(which)s, OUTCOME UNKNOWN", ago=ago(execution.started_at, now), which=which)
        case _:
            when = "" if execution is None or execution.finished_at is None else f" {ago(execution.finished_at, now)}"
            return say(str(request.state)) + when


def _stopped(execution: Execution) -> str:
    return say("started %(times)s, and stopped to ask something else", times=_times(execution.stopped))


def _starts(execution: Execution) -> str:
    """Return the number of starts as text, if the number of attempts does not imply it."""
    return say(", started %(times)s", times=_times(execution.starts)) if execution.stopped else ""


def _times(count: int) -> str:
    return say("once") if count == 1 else say("%(count)s times", count=count)


def outcome_rows(request: Request) -> Iterator[str]:
    """Yield the call's result or error, and who reported it if the program could not."""
    execution = request.execution
    if execution is None:
        return
    if execution.result is not None:
        result = canonical.load(execution.result).get("result")
        yield "  " + say("returned %(value)s", value=brief(mark_secrets(result), _RESULT_ROOM))
    if execution.error is not None:
        yield "  " + say("error %(value)s", value=brief(execution.error, _RESULT_ROOM))
    if execution.unresolved and request.state is State.UNKNOWN:
        yield "  " + say("an earlier start may have taken effect")
    if execution.resolved_by is not None:
        yield "  " + say("resolved by %(who)s", who=name_of(execution.resolved_by))


NARROW = 60
"""The narrowest width that a command uses, in columns. A call that fits there in full fits in every view."""

_NAME_ROOM, _VALUE_ROOM = 20, 40
_LIMIT = 2_000  # characters of a name or text, or bytes of a value
_FACT_ROOM = 15
_AFTER_NAME = 6  # columns that a fact reserves after a name, e.g. for how long ago; a run reserves none
TEXTS = (later("title"), later("summary"), later("effect"), later("prompt"), later("description"), later("rule"))
"""The fields of a request with texts of its program."""
_WORDS = (*TEXTS, "context")
_AUTHORS = frozenset({"description", "rule"})  # from the gate's code, unless a token asked


def headline(request: Request, limit: int = 100) -> str:
    """Return the effective call, or the question, on one line of about `limit` characters (60 or more)."""
    subject, gone = request.subject, _gone(request)
    if isinstance(subject, Question):
        return say("question %(text)s", text=question_line(request, limit))
    if gone is not None:
        return f"{quote_if_needed(subject.name, limit - len(gone) - 2)}({gone})"
    return summary.line(subject.name, request.effective.drawn, limit)


def question_line(request: Request, limit: int = 100) -> str:
    """Return a question on one line of about `limit` characters."""
    subject, gone = request.subject, _gone(request)
    text = subject.text if isinstance(subject, Question) else ""
    return brief(text, limit - 9) if gone is None else f"({gone})"


def reviewers(count: int) -> str:
    """Return the number of reviewers who must agree, as text."""
    return say_n("%(num)s reviewer", "%(num)s different reviewers", count)


def subject_rows(request: Request, *, width: int, full: bool = False) -> list[str]:
    """Render the call from its bound arguments, or the question; no row is wider than `width` columns."""
    subject, gone = request.subject, _gone(request)
    if isinstance(subject, Question):
        if gone is not None:
            return ["  " + say("the question was %(gone)s", gone=gone)]
        return _columned({say("question"): subject.text}, 2, width, full=full)
    call = request.effective
    if gone is None:
        rows = _columned(call.drawn, 4, width, full=full) or ["    " + say("(no arguments)")]
    else:
        rows = ["    " + say("arguments were %(gone)s", gone=gone)]
    tool = say("from %(tool)s", tool=quote_if_needed(call.tool, width - 14))
    return [f"  {quote_if_needed(call.name, _VALUE_ROOM)}", f"    {tool}", *rows]


def _gone(request: Request) -> str | None:
    """Return a row that says when a purge removed the subject, or None. No argument can imitate it: all have names."""
    return None if request.purged_at is None else say("removed on %(day)s", day=f"{request.purged_at:%Y-%m-%d}")


def is_whole(request: Request, width: int = NARROW) -> bool:
    """Return whether the default view, at this width or wider, shows the call or question in full."""
    return subject_rows(request, width=width) == subject_rows(request, width=width, full=True)


def _columned(tree: dict[str, Json], indent: int, width: int, *, full: bool) -> list[str]:
    """Lay out names and values in two columns, or values below their names if there is no room for two columns."""
    named, limit, rows = fields_of(tree) or {}, None if full else _LIMIT, list[str]()
    plain = {name: escape(name) for name in named if name.isidentifier() and columns(escape(name)) <= _NAME_ROOM}
    pad = max(map(columns, plain.values()), default=0)
    hang = indent + pad + 2 if width - indent - pad - 2 >= _VALUE_ROOM else indent + 2
    layout = summary.Layout(max(width - hang, _VALUE_ROOM), limit)
    for name, item in named.items():
        first, *rest = layout.rows(as_amount(name, item))
        if name in plain and hang > indent + 2:
            rows.append(f"{'':{indent}}{padded(plain[name], pad)}  {first}")
        else:
            # A name that contains spaces could look like a separate row, so it is quoted or gets a prefix mark.
            shown = [plain[name]] if name in plain else summary.Layout(width - indent, limit).rows(name)
            rows += [f"{'':{indent}}{row}" for row in shown] + [f"{'':{hang}}{first}"]
        rows += [f"{'':{hang}}{row}" for row in rest]
    return rows


def unverified(request: Request) -> list[str]:
    """Return the fields that only the requester vouches for: the prompt and similar, or all fields if a token asked.

    A token's holder can send any text as the gate's rule, description and facts; none of it comes from code here.
    """
    names = _WORDS if request.requester.issuer == TOKENS else ("summary", "effect", "prompt")
    return [name for name in names if getattr(request, name) is not None]


def is_authors(request: Request, name: str) -> bool:
    """Return whether a field of a request comes from the code of its gate, and not from what asked."""
    return name in _AUTHORS and request.requester.issuer != TOKENS


def program_words(request: Request, room: int) -> str:
    """Return the title and summary of a request, quoted on one line; empty if it has none.

    They come from the program, and the caller must mark them as such.
    """
    words = program_text(request)
    return brief(words, room) if words else ""


def program_text(request: Request) -> str:
    """Return the title and summary of a request as they are; nothing is escaped yet."""
    return ": ".join(filter(None, [request.title, request.summary]))


def effect_cautions(others: Sequence[Request], now: datetime) -> list[str]:
    """Describe the status of other requests with the same effect, one sentence each."""
    left_out = len(others) - _EFFECTS_SHOWN
    found = [say("the same effect: %(count)s earlier requests", count=left_out)] if left_out > 0 else []
    return found + [
        say("the same effect: %(id)s %(state)s", id=short(other.id), state=status_line(other, now))
        for other in others[-_EFFECTS_SHOWN:]
    ]


def _words_rows(request: Request, *, width: int, full: bool) -> list[str]:
    """Return the texts of a request by origin, unverified ones first; pages use the same headings."""
    unsure = {"title", "waits again", *unverified(request)}
    given = {name: getattr(request, name) for name in _WORDS if getattr(request, name) is not None}
    given |= {"context": mark_secrets(request.context)} if "context" in given else {}
    if request.returned is not None and request.state is State.PENDING:
        given["waits again"] = request.returned
    parts = {
        say("the program says, unverified:"): {name: text for name, text in given.items() if name in unsure},
        say("the gate's author says:"): {n: text for n, text in given.items() if n in _AUTHORS - unsure},
        say("context from the program:"): {n: text for n, text in given.items() if n in {"context"} - unsure},
    }
    return [
        row
        for head, words in parts.items() if words
        for row in (f"  {head}", *_columned({say(name): text for name, text in words.items()}, 4, width, full=full))
    ]  # fmt: skip


def cautions(request: Request) -> list[str]:
    """Return warnings about text in a request that could mislead a reader, one sentence each."""
    subject = request.subject
    named = {"run": request.run_id, "requester": str(request.requester), "key": request.key, "risk": request.risk}
    named |= {name: getattr(request, name) for name in _WORDS}
    if isinstance(subject, Question):
        found = [say("the question %(what)s", what=what) for what in summary.warnings(subject.text)]
    else:
        call, found = request.effective, list[str]()
        if request.requester.issuer == TOKENS and call.masked is not None:
            # A remote program masks by its own choice, and could hide everything that matters.
            count = masked_besides(call.shown, Redaction().mask(canonical.load(call.form)))
            found += [say_n(
                "the program hides %(num)s value that sayso would not mask by itself",
                "the program hides %(num)s values that sayso would not mask by itself", count,
            )] if count else []  # fmt: skip
        text = call.shown_text
        # JSON in ASCII without escapes has nothing misleading. Lists look at hundreds of calls: this halves their time.
        if not (text.isascii() and text.isprintable()) or "\\" in text:
            found += [say("argument %(what)s", what=what) for what in summary.warnings(call.shown)]
        named["function"] = subject.tool
    warned = [
        (name, what)
        for name, text in named.items() if text and not (type(text) is str and text.isascii() and text.isprintable())
        for what in summary.warnings(text)
    ]  # fmt: skip
    return found + [say("the %(name)s %(what)s", name=say(name), what=what) for name, what in warned]


def starts(request: Request) -> str | None:
    """Describe how often one approval can start the call, if not just once."""
    if request.idempotent:
        return say("again after each failure or unknown outcome: the program calls it idempotent")
    if request.retries:
        return say("up to %(count)s times, again after each failure", count=request.retries + 1)
    return None


def _circumstances(request: Request, now: datetime, room: int) -> list[str]:
    """Return rows that say who asked, when and in which run, and what an approval needs."""
    facts = [(say("asked by"), name_of(request.requester, room)), (say("asked"), ago(request.created_at, now))]
    facts.append((say("in run"), quote_if_needed(request.run_id, room + _AFTER_NAME)))
    if request.key is not None:
        facts.append((say("with the key"), quote_if_needed(request.key, room + _AFTER_NAME)))
    facts += [(say("on behalf of"), name_of(person, room)) for person in request.acts_for]
    if request.risk is not None:
        risk = quote_if_needed(request.risk, room)
        facts.append((say("risk"), say(risk) if risk in summary.RISKS else risk))
    facts += needs(request, now, room)
    if request.state is State.PENDING:
        left = time_left(request.expires_at, now)
        facts.append((say("expires"), say("%(when)s; no answer means no", when=left)))
    room = max([_FACT_ROOM, *(columns(name) + 1 for name, _ in facts)])
    return [f"  {padded(name, room)}{fact}" for name, fact in facts]


def needs(request: Request, now: datetime, room: int, away: str = "") -> Iterator[tuple[str, str]]:
    """Yield, as names and values, what an approval needs, who has approved, and who claimed it and is `away`."""
    wanted, may_start = request.quorum, starts(request)
    if wanted.count > 1 or wanted.roles:
        yield say("needs"), reviewers(wanted.count)
        yield from ((say("with the role"), quote_if_needed(role, room)) for role in sorted(wanted.roles))
    if may_start is not None:
        yield say("may start"), may_start
    escalation, at = request.escalation, request.escalated_at
    if escalation is not None and (at is not None or request.state is State.PENDING):
        due = request.created_at + escalation.after
        when = ago(at, now) if at is not None else time_left(due, now) if now < due else say("now")
        yield (say("escalates") if at is None else say("escalated"), when)
        yield from ((say("to the role"), quote_if_needed(role, room)) for role in sorted(escalation.roles))
        yield from ((say("to"), name_of(person, room)) for person in escalation.people)
    votes = request.votes if request.state is State.PENDING else ()
    yield from ((say("approved by"), attribution(vote, now)) for vote in votes)
    if request.claimed_by is not None and request.claimed_at is not None:
        times = filter(None, (ago(request.claimed_at, now), away))
        yield say("claimed by"), ", ".join((name_of(request.claimed_by, room), *times))


def ask_rows(
    request: Request, now: datetime, *, width: int, full: bool = False, same_effect: Sequence[Request] = ()
) -> list[str]:
    """Render all that a reviewer must see before a decision: the call, warnings, the program's texts, circumstances.

    `same_effect` has the other requests with the same effect (`Review.same_effect`).
    """
    rows, indent = subject_rows(request, width=width, full=full), len("  warning")
    for caution in (*cautions(request), *effect_cautions(same_effect, now)):
        # Continuation lines of a warning get a prefix mark, because quoted text could look like a separate row.
        first, *rest = summary.wrapped(caution, width - indent)
        rows += ["  " + say("warning: %(what)s", what=first[2:]), *(f"{'':{indent}}{row}" for row in rest)]
    rows += _words_rows(request, width=width, full=full)
    return rows + _circumstances(request, now, width - _FACT_ROOM - 2 - _AFTER_NAME)


_MOST_CHOICES = 50
_MOST_PARTS = 12, 6, 4, 2  # by level; references let a short schema have any number of parts
_ROOM = 60
_LONGEST = 200
_LIMITS = {
    "minimum": later("at least %(value)s"),
    "exclusiveMinimum": later("more than %(value)s"),
    "maximum": later("at most %(value)s"),
    "exclusiveMaximum": later("less than %(value)s"),
    "multipleOf": later("a multiple of %(value)s"),
    "minLength": later("length at least %(value)s"),
    "maxLength": later("length at most %(value)s"),
    "minItems": later("items at least %(value)s"),
    "maxItems": later("items at most %(value)s"),
    "pattern": later("matching %(value)s"),
}

_KINDS = frozenset({
    later("string"), later("number"), later("integer"), later("boolean"), later("array"), later("object"),
    later("date"),
})  # fmt: skip
_FORMATS = frozenset({later("date-time"), later("time"), later("duration"), later("path")})
_PLAIN = {
    "string": later("text"), "integer": later("whole number"), "boolean": later("true or false"),
    "array": later("list"), "object": later("named values"), "null": later("nothing (null)"),
    "date-time": later("date and time"),
}  # fmt: skip


def _kind(name: Any, *, plain: bool) -> str:
    if plain and name in _PLAIN:
        return say(_PLAIN[name])
    return say(str(name)) if name in _KINDS | _FORMATS else str(name)


def choices_of(schema: Schema) -> list[Any]:
    """Return the accepted values if they are a short list; otherwise an empty list."""
    found = cast("list[Any]", schema.resolved(schema.properties["answer"]).get("enum", []))
    return found if len(found) <= _MOST_CHOICES else []


def kinds_of(schema: Schema, *, plain: bool = False) -> dict[str, str]:
    """Describe each argument's accepted values and its author's text: `{"amount": "number, at most 500"}`.

    `plain` is for people who do not program: other words for types, and no regular expressions.
    """
    found: dict[str, str] = {}
    for name, part in schema.properties.items():
        kind, words = kind_of(schema, part, plain=plain), description_of(part)
        found[escape(name)] = f"{kind}: {words}" if words else kind
    return found


def description_of(part: Any) -> str:
    """Return the escaped `description` of a schema; empty if it has none."""
    description = cast("dict[str, Any]", part).get("description", "") if isinstance(part, dict) else ""
    words = escape(" ".join(str(description).split()))
    return words if len(words) <= _LONGEST else words[:_LONGEST] + "…"


def is_obvious(kind: str) -> bool:
    """Return whether a description only names a type, which the input field shows anyway."""
    return kind in {_kind(name, plain=True) for name in _KINDS}


def kind_of(schema: Schema, part: Any, depth: int = 0, *, plain: bool = False) -> str:
    """Describe the values that a schema accepts."""
    if depth > 3:
        return "…"
    part, most = schema.resolved(part), _MOST_PARTS[depth]
    if "enum" in part:
        return " | ".join(brief(choice, _ROOM) for choice in part["enum"][:_MOST_CHOICES])
    if "anyOf" in part or "oneOf" in part:
        parts = part.get("anyOf") or part["oneOf"]
        more = ["…"] if len(parts) > most else []
        return say(" or ").join([*(kind_of(schema, one, depth + 1, plain=plain) for one in parts[:most]), *more])
    if "const" in part:
        return brief(part["const"], _ROOM)
    named, in_words = part.get("type"), partial(_kind, plain=plain)
    kind = say(" or ").join(map(in_words, cast("list[Any]", named))) if isinstance(named, list) else in_words(named)
    if part.get("x-sayso-type") == "decimal":  # serialized as text, with a pattern that adds nothing for people
        return say("number")
    form = part.get("format") or part.get("contentEncoding")
    words = escape(in_words(form) if form else kind if named else say("anything"))
    if part.get("type") == "array" and isinstance(part.get("items"), dict):
        item = kind_of(schema, part["items"], depth + 1, plain=plain)
        words = say(later("list (each: %(kind)s)") if plain else later("array of %(kind)s"), kind=item)
    if part.get("type") == "object" and "properties" in part:
        named = list(part["properties"].items())
        inside = [f"{escape(name)}: {kind_of(schema, one, depth + 1, plain=plain)}" for name, one in named[:most]]
        fields = ", ".join(inside + (["…"] if len(named) > most else []))
        words = say(later("named values (%(fields)s)") if plain else later("object (%(fields)s)"), fields=fields)
    named = [name for name in _LIMITS if name in part and not (plain and name == "pattern")]
    limits = [say(_LIMITS[name], value=brief(part[name], _ROOM)) for name in named]
    limits += [say("in a special format")] if plain and "pattern" in part else []
    return ", ".join([words, *limits])
