"""The stores of requests: `base` defines the contract; `memory`, `jsonl`, `sqlite`, `postgres`, `http` implement it.

The verbs are written once, for all stores: those of programs in `program`, of people in `review`, of records in
`records`; `grants` has what a start takes from grants and budgets, and `transaction` how a verb changes a request. Each
store adds a transaction and readers. Those of `memory` and `jsonl` are in
`memory_tables`, those of `sqlite` and `postgres` in `sql`; the other modules named after a store are parts of it.
`codec` converts requests to rows, `filter` selects them, `watching` wakes waiters, and `workers` has the leases and
tells who is still alive. `sayso.config.open_store` opens the store of an address.
"""
