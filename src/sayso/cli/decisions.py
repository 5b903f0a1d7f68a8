"""The commands that decide (`approve`, `reject`, `feedback`, `answer`, `cancel`, `next`) and related ones.

Invariant: an approval carries the fingerprint of a call that its person saw (listed here, in the editor, `--seen`),
else that of the call as it was asked, so it fails if the call has changed. A failure does not stop the other requests,
and the exit code is the worst of all. Requests selected by filters are first listed, and decided after one
confirmation; requests that were added or changed since are not decided.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Any, Literal, cast

import click

from sayso import clock, errors
from sayso.cli import context
from sayso.cli.context import WRONG, CliContext, as_span, confirm, decision, echo, echo_err, message_option, stop_row
from sayso.cli.policy import grant_rows
from sayso.gates.dialog import person_is_at_terminal
from sayso.model import canonical
from sayso.model.edit import edited_call, schema_of
from sayso.model.lifecycle import is_due, must_have_free_effect
from sayso.model.request import Call, Request, State, changed
from sayso.model.reviewer import name_of
from sayso.model.schema import SchemaError
from sayso.model.text import escape, hidden_in
from sayso.terminal import PROGRAM_GONE, Dialog, Screen, Settled, TerminalClosed
from sayso.view import full_text
from sayso.view.as_json import grant_document, request_document
from sayso.view.full_text import kinds_of
from sayso.view.summary import short, time_left

_WIDTH, _LINE, _ENDLESS = 96, 60, 1_000_000
_MIN_ID, _MIN_SEEN = 4, 8

Verb = Literal["approve", "reject"]


def _check_id_length(request_id: str) -> str:
    """Return an id's prefix; reject one so short that it could match a request by chance."""
    if 0 < len(request_id.removeprefix("rq_")) < _MIN_ID:
        raise errors.DecisionRefusedError(
            request_id,
            f"{request_id!r} is too short an id to decide on; nothing was decided. Give at least {_MIN_ID} characters"
            " of the id after `rq_`",
        )
    return request_id


def _status_rows(request: Request) -> list[str]:
    return [f"{short(request.id)} {full_text.status_line(request, clock.now())}"]


def for_each(
    cli: CliContext, request_ids: Sequence[str], action: Callable[[str], Request],
    rows: Callable[[Request], Sequence[str]] = _status_rows,
) -> int:  # fmt: skip
    """Apply `action` to each request, print the results, and return the exit code.

    Args:
        cli: The context of the command.
        request_ids: Ids, or prefixes of ids.
        action: Returns the request in its new state.
        rows: Renders a request; with `--json`, one array is printed instead.
    """
    worst, documents = 0, list[object]()
    for request_id in request_ids:
        try:
            after = action(_check_id_length(request_id))
        except errors.SaysoError as fault:
            worst = max(worst, context.report(fault))
            error = {"kind": type(fault).__name__, "message": str(fault), "exit": context.exit_code(fault)}
            documents.append({"id": request_id, "ok": False, "error": error})
            continue
        documents.append({"id": after.id, "ok": True, "request": request_document(after)})
        if not cli.as_json:
            echo(*rows(after))
    if cli.as_json:
        context.print_json(documents)
    return worst


# -- many at once --------------------------------------------------------------------------------------------------


def _check_selection(cli: CliContext, ids: Sequence[str], verb: Verb, *, is_sure: bool) -> None:
    """Raise `UsageError` unless requests are selected either by ids or by filters."""
    nothing = "nothing was decided"
    if ids and cli.filters:
        raise click.UsageError(f"give ids or filters, not both; {nothing}")
    if not ids and not cli.filters:
        raise click.UsageError(
            f"give ids (sayso {verb} ID...) or a filter such as --run NAME, --tool NAME or --older-than 1h; {nothing}"
        )
    if ids and is_sure:
        raise click.UsageError(f"--yes needs filters: requests given by id are decided without a question; {nothing}")


