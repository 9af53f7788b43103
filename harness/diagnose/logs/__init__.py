"""Log bytes to events to findings."""
