"""One module for each framework; nothing else in the package imports them, and each imports its framework late."""
