"""The journal as evidence: verify it, and prove what it says to others.

`verifier` checks chains and requests. `checkpoint` writes the signed heads of all chains into the journal, and as an
anchor into a file outside of the store. `receipt` proves one request to somebody who has no store. `export` writes rows
for other systems, and purges the content of old requests. Nothing here changes a row of the journal.
"""

from sayso.audit.verifier import Break, Entry, Verified, entries, verify

__all__ = ["Break", "Entry", "Verified", "entries", "verify"]
