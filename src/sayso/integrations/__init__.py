"""One module for each framework. In sayso only commands import them, and each imports its framework on first use."""
