"""Import path of the approval API's stores, for compatibility; the code is in `sayso.runs.compat`."""
