"""What the model that asked is told of its request: what a person changed and wrote, and what not to do next.

One text for every agent, adapter and page. A person's words are quoted, bounded, and marked as theirs; what is masked
stays masked. The invariant: no text about a call that did not run, or whose outcome is unknown, invites to repeat it.
"""

from __future__ import annotations

from collections.abc import Iterator

from sayso.model import canonical
from sayso.model.redaction import Redaction, scrub
from sayso.model.request import Call, Request, State
from sayso.view.arguments import brief
from sayso.view.card import changed
from sayso.view.summary import name_of

__all__ = ["message", "not_run", "secrets_of_call"]

_WORDS_ROOM, _ERROR_ROOM, _MOST_CHANGES = 2_000, 2_000, 30
_FINAL = "This is final: do not repeat this {what}. Choose another way, or tell the user."


def not_run(name: str, reason: str, *, may_change: bool = False) -> str:
    """Return what to say of a call that did not run for a reason that no request tells."""
    advice = "Take this into account; call it again only if changed." if may_change else _FINAL.format(what="call")
    return f"{name} was not run: {reason}. {advice}"


def message(request: Request) -> str:
    """Return what the model is told; empty where a call was approved as it stood and nobody wrote anything."""
    parts = [*_approval(request), *_ending(request)]
    return _without_secrets(request, " ".join(parts))


def _approval(request: Request) -> Iterator[str]:
    decision = request.decision
    if decision is None or decision.verb not in {"approve", "answer"} or request.state is State.EXPIRED:
        return
    if request.edited is not None and request.purged_at is None:
        changes = [change.line() for change in changed(request.call, request.edited, request.redact)]
        listed = "; ".join(changes[:_MOST_CHANGES])
        more = f"; and {len(changes) - _MOST_CHANGES} more" if len(changes) > _MOST_CHANGES else ""
        yield (
            f"A person ({name_of(decision.by)}) changed the arguments before {request.call.name} ran: {listed}{more}."
            " The result is that of the changed call; do not repeat the call with the old arguments."
        )
    said = [*request.votes, decision] if not any(vote == decision for vote in request.votes) else request.votes
    for one in said:
        if one.comment:
            yield f"Note from {name_of(one.by)}: {_quoted(one.comment)}."


def _ending(request: Request) -> Iterator[str]:
    is_call = isinstance(request.subject, Call)
    name = request.subject.name if isinstance(request.subject, Call) else "The question"
    what, undone = ("call", f"{name} was not run") if is_call else ("question", f"{name} was not answered")
    final, execution = _FINAL.format(what=what), request.execution
    error = "" if execution is None or execution.error is None else brief(execution.error, _ERROR_ROOM)
    finder = None if execution is None or execution.resolved_by is None else name_of(execution.resolved_by)
    who, words = _said(request)
    match request.state:
        case State.PENDING:
            yield f"{undone} yet: it waits for a person ({request.id}). Do not repeat this {what}."
        case State.REJECTED:
            yield f"{undone}: {who} rejected it{words}. {final}"
        case State.FEEDBACK:
            yield f"{undone}: {who} sent it back{words}. Take these words into account; call it again only if changed."
        case State.CANCELLED:
            yield f"{undone}: {who} cancelled it{words}. {final}"
        case State.EXPIRED:
            why = "nobody decided in time" if request.decision is None else "its approval ended before it was used"
            yield f"{undone}: {why}, which is a no. {final}"
        case State.UNKNOWN:
            yield (
                f"{name} was started, and nobody knows whether it took effect: it may or may not have happened"
                f"{f' ({error})' if error else ''}. Do not repeat this call. Tell the user that somebody has to find"
                f" out ({request.id})."
            )
        case State.FAILED if finder is not None:
            yield f"{name} did not take effect, as {finder} found out{f' ({error})' if error else ''}."
        case State.FAILED:
            yield f"{name} was run, and failed{f': {error}' if error else ''}."
        case State.DONE if finder is not None:
            yield f"{name} took effect, as {finder} found out; its result is not known. Do not repeat this call."
        case _:
            pass  # the result, or the answer, says the rest


def _said(request: Request) -> tuple[str, str]:
    """Return who decided, and their words as a part of a sentence."""
    decision = request.decision
    if decision is None:
        return "nobody", ""
    who = "the program" if decision.is_withdrawal else name_of(decision.by)
    return who, f", in these words: {_quoted(decision.comment)}" if decision.comment else ""


def _quoted(words: str) -> str:
    return brief(words, _WORDS_ROOM)


def _without_secrets(request: Request, text: str) -> str:
    if not text or not isinstance(request.subject, Call) or request.purged_at is not None:
        return text
    calls = {call.digest: call for call in (request.subject, request.effective)}
    secrets = frozenset[str]().union(*(secrets_of_call(call, request) for call in calls.values()))
    return scrub(text, secrets) if secrets else text


def secrets_of_call(call: Call, request: Request) -> frozenset[str]:
    """Return what is masked in a stored call: by name, or by a redactor that is not here."""
    if call.masked is None:
        return frozenset()
    redaction, tree, masked = Redaction(request.redact), canonical.load(call.form), call.masked
    return redaction.secrets(tree) | {text for text in redaction.texts(tree) if text not in masked}
