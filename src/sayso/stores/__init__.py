"""The stores of requests: `base` defines the contract; `memory`, `jsonl`, `sqlite`, `postgres`, `http` implement it.

The verbs are written once, for all stores: those of programs in `program`, of people in `review` and `grants`, of
records in `transaction`. Each store adds a transaction and readers. Those of `memory` and `jsonl` are in
`memory_tables`, those of `sqlite` and `postgres` in `sql`; the other modules named after a store are parts of it.
`codec` converts requests to rows, `filter` selects them, and `processes` wakes waiters and tells who is still alive.
"""
