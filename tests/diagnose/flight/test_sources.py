"""Anything that torch ever wrote, under any name, and nothing that bites."""

import gzip
import io
import json
import os
import pickle
import tarfile
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from harness.diagnose.api import diagnose
from harness.diagnose.flight.load import NotADump, load_dump
from harness.diagnose.flight.room import analyse_dumps
from harness.diagnose.flight.sources import find_dumps, rank_from_name
from harness.model.errors import PrerequisiteError
from harness.model.kinds import Kind
from tests.simulate import Scenario, Shape

SHAPE = Shape(dp=4)


def scenario() -> Scenario:
    """Rank 2 or another of four has another size; which one the scenario knows."""
    return Scenario("size", SHAPE, 1)


@pytest.mark.parametrize(
    ("name", "rank"),
    [
        ("comm_lib_trace_rank_3", 3),
        ("nccl_trace_rank_12", 12),
        ("gpu-node-7_3", 3),
        ("host-1.0_rank_5", 5),
        ("3.json", 3),
        ("rank_3.json.gz", 3),
        ("trace_3.pickle", 3),
        ("notes", None),
        ("rank_", None),
    ],
)
def test_rank_from_any_name(name: str, rank: int | None) -> None:
    """The number that a name ends with, suffixes aside."""
    assert rank_from_name(name) == rank


def assert_right(path: Path, *more: Path) -> None:
    """The one deviating rank is named."""
    found = diagnose(path, *more).diagnosis
    assert (found.kind, found.culprits) == (Kind.COLLECTIVE_SIZE_MISMATCH, (scenario().culprit,))


@pytest.mark.parametrize("prefix", ["comm_lib_trace_rank_", "host-a_", "n1.0_rank_"])
def test_prefixes(tmp_path: Path, prefix: str) -> None:
    """The usual names, and those with a host inside."""
    scenario().write(tmp_path, prefix)
    assert_right(tmp_path)


def test_mixed_prefixes_in_folders_a_node(tmp_path: Path) -> None:
    """One folder a node, each with its own habit."""
    for rank, dump in scenario().dumps().items():
        folder = tmp_path / f"node{rank // 2}"
        folder.mkdir(exist_ok=True)
        (folder / f"{'a_' if rank % 2 else 'trace_rank_'}{rank}").write_bytes(pickle.dumps(dump))
    assert_right(tmp_path)
    assert_right(tmp_path / "node0", tmp_path / "node1")


def test_json_dumps(tmp_path: Path) -> None:
    """The recorder's JSON, which has no stacks."""
    for rank, dump in scenario().dumps(stacks=False).items():
        for entry in dump["entries"]:  # type: ignore[attr-defined]
            del entry["frames"]
        (tmp_path / f"{rank}.json").write_text(json.dumps(dump))
    assert_right(tmp_path)


@pytest.mark.parametrize("kind", ["gz", "tar", "tar.gz", "zip"])
def test_archives(tmp_path: Path, kind: str) -> None:
    """Packed one by one, or all in one archive."""
    dumps = {f"d/rank_{r}": pickle.dumps(d) for r, d in scenario().dumps().items()}
    if kind == "gz":
        for name, data in dumps.items():
            (tmp_path / f"{Path(name).name}.gz").write_bytes(gzip.compress(data))
    elif kind == "zip":
        with zipfile.ZipFile(tmp_path / "dumps.zip", "w") as archive:
            for name, data in dumps.items():
                archive.writestr(name, data)
    else:
        with tarfile.open(tmp_path / f"dumps.{kind}", f"w:{kind[4:]}") as tar:
            for name, data in dumps.items():
                info = tarfile.TarInfo(name)
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))
    assert_right(tmp_path)


@pytest.mark.parametrize("version", ["2.0", "2.4", "9.9"])
def test_old_and_unknown_versions(tmp_path: Path, version: str) -> None:
    """Absent keys are tolerated, unknown ones too; old names of the sequence number are known."""
    for rank, dump in scenario().dumps().items():
        dump["version"] = version
        for entry in dump["entries"]:  # type: ignore[attr-defined]
            if version == "2.0":
                entry["seq_id"] = entry.pop("collective_seq_id")
                for key in ("p2p_seq_id", "retired", "output_dtypes"):
                    del entry[key]
            if version == "9.9":
                entry["mood"] = "good"
        (tmp_path / f"rank_{rank}").write_bytes(pickle.dumps(dump))
    assert_right(tmp_path)


@pytest.mark.parametrize("backend", ["xccl", "hccl", "mpi"])
def test_other_back_ends_and_unknown_operations(tmp_path: Path, backend: str) -> None:
    """Any prefix, and operations that we have never heard of, compared as words."""
    for rank, dump in scenario().dumps(backend=backend).items():
        for entry in dump["entries"]:  # type: ignore[attr-defined]
            entry["profiling_name"] = entry["profiling_name"].replace("all_reduce", "quantum_reduce")
        (tmp_path / f"rank_{rank}").write_bytes(pickle.dumps(dump))
    assert_right(tmp_path)


def test_two_files_for_one_rank(tmp_path: Path) -> None:
    """The newer counts, and that is said."""
    scenario().write(tmp_path)
    old = scenario().dumps()[0]
    old["entries"] = old["entries"][:3]  # type: ignore[index]
    (tmp_path / "old_rank_0").write_bytes(pickle.dumps(old))

    result = diagnose(tmp_path)

    assert result.diagnosis.culprits == (scenario().culprit,)
    assert any("old_rank_0" in line and "older" in line for line in result.diagnosis.missing_evidence)


