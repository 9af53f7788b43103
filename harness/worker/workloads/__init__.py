"""Small training jobs that any fault can be armed in: bare collectives, and a transformer."""

from harness.worker.workloads.main import run_workload

__all__ = ["run_workload"]
