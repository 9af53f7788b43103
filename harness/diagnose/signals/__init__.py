"""Per-step records to findings."""
