"""Exit codes, signals and attempts to findings."""
