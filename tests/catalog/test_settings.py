"""Which value wins, and where it came from."""

from pathlib import Path

import pytest

from harness.catalog.find import find_drill
from harness.catalog.settings import Sources, settle
from harness.model.errors import UsageError
from harness.model.plan import Setting


def test_flags_beat_environment_beat_file_beat_defaults(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each source wins over those behind it, and says so."""
    config = tmp_path / "drill.toml"
    config.write_text('nproc = 4\ntimeout = 50\n[drills.fr_hang]\nhang_at = 7\nmode = "skip"\n')
    monkeypatch.setenv("DRILL_TIMEOUT", "60")
    monkeypatch.setenv("DRILL_NUMEL", "4096")

    settled = settle(find_drill("fr_hang"), Sources.read({"culprit": "1,2"}, ["numel=8192"], config))

    assert settled["culprit"] == Setting((1, 2), "--culprit")
    assert settled["numel"] == Setting(8192, "--set numel")
    assert settled["timeout"] == Setting(60.0, "DRILL_TIMEOUT")
    assert settled["hang_at"] == Setting(7, "drill.toml [drills.fr_hang]")
    assert settled["mode"] == Setting("skip", "drill.toml [drills.fr_hang]")
    assert settled["nproc"] == Setting(4, "drill.toml")
    assert settled["steps"] == Setting(10, "default")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("nprocs = 4", "nprocs: unknown key; allowed are nproc"),
        ("[drills.fr_hang]\nhangat = 1", "drills.fr_hang.hangat"),
        ("[drills.fr_hang]\nhang_at = 'x'", "allowed is a value of type int"),
        ("nproc = [", "not TOML"),
        ("drills = 3", "allowed are tables"),
    ],
)
def test_mistakes_in_the_file_name_file_and_key(tmp_path: Path, text: str, says: str) -> None:
    """A person can mend drill.toml from the message alone."""
    config = tmp_path / "drill.toml"
    config.write_text(text)

    with pytest.raises(UsageError, match=r"drill\.toml") as error:
        settle(find_drill("fr_hang"), Sources.read({}, (), config))
    assert says in str(error.value)
