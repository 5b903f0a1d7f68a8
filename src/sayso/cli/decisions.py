"""`approve`, `reject`, `feedback`, `answer`, `cancel`, `next`, and `claim`, `release`, `extend`, `resolve`.

Invariant: an approval carries the fingerprint of the call that this command read, so a call that changed in between is
refused. A refused request does not stop the others, and the exit code is the worst of all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Any, Literal

import click

from sayso import clock, errors
from sayso.cli.context import Chosen, Desk, as_json, decides, filters, read_span
from sayso.cli.errors import report
from sayso.cli.output import WRONG, code_of, complain, document, out, table
from sayso.errors import DecisionRefusedError, SaysoError
from sayso.model.edit import edited_call
from sayso.model.lifecycle import is_due
from sayso.model.request import Call, Request, State
from sayso.model.schema import SchemaError
from sayso.reviews import Review, schema_of
from sayso.terminal import PROGRAM_GONE, Dialog, Screen, Settled, TerminalClosed, is_there
from sayso.view import card
from sayso.view.card import changed, decided, stands
from sayso.view.document import entry_document, request_document
from sayso.view.summary import name_of, short, time_left

__all__ = [
    "NotSeenError",
    "ShortIdError",
    "answer",
    "approve",
    "cancel",
    "check_given",
    "claim",
    "decide_all",
    "each",
    "entry_document",
    "extend",
    "fault_document",
    "feedback",
    "next",
    "reject",
    "release",
    "request_document",
    "resolve",
    "row",
]


def fault_document(request_id: str, fault: errors.SaysoError, code: int) -> dict[str, Any]:
    """Return what went wrong with one of the requests that a command was given."""
    return {"id": request_id, "ok": False, "error": {"kind": type(fault).__name__, "message": str(fault), "exit": code}}


_SHORTEST = 4


class ShortIdError(DecisionRefusedError):
    """So few characters fit a request by chance."""

    def __init__(self, request_id: str) -> None:
        super().__init__(
            request_id,
            f"{request_id!r} is too short to decide by; nothing was decided. Give at least {_SHORTEST} characters of"
            " the id after `rq_`",
        )


def each(
    request_ids: Sequence[str], deed: Callable[[str], Request], *, as_json: bool,
    rows: Callable[[Request], Sequence[str]] | None = None,
) -> int:  # fmt: skip
    """Do `deed` to each, print what became of it, and return the exit code.

    Args:
        request_ids: Ids, or beginnings of ids.
        deed: A decision; returns the request after it.
        as_json: Print one JSON array instead of lines.
        rows: What to print of a request, instead of where it stands.
    """
    worst, documents = 0, list[object]()
    for request_id in request_ids:
        try:
            after = deed(_long_enough(request_id))
        except SaysoError as fault:
            worst = max(worst, report(fault))
            documents.append(fault_document(request_id, fault, code_of(fault)))
            continue
        documents.append({"id": after.id, "ok": True, "request": request_document(after)})
        if not as_json:
            out(*(rows(after) if rows is not None else [row(after)]))
    if as_json:
        document(documents)
    return worst


def _long_enough(request_id: str) -> str:
    if 0 < len(request_id.removeprefix("rq_")) < _SHORTEST:
        raise ShortIdError(request_id)
    return request_id


def row(request: Request) -> str:
    """Return the line that reports a request after a command."""
    return f"{short(request.id)} {stands(request, clock.now())}"


_WIDTH, _LINE = 96, 60
_ENDLESS = 1_000_000

Verb = Literal["approve", "reject"]


def check_given(ids: Sequence[str], chosen: Chosen, verb: Verb, *, is_sure: bool) -> None:
    """Raise `UsageError` unless requests are named either by their ids or by filters."""
    nothing = "nothing was decided"
    if ids and chosen:
        raise click.UsageError(f"give ids or filters, not both; {nothing}")
    if not ids and not chosen:
        raise click.UsageError(
            f"say which: sayso {verb} ID..., or a filter such as --run NAME, --tool NAME or --older-than 1h; {nothing}"
        )
    if ids and is_sure:
        raise click.UsageError(f"--yes goes with filters; an id is decided without a question; {nothing}")


def decide_all(
    desk: Desk, review: Review, chosen: Chosen, verb: Verb, decide: Callable[[Request], Request], *, name: str | None,
    is_sure: bool, as_json: bool,
) -> int:  # fmt: skip
    """List what waits and fits, ask, and decide each; return the exit code.

    Args:
        desk: Where.
        review: The person's door, in the name of who decides.
        chosen: What to look for.
        verb: What is going to be done.
        decide: Does it to one request as it was listed; refuses what changed since.
        name: What `--as` said.
        is_sure: Whether `--yes` was given.
        as_json: Print one JSON array instead of lines.
    """
    if not is_sure and (as_json or not is_there()):
        why = "--json asks nobody" if as_json else "there is no terminal to ask at"
        raise click.UsageError(f"{why}: look with `sayso ls` and the same filters, then say --yes; nothing was decided")
    found = list(review.list(state=State.PENDING, **chosen.as_keywords(name)))
    if not found and chosen.run is not None:
        desk.must_know(chosen.run)
    fit = [request for request in found if _why_not(request, verb) is None]
    for request in found:
        why_not = _why_not(request, verb)
        if why_not is not None:
            complain(f"left out: {short(request.id)} {why_not}")
    if not fit:
        complain("nothing that waits fits; nothing was decided")
        return WRONG if found else 0
    if not is_sure and not _is_wanted(review, fit, verb):
        complain("nothing was decided")
        return WRONG
    return max(_decided(fit, decide, verb, as_json=as_json), WRONG if len(fit) < len(found) else 0)


def _why_not(request: Request, verb: Verb) -> str | None:
    """Return why a request cannot be decided together with others; None where it can."""
    if verb == "reject":
        return None
    if request.kind == "question":
        return "is a question: `sayso answer` takes an answer of its own"
    if not card.is_whole(request):
        return "is too long for one view: read it with `sayso show --full` and approve it with --seen"
    return None


def _is_wanted(review: Review, requests: Sequence[Request], verb: Verb) -> bool:
    """Show all of them, and ask; everything but a yes is a no."""
    left = {request.id for request in requests if review.program_is_gone(request)}
    more = list(_in_full(requests)) if verb == "approve" else list[str]()
    for line in [*table(requests, cursor=None, left=left), *more]:
        click.echo(line, err=True)  # where the question stands, also if stdout goes elsewhere
    count = "this one" if len(requests) == 1 else f"these {len(requests):,}"
    try:
        return click.confirm(f"{verb} {count}?", err=True, prompt_suffix=" ")
    except click.Abort:  # Ctrl-C, or no more input
        complain("")
        return False


def _in_full(requests: Sequence[Request]) -> Iterator[str]:
    """Yield the calls that a row of the table may have shortened."""
    for request in requests:
        if card.headline(request, _LINE) != card.headline(request, _ENDLESS):
            yield short(request.id)
            yield from card.subject_rows(request, width=_WIDTH, full=True)


def _decided(
    requests: Sequence[Request], decide: Callable[[Request], Request], verb: Verb, *, as_json: bool
) -> int:  # fmt: skip
    shown, after = {request.id: request for request in requests}, list[Request]()

    def deed(request_id: str) -> Request:
        after.append(decide(shown[request_id]))
        return after[-1]

    code = each(list(shown), deed, as_json=as_json, rows=lambda request: [row(request)])
    open_still = sum(request.state is State.PENDING for request in after)
    told = [f"{len(after) - open_still:,} {'approved' if verb == 'approve' else 'rejected'}"]
    if open_still:
        told.append(f"{open_still:,} approved by you and waiting for others")
    if len(after) < len(shown):
        told.append(f"{len(shown) - len(after):,} not decided, see above")
    if not as_json:
        out("; ".join(told))
    return code


_SHORTEST_SEEN = 8


class NotSeenError(errors.DecisionRefusedError):
    """The call is too long for one view, and nothing says that the whole was looked at."""

    def __init__(self, request_id: str) -> None:
        super().__init__(
            request_id,
            f"request {request_id} is too long for one view; nothing was decided. Read it with `sayso show --full"
            f" {request_id}` and give the fingerprint that stands at its end: --seen FINGERPRINT",
        )


@click.command()
@click.argument("ids", nargs=-1, metavar="[ID...]")
@filters
@click.option("--yes", "is_sure", is_flag=True, help="With filters: do not ask.")
@click.option("--set", "settings", multiple=True, metavar="NAME=VALUE", help="Change an argument; repeatable.")
@click.option("--edit", is_flag=True, help="Change the arguments in $EDITOR.")
@click.option(
    "-m", "--message", "--comment", "message", metavar="TEXT", help="A note; the program and its model are told."
)
@click.option(
    "--again", is_flag=True, help="Let the call start although its effect is taken; -m says why that is right."
)
@click.option("--seen", metavar="FINGERPRINT", help="What you looked at; refused if it has changed since.")
@decides
@as_json
@click.pass_obj
def approve(
    desk: Desk, ids: tuple[str, ...], chosen: Chosen, is_sure: bool, settings: tuple[str, ...], edit: bool,
    message: str | None, again: bool, seen: str | None, name: str | None, roles: tuple[str, ...], as_json: bool,
) -> int:  # fmt: skip
    """Approve calls, as they stand or with changes. A value is read by its argument's type: --set amount=80.

    With filters in place of ids: list what waits and fits, ask once, and approve each as it was listed.
    """
    check_given(ids, chosen, "approve", is_sure=is_sure)
    if len(ids) != 1 and (settings or edit or again or seen is not None):
        raise click.UsageError("--set, --edit, --again and --seen are about one request; give one ID")
    if settings and edit:
        raise click.UsageError("give --set or --edit, not both")
    review = desk.review(name, roles)
    if not ids:

        def decide(shown: Request) -> Request:
            return review.approve(shown.id, comment=message, seen=shown.current_fingerprint)

        return decide_all(desk, review, chosen, "approve", decide, name=name, is_sure=is_sure, as_json=as_json)
    before: dict[str, Call] = {}

    def deed(request_id: str) -> Request:
        request = review.get(request_id)
        if request.kind == "call":
            before[request.id] = request.effective
        return _approve(review, request, settings, edit=edit, comment=message, again=again, seen=seen)

    return each(ids, deed, as_json=as_json, rows=partial(_rows, review, before))


def _approve(
    review: Review, request: Request, settings: tuple[str, ...], *, edit: bool, comment: str | None, again: bool,
    seen: str | None,
) -> Request:  # fmt: skip
    decide = partial(review.approve, request.id, comment=comment, again=again, seen=_fingerprint(request, seen))
    if request.state is not State.PENDING or request.kind != "call":
        return decide()  # the door says why not
    if edit:
        from sayso.cli.editor import edited

        return decide(arguments=edited(request))
    if seen is None and not card.is_whole(request):
        raise NotSeenError(request.id)
    if not settings:
        return decide()
    values = _values(request, settings)
    if edited_call(request, values).digest == request.effective.digest:
        raise errors.InvalidChangesError(
            request.id, ["--set changes nothing; leave it away to approve the call as it stands"]
        )
    return decide(changes=values)


def _fingerprint(request: Request, seen: str | None) -> str:
    """Return the whole fingerprint for the beginning of one that somebody copied."""
    current = request.current_fingerprint
    return current if seen is None or (len(seen) >= _SHORTEST_SEEN and current.startswith(seen)) else seen


def _values(request: Request, settings: tuple[str, ...]) -> Mapping[str, Any]:
    schema, values, problems = schema_of(request), dict[str, Any](), list[str]()
    for setting in settings:
        name, equals, text = setting.partition("=")
        if not equals:
            raise click.BadParameter(f"{setting!r} is not NAME=VALUE", param_hint="--set")
        if name in values:
            raise click.UsageError(f"--set gives {name!r} twice")
        try:
            values[name] = schema.parse(name, text)
        except SchemaError as error:
            problems += error.problems
    if problems:
        raise errors.InvalidChangesError(request.id, problems)
    return values


def _rows(review: Review, before: Mapping[str, Call], request: Request) -> list[str]:
    end = [PROGRAM_GONE] if review.program_is_gone(request) else []
    if request.state is not State.APPROVED:
        return [row(request), *end]  # one vote of several
    found = [change.line() for change in changed(before[request.id], request.effective, request.redact)]
    said = f"{short(request.id)} approved"
    rows = (
        [said, *(f"  {line}" for line in found)]
        if len(found) > 1
        else [f"{said}   {(found or [card.headline(request)])[0]}"]
    )
    return [*rows, *(end or ["waiting for the program to run it"])]


@click.command()
@click.argument("ids", nargs=-1, metavar="[ID...]")
@filters
@click.option("--yes", "is_sure", is_flag=True, help="With filters: do not ask.")
@click.option(
    "-m", "--message", "--comment", "message", metavar="TEXT", help="Why; the program and its model are told."
)
@decides
@as_json
@click.pass_obj
def reject(
    desk: Desk, ids: tuple[str, ...], chosen: Chosen, is_sure: bool, message: str | None, name: str | None,
    roles: tuple[str, ...], as_json: bool,
) -> int:  # fmt: skip
    """Say no to calls or questions. The same call in the same run stays refused.

    With filters in place of ids: list what waits and fits, ask once, and reject each as it was listed.
    """
    check_given(ids, chosen, "reject", is_sure=is_sure)
    review = desk.review(name, roles)
    if not ids:

        def decide(shown: Request) -> Request:
            return review.reject(shown.id, message, seen=shown.current_fingerprint)

        return decide_all(desk, review, chosen, "reject", decide, name=name, is_sure=is_sure, as_json=as_json)
    return each(ids, lambda request_id: review.reject(request_id, message), as_json=as_json)


@click.command()
@click.argument("request_id", metavar="ID")
@click.option(
    "-m", "--message", "--comment", "message", metavar="TEXT", required=True, help="What the program should do instead."
)
@decides
@as_json
@click.pass_obj
def feedback(desk: Desk, request_id: str, message: str, name: str | None, roles: tuple[str, ...], as_json: bool) -> int:
    """Send a call back with words to the program; it does not run."""
    review, left = desk.review(name, roles), set[str]()

    def deed(found: str) -> Request:
        return review.feedback(_noted(review, found, left).id, message)

    return each([request_id], deed, as_json=as_json, rows=partial(_decide_rows, left))


@click.command()
@click.argument("request_id", metavar="ID")
@click.argument("value", metavar="VALUE")
@click.option("-m", "--message", "--comment", "message", metavar="TEXT", help="A comment for the record.")
@decides
@as_json
@click.pass_obj
def answer(
    desk: Desk, request_id: str, value: str, message: str | None, name: str | None, roles: tuple[str, ...],
    as_json: bool,
) -> int:  # fmt: skip
    """Answer a question. VALUE is read by the question's type: a word, a number, yes or no, a choice, JSON."""
    review, left = desk.review(name, roles), set[str]()

    def deed(found: str) -> Request:
        request = _noted(review, found, left)
        return review.answer(request.id, _value(request, value), comment=message)

    return each([request_id], deed, as_json=as_json, rows=partial(_decide_rows, left))


