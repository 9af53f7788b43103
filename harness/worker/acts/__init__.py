"""Acts: what faults do to a rank. Each works in every workload that uses the session."""
