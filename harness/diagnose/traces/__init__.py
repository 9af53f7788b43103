"""Profiler traces to findings: where each step's time went, then and now."""
