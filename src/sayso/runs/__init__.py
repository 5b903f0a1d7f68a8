"""Runs: agents, tools, workflows and modules that pause for a person and resume after a decision.

What a program declares is in `agent` (with tools), `workflow`, `module` and `react`, their options in `definition`.
`runnable` calls one, `engine` executes a step, `state` is what it records, `events` what it yields, `decisions` how it
asks and is answered. `load` reads a run without its program, and `worker` resumes those of many. `messages` and
`provider` are for models; `compat` has names of other libraries.
"""
