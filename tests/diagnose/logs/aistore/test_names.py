"""Telling daemon logs from everything else."""

import pytest

from harness.diagnose.logs.aistore.names import NameFacts, is_daemon_log, name_facts

from .made import LOST, Log, unix


@pytest.mark.parametrize(
    ("name", "facts"),
    [
        (
            "aistarget.ais-target-13.INFO.0519-134217.1",
            NameFacts("target", "ais-target-13", "INFO", (5, 19, 49337)),
        ),
        (
            "a/b/aisproxy.ais-proxy-2.ERROR.1231-235959",
            NameFacts("proxy", "ais-proxy-2", "ERROR", (12, 31, 86399)),
        ),
        (
            "aistarget.ais-target-0.INFO.0102-000000.77.gz",
            NameFacts("target", "ais-target-0", "INFO", (1, 2, 0)),
        ),
        ("ais-target-4.tar/log.txt", NameFacts("target", "ais-target-4")),
        ("aistarget.ais-target-1.INFO.1332-250000.1", NameFacts("target", "ais-target-1")),
        ("stderr.log", NameFacts()),
    ],
)
def test_a_path_says_role_id_and_beginning(name: str, facts: NameFacts) -> None:
    """The file's own name decides, then its folders; a date that cannot be is none."""
    assert name_facts(name) == facts


def test_a_renamed_log_is_known_by_its_lines() -> None:
    """Stamped lines with the daemon's words make a daemon log, whatever its name is."""
    log = Log(unix("2025-11-19 20:00:00"))
    log.run("2025-11-19 20:30:00", get_n=100)

    assert is_daemon_log("node7.txt", log.text())
    assert is_daemon_log("node7.txt", "\n".join(log.lines[2:]))


@pytest.mark.parametrize(
    "head",
    [
        "",
        "E1129 20:10:00.123456789 ProcessGroupNCCL.cpp:616] [Rank 0] Watchdog caught collective\n" * 9,
        "2025-11-19 20:00:00 INFO step: 10 loss: 2.0\n" * 9,
        "I 20:00:00.123456 engine:12 step done\n" * 9,
        f"rank 3 saw {LOST}\n" * 9,
    ],
)
def test_workers_logs_are_no_daemon_logs(head: str) -> None:
    """A worker's log is not taken for a daemon's, also if it quotes one."""
    assert not is_daemon_log("error-1234-0.out", head)
