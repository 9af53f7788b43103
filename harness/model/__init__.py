"""Frozen value types that travel between rooms. Imports nothing of ours and no third party."""