def _noted(review: Review, found: str, left: set[str]) -> Request:
    """Return a request, and note if nobody comes back for what is going to be decided about it."""
    request = review.get(found)
    if review.program_is_gone(request):
        left.add(request.id)
    return request


def _decide_rows(left: set[str], request: Request) -> list[str]:
    return [row(request), *([PROGRAM_GONE] if request.id in left else [])]


def _value(request: Request, text: str) -> object:
    if request.kind == "call":
        return text  # the door says that a call takes no answer
    try:
        return schema_of(request).parse("answer", text)
    except SchemaError as error:
        raise errors.InvalidAnswerError(request.id, error.problems) from None


@click.command()
@click.argument("ids", nargs=-1, required=True, metavar="ID...")
@click.option(
    "-m", "--message", "--comment", "message", metavar="TEXT", help="Why; the program and its model are told."
)
@decides
@as_json
@click.pass_obj
def cancel(
    desk: Desk, ids: tuple[str, ...], message: str | None, name: str | None, roles: tuple[str, ...], as_json: bool
) -> int:
    """End the whole run at these requests, also where they were approved and not started."""
    review = desk.review(name, roles)
    return each(ids, lambda request_id: review.cancel(request_id, message), as_json=as_json)


@click.command()
@click.argument("request_id", metavar="ID")
@decides
@as_json
@click.pass_obj
def claim(desk: Desk, request_id: str, name: str | None, roles: tuple[str, ...], as_json: bool) -> int:
    """Take a request on: until it is released nobody else can decide it."""
    review = desk.review(name, roles)
    return each([request_id], review.claim, as_json=as_json, rows=_claimed)


