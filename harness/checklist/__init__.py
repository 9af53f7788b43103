"""The pre-training checklist: items that run, results that expire, a signature, and a gate."""