def test_a_malicious_pickle_runs_nothing(tmp_path: Path) -> None:
    """It is reported in one line, and the rest is analysed."""

    class Bomb:
        def __reduce__(self) -> tuple[object, ...]:
            return os.system, (f"touch {tmp_path}/ran",)

    scenario().write(tmp_path)
    (tmp_path / "evil_rank_9").write_bytes(pickle.dumps({"entries": [Bomb()]}))

    result = diagnose(tmp_path, world_size=4)

    assert not (tmp_path / "ran").exists()
    assert result.diagnosis.culprits == (scenario().culprit,)
    assert any("evil_rank_9" in line and "system" in line for line in result.diagnosis.missing_evidence)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x80\x04",
        b"hello",
        b"{",
        b'{"entries": 3}',
        b'{"entries": [3]}',
        pickle.dumps([1, 2]),
        pickle.dumps({"entries": [{"process_group": 3}]})[:-4],
        b"\x1f\x8b broken",
        b"[" * 100_000,
    ],
)
def test_what_is_no_dump_is_one_line(tmp_path: Path, data: bytes) -> None:
    """Empty, truncated, of another kind: one complaint, and the rest is analysed."""
    scenario().write(tmp_path)
    (tmp_path / "bad_rank_9").write_bytes(data)

    result = diagnose(tmp_path, world_size=4)

    complaints = [line for line in result.diagnosis.missing_evidence if "bad_rank_9" in line]
    assert len(complaints) == 1
    assert "\n" not in complaints[0]
    assert result.diagnosis.culprits == (scenario().culprit,)


@pytest.mark.parametrize(
    "field", ["process_group", "input_sizes", "frames", "collective_seq_id", "record_id"]
)
def test_wrong_typed_fields_are_one_line(tmp_path: Path, field: str) -> None:
    """A record whose field no recorder writes makes its file no dump."""
    scenario().write(tmp_path)
    dump = scenario().dumps()[0]
    dump["entries"][1][field] = {"x": [None]}  # type: ignore[index]
    (tmp_path / "odd_rank_9").write_bytes(pickle.dumps(dump))

    result = diagnose(tmp_path, world_size=4)

    assert sum("odd_rank_9" in line for line in result.diagnosis.missing_evidence) == 1
    assert result.diagnosis.culprits == (scenario().culprit,)


def test_links_pipes_and_archives_that_climb(tmp_path: Path) -> None:
    """Dangling links and pipes are passed over; an archive's members never leave the archive."""
    dumps = tmp_path / "dumps"
    scenario().write(dumps)
    (dumps / "gone_rank_7").symlink_to(tmp_path / "nowhere")
    os.mkfifo(dumps / "pipe_rank_8")
    with zipfile.ZipFile(dumps / "climb.zip", "w") as archive:
        archive.writestr("../../../escaped_rank_9", b"x")

    result = diagnose(dumps, world_size=4)

    assert result.diagnosis.culprits == (scenario().culprit,)
    assert not list(tmp_path.rglob("escaped*"))


def test_a_gzip_bomb_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unpacking stops at what a dump may have."""
    monkeypatch.setattr("harness.diagnose.flight.sources.MAX_DUMP_BYTES", 1 << 16)
    bomb = gzip.compress(b"\0" * (1 << 20))
    from harness.diagnose.flight.sources import _gunzip

    with pytest.raises(NotADump, match="more than any dump"):
        _gunzip(bomb)


def test_nothing_readable_is_a_missing_prerequisite(tmp_path: Path) -> None:
    """The message names what was found unreadable."""
    (tmp_path / "rank_0").write_bytes(b"junk")
    with pytest.raises(PrerequisiteError, match="rank_0"):
        diagnose(tmp_path)


def test_a_dump_of_the_real_recorder_loads(tmp_path: Path) -> None:
    """What torch itself wrote in this process has the fields that we read."""
    torch = pytest.importorskip("torch")
    data = torch._C._distributed_c10d._dump_fr_trace(True, True, False)

    assert "entries" in load_dump(bytes(data))


def test_find_dumps_is_in_a_fixed_order(tmp_path: Path) -> None:
    """Directory order is never the truth."""
    scenario().write(tmp_path)
    names = [source.name for source in find_dumps([tmp_path])[0]]
    assert names == sorted(names)


@pytest.mark.parametrize(
    "shape",
    [Shape(tp=2, dp=4), Shape(tp=2, dp=2, pp=2), Shape(dp=3, pp=3)],
    ids=["tp2dp4", "tp2dp2pp2", "dp3pp3"],
)
def test_dumps_without_a_rank_in_their_name(shape: Shape) -> None:
    """The groups that a process belongs to, and its sends, say which rank it is."""
    incident = Scenario("size", shape, 3)
    sources = incident.sources()
    named = analyse_dumps(sources, world_size=shape.world)
    nameless = [replace(s, name=f"host-{chr(97 + i)}.pkl", rank=None) for i, s in enumerate(sources)]

    found = analyse_dumps(nameless, world_size=shape.world)

    assert set(found.evidence.tables) == set(named.evidence.tables)
    assert found.findings[0].culprits == named.findings[0].culprits == (incident.culprit,)
