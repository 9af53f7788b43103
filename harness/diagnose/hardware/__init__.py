"""Kernel log, GPU and fabric counters to findings."""