def _claimed(request: Request) -> list[str]:
    who = "" if request.claimed_by is None else f" by {name_of(request.claimed_by)}"
    return [f"{short(request.id)} claimed{who}; nobody else can decide it until it is released"]


@click.command()
@click.argument("request_id", metavar="ID")
@click.option("--force", is_flag=True, help="Free what somebody else claimed; the journal says so.")
@decides
@as_json
@click.pass_obj
def release(desk: Desk, request_id: str, force: bool, name: str | None, roles: tuple[str, ...], as_json: bool) -> int:
    """Give a claimed request back."""
    review = desk.review(name, roles)
    return each(
        [request_id],
        lambda found: review.release(found, force=force),
        as_json=as_json,
        rows=lambda request: [f"{short(request.id)} released; anybody can decide it"],
    )


@click.command()
@click.argument("request_id", metavar="ID")
@click.argument("span", metavar="SPAN", callback=read_span)
@decides
@as_json
@click.pass_obj
def extend(
    desk: Desk, request_id: str, span: timedelta, name: str | None, roles: tuple[str, ...], as_json: bool
) -> int:
    """Let a pending request, or an approval that was not used yet, end SPAN from now: 90s, 24h, 7d."""
    review = desk.review(name, roles)
    return each([request_id], lambda found: review.extend(found, span), as_json=as_json, rows=_extended)


