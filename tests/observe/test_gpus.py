"""Asking nvidia-smi, by a real process of that name that answers as told."""

from pathlib import Path

import pytest

from harness.bundle.writer import BundleWriter
from harness.diagnose.hardware.find import find_readings
from harness.model.bundle import Manifest
from harness.observe import gpus
from harness.observe.collect import Collector
from tests.diagnose.hardware.made import eight, smi_xml


def nvidia_smi(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """Put a program of that name first in the path."""
    program = folder / "bin" / "nvidia-smi"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")


def test_a_report_becomes_evidence_that_the_diagnosis_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before and after, as files of the bundle, in the form that anybody else's have."""
    (tmp_path / "report.xml").write_text(smi_xml(eight(dbe=1)))
    nvidia_smi(tmp_path, monkeypatch, f'[ "$*" = "-q -x" ] && cat {tmp_path}/report.xml')
    writer = BundleWriter(tmp_path / "run", Manifest(8, "nccl", "torchrun", 1.0))
    Collector(writer, 0).hardware("before")
    Collector(writer, 0).hardware("after")

    assert writer.manifest.collected == ("GPU state, before", "GPU state, after")
    assert len(find_readings([tmp_path / "run"]).cards) == 16


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("echo 'Failed to initialize NVML: Insufficient Permissions'; exit 4", "Insufficient Permissions"),
        ("echo 'No devices were found'; exit 0", "No devices were found"),
        ("exec sleep 60", "the driver hangs"),
    ],
)
def test_why_there_is_no_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, why: str
) -> None:
    """Its own last words, or that it hangs, go into the manifest; the run goes on."""
    nvidia_smi(tmp_path, monkeypatch, script)
    monkeypatch.setattr(gpus, "_SMI_TIMEOUT_S", 0.3)
    writer = BundleWriter(tmp_path / "run", Manifest(8, "nccl", "torchrun", 1.0))
    Collector(writer, 0).hardware("before")

    (lost,) = writer.manifest.not_collected
    assert lost.what == "GPU state, before"
    assert why in lost.why


def test_a_machine_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """No driver, no report."""
    monkeypatch.setenv("PATH", "/nowhere")

    assert gpus.smi_report() == (b"", "there is no nvidia-smi here")
