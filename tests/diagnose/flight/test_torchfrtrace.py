"""Against the stock analyzer, on cases that it can read: one group, every dump there."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from harness.diagnose.api import diagnose
from tests.simulate import Scenario, Shape

SHAPE = Shape(dp=8)
FAULTS = ("size", "dtype", "type", "skip", "extra", "stall")
SEEDS = 6

# Runs the stock analyzer on many folders in one process and prints what it said of each.
RUN_ALL = """
import contextlib, io, json, logging, sys
from torch.distributed.flight_recorder import fr_trace
answers = {}
for folder in sys.argv[1:]:
    out = io.StringIO()
    handler = logging.StreamHandler(out)
    root = logging.getLogger()
    loggers = [root, *(logging.getLogger(n) for n in root.manager.loggerDict)]
    for logger in loggers: logger.addHandler(handler)
    try:
        with contextlib.redirect_stdout(out):
            fr_trace.main([folder, "-p", "rank_"])
        crash = None
    except BaseException as error:
        crash = type(error).__name__
    for logger in loggers: logger.removeHandler(handler)
    answers[folder] = {"said": out.getvalue(), "crash": crash}
print(json.dumps(answers))
"""


def named_first(said: str) -> set[int] | None:
    """The ranks in the stock analyzer's first finding."""
    for line in said.splitlines():
        if "Culprit rank" in line:
            return {int(line.split("Culprit rank")[1].split(";")[0])}
        if "missing ranks" in line:
            return {int(r) for r in line.split("{")[1].split("}")[0].split(",")}
    return None


def defect(answer: dict[str, str | None], culprit: int) -> str | None:
    """Which of its known defects made the stock analyzer miss; None where it was right."""
    if answer["crash"]:
        return f"crashes ({answer['crash']})"
    named = named_first(str(answer["said"]))
    if named is None:
        return "names nobody"
    if named == {culprit}:
        return None
    if culprit == 0:
        return "takes rank 0's file for the truth and blames the others"
    if named == set(range(8)) - {culprit}:
        return "names all the others"
    return "names another rank: aligned by position, the streams had shifted"


@pytest.mark.ranks
def test_where_the_stock_analyzer_is_right_we_agree(tmp_path: Path) -> None:
    """We are right wherever it is; where it is wrong, it is by one of its known defects."""
    pytest.importorskip("torch")
    cases: dict[str, Scenario] = {}
    for fault in FAULTS:
        for seed in range(SEEDS):
            scenario = Scenario(fault, SHAPE, seed)
            folder = tmp_path / f"{fault}-{seed}"
            folder.mkdir()
            for rank, dump in scenario.dumps(skew=False).items():
                for entry in dump["entries"]:  # type: ignore[attr-defined]
                    entry["profiling_name"] = entry["profiling_name"].replace("_allgather_", "_all_gather_")
                    _whole_sizes(entry)
                import pickle

                (folder / f"rank_{rank}").write_bytes(pickle.dumps(dump))
            cases[str(folder)] = scenario
    done = subprocess.run(
        (sys.executable, "-W", "ignore", "-c", RUN_ALL, *cases), capture_output=True, text=True, check=True
    )
    answers = json.loads(done.stdout.splitlines()[-1])

    defects: dict[str, int] = {}
    for folder, scenario in cases.items():
        ours = diagnose(Path(folder)).diagnosis
        assert ours.culprits == (scenario.culprit,), (folder, ours)
        missed = defect(answers[folder], scenario.culprit)
        defects[missed or "right"] = defects.get(missed or "right", 0) + 1
    assert defects.get("right", 0) >= 6, defects
    assert len(defects) > 1, defects
    print(defects)


def _whole_sizes(entry: dict[str, object]) -> None:
    """Sizes as NCCL records them: a gather's output and a scatter's input are world times the shard."""
    name = str(entry["profiling_name"])
    for key, word in (("output_sizes", "gather"), ("input_sizes", "scatter")):
        if word in name:
            entry[key] = [[8 * n for n in shape] for shape in entry[key]]  # type: ignore[attr-defined]
