"""Probes that need torch: each measures one thing and prints its figures as one JSON object.

    python -m harness.worker.probes NAME --key value

A probe module has ``DEFAULTS``, its options with their types, and ``measure(options)``, which returns the
figures. Every probe takes ``broken``, which breaks the measured thing itself: one that cannot fail is none.
"""
