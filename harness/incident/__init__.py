"""A job that we did not start: find its ranks, sample, fetch dumps and logs, diagnose."""