def _decide_all(cli: CliContext, verb: Verb, decide: Callable[..., Request], *, is_sure: bool) -> int:
    """List the matching pending requests, ask once, and decide each as it was listed; return the exit code."""
    if not is_sure and (cli.as_json or not person_is_at_terminal()):
        why = "--json cannot ask for confirmation" if cli.as_json else "there is no terminal to ask at"
        raise click.UsageError(
            f"{why}: check the list with `sayso ls` and the same filters, then add --yes; nothing was decided"
        )
    found = list(cli.review.list(state=State.PENDING, **cli.list_keywords()))
    if not found and "run" in cli.filters:
        cli.check_run(cli.filters["run"])
    selected: dict[str, Request] = {}
    for request in found:
        obstacle = _obstacle(request, verb)
        if obstacle is None:
            selected[request.id] = request
        else:
            echo_err(f"skipped: {short(request.id)} {obstacle}")
    if not selected:
        echo_err("no pending request matches; nothing was decided")
        return WRONG if found else 0
    if not is_sure and not _confirm_all(cli, list(selected.values()), verb):
        echo_err("nothing was decided")
        return WRONG
    after: list[Request] = []

    def action(request_id: str) -> Request:
        after.append(decide(request_id, seen=selected[request_id].current_fingerprint))
        return after[-1]

    code = for_each(cli, list(selected), action)
    if not cli.as_json:
        still_open = sum(request.state is State.PENDING for request in after)
        decided = len(after) - still_open
        counts = [f"{decided:,} {'approved' if verb == 'approve' else 'rejected'}"] if decided or not still_open else []
        counts += [f"{still_open:,} approved by you, waiting for more reviewers"] if still_open else []
        undecided = len(selected) - len(after)
        echo("; ".join([*counts, *([f"{undecided:,} not decided, see above"] if undecided else [])]))
    return max(code, WRONG if len(selected) < len(found) else 0)


def _obstacle(request: Request, verb: Verb) -> str | None:
    """Return why a request cannot be decided together with others; None if it can."""
    if verb == "reject":
        return None
    if request.kind == "question":
        return "is a question: use `sayso answer`"
    if not full_text.is_whole(request):
        return "is too long for one view: read it with `sayso show --full` and approve it with --seen"
    return None


def _confirm_all(cli: CliContext, requests: Sequence[Request], verb: Verb) -> bool:
    """Show all requests, and ask; any answer but yes is a no."""
    rows = context.table(requests, cursor=None, gone={one.id for one in requests if cli.review.program_is_gone(one)})
    for request in requests if verb == "approve" else ():  # what a row of the table may have shortened or omitted
        cautions = full_text.effect_cautions(cli.review.same_effect(request), clock.now())
        is_short = full_text.headline(request, _LINE) == full_text.headline(request, _ENDLESS)
        if not is_short or cautions:
            rows += [short(request.id), *([] if is_short else full_text.subject_rows(request, width=_WIDTH, full=True))]
            rows += [f"  {caution}" for caution in cautions]
    click.echo("\n".join(rows), err=True)  # visible with the question even if stdout is redirected
    return confirm(f"{verb} {'this one' if len(requests) == 1 else f'these {len(requests):,}'}?", prompt_suffix=" ")


_selection = (
    click.argument("ids", nargs=-1, metavar="[ID...]"),
    context.filter_options,
    click.option("--yes", "is_sure", is_flag=True, help="With filters: do not ask for confirmation."),
)


# -- approve -------------------------------------------------------------------------------------------------------


