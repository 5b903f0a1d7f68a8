"""The stores of requests: `base` defines the contract; `memory`, `jsonl`, `sqlite` and `http` implement it."""
