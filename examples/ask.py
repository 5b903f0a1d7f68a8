"""Typed questions to a person: the program gets a value of the type that it asked for, or none.

    python examples/ask.py

Without a terminal, answer in a second one; what does not fit the type is refused, and the question still waits:

    sayso ls
    sayso answer ID lyon
"""

from datetime import date

import sayso


def plan_delivery() -> str:
    """Ask what a program cannot know."""
    warehouse = sayso.ask("Which warehouse?", choices=["berlin", "lyon"])
    boxes = sayso.ask("How many boxes?", type=int)
    day = sayso.ask("On which day?", type=date)
    if not sayso.ask(f"Book a van for {boxes} boxes?", type=bool):
        return "no van"
    return f"a van with {boxes} boxes leaves {warehouse} on {day:%A, %d %B %Y}"


if __name__ == "__main__":
    try:
        print(plan_delivery())
    except sayso.ConfirmationRejected as no:
        print(f"no plan: {no.message}")
    except sayso.ConfirmationRequired as held:
        print(f"not answered yet: {held.question}")