@decision(
    *_selection,
    click.option(
        "--set",
        "settings",
        multiple=True,
        metavar="NAME=VALUE",
        help="Change an argument; the value is parsed by its type; repeatable.",
    ),
    click.option("--edit", is_flag=True, help="Change the arguments in $EDITOR."),
    message_option("A note for the program and its model."),
    click.option(
        "--again", is_flag=True, help="Start it although another call has the same effect; needs -m with a reason."
    ),
    click.option(
        "--seen",
        metavar="FINGERPRINT",
        help="The fingerprint you saw (8 characters or more); refused if it changed. Needed if a reviewer changed it.",
    ),
    click.option("--alike", is_flag=True, help="Also grant similar calls: the same fields, numbers no larger."),
    click.option("--count", type=click.IntRange(1, 10_000), metavar="N", help="With --alike: how many more calls."),
    click.option("--for", "lasts", metavar="SPAN", type=as_span, help="With --alike: how long it lasts: 1h, 7d."),
    click.option("--here", is_flag=True, help="With --alike: only in this run."),
    click.option("--without", multiple=True, metavar="FIELD", help="With --alike: ignore this field; repeatable."),
    click.option("--at-most", multiple=True, metavar="FIELD=NUMBER", help="With --alike: an upper bound; repeatable."),
    click.option("--exactly", multiple=True, metavar="FIELD", help="With --alike: keep this number equal; repeatable."),
)
def approve(
    cli: CliContext, ids: tuple[str, ...], is_sure: bool, settings: tuple[str, ...], edit: bool,
    message: str | None, again: bool, seen: str | None, alike: bool, **terms: Any,
) -> int:  # fmt: skip
    """Approve calls as proposed or with changes, such as --set amount=80.

    With filters instead of ids: list the matching requests, ask once, and approve each as listed.
    """
    _check_selection(cli, ids, "approve", is_sure=is_sure)
    if len(ids) != 1 and (settings or edit or seen is not None):
        raise click.UsageError("--set, --edit and --seen need exactly one ID")
    if settings and edit:
        raise click.UsageError("give --set or --edit, not both")
    if alike or any(terms.values()):
        return _grant(cli, ids, settings, message, seen, is_plain=alike and not (edit or again), **terms)
    review = cli.review
    if not ids:
        decide = partial(review.approve, comment=message, again=again)
        return _decide_all(cli, "approve", decide, is_sure=is_sure)
    before: dict[str, Call] = {}

    def action(request_id: str) -> Request:
        request = review.get(request_id)
        decided = partial(review.approve, request.id, comment=message, seen=_fingerprint(request, seen), again=again)
        if request.kind == "call":
            before[request.id] = request.effective
        if request.kind != "call" or request.state is not State.PENDING:
            return decided()  # the store refuses it with a reason
        if edit:
            # The editor shows the call as it is now.
            shown = decided if seen is not None else partial(decided, seen=request.current_fingerprint)
            return shown(arguments=_edit_arguments(request))
        if seen is None and not full_text.is_whole(request):
            raise _too_long_error(request.id)
        return decided(changes=_changes(request, settings)) if settings else decided()

    return for_each(cli, ids, action, partial(_approved_rows, cli, before))


def _too_long_error(request_id: str) -> errors.DecisionRefusedError:
    return errors.DecisionRefusedError(
        request_id,
        f"request {request_id} is too long for one view; nothing was decided. Read it with `sayso show --full"
        f" {request_id}` and add the fingerprint printed at its end: --seen FINGERPRINT",
    )


def _grant(
    cli: CliContext, ids: Sequence[str], settings: tuple[str, ...], message: str | None, seen: str | None, *,
    is_plain: bool, count: int | None, lasts: timedelta | None, here: bool, without: tuple[str, ...],
    at_most: tuple[str, ...], exactly: tuple[str, ...],
) -> int:  # fmt: skip
    if len(ids) != 1 or count is None or lasts is None or not is_plain:
        raise click.UsageError(
            "--alike needs one ID, --count and --for, and cannot be combined with --edit or --again; --here,"
            " --without, --at-most and --exactly need --alike"
        )
    request, bounds = cli.review.get(_check_id_length(ids[0])), dict[str, float]()
    if seen is None and not full_text.is_whole(request):
        raise _too_long_error(request.id)
    for bound in at_most:
        name, _, number = bound.partition("=")
        try:
            bounds[name] = float(number)
        except ValueError:
            raise click.BadParameter(f"{bound!r} is not FIELD=NUMBER", param_hint="--at-most") from None
    grant = cli.review.grant(
        request.id, count=count, lasts=lasts, comment=message, seen=_fingerprint(request, seen), here=here,
        changes=_changes(request, settings) if settings else None, without=without, at_most=bounds, exactly=exactly,
    )  # fmt: skip
    after = cli.review.get(request.id)
    content = {"request": request_document(after), "grant": grant_document(grant)}
    return cli.answer(content, [*_status_rows(after), *grant_rows(grant)])


