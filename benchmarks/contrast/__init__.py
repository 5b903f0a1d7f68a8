"""The contrast suite: the same accidents and attacks against frameworks, peers and sayso.

`registry` names the subjects, `scenarios` the accidents, and `drivers` has one module per framework or peer. `play`
runs one subject in its own environment, where every step is a process (`steps`); `python -m benchmarks.contrast` sets
the environments up, runs all of it and writes the table of what ran that should not have.
"""
