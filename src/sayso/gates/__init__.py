"""The gate in front of a call, which decides whether it may run.

Programs use `gate`, `hold` (both in `gate`) and `ask`; `held` is the handle that `hold` returns. `gated_call` takes one
call through its gate: `find_or_ask` finds or records its request, and `execution` is the only module that starts a held
call. `caller` says how a call waits: it raises one of the `exceptions`; that of `wait` blocks. `dialog` asks the person
at a terminal, and `stderr` prints where to decide. `options` validates a gate's options when a function is
decorated, `captured_values` reads what a function captures, `hooks` calls the user's callables and masks secrets, and
`ambiguous` tells which errors leave it open whether a call took effect. `scope` is the run that a call belongs to, and
`interruptions` notices that nobody waits for a thread's call any more.
"""
