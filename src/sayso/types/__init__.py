"""Modules under the names by which the approval face knows them; what is in them lives in `sayso.runs`."""
