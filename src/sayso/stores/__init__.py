"""The stores of requests: `base` defines the contract; `memory`, `jsonl`, `sqlite`, `postgres`, `http` implement it."""