def _fingerprint(request: Request, seen: str | None) -> str:
    """Return the full fingerprint for a copied prefix of it; without one, that of the call as it was asked.

    The caller may know the call from its program's notice, and another reviewer may have changed it since.
    """
    current = request.current_fingerprint
    if seen is None:
        return request.fingerprint
    return current if len(seen) >= _MIN_SEEN and current.startswith(seen) else seen


def _changes(request: Request, settings: tuple[str, ...]) -> Mapping[str, Any]:
    schema, values, problems = schema_of(request), dict[str, Any](), list[str]()
    for setting in settings:
        name, equals, text = setting.partition("=")
        if not equals:
            raise click.BadParameter(f"{setting!r} is not NAME=VALUE", param_hint="--set")
        if name in values:
            raise click.UsageError(f"--set names {name!r} twice")
        try:
            values[name] = schema.parse(name, text)
        except SchemaError as error:
            problems += error.problems
    if not problems and edited_call(request, values).digest == request.effective.digest:
        problems = ["--set changes nothing; leave it out to approve the call as proposed"]
    if problems:
        raise errors.InvalidChangesError(request.id, problems)
    return values


def _approved_rows(cli: CliContext, before: Mapping[str, Call], request: Request) -> list[str]:
    gone = [PROGRAM_GONE] if cli.review.program_is_gone(request) else []
    if request.state is not State.APPROVED:
        return [*_status_rows(request), *gone]  # more votes are needed
    changes = [change.line() for change in changed(before[request.id], request.effective, request.redact)]
    head = f"{short(request.id)} approved"
    if len(changes) > 1:
        rows = [head, *(f"  {change}" for change in changes)]
    else:
        rows = [f"{head}   {(changes or [full_text.headline(request)])[0]}"]
    return [*rows, *(gone or _what_happens_next(cli, request))]


def _what_happens_next(cli: CliContext, request: Request) -> list[str]:
    """Return rows that say whether an approved call can start now, and if not, why."""
    if (stop := cli.review.stopped()) is not None:
        return [f"{stop_row(stop)}; it can start after `sayso go`"]
    others = () if request.effect is None else cli.review.store.by_effect(request.effect)
    now = clock.now()
    try:
        must_have_free_effect(request, others, now)
    except errors.EffectTakenError as taken:
        cautions = full_text.effect_cautions([one for one in others if one.id == taken.other], now)
        return [*(f"warning: {one}" for one in cautions), "it does not start until that has ended without its effect"]
    return ["waiting for the program to run it"]


# -- arguments in $EDITOR ------------------------------------------------------------------------------------------
# The editor gets only masked arguments, with hidden characters as JSON escapes, below a few comment lines.


def _edit_arguments(request: Request) -> Mapping[str, Any]:
    """Return the arguments that the person saved, valid for the function; on a terminal, repeat until they are.

    Raises:
        InvalidChangesError: The arguments are invalid, or nothing was saved.
        ConfigError: The editor could not be run, or failed.
    """
    call = request.effective
    heads = [f"{escape(call.name)}: save and close to approve these arguments; *** keeps the hidden value."]
    heads += [f"  {name}: {kind}" for name, kind in kinds_of(schema_of(request)).items()]
    text = json.dumps(call.arguments, indent=2, ensure_ascii=False)
    for name in hidden_in(text):
        character = chr(int(name.removeprefix("U+"), 16))
        text = text.replace(character, json.dumps(character)[1:-1])
    text = "".join(f"// {head}\n" for head in heads) + text + "\n"
    while True:
        written = _open_editor(request, text)
        if written is None:
            raise errors.InvalidChangesError(request.id, ["nothing was saved in the editor"])
        try:
            arguments = _parse_edited(request, written)
            edited_call(request, arguments=arguments)
        except errors.InvalidChangesError as refusal:
            if not (sys.stdin.isatty() and sys.stdout.isatty()):
                raise
            echo_err(f"error: {escape(str(refusal))}")
            if not click.confirm("edit again?", default=True, err=True):
                raise
            text = written
        else:
            return arguments


