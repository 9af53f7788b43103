"""A drill whose dumps go where the real job's would go, and from there into the bundle."""

import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from harness.bundle.layout import Layout
from harness.model.errors import PrerequisiteError
from harness.model.ranks import format_ranks
from harness.observe.dumps import PREFIX_VARIABLES


@dataclass(frozen=True)
class JobDumpPath:
    """`prefix`: as the job's own environment has it; the rank is appended. Nothing of it is kept there."""

    prefix: str
    layout: Layout
    nproc: int

    @classmethod
    def of(cls, job: Mapping[str, str] | None, layout: Layout, nproc: int) -> "JobDumpPath | None":
        """The path that a job's environment states; None where there is no job, or it states none."""
        prefix = next((job[name] for name in PREFIX_VARIABLES if job.get(name)), None) if job else None
        return cls(prefix, layout, nproc) if prefix else None

    def prepare(self) -> None:
        """Let the bundle's files be links to the job's.

        Raises:
            PrerequisiteError: dumps of an earlier incident lie there: a drill overwrites no evidence.
        """
        earlier = [rank for rank in range(self.nproc) if self._job_file(rank).exists()]
        if earlier:
            raise PrerequisiteError(
                f"{self.prefix}*: dumps of rank {format_ranks(earlier)} are there from before, and would be "
                "overwritten: move them away first"
            )
        for rank in range(self.nproc):
            link = self.layout.dump(0, rank)
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(self._job_file(rank).absolute())

    def settle(self) -> list[str]:
        """Move the dumps into the bundle, so that the path is as it was. Returns what went wrong."""
        failed = []
        for rank in range(self.nproc):
            link, file = self.layout.dump(0, rank), self._job_file(rank)
            with suppress(FileNotFoundError):
                link.unlink()
            if not file.exists():
                continue
            try:
                shutil.move(file, link)
            except OSError as error:
                failed.append(f"{file}: {error.strerror}")
        return failed

    def _job_file(self, rank: int) -> Path:
        return Path(f"{self.prefix}{rank}")