def _extended(request: Request) -> list[str]:
    if request.approval_expires_at is not None:
        return [f"{short(request.id)} the approval ends {time_left(request.approval_expires_at, clock.now())}"]
    return [f"{short(request.id)} expires {time_left(request.expires_at, clock.now())}"]


@click.command()
@click.argument("request_id", metavar="ID")
@click.option("--happened", is_flag=True, help="The call had its effect.")
@click.option("--did-not", "did_not", is_flag=True, help="It had none.")
@click.option("--force", is_flag=True, help="Also while it is recorded as running: its worker is surely gone.")
@click.option("-m", "--message", "--comment", "message", metavar="TEXT", help="How that was found out.")
@decides
@as_json
@click.pass_obj
def resolve(
    desk: Desk, request_id: str, happened: bool, did_not: bool, force: bool, message: str | None, name: str | None,
    roles: tuple[str, ...], as_json: bool,
) -> int:  # fmt: skip
    """Say whether a call had its effect that was started and whose outcome is unknown."""
    if happened is did_not:
        raise click.UsageError("say which: --happened or --did-not")
    review = desk.review(name, roles)
    return each(
        [request_id],
        lambda found: review.resolve(found, happened=happened, comment=message, force=force),
        as_json=as_json,
        rows=lambda request: [_resolved(request, happened=happened)],
    )


