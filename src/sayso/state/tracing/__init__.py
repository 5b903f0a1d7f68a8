"""The approval face's path to the names of its stores; they live in `sayso.compat`."""
