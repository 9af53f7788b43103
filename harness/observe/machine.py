"""What this machine can run ranks on: cards, and what torch was built with, without importing torch."""

import os
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib import metadata, util
from pathlib import Path

from harness.observe.gpus import gpu_count

_NCCL_WHEELS = ("nvidia-nccl-cu13", "nvidia-nccl-cu12", "nvidia-nccl-cu11")
_CUDA = re.compile(r"^cuda\b.*=\s*'([^']+)'", re.MULTILINE)


@dataclass(frozen=True)
class Machine:
    """Cards that a job may use; torch's version; the CUDA that it was built with, None for a CPU build.

    `nccl` is the version of NCCL's wheel: None where torch brings its own, and the ranks must be asked.
    """

    gpus: int = 0
    torch: str | None = None
    cuda: str | None = None
    nccl: str | None = None

    @property
    def why_no_nccl(self) -> str | None:
        """Why no rank can use NCCL here, or None if one can."""
        if not self.gpus:
            return "no GPU on this machine"
        if self.cuda is None:
            found = f"torch {self.torch} is built without CUDA" if self.torch else "torch is not installed"
            return f"{_cards(self.gpus)}, but {found}"
        return None


def look(environ: Mapping[str, str] = os.environ) -> Machine:
    """This machine, now. CUDA_VISIBLE_DEVICES counts as ranks would see it."""
    return Machine(
        gpus=min(gpu_count(), _visible(environ.get("CUDA_VISIBLE_DEVICES"))),
        torch=_version("torch"),
        cuda=_built_with(),
        nccl=next((v for name in _NCCL_WHEELS if (v := _version(name))), None),
    )


def _cards(count: int) -> str:
    return f"{count} GPU{'' if count == 1 else 's'}"


def _visible(named: str | None) -> int:
    """How many devices CUDA_VISIBLE_DEVICES lets through: those before the first that is no device."""
    if named is None:
        return 1 << 30
    names = [name.strip() for name in named.split(",")]
    return next((i for i, name in enumerate(names) if name in ("", "-1", "NoDevFiles", "void")), len(names))


def _version(distribution: str) -> str | None:
    with suppress(metadata.PackageNotFoundError):
        return metadata.version(distribution)
    return None


def _built_with() -> str | None:
    """The CUDA version in torch's version.py; finding a package does not import it."""
    with suppress(ImportError, OSError, ValueError):
        spec = util.find_spec("torch")
        if spec is not None and spec.origin:
            found = _CUDA.search(Path(spec.origin).with_name("version.py").read_text(encoding="utf-8"))
            return found[1] if found else None
    return None
