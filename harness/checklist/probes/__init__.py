"""Probes that look at files and variables, and need no torch: ``python -m harness.checklist.probes NAME``."""
