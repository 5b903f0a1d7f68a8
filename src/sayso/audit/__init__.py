"""Verification of the journal, and proofs of what it records.

`verifier` checks chains and requests. `checkpoint` writes the signed heads of all chains to the journal, and to an
anchor file outside the store. `receipt` proves one request to somebody without access to the store. `export` writes
rows for other systems and purges the content of old requests. Nothing here changes an existing row of the journal.
"""

from sayso.audit.verifier import Break, Entry, Verified, entries, verify

__all__ = ["Break", "Entry", "Verified", "entries", "verify"]
