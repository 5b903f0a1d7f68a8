"""The person's door: list what waits, look at a request, decide it, and share the work with others.

`sayso.Review` is its public API. `review` has the decisions, `teamwork` comments, snoozing, assignment and delegation.
"""

from sayso.reviews.review import RequestPage, Review

__all__ = ["RequestPage", "Review"]
