"""Incidents that get a wrong answer today, and why; delete a line when it is right."""

FAILING: dict[str, str] = {}

FAILING_BESIDE: dict[str, str] = {}
"""Logs beside dumps that convict, whose weaker word wins today."""

FAILING_CENSUS: dict[str, str] = {}
"""Logs whose number of ranks is counted wrongly today."""
