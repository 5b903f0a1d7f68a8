"""The journal as evidence: read it, find out whether it is whole, and take what proves it elsewhere.

`walk` verifies chains and requests, `checkpoint` puts a root over all chains into the journal itself, `schedule` does
so from time to time, `anchor` takes that root out of the store, `receipt` proves one call to somebody who has no store,
`export` writes rows for other systems, and `purge` lets go of what is no evidence. Invariant: nothing here changes what
a row of the journal says.
"""

from sayso.audit.verifier import Break, Entry, Verified, entries, verify

__all__ = ["Break", "Entry", "Verified", "entries", "verify"]
