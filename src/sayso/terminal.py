"""The terminal dialog with a reviewer: it prints requests to stderr and reads decisions from stdin.

stdout belongs to the program and is never written to. Invariant: a line typed before a request was shown does not
answer it.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from sayso import clock, errors
from sayso.effects import in_forked_child
from sayso.gates.stderr import INDENT, print_rows, rows_when_left, say_what_waits
from sayso.model.canonical import Json, display
from sayso.model.edit import edited_call, is_target, schema_of
from sayso.model.ids import is_random
from sayso.model.redaction import MASK
from sayso.model.rendering import as_amount, brief, quote_if_needed, value
from sayso.model.request import Request, State, changed
from sayso.model.schema import SchemaError
from sayso.model.text import escape
from sayso.reviews import Review
from sayso.stores.base import Store
from sayso.view import full_text
from sayso.view.full_text import choices_of, decided, kinds_of, status_line
from sayso.view.summary import in_short, short

_POLL = 0.1
_WIDEST = 100
_LONGEST_LINE = 65_536


class Settled(Exception):
    """The request was decided elsewhere, or its time was over, while the screen waited for a line."""


class TerminalClosed(Exception):
    """Nobody is at the terminal any more: its input ended, or it was closed."""


class Screen:
    """The terminal of this process.

    Args:
        is_over: Called about ten times a second while a line is awaited; True ends the wait.
    """

    def __init__(self, is_over: Callable[[], bool]) -> None:
        self._is_over = is_over

    @property
    def width(self) -> int:
        """The maximum number of columns of a row."""
        return max(46, min(shutil.get_terminal_size().columns - 1, _WIDEST))

    def print_rows(self, *rows: str) -> None:
        """Print rows.

        Raises:
            TerminalClosed: The terminal cannot be written to.
        """
        self._write("".join(f"{row}\n" for row in rows or ("",)))

    def _write(self, text: str) -> None:
        try:
            sys.stderr.write(text)
            sys.stderr.flush()
        except (AttributeError, OSError, ValueError) as error:
            raise TerminalClosed from error

    @staticmethod
    def discard_input() -> None:
        """Discard the input of a terminal so far: it was typed before the request was shown."""
        global _surplus  # noqa: PLW0603  as in `read_line`
        if sys.platform == "win32":
            return
        import termios

        with suppress(OSError, ValueError, termios.error):
            termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)  # raises if it is a pipe
            _surplus = b""

    def ask(self, prompt: str) -> str:
        """Return a line that the person typed, without surrounding white space.

        Raises:
            Settled: `is_over` returned True.
            TerminalClosed: The input has ended, or a line is too long.
        """
        while True:
            self._write(prompt)
            try:
                typed = read_line(self._is_over)
            except (EOFError, OSError, ValueError) as error:
                self.print_rows()  # what follows begins a new row: Ctrl-D leaves the cursor behind the prompt
                raise TerminalClosed from error
            if typed is None:
                self.discard_input()
                self.print_rows()
                raise Settled
            with suppress(UnicodeDecodeError):
                return typed.decode(sys.stdin.encoding or "utf-8").strip()
            self.print_rows("that is not valid text in this terminal's encoding; try again")

    def page(self, rows: Sequence[str]) -> bool:
        """Print rows one screen at a time; return whether the person saw all of them."""
        height = max(shutil.get_terminal_size().lines - 2, 5)
        for start in range(0, len(rows), height):
            self.print_rows(*rows[start : start + height])
            remaining = len(rows) - start - height
            if remaining <= 0:
                break
            wish = self.ask(f"-- {remaining:,} more lines: enter continues, e prints to the end, q stops -- ")
            if wish.lower().startswith("q"):
                return False
            if wish.lower().startswith("e"):
                self.print_rows(*rows[start + height :])
                break
        return True


_surplus = b""  # what a pipe has brought after the last line that was read


def read_line(is_over: Callable[[], bool]) -> bytes | None:
    """Return the next line of stdin, without its end; None once `is_over`, which is called about ten times a second.

    The caller has the `turn`.

    Raises:
        EOFError: Stdin has ended, or a line is too long.
        OSError: Stdin cannot be read; `ValueError` if it is closed.
    """
    global _surplus  # noqa: PLW0603  the turn lets one thread at a time read
    fd = sys.stdin.fileno()
    while b"\n" not in _surplus:
        is_ready = False
        while not is_ready:
            is_ready = _has_input(fd)
            if is_over():
                return None  # input that is available is left for the next read
        piece = os.read(fd, 4096) if sys.platform != "win32" else sys.stdin.readline().encode(sys.stdin.encoding)
        if not piece and not _surplus:
            raise EOFError
        _surplus += piece or b"\n"
        if len(_surplus) > _LONGEST_LINE and b"\n" not in _surplus:
            raise EOFError(f"a line of more than {_LONGEST_LINE:,} bytes")
    line, _, _surplus = _surplus.partition(b"\n")
    return line


def _has_input(fd: int) -> bool:
    if sys.platform == "win32":
        return True  # `select` accepts only sockets there, so reading blocks
    if os.isatty(fd) and os.tcgetpgrp(fd) != os.getpgrp():
        time.sleep(_POLL)  # a read by a background process would stop it (SIGTTIN)
        return False
    return bool(select.select([fd], [], [], _POLL)[0])


PROGRAM_GONE = "program ended: its run has no name, so no program will fetch the decision"
"""The note on a request for which `Review.program_is_gone` is true."""

_CALL_VERBS = {"a": "approve", "e": "edit", "r": "reject", "f": "feedback"}


class Dialog:
    """The dialog about one request on one screen.

    Args:
        screen: Where the request is shown.
        review: Records the decision, in its reviewer's name.
        request: The request.
        leave: The letters that leave the request undecided, with their verbs, e.g. `{"d": "detach"}`.
        may_leave: Called when the person types one of these letters; False keeps the dialog open.
    """

    def __init__(
        self, screen: Screen, review: Review, request: Request, leave: Mapping[str, str],
        may_leave: Callable[[], bool] = lambda: True,
    ) -> None:  # fmt: skip
        self._screen, self._review, self._leave, self._may_leave = screen, review, leave, may_leave
        self._request = request
        self._is_seen, self._is_gone = False, False

    def run(self) -> tuple[Request, str]:
        """Ask until the request is settled or left. Return it, and the letter by which the person left it or "".

        Raises:
            Settled: The request was decided elsewhere while a line was awaited.
            TerminalClosed: Nobody is at the terminal any more.
            StoreError: The store failed.
        """
        self._show()
        self._screen.discard_input()
        while True:
            words = "   ".join(f"{letter} {verb}" for letter, verb in self._verbs.items())
            hint = "" if self._request.kind == "call" else f"{self._hint()}   "
            typed = self._screen.ask(f"  {hint}{words}   (then enter)\n> ")
            letter = self._letter(typed)
            if letter in self._leave:
                if self._may_leave():
                    return self._request, letter
                continue
            try:
                after = self._act(letter, typed)
            except (errors.DecisionRefusedError, errors.ConfigError, SchemaError) as refusal:
                self._screen.print_rows(f"  error: {escape(in_short(str(refusal)))}")
                before, after = self._request, self._review.get(self._request.id)
                self._request = after
                if after.state is State.PENDING and after.current_fingerprint != before.current_fingerprint:
                    self._show()
                    self._screen.discard_input()
            if after is not None and after.state is not State.PENDING:
                return after, ""

    # -- what is shown -----------------------------------------------------------------------------------------

    def _show(self) -> None:
        request, width = self._request, self._screen.width
        self._is_seen = full_text.is_whole(request, width)
        what = "a question" if request.kind == "question" else "a call"
        self._screen.print_rows("", f"sayso  {what} waits for a person   {short(request.id)}")
        self._is_gone = self._review.program_is_gone(request)
        if self._is_gone:
            self._screen.print_rows(f"  {PROGRAM_GONE}")
        same_effect = self._review.same_effect(request)
        self._screen.print_rows(*full_text.ask_rows(request, clock.now(), width=width, same_effect=same_effect))
        for number, choice in enumerate(self._choices(), 1):
            self._screen.print_rows(f"    {number}) {value(choice)}")

    @property
    def _verbs(self) -> dict[str, str]:
        verbs = {"r": "reject"} if self._request.kind == "question" else dict(_CALL_VERBS)
        verbs |= {"c": "cancel"} if self._is_gone else {}
        return verbs | ({} if self._is_seen else {"v": "view the whole"}) | dict(self._leave)

    def _letter(self, typed: str) -> str:
        folded = typed.casefold()
        return next((letter for letter, verb in self._verbs.items() if folded in {letter, verb}), "")

    # -- decisions ---------------------------------------------------------------------------------------------

    def _act(self, letter: str, typed: str) -> Request | None:
        """Do what a line asks for; return the request as it stands after a decision or a vote."""
        request, ask, print_rows = self._request, self._screen.ask, self._screen.print_rows
        seen = request.current_fingerprint
        match letter:
            case "a" | "e" if not self._is_seen:
                print_rows("  not all of it has been shown; v shows the whole, then it can be approved")
            case "a":
                return self._after_vote(self._review.approve(request.id, seen=seen))
            case "e":
                return self._edit()
            case "r":
                rest = "" if is_target(request) else "; enter for no reason"
                return self._review.reject(request.id, ask(f"why? (shown to the program{rest}) ") or None, seen=seen)
            case "f":
                words = ask("what should the program do instead? ")
                if words:
                    return self._review.feedback(request.id, words, seen=seen)
                print_rows("  nothing was typed, so nothing was sent back")
            case "v":
                rows = full_text.subject_rows(request, width=self._screen.width, full=True)
                self._is_seen = self._screen.page(rows) or self._is_seen
            case "c":
                return self._review.cancel(request.id, ask("why? (enter for no reason) ") or None)
            case _ if request.kind == "call" or not typed:
                hint = "" if request.kind == "call" else f"{self._hint()}; or "
                print_rows(f"  please type {hint}one of {', '.join(self._verbs)}")
            case _:
                return self._review.answer(request.id, self._answer(typed))
        return None

    def _edit(self) -> Request | None:
        request, before = self._request, self._request.effective
        schema, shown, given = schema_of(request), before.shown, dict[str, object]()
        self._screen.print_rows(
            '  enter keeps a value, "" is the empty string; lists and objects are JSON, such as ["a", "b"]'
        )
        for name in schema.names:
            now = MASK if shown.get(name, MASK) == MASK else _default_text(as_amount(name, shown[name], grouped=False))
            while typed := self._screen.ask(f"{quote_if_needed(name)} [{now}]: "):
                try:
                    given[name] = schema.parse(name, "" if typed in {'""', "''"} else typed)
                    break
                except SchemaError as problem:
                    self._screen.print_rows(f"  {escape(str(problem))}")
        edited = edited_call(request, given)
        found = changed(before, edited, request.redact)
        if not found:
            self._screen.print_rows("  nothing was changed")
            return None
        self._screen.print_rows(*(f"  {change.line()}" for change in found))
        question = f"run {quote_if_needed(before.name)} with these arguments? [y/n] "
        # An empty line must not discard an edit that took effort.
        while (typed := self._screen.ask(question).casefold()) not in {"y", "yes", "n", "no"}:
            self._screen.print_rows("  y runs it so, n drops the changes")
        if typed not in {"y", "yes"}:
            self._screen.print_rows("  the changes were dropped, nothing was decided")
            return None
        return self._after_vote(self._review.approve(request.id, changes=given, seen=request.current_fingerprint))

    def _after_vote(self, after: Request) -> Request:
        if after.state is State.PENDING:
            self._request = after
            self._screen.print_rows(f"  your approval counts; {status_line(after, clock.now())}")
        return after

    def _choices(self) -> list[Any]:
        if self._request.kind == "call":
            return []
        found = choices_of(schema_of(self._request))
        # If a choice looks like the number of another one, the choices get no numbers, so that they cannot be confused.
        return [] if any(str(choice) in map(str, range(1, len(found) + 1)) for choice in found) else found

    def _hint(self) -> str:
        if self._choices():
            return "your answer, or its number"
        return f"your answer ({kinds_of(schema_of(self._request))['answer']})"

    def _answer(self, typed: str) -> object:
        text = typed[1:] if typed[:1] == "=" and self._letter(typed[1:].strip()) else typed
        choices = self._choices()
        named = [choice for choice in choices if (choice if isinstance(choice, str) else value(choice)) == text]
        if not named and text.isascii() and text.isdigit() and 0 < int(text) <= len(choices):
            return choices[int(text) - 1]
        return named[0] if named else schema_of(self._request).parse("answer", text)


def _default_text(tree: Json) -> str:
    """Return a value as the person would type it: a list or object as JSON, anything else as the card draws it."""
    plain = display(tree)
    if not isinstance(plain, list | dict):
        return brief(tree, 60)
    text = escape(json.dumps(plain, ensure_ascii=False))
    return text if len(text) <= _TYPED else text[: _TYPED - 1] + "…"


_TURN_POLL = 0.1
_TYPED = 200  # characters of a list or an object in a prompt

# Two dialogs at once would read each other's lines.
_turn = threading.Lock()


@in_forked_child
def _after_fork() -> None:
    global _turn  # noqa: PLW0603  the thread that held it does not exist in the child
    _turn = threading.Lock()


def turn() -> threading.Lock:
    """Return the lock that a dialog holds while it uses the terminal."""
    return _turn


def converse(
    store: Store, request: Request, is_over: Callable[[], bool], is_left: Callable[[], bool] = lambda: False
) -> Request:
    """Show a request on the terminal and record the person's decision in the name of the configured reviewer.

    Args:
        store: The request's store.
        request: The request.
        is_over: Whether the dialog should end because the request needs no decision here.
        is_left: Whether the program has stopped waiting for the request.

    Returns:
        The request as it stands now: decided here or elsewhere, or still pending because the person detached, the
        terminal was closed, or `is_over` returned True.

    Raises:
        StoreError: The store failed.
    """
    mine = turn()
    while not mine.acquire(timeout=_TURN_POLL):
        if is_over():
            return store.get(request.id)
    try:
        if is_over():
            return store.get(request.id)
        screen, is_over_elsewhere = Screen(is_over), False
        review = Review(store, channel="terminal")
        dialog = Dialog(screen, review, request, {"d": "detach"}, lambda: _confirm_detach(screen, request))
        try:
            after, _ = dialog.run()
        except (Settled, TerminalClosed) as end:
            after, is_over_elsewhere = store.get(request.id), isinstance(end, Settled)
        if is_left():
            print_rows(*rows_when_left(store, request))
        elif after.state is State.PENDING and is_random(after.run_id) and not is_over_elsewhere:
            print_rows(rows_when_left(store, after)[0])
        elif after.state is State.PENDING:
            say_what_waits(store, after)
        else:
            edits = [] if after.edited is None else changed(after.call, after.edited, after.redact)
            changes = [f"{INDENT}{change.line()}" for change in edits]
            print_rows(f"sayso  {short(after.id)} {decided(after, clock.now())}", *changes)
        return after
    finally:
        mine.release()


def _confirm_detach(screen: Screen, request: Request) -> bool:
    """Ask for confirmation before the person leaves a request that no program can resume, because it is withdrawn."""
    if not is_random(request.run_id):
        return True
    screen.print_rows(
        "  its run has no name, so no program could fetch the decision later: detaching withdraws it",
        '  (with sayso.run("a name"): around the call, it would stay pending)',
    )
    return screen.ask("withdraw it? [y/N] ").casefold() in {"y", "yes"}
