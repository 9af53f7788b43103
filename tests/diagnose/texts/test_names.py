"""What the name of a log says."""

import pytest

from harness.diagnose.texts.names import Said, said_by


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("rank_3.log", Said(rank=3)),
        ("global_rank_12.err.gz", Said(rank=12)),
        ("node_rank_2.log", Said(node=2)),
        ("node_3.log", Said(node=3)),
        ("error-1234567-3.out", Said(node=3)),
        ("error-1234567-3.out.gz", Said(node=3)),
        ("job-123-node3.err", Said(node=3)),
        ("node1-rank_5.log", Said(node=1, rank=5)),
        ("slurm-123.out", Said()),
        ("error-123.out", Said()),
        ("slurm-123_3.out", Said()),
        ("local_rank_3.log", Said()),
        ("nodes.log", Said()),
        ("train-2026-01-03.log", Said()),
        ("worker-3.err", Said(host="worker-3")),
        ("my-job-worker-3.log", Said(host="my-job-worker-3")),
        ("10.0.0.7.log", Said(host="10.0.0.7")),
        ("frank_3.log", Said()),
        ("logs/node_4/stderr.log", Said(node=4)),
        ("run_x/attempt_1/2/stderr.log", Said(local_rank=2, attempt=1)),
        ("attempt_1/x/stderr.log", Said(attempt=1)),
    ],
)
def test_a_name_gives_what_it_clearly_says(path: str, said: Said) -> None:
    """A number is a rank or a node only behind such a word, never both."""
    parts = path.split("/")

    assert said_by(parts, len(parts)) == said


def test_folders_above_the_given_path_name_no_node() -> None:
    """Somebody's scratch folder on a node is not where the job ran."""
    parts = ["scratch", "node_9", "logs", "stderr.log"]

    assert said_by(parts, own=1) == Said()
