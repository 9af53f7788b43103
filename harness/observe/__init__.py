"""Looking at ranks from outside: clocks, stacks, dump requests. Knows nothing of what was broken."""