def _open_editor(request: Request, text: str) -> str | None:
    try:
        return click.edit(text, extension=".json")
    except UnicodeDecodeError:
        raise errors.InvalidChangesError(request.id, ["what the editor saved is not UTF-8"]) from None
    except (click.ClickException, ValueError) as error:  # the latter for unbalanced quotes in EDITOR
        raise errors.ConfigError(
            f"the editor failed ({error}); set EDITOR to another one, or change arguments with --set NAME=VALUE"
        ) from error


def _parse_edited(request: Request, written: str) -> dict[str, Any]:
    # Comment lines become blank lines, so that line numbers in error messages match the editor's.
    body = re.sub(r"\A(?:[ \t]*(?://[^\n]*)?\n)+", lambda heads: "\n" * heads[0].count("\n"), written)
    try:
        arguments = canonical.strict_loads(body)
    except ValueError as error:
        raise errors.InvalidChangesError(request.id, [f"the text is not valid JSON: {error}"]) from None
    if not isinstance(arguments, dict):
        raise errors.InvalidChangesError(request.id, ["the text must be a JSON object with the arguments"])
    return cast("dict[str, Any]", arguments)


# -- the other decisions -------------------------------------------------------------------------------------------


@decision(*_selection, message_option("The reason, for the program and its model."))
def reject(cli: CliContext, ids: tuple[str, ...], is_sure: bool, message: str | None) -> int:
    """Reject calls or questions. The same call in the same run stays rejected.

    With filters instead of ids: list the matching requests, ask once, and reject each as listed.
    """
    _check_selection(cli, ids, "reject", is_sure=is_sure)
    review = cli.review
    if not ids:
        return _decide_all(cli, "reject", partial(review.reject, comment=message), is_sure=is_sure)
    return for_each(cli, ids, partial(review.reject, comment=message))


@decision(
    click.argument("request_id", metavar="ID"),
    message_option("What the program should do instead.", required=True),
)
def feedback(cli: CliContext, request_id: str, message: str) -> int:
    """Send a call back to the program with a message; the call does not run."""
    return _decide_one(cli, request_id, lambda request: cli.review.feedback(request.id, message))


@decision(
    click.argument("request_id", metavar="ID"),
    click.argument("value", metavar="VALUE"),
    message_option("A comment for the record."),
)
def answer(cli: CliContext, request_id: str, value: str, message: str | None) -> int:
    """Answer a question. VALUE has the question's type: a text, a number, yes or no, a choice, or JSON."""

    def decide(request: Request) -> Request:
        parsed: object = value
        if request.kind == "question":  # the store refuses a call with a reason
            try:
                parsed = schema_of(request).parse("answer", value)
            except SchemaError as error:
                raise errors.InvalidAnswerError(request.id, error.problems) from None
        return cli.review.answer(request.id, parsed, comment=message)

    return _decide_one(cli, request_id, decide)


def _decide_one(cli: CliContext, request_id: str, decide: Callable[[Request], Request]) -> int:
    gone: list[str] = []

    def action(found: str) -> Request:
        request = cli.review.get(found)
        gone.extend([PROGRAM_GONE] if cli.review.program_is_gone(request) else [])
        return decide(request)

    return for_each(cli, [request_id], action, lambda request: [*_status_rows(request), *gone])


@decision(
    click.argument("ids", nargs=-1, required=True, metavar="ID..."),
    message_option("The reason, for the program and its model."),
)
def cancel(cli: CliContext, ids: tuple[str, ...], message: str | None) -> int:
    """Cancel requests, even approved ones that have not started, and end their runs."""
    return for_each(cli, ids, partial(cli.review.cancel, comment=message))


# -- related commands ----------------------------------------------------------------------------------------------


