"""Measure sayso beside a hand-written baseline and beside its peers, in one run and one kind of process.

Every contender lives in a worker process of its own and is driven batch by batch in turn, so that a noisy machine
disturbs all of them alike.
Nothing here is imported by the package, and no figure is asserted: a slow machine never fails a test.
"""
