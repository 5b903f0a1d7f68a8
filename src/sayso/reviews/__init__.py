"""What reviewers do: list requests, look at one, decide it, and share the work with others.

`sayso.Review` is the public API. `review` has the decisions, `teamwork` comments, snoozing and delegation.
"""

from sayso.reviews.review import RequestPage, Review

__all__ = ["RequestPage", "Review"]
