"""Daemon logs of an AIStore cluster and a window of time to what the storage did in it."""
