"""Incidents that get a wrong answer today, and why; delete a line when it is right."""

FAILING: dict[str, str] = {
    "rank_handled_oom": "an error that was caught convicts, though the rank trained on and finished",
    "config_dump": "a key of a configuration is taken for an exception",
    "handled_tracebacks": "tracebacks of skipped samples count, though steps follow",
    "handled_then_running": "a handled traceback counts, though steps follow",
    "tests_in_log": "errors before the first step count, though the run finished",
    "wandb_noise": "a tracker's own retries count as the job's storage",
    "exit_noise": "noise at exit of a finished job is a teardown hang",
    "early_exit_zero": "one rank's completion line counts for all of them",
    "deepspeed_last_local_rank": "DeepSpeed's return code is not read; the job is called healthy",
    "observers_and_silent": "without a stated world size, a rank with a file of its own cannot be missed",
    "docker_json": "Docker's JSON lines are not taken apart",
    "cri_lines": "containerd's stream and flag are not stripped",
    "cri_partial": "containerd's partial lines are not joined",
    "journald_short": "a syslog front is not stripped",
    "journald_json": "the journal's JSON lines are not taken apart",
    "kubectl_prefix": "kubectl's pod prefix is not stripped; the job is called healthy",
    "latin1_and_nul": "a hole of NULs makes the whole file binary",
    "pasted_numbered": "a quoted log with line numbers is not read",
    "json_logger": "JSON lines of a logger with an exception field are not read",
    "html_escaped": "a page of a web console is not read",
}
