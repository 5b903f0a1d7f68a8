"""The gate in front of a call, which decides whether it may run.

`gate`, `hold` and `ask` are what programs use; `held` is the handle that `hold` returns. `call` takes one call through
its gate and is the only module that starts a held call. `caller` and `wait` say what becomes of a call that must wait:
`notices` prints where to decide it, and `dialog` asks at the terminal. `options` validates the options of a gate when a
function is decorated, `hooks` calls the user's callables, `keys` finds what was asked before, `masking` hides secrets,
`captured` reads what a function captures, and `outcome` tells failed calls from calls with unknown outcome. `scope` is
the run that a call belongs to, `threads` ends the waits of threads, and `signals` are the exceptions that tell the
caller.
"""