@decision(click.argument("request_id", metavar="ID"))
def claim(cli: CliContext, request_id: str) -> int:
    """Claim a request: nobody else can decide it until you release it."""

    def rows(request: Request) -> list[str]:
        by = "" if request.claimed_by is None else f" by {name_of(request.claimed_by)}"
        rest = "; others can add the further approvals that it needs" if request.missing_votes > 1 else ""
        return [f"{short(request.id)} claimed{by}; nobody else can decide it until you release it{rest}"]

    return for_each(cli, [request_id], cli.review.claim, rows)


@decision(
    click.argument("request_id", metavar="ID"),
    click.option("--force", is_flag=True, help="Release what somebody else claimed; the journal records it."),
)
def release(cli: CliContext, request_id: str, force: bool) -> int:
    """Release a claimed request."""
    action = partial(cli.review.release, force=force)
    return for_each(cli, [request_id], action, lambda one: [f"{short(one.id)} released; any reviewer can decide it"])


@decision(click.argument("request_id", metavar="ID"), click.argument("span", metavar="SPAN", type=as_span))
def extend(cli: CliContext, request_id: str, span: timedelta) -> int:
    """Let a pending request, or an unused approval, expire SPAN from now: 90s, 24h, 7d."""

    def rows(request: Request) -> list[str]:
        ends, what = request.approval_expires_at, "the approval expires"
        if ends is None:
            ends, what = request.expires_at, "expires"
        return [f"{short(request.id)} {what} {time_left(ends, clock.now())}"]

    return for_each(cli, [request_id], lambda found: cli.review.extend(found, span), rows)


@decision(
    click.argument("request_id", metavar="ID"),
    click.option("--happened", is_flag=True, help="The call had its effect."),
    click.option("--did-not", "did_not", is_flag=True, help="The call had no effect."),
    click.option("--force", is_flag=True, help="Even if it is recorded as running, because its worker has ended."),
    click.option(
        "--start",
        type=click.IntRange(min=1),
        default=1,
        metavar="N",
        help="The start that you examined, if the call was started again: `sayso show` counts them.",
    ),
    message_option("How you found out."),
)
def resolve(
    cli: CliContext, request_id: str, happened: bool, did_not: bool, force: bool, start: int, message: str | None
) -> int:  # fmt: skip
    """Record whether a call with an unknown outcome had its effect."""
    if happened is did_not:
        raise click.UsageError("give either --happened or --did-not")

    def rows(request: Request) -> list[str]:
        outcome = "it happened" if happened else "it did not happen"
        then = "; the program may try again" if request.state is State.APPROVED else ""
        return [f"{short(request.id)} {request.state}: {outcome}{then}"]

    action = partial(cli.review.resolve, happened=happened, comment=message, force=force, start=start)
    return for_each(cli, [request_id], action, rows)


# -- one after another ---------------------------------------------------------------------------------------------


@click.command()
@context.reviewer_options
@click.pass_obj
def next(cli: CliContext) -> int:  # noqa: A001  the command's own name
    """Decide pending requests one by one, oldest first: approve, edit, reject, feedback, skip, quit."""
    if not person_is_at_terminal():
        raise click.UsageError("`sayso next` needs a terminal; use ls, show, approve and reject instead")
    skipped, cursor = 0, None
    while True:
        page = cli.review.list(state=State.PENDING, cursor=cursor, limit=1)
        for request in page.requests:

            def is_over(request_id: str = request.id) -> bool:
                now = cli.store.get(request_id)
                return now.state is not State.PENDING or is_due(now, clock.now())

            try:
                after, key = Dialog(Screen(is_over), cli.review, request, {"s": "skip", "q": "quit"}).run()
            except Settled:
                after, key = cli.review.get(request.id), ""
            except TerminalClosed:
                return 0
            if key == "q":
                return 0
            if not key:
                echo(f"{short(after.id)} {full_text.decided(after, clock.now())}")
            skipped += after.state is State.PENDING
        cursor = page.cursor
        if cursor is None:
            break
    echo("no more pending requests" if not skipped else f"no more pending requests; {skipped:,} skipped")
    return 0
