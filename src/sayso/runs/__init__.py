"""What goes on after a decision: runnables, their runs, and what a model is to them."""
