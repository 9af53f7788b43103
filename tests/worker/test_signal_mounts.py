"""Local disk or network, told from the table of mounts without touching what may hang."""

import os
from pathlib import Path

import pytest

from harness.worker.signal_mounts import mounts, on_network

TABLE = r"""22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 254:0 / / rw,relatime - ext4 /dev/vda rw
40 27 0:40 / /shared rw,relatime shared:7 master:3 - nfs4 server:/export rw,vers=4.2
41 40 8:1 / /shared/scratch rw - xfs /dev/sdb1 rw
42 27 0:42 / /gcs rw - fuse.gcsfuse bucket rw
43 27 0:43 / /with\040space rw - lustre mgs:/fs rw
44 27 8:2 / /covered rw - ext4 /dev/sdc1 rw
45 44 0:45 / /covered rw - ceph mon:/ rw
46 27 0:46 / /home rw - autofs systemd-1 rw
47 27 0:47 / /ol rw - overlay overlay rw
48 27 0:48 / /dev/shm rw - tmpfs tmpfs rw
"""


@pytest.mark.parametrize(
    ("path", "network"),
    [
        ("/tmp/run/rank_0.jsonl", False),
        ("/shared/run/rank_0.jsonl", True),
        ("/shared/scratch/rank_0.jsonl", False),
        ("/sharedother/rank_0.jsonl", False),
        ("/gcs/rank_0.jsonl", True),
        ("/with space/rank_0.jsonl", True),
        ("/covered/rank_0.jsonl", True),
        ("/home/me/rank_0.jsonl", True),
        ("/ol/rank_0.jsonl", False),
        ("/dev/shm/rank_0.jsonl", False),
        ("/shared/../tmp/rank_0.jsonl", False),
        ("/tmp/../gcs/rank_0.jsonl", True),
    ],
)
def test_the_longest_mount_point_decides(path: str, network: bool) -> None:
    """The innermost mount holds the path; of two on one point, the later."""
    assert on_network(Path(path), TABLE) is network


@pytest.mark.parametrize("target", ["/shared/run", "{there}/../../../../../../../../../../../shared"])
def test_symbolic_links_are_followed(tmp_path: Path, target: str) -> None:
    """A link from a local home to the shared filesystem, absolute or relative."""
    (tmp_path / "there").symlink_to(target.format(there="."))
    (tmp_path / "again").symlink_to("there")

    assert on_network(tmp_path / "again" / "rank_0.jsonl", TABLE)


def test_what_lies_on_the_network_is_not_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that does not answer would hold whoever asks for a link there."""
    table = TABLE + f"49 27 0:49 / {tmp_path} rw - nfs s:/x rw\n"
    real = os.readlink

    def guarded(path: object, **kwargs: object) -> str:
        assert not str(path).startswith(str(tmp_path))
        return real(path, **kwargs)  # type: ignore[arg-type, call-overload, no-any-return]

    monkeypatch.setattr(os, "readlink", guarded)

    assert on_network(tmp_path / "deeper" / "rank_0.jsonl", table)


def test_a_circle_of_links_ends(tmp_path: Path) -> None:
    """Opening such a path fails; finding out must not take forever."""
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")

    assert not on_network(tmp_path / "a" / "rank_0.jsonl", TABLE)


def test_the_table_of_this_machine_is_read() -> None:
    """Real mounts: /proc is proc, and torn rows are passed over."""
    found = mounts(Path("/proc/self/mountinfo").read_text() + "\n1 2 3 - \ngarbage\n")

    assert found["/proc"] == "proc"
    assert not on_network(Path("/proc/x"))
