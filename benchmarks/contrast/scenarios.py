"""The accidents and attacks, one function each: what is done, and what may have run afterwards."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from benchmarks.contrast.steps import Play
from benchmarks.contrast.subject import Effect

__all__ = ["SCENARIOS", "UNASKED", "Cell", "Scenario"]

APPROVED: Effect = ("refund", "A-1", 50.0)
MONTH = 30  # days


@dataclass(frozen=True)
class Cell:
    """What came of a scenario for a subject.

    Attributes:
        kind: `held`, `ran` (something that should not have), `lost` (nothing did that should have), `n/a` or `broken`.
        text: What is shown in the table.
        note: Why it is not applicable or broken; what ran; how it was refused.
    """

    kind: str
    text: str
    note: str = ""


UNASKED = Cell("ran", "ran unasked", "the call ran before anybody was asked")


@dataclass(frozen=True)
class Scenario:
    """A column of the table; what is done and what may run is the docstring of `play`.

    Attributes:
        rounds: How often it is played until something runs that should not have: no race is lost every time.
    """

    name: str
    heading: str
    play: Callable[[Play], Cell]
    rounds: int = 1


def approval(play: Play) -> Cell:
    """A person approves; the call runs once, and not before."""
    saved = play.ask()
    play.resume_with(saved, play.approve(saved), must_work=True)
    return _judged(play, allowed=[APPROVED], held="yes")


def concurrent(play: Play) -> Cell:
    """Ten processes resume one approved run at once: one refund."""
    saved = play.ask()
    play.resumed_at_once(10, saved, play.approve(saved))
    return _judged(play, allowed=[APPROVED])


def replay(play: Play) -> Cell:
    """An approved run is resumed three times, one after the other: one refund."""
    saved = play.ask()
    answer = play.approve(saved)
    for _ in range(3):
        play.resume_with(saved, answer)
    return _judged(play, allowed=[APPROVED])


def arguments(play: Play) -> Cell:
    """After the approval, each `50.0` in what was saved becomes `95.0`: none of 95."""
    saved = play.ask()
    answer = play.approve(saved)
    play.resume_with(*play.altered(saved, answer, 50.0, 95.0))
    return _judged(play, allowed=[APPROVED], needed=[])


def tool(play: Play) -> Cell:
    """The same with `refund`, which becomes `payout`, a tool that waits, too: no payout."""
    saved = play.ask()
    answer = play.approve(saved)
    play.resume_with(*play.altered(saved, answer, "refund", "payout"))
    return _judged(play, allowed=[APPROVED], needed=[])


def other_run(play: Play) -> Cell:
    """Run 1 is approved, and run 2 is resumed with that answer: nothing."""
    saved, other = play.ask(), play.ask(run="run-2")
    play.resume_with(other, play.approve(saved))
    return _judged(play, allowed=[])


def forged(play: Play) -> Cell:
    """Nobody decides; the program brings an approval, and a stored decision is altered into one: nothing."""
    saved = play.ask()
    play.resume_with(saved, play.verb("forge", saved, must_work=True))
    return _judged(play, allowed=[])


def truthy_no(play: Play) -> Cell:
    """The person's answer arrives as the text `no` where the decision is taken: nothing."""
    saved = play.ask()
    play.resume_with(saved, play.decided(saved, "no"))
    return _judged(play, allowed=[])


def stale(play: Play) -> Cell:
    """An approved run is resumed a month later: nothing."""
    saved = play.ask()
    answer = play.approve(saved)
    play.resume_with(saved, answer, days=MONTH)
    return _judged(play, allowed=[])


def edit(play: Play) -> Cell:
    """The person edits the amount to the text `much`: nothing."""
    saved = play.ask()
    play.resume_with(saved, play.decided(saved, "edit"))
    return _judged(play, allowed=[])


def crash(play: Play) -> Cell:
    """The process that took the approval is killed at once; then resume: one refund."""
    saved = play.ask()
    answer = play.verb("decide", saved, "approve", then="killed", must_work=True)
    play.resume_with(saved, answer)
    return _judged(play, allowed=[APPROVED])


def killed(play: Play) -> Cell:
    """The process is killed right after the effect; then resume: one refund."""
    saved = play.ask()
    answer = play.approve(saved)
    play.resume_with(saved, answer, then="die")
    play.resume_with(saved, answer)
    return _judged(play, allowed=[APPROVED])


def timeout(play: Play) -> Cell:
    """The tool has its effect and times out; then resume: one refund."""
    saved = play.ask()
    answer = play.approve(saved)
    play.resume_with(saved, answer, then="timeout")
    play.resume_with(saved, answer)
    return _judged(play, allowed=[APPROVED])


def same_effect(play: Play) -> Cell:
    """Two agents ask for one refund; each is approved and resumed: one refund."""
    play.effect = "refund:{order_id}"
    both = [play.ask(), play.ask(run="run-2")]
    answers = [play.verb("decide", saved, "approve") for saved in both]
    for saved, answer in zip(both, answers, strict=True):
        play.resume_with(saved, answer)
    return _judged(play, allowed=[APPROVED])


def cancelled(play: Play) -> Cell:
    """A client stops waiting, and a person approves then: nothing."""
    play.verb("cancelled", run="run-1", must_work=True)
    return _judged(play, allowed=[])


def pooled(play: Play) -> Cell:
    """In a pool's thread one run is approved and goes on; the next job there makes the same call: one refund."""
    if play.verb("pooled") == "unasked":
        return UNASKED
    return _judged(play, allowed=[APPROVED])


SCENARIOS = {
    scenario.name: scenario
    for scenario in (
        Scenario("approval", "asks, then runs", approval),
        Scenario("concurrent", "resume x 10", concurrent, rounds=5),
        Scenario("replay", "replay", replay),
        Scenario("arguments", "argument swap", arguments),
        Scenario("tool", "tool swap", tool),
        Scenario("run", "another run's approval", other_run),
        Scenario("forged", "forged approval", forged),
        Scenario("no", "truthy no", truthy_no),
        Scenario("stale", "stale approval", stale),
        Scenario("edit", "edit of the wrong type", edit),
        Scenario("crash", "crash before it runs", crash),
        Scenario("killed", "crash while it runs", killed),
        Scenario("timeout", "timeout after sending", timeout),
        Scenario("effect", "same effect, two agents", same_effect),
        Scenario("cancel", "cancelled client", cancelled),
        Scenario("pool", "pooled threads", pooled),
    )
}


def _judged(
    play: Play, *, allowed: Sequence[Effect], needed: Sequence[Effect] | None = None, held: str = "held"
) -> Cell:
    """Compare what happened with what may have happened, and with what had to (all that may, unless said)."""
    effects = play.effects()
    extra = Counter(effects) - Counter(allowed)
    if extra:
        return Cell("ran", _words(effects, extra), f"ran: {', '.join(map(_shown, effects))}")
    missing = Counter(allowed if needed is None else needed) - Counter(effects)
    if missing:
        return Cell("lost", "lost", play.refusal)
    return Cell("held", held, play.refusal)


def _words(effects: Sequence[Effect], extra: Counter[Effect]) -> str:
    worst = next(iter(extra))
    if worst == APPROVED:
        count = effects.count(worst)
        return f"ran {count} times" if count > 1 else "ran"
    return f"ran {worst[0]} of {worst[2]}"


def _shown(effect: Effect) -> str:
    name, order_id, amount = effect
    return f"{name}({order_id}, {amount})"
