"""Incidents that get a wrong answer today, and why; delete a line when it is right."""

FAILING: dict[str, str] = {
    "detail_in_group": "a comparison inside a group leaves `nothing says who or what`",
    "latin1_and_nul": "a hole of NULs makes the whole file binary",
    "pasted_numbered": "a quoted log with line numbers is not read",
    "json_logger": "JSON lines of a logger with an exception field are not read",
    "html_escaped": "a page of a web console is not read",
}

FAILING_BESIDE: dict[str, str] = {}
"""Logs beside dumps that convict, whose weaker word wins today."""

FAILING_CENSUS: dict[str, str] = {
    "srun_task_killed": "srun names tasks 0-7, and 1 rank is expected",
    "segv_named": "the agent had four processes, and 3 ranks are expected",
}
"""Logs whose number of ranks is counted wrongly today."""
