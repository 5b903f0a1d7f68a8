"""`reject`, `feedback`, `answer` and `cancel`: every decision but approve, which has a module of its own."""

from __future__ import annotations

from functools import partial

import click

from sayso import errors
from sayso.cli.bulk import check_given, decide_all
from sayso.cli.deeds import each, row
from sayso.cli.desk import Desk, as_json, decides
from sayso.cli.filters import Chosen, filters
from sayso.model.request import Request
from sayso.model.schema import SchemaError
from sayso.reviews import Review, schema_of
from sayso.terminal import PROGRAM_GONE

__all__ = ["answer", "cancel", "feedback", "reject"]


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

    return each([request_id], deed, as_json=as_json, rows=partial(_rows, left))


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

    return each([request_id], deed, as_json=as_json, rows=partial(_rows, left))


def _noted(review: Review, found: str, left: set[str]) -> Request:
    """Return a request, and note if nobody comes back for what is going to be decided about it."""
    request = review.get(found)
    if review.program_is_gone(request):
        left.add(request.id)
    return request


def _rows(left: set[str], request: Request) -> list[str]:
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
