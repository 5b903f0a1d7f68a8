"""The gate in front of a call, which decides whether it may run.

Programs use `gate`, `hold` and `ask`; `held` is the handle that `hold` returns. `call` takes one call through its gate
and is the only module that starts a held call. `caller` and `wait` handle a call that must wait: `notices` prints where
to decide it, and `dialog` asks at the terminal. `options` validates a gate's options when a function is decorated,
`hooks` calls the user's callables, `keys` finds earlier requests, `masking` hides secrets, `captured` reads what a
function captures, and `outcome` separates failed calls from those with an unknown outcome. `scope` is the run that a
call belongs to, `threads` ends the waits of threads, and `signals` are the exceptions for the caller.
"""
