"""What reviewers do: list requests, look at one, decide it, and share the work with others.

`sayso.Review` is the public API, in `review`; `search` has the search and the pages behind its lists.
"""

from sayso.reviews.review import Review
from sayso.reviews.search import RequestPage

__all__ = ["RequestPage", "Review"]
