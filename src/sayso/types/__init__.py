"""Import paths for compatibility with the approval API; the code is in `sayso.runs`."""
