"""A conversation about one request with the person at the terminal: show it, take a line, decide.

Every decision goes through `sayso.reviews.Review`; a refusal is shown and it asks again. The same conversation serves
a gate that blocks (`sayso.waiting.terminal`) and the command `sayso next`. Invariant: an approval is about what stood
on the screen, whole, when it was typed: it carries that call's fingerprint.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from sayso import clock, errors
from sayso.model.edit import is_target
from sayso.model.redaction import MASK
from sayso.model.request import Request, State
from sayso.model.schema import Schema, SchemaError
from sayso.model.text import escape
from sayso.reviews import Review, edited_call, shape_of
from sayso.view import card
from sayso.view.arguments import brief, value
from sayso.view.card import changed, stands
from sayso.view.hint import choices_of, kinds_of
from sayso.view.summary import in_short, short, token
from sayso.waiting.screen import Screen

__all__ = ["LEFT", "Talk"]

LEFT = "program gone: it ended, its run has no name, and nobody comes back for the decision"
"""What is said of a request for which `Review.program_is_gone`."""

_VERBS = {"a": "approve", "e": "edit", "r": "reject", "f": "feedback"}


class Talk:
    """One request on one screen.

    Args:
        screen: Where it is shown.
        review: How it is decided, and in whose name.
        request: What waits.
        leave: By which letters the person leaves it as it is, e.g. `{"d": "detach"}`.
        may_leave: Asked when one of them was typed.
    """

    def __init__(
        self, screen: Screen, review: Review, request: Request, leave: Mapping[str, str],
        may_leave: Callable[[], bool] = lambda: True,
    ) -> None:  # fmt: skip
        self._screen, self._review, self._leave, self._may_leave = screen, review, leave, may_leave
        self._request = request
        self._is_seen = False
        self._deeds: dict[str, Callable[[], Request | None]] = {
            "a": self._approve, "e": self._edit, "r": self._reject, "f": self._feedback, "v": self._view,
        }  # fmt: skip

    def hold(self) -> tuple[Request, str]:
        """Talk until the request is settled or left; return it as it stands and the letter by which it was left.

        Raises:
            Over: It was settled elsewhere while a line was awaited.
            Gone: Nobody is there any more.
            StoreError: The store failed.
        """
        self._show()
        self._screen.forget_typed()
        while True:
            typed = self._screen.ask(self._menu())
            letter = self._letter(typed)
            if letter in self._leave:
                if self._may_leave():
                    return self._request, letter
                continue
            try:
                after = self._deeds[letter]() if letter in self._deeds else self._other(typed)
            except (errors.DecisionRefusedError, errors.ConfigError, SchemaError) as refusal:
                after = self._refused(refusal)
            if after is not None and after.state is not State.PENDING:
                return after, ""

    # -- what is shown -----------------------------------------------------------------------------------------

    def _show(self) -> None:
        request, width = self._request, self._screen.width
        self._is_seen = card.is_whole(request, width)
        what = "a question" if request.kind == "question" else "a call"
        self._screen.say("", f"sayso  {what} waits for a person   {short(request.id)}")
        if self._review.program_is_gone(request):
            self._screen.say(f"  {LEFT}")
        self._screen.say(*card.ask_rows(request, clock.now(), width=width))
        for number, choice in enumerate(self._choices(), 1):
            self._screen.say(f"    {number}) {value(choice)}")

    @property
    def _verbs(self) -> dict[str, str]:
        verbs = {"r": "reject"} if self._request.kind == "question" else dict(_VERBS)
        return verbs | ({} if self._is_seen else {"v": "view the whole"}) | dict(self._leave)

    def _menu(self) -> str:
        words = "   ".join(f"{letter} {verb}" for letter, verb in self._verbs.items())
        hint = "" if self._request.kind == "call" else f"{self._hint()}   "
        return f"  {hint}{words}   (then enter)\n> "

    def _letter(self, typed: str) -> str:
        folded = typed.casefold()
        return next((letter for letter, verb in self._verbs.items() if folded in {letter, verb}), "")

    # -- calls -------------------------------------------------------------------------------------------------

    def _must_be_seen(self) -> bool:
        if not self._is_seen:
            self._screen.say("  not all of it has been shown; v shows the whole, then it can be approved")
        return self._is_seen

    def _view(self) -> None:
        rows = card.subject_rows(self._request, width=self._screen.width, full=True)
        self._is_seen = self._screen.page(rows) or self._is_seen

    def _approve(self) -> Request | None:
        if not self._must_be_seen():
            return None
        return self._voted(self._review.approve(self._request.id, seen=self._request.current_fingerprint))

    def _edit(self) -> Request | None:
        if not self._must_be_seen():
            return None
        request, before = self._request, self._request.effective
        given = self._new_values(shape_of(request), before.shown)
        edited = edited_call(request, given)
        found = changed(before, edited, request.redact)
        if not found:
            self._screen.say("  nothing was changed")
            return None
        self._screen.say(*(f"  {change.line()}" for change in found))
        if not self._is_meant(f"run {token(before.name)} with these arguments? [y/n] "):
            self._screen.say("  the changes were dropped, nothing was decided")
            return None
        return self._voted(self._review.approve(request.id, changes=given, seen=request.current_fingerprint))

    def _is_meant(self, question: str) -> bool:
        """Ask until there is a yes or a no: an edit that took its time is not lost by an empty line."""
        while (typed := self._screen.ask(question).casefold()) not in {"y", "yes", "n", "no"}:
            self._screen.say("  y runs it so, n drops the changes")
        return typed in {"y", "yes"}

    def _new_values(self, shape: Schema, shown: Mapping[str, Any]) -> dict[str, object]:
        """Ask for each argument; enter keeps it."""
        given: dict[str, object] = {}
        self._screen.say('  enter keeps a value, "" is the empty text')
        for name in shape.names:
            now = MASK if shown.get(name, MASK) == MASK else brief(shown[name], 60)
            while typed := self._screen.ask(f"{token(name)} [{now}]: "):
                try:
                    given[name] = shape.parse(name, "" if typed in {'""', "''"} else typed)
                    break
                except SchemaError as problem:
                    self._screen.say(f"  {escape(str(problem))}")
        return given

    def _voted(self, after: Request) -> Request:
        if after.state is State.PENDING:
            self._request = after
            self._screen.say(f"  your approval counts; {stands(after, clock.now())}")
        return after

    def _reject(self) -> Request:
        rest = "" if is_target(self._request) else "; enter for no reason"
        words = self._screen.ask(f"why? (the program is told{rest}) ")
        return self._review.reject(self._request.id, words or None, seen=self._request.current_fingerprint)

    def _feedback(self) -> Request | None:
        words = self._screen.ask("what should the program do instead? ")
        if not words:
            self._screen.say("  no words, nothing was sent back")
            return None
        return self._review.feedback(self._request.id, words, seen=self._request.current_fingerprint)

    # -- questions ---------------------------------------------------------------------------------------------

    def _choices(self) -> list[Any]:
        if self._request.kind == "call":
            return []
        found = choices_of(shape_of(self._request))
        # A choice that reads like another one's number could be mistaken for it: then they have no numbers.
        return [] if any(str(choice) in map(str, range(1, len(found) + 1)) for choice in found) else found

    def _hint(self) -> str:
        if self._choices():
            return "your answer, or its number"
        return f"your answer ({kinds_of(shape_of(self._request))['answer']})"

    def _other(self, typed: str) -> Request | None:
        """Take a line that is no letter of the menu: an answer, or a slip."""
        if self._request.kind == "call":
            self._screen.say(f"  please type one of {', '.join(self._verbs)}")
            return None
        if not typed:
            self._screen.say(f"  please type {self._hint()}; or one of {', '.join(self._verbs)}")
            return None
        text = typed[1:] if typed[:1] == "=" and self._letter(typed[1:].strip()) else typed
        return self._review.answer(self._request.id, self._answer(text))

    def _answer(self, text: str) -> object:
        choices = self._choices()
        named = [choice for choice in choices if (choice if isinstance(choice, str) else value(choice)) == text]
        if not named and text.isascii() and text.isdigit() and 0 < int(text) <= len(choices):
            return choices[int(text) - 1]
        return named[0] if named else shape_of(self._request).parse("answer", text)

    # -- refusals ----------------------------------------------------------------------------------------------

    def _refused(self, refusal: Exception) -> Request | None:
        """Say why a decision was not taken; return the request if it is settled by now."""
        self._screen.say(f"  error: {escape(in_short(str(refusal)))}")
        before, now = self._request, self._review.get(self._request.id)
        self._request = now
        if now.state is State.PENDING and now.current_fingerprint != before.current_fingerprint:
            self._show()
            self._screen.forget_typed()
        return now
