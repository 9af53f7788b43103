"""Text files of a job, found and run over once."""
