"""The gate in front of a function, which decides whether a call may run.

`sayso.gate` and `sayso.hold` are its public API. `call` takes one call through its gate and is the only module that
starts a held call. `options` validates the options of a gate when a function is decorated, `hooks` calls the user's
callables, `masking` hides secrets, `captured` reads what a function captures, and `outcome` tells failed calls from
calls with unknown outcome. `scope` is the run that a call belongs to, `caller` is who makes it, and `signals` are the
exceptions that tell the caller.
"""
