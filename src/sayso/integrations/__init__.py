"""One module for each framework; only commands import them, and each imports its framework late."""