def _resolved(request: Request, *, happened: bool) -> str:
    said = "it happened" if happened else "it did not happen"
    then = "; the program may try again" if request.state == "approved" else ""
    return f"{short(request.id)} {request.state}: {said}{then}"


_LEAVE = {"s": "skip", "q": "quit"}


@click.command()
@decides
@click.pass_obj
def next(desk: Desk, name: str | None, roles: tuple[str, ...]) -> int:  # noqa: A001  the command's own name
    """Decide what waits, one after another, oldest first: approve, edit, reject, feedback, skip, quit."""
    if not is_there():
        raise click.UsageError("next talks with a person and needs a terminal; use ls, show, approve and reject here")
    review, skipped = desk.review(name, roles), 0
    cursor: str | None = None
    while True:
        page = review.list(state=State.PENDING, cursor=cursor, limit=1)
        if not page.requests:
            break
        after, letter = _talk(review, page.requests[0])
        if letter == "q":
            return 0
        if after.state is State.PENDING:
            skipped += 1
        if page.cursor is None:
            break
        cursor = page.cursor
    out("nothing more waits" if not skipped else f"nothing more waits; {skipped:,} skipped")
    return 0


def _talk(review: Review, request: Request) -> tuple[Request, str]:
    def is_over() -> bool:
        now = review.store.get(request.id)
        return now.state is not State.PENDING or is_due(now, clock.now())

    try:
        after, letter = Dialog(Screen(is_over), review, request, _LEAVE).run()
    except Settled:
        after, letter = review.get(request.id), ""
    except TerminalClosed:
        return review.get(request.id), "q"
    if not letter:
        out(f"{short(after.id)} {decided(after, clock.now())}")
    return after, letter
