"""Reading what is left of a bundle."""

from pathlib import Path

from harness.bundle.codec import write_json
from harness.bundle.reader import BundleReader
from harness.model.bundle import Attempt, LauncherRecord, RankExit, RankMap, RankRecord


def test_values_survive_the_disk(tmp_path: Path) -> None:
    """What was written is read back as the same values, integer keys included."""
    record = LauncherRecord(
        (Attempt(0, 1.5, {0: 10, 1: 11}, (RankExit(1, 11, -9, "SIGKILL", 2.5),), 3.5),), "failed"
    )
    write_json(tmp_path / "launcher.json", record)

    assert BundleReader.at(tmp_path).launcher() == record


def test_damage_is_said_and_not_raised(tmp_path: Path) -> None:
    """A torn file is one complaint; a missing one is none."""
    (tmp_path / "launcher.json").write_text('{"attempts": [')
    (tmp_path / "ranks.json").write_text('{"world_size": "many", "ranks": []}')
    reader = BundleReader.at(tmp_path)

    assert reader.launcher() is None
    assert reader.rank_map() is None
    assert reader.manifest() is None
    assert len(reader.complaints) == 2
    assert "world_size" in reader.complaints[1]


def test_registrations_stand_in_for_a_rank_map(tmp_path: Path) -> None:
    """A run that was killed never merged ranks.json: what the ranks said themselves is used."""
    for rank in (1, 0):
        record = RankRecord(rank, "host", 100 + rank, rank, 0, 2)
        write_json(tmp_path / "live" / f"attempt_0_rank_{rank}.json", record)

    found = BundleReader.at(tmp_path).rank_map()

    assert isinstance(found, RankMap)
    assert [r.rank for r in found.ranks] == [0, 1]
