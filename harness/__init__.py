"""Drills for distributed PyTorch training: break it on purpose, diagnose it from evidence alone."""

__version__ = "0.1.0"
