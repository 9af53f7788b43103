"""The drills that a machine with a card and a few minutes can run, and what it brings back of them."""
