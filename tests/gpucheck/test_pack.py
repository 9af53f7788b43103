"""Bundles without names and small enough to carry."""

import json
import os
import pickle
import platform
import tarfile
from pathlib import Path

import pytest

from harness.gpucheck.pack import MAX_LOG_BYTES, Packer, cleaned, host_names, pack

NAMES = {"gpu-node-07.cluster": "node", "gpu-node-07": "node", "10.1.2.3": "address"}


def make(root: Path) -> Path:
    """A bundle in which a host's names stand wherever they may."""
    for name, data in {
        "bundle.json": b'{"host": "gpu-node-07"}',
        "logs/x_1/attempt_0/0/stderr.log": b"gpu-node-07:71:90 NCCL WARN from 10.1.2.3<4567>\n",
        "flight_recorder/attempt_0/rank_0": pickle.dumps({"entries": [{"frames": ["/gpu-node-07/t.py"]}]}),
        "flight_recorder/attempt_0/rank_1": pickle.dumps({"entries": [], "version": "2.10"}),
        "flight_recorder/attempt_0/rank_2": b"torn gpu-node-07",
        "memory/attempt_0/rank_0.pickle": b"opaque gpu-node-07",
        "memory/attempt_0/rank_1.pickle": b"opaque",
        "live/fr_0": b"",
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)
    return root


def members(archive: Path) -> dict[str, bytes]:
    """What an archive holds."""
    found = {}
    with tarfile.open(archive) as tar:
        for member in tar:
            file = tar.extractfile(member)
            assert file is not None
            found[member.name.removeprefix("bundle/")] = file.read()
    return found


def test_no_name_leaves_the_machine(tmp_path: Path) -> None:
    """In text they are replaced, in dumps too, where they stay dumps; what cannot be cleaned stays behind."""
    pack(make(tmp_path / "b"), tmp_path / "b.tar.gz", NAMES)
    found = members(tmp_path / "b.tar.gz")

    assert set(found) == {
        "bundle.json",
        "logs/x_1/attempt_0/0/stderr.log",
        "flight_recorder/attempt_0/rank_0",
        "flight_recorder/attempt_0/rank_1",
        "memory/attempt_0/rank_1.pickle",
    }
    assert not any(b"gpu-node" in data or b"10.1.2.3" in data for data in found.values())
    assert json.loads(found["bundle.json"]) == {"host": "node"}
    dump = pickle.loads(found["flight_recorder/attempt_0/rank_0"])
    assert dump == {"entries": [{"frames": ["/node/t.py"]}]}
    assert found["flight_recorder/attempt_0/rank_1"] == pickle.dumps({"entries": [], "version": "2.10"})


def test_this_machines_own_names_are_known() -> None:
    """Its name, if it is more than a word of the text; the longest first, so that none survives in part."""
    names = host_names()

    if len(platform.node()) >= 4 and not platform.node().startswith("localhost"):
        assert names[platform.node()] == "node"
    assert [len(n) for n in names] == sorted((len(n) for n in names), reverse=True)


def test_a_long_log_keeps_both_ends() -> None:
    """What happened first, and how it ended."""
    data = b"first\n" + b"x" * (4 * MAX_LOG_BYTES) + b"last\n"
    kept = cleaned(data, Path("logs/x/attempt_0/0/stderr.log"), {})

    assert kept is not None
    assert len(kept) < 2 * MAX_LOG_BYTES + 10
    assert kept.startswith(b"first")
    assert kept.endswith(b"last\n")
    assert cleaned(data, Path("signals/attempt_0/rank_0.jsonl"), {}) == data


@pytest.mark.parametrize("limit", [1000, 1 << 20])
def test_all_together_stay_under_the_limit(tmp_path: Path, limit: int) -> None:
    """What does not fit goes without its snapshots first, and is left out if it is still too large."""
    root = make(tmp_path / "b")
    (root / "memory/attempt_0/rank_2.pickle").write_bytes(os.urandom(20_000))
    packer = Packer(tmp_path / "out", limit, NAMES)
    results = [packer.add(f"run-{i}", root) for i in range(4)]

    sizes = [size for size, _ in results if size is not None]
    assert sum(sizes) == packer.used_bytes <= limit
    assert {p.name for p in (tmp_path / "out").iterdir()} == {f"run-{i}.tar.gz" for i in range(len(sizes))}
    if limit == 1000:
        assert 1 <= len(sizes) < 4
        assert "are left" in str(results[-1][1])
        assert "memory/attempt_0/rank_2.pickle" not in members(tmp_path / "out" / "run-0.tar.gz")
    else:
        assert len(sizes) == 4
