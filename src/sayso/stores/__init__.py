"""Where requests live; `base` is the contract, the others keep it."""
