"""Drills and checklists as pytest tests.

    pytest checklists/pretrain.yaml            every item a test
    pytest --drill fr_hang --drill-culprit all every drill that is named a test, a culprit each

Passed and rehearsed items pass (a rehearsal says so in its report), failed ones fail, inconclusive ones are
errors, what could not run is skipped. Whole-machine items and all drills run one at a time, under xdist too.
"""

import fcntl
import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from harness.checklist.surroundings import Surroundings
    from harness.model.checklist import Checklist, Fingerprint, Item, ItemResult
    from harness.model.plan import RunPlan


def pytest_addoption(parser: pytest.Parser) -> None:
    """Options of the plugin."""
    group = parser.getgroup("drill", "drills of distributed training")
    group.addoption(
        "--drill", action="append", default=[], metavar="NAME|all", help="run this drill. Repeatable."
    )
    group.addoption("--drill-mode", action="append", default=[], metavar="MODE", help="in this mode, or: all")
    group.addoption(
        "--drill-culprit", metavar="N[,N]|all", help="break these ranks, a test each; all: every rank"
    )
    group.addoption(
        "--drill-backend", default="auto", metavar="auto|gloo|nccl", help="as `drill run --backend`"
    )
    group.addoption("--drill-out", type=Path, default=None, metavar="DIR", help="folder of bundles. [runs]")
    group.addoption(
        "--drill-env-file", action="append", type=Path, default=[], metavar="FILE", help="job's env file"
    )


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """A checklist that was named on the command line is a file of tests."""
    if file_path.suffix not in (".yaml", ".yml") or not _named(file_path, parent.config):
        return None
    from harness.checklist.schema import is_checklist

    if not is_checklist(file_path):
        return None
    return ChecklistFile.from_parent(parent, path=file_path)


def pytest_collection_modifyitems(session: pytest.Session, items: list[pytest.Item]) -> None:
    """Drills that were named are tests beside whatever was collected."""
    names = session.config.getoption("--drill")
    if names:
        items.extend(Drills.from_parent(session, name="drill").collect())


def pytest_configure(config: pytest.Config) -> None:
    """With ``--drill`` alone nothing else is collected: a bare pytest would run the project's own tests."""
    config.addinivalue_line("markers", "drill: a drill or an item of a checklist")
    if config.getoption("--drill-env-file"):
        from harness.model.errors import DrillError

        try:
            _job(config)
        except DrillError as error:
            raise pytest.UsageError(f"--drill-env-file: {error}") from None
    if config.getoption("--drill") and not _given(config):
        config.args = []
        config.option.drill_alone = True


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Nothing of the folder that pytest would fall back to."""
    return True if getattr(config.option, "drill_alone", False) else None


def _given(config: pytest.Config) -> bool:
    """Whether files or folders were named on the command line."""
    return config.args_source is pytest.Config.ArgsSource.ARGS


def _named(path: Path, config: pytest.Config) -> bool:
    root = config.invocation_params.dir
    return any((root / argument.partition("::")[0]).resolve() == path.resolve() for argument in config.args)


class _DrillTest(pytest.Item):
    """A test that is decided before its call: an error in its set-up is pytest's word for inconclusive."""

    exclusive = True

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.add_marker("drill")
        self._failure: str | None = None

    def setup(self) -> None:
        """Run it."""
        with _machine(exclusive=self.exclusive):
            self.run()

    def run(self) -> None:
        """Set `_failure`, fail at once where it is inconclusive, or skip."""
        raise NotImplementedError

    def runtest(self) -> None:
        """Say what was found."""
        if self._failure is not None:
            pytest.fail(self._failure, pytrace=False)

    def note(self, **properties: str | None) -> None:
        """Properties of the JUnit test case, and a section of the report."""
        for name, value in properties.items():
            if value is not None:
                self.user_properties.append((name, value))
        self.add_report_section("setup", "drill", "\n".join(f"{k}: {v}" for k, v in properties.items() if v))


class ChecklistFile(pytest.File):
    """One checklist; its items in order."""

    def collect(self) -> Iterable[pytest.Item]:
        """Raises its own message where the file is no valid checklist."""
        from harness.checklist.schema import read_checklist
        from harness.model.errors import DrillError

        try:
            checklist = read_checklist(self.path)
        except DrillError as error:
            raise self.CollectError(str(error)) from None
        for item in checklist.items:
            yield ChecklistItem.from_parent(self, name=item.id, checklist=checklist, item=item)


class ChecklistItem(_DrillTest):
    """One item of a checklist."""

    def __init__(self, *, checklist: "Checklist", item: "Item", **arguments: Any) -> None:
        super().__init__(**arguments)
        self.exclusive = item.whole_machine or any(step.kind == "drill" for step in item.steps)
        self._checklist = checklist
        self._item = item

    def reportinfo(self) -> tuple[Path, int, str]:
        """Where the item stands."""
        return self.path, self._item.line - 1, f"{self._checklist.name}: {self._item.title}"

    def run(self) -> None:
        """Run the item; its result is stored as `drill checklist run --item` stores it."""
        from harness.model.checklist import ItemOutcome

        result = self._result()
        bundles = [step.bundle for step in result.steps if step.bundle]
        self.note(outcome=result.outcome.value, why=result.why, bundle=", ".join(bundles) or None)
        text = f"{self._item.title}: {result.why}" + "".join(f"\n  look: {bundle}" for bundle in bundles)
        if result.outcome is ItemOutcome.NOT_RUN:
            pytest.skip(result.why)
        if result.outcome is ItemOutcome.INCONCLUSIVE:
            pytest.fail(f"inconclusive: {text}", pytrace=False)
        if result.outcome is ItemOutcome.FAIL:
            self._failure = text

    def _result(self) -> "ItemResult":
        from harness.checklist.fingerprint import digest
        from harness.checklist.run import Runner
        from harness.checklist.store import Store
        from harness.checklist.surroundings import Surroundings
        from harness.testing import shared_launcher

        config = self.config
        store = Store.of(self._checklist.name, _out(config))
        with (
            Surroundings.open(
                _job(config),
                store.folder / "bundles",
                backend=config.getoption("--drill-backend"),
                client=shared_launcher(),
            ) as around,
            _machine(exclusive=True, name=f"store-{digest(str(store.folder.resolve()))[:12]}"),
        ):
            runner = Runner(self._checklist, store, around, self._fingerprint(around))
            (result,) = runner.run([self._item.id]).run.items
        return result

    def _fingerprint(self, around: "Surroundings") -> "Fingerprint":
        from harness.checklist.fingerprint import take_fingerprint

        return take_fingerprint(self._checklist, around.job, around.bundles.parent)


class Drills(pytest.Collector):
    """The drills of ``--drill``."""

    def collect(self) -> Iterable[pytest.Item]:
        """A test for each drill, mode and culprit that the options ask for."""
        from harness.catalog.find import all_drills, find_drill
        from harness.model.errors import DrillError

        config = self.config
        try:
            names = config.getoption("--drill")
            for name in [spec.name for spec in all_drills()] if names == ["all"] else names:
                spec = find_drill(name)
                modes = config.getoption("--drill-mode") or [spec.default_mode]
                for mode in spec.modes if modes == ["all"] else modes:
                    breaks = bool(spec.culprit) and spec.modes.get(mode) is not None
                    nobody = breaks and spec.modes[mode].expect.accused == "nobody"
                    for culprit in _culprits(config, spec.nproc) if breaks and not nobody else [None]:
                        label = f"{name}[{mode}{f'-{culprit}' if culprit else ''}]"
                        yield DrillItem.from_parent(self, name=label, drill=name, mode=mode, culprit=culprit)
        except DrillError as error:
            raise pytest.UsageError(str(error)) from None


def _culprits(config: pytest.Config, nproc: int) -> list[str | None]:
    wanted = config.getoption("--drill-culprit")
    if wanted is None:
        return [None]
    return [str(rank) for rank in range(nproc)] if wanted == "all" else [*wanted.split(",")]


class DrillItem(_DrillTest):
    """One drill, end to end."""

    def __init__(self, *, drill: str, mode: str, culprit: str | None, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._drill, self._mode, self._culprit = drill, mode, culprit

    def reportinfo(self) -> tuple[Path, None, str]:
        """By its name."""
        return self.path, None, f"drill {self.name}"

    def run(self) -> None:
        """Run the drill and read its verdict."""
        from harness.model.errors import PrerequisiteError
        from harness.model.verdict import Outcome
        from harness.report.summary import misses
        from harness.testing import run_plan

        try:
            run = run_plan(self._plan())
        except PrerequisiteError as error:
            pytest.skip(str(error))
        self.note(
            verdict=run.verdict.verdict.value,
            bundle=str(run.bundle),
            diagnosis=run.result.diagnosis.summary,
        )
        if run.verdict.verdict is Outcome.PASS:
            return
        lines = (run.result.diagnosis.summary, *misses(run), f"look: drill diagnose {run.bundle}")
        text = "\n  ".join(lines)
        if run.verdict.verdict is Outcome.INCONCLUSIVE:
            pytest.fail(f"inconclusive: {text}", pytrace=False)
        self._failure = text

    def _plan(self) -> "RunPlan":
        from harness.catalog.find import find_drill
        from harness.catalog.planning import plan_run
        from harness.catalog.settings import Sources, settle
        from harness.jobenv import relevant

        config = self.config
        out = _out(config)
        flags = {
            "mode": self._mode,
            "culprit": self._culprit,
            "backend": config.getoption("--drill-backend"),
            "out": str(out) if out else None,
        }
        spec = find_drill(self._drill)
        job = _job(config)
        return plan_run(
            spec, settle(spec, Sources.read(flags, [])), relevant(job.over({})) if job.files else None
        )


def _out(config: pytest.Config) -> Path | None:
    out = config.getoption("--drill-out")
    assert out is None or isinstance(out, Path)
    return out


def _job(config: pytest.Config) -> Any:
    from harness.jobenv import read_job_environment

    return read_job_environment(config.getoption("--drill-env-file"))


@contextmanager
def _machine(*, exclusive: bool, name: str = "machine") -> Iterator[None]:
    """One at a time for what needs the whole machine, several for the rest; over all processes here."""
    path = Path(tempfile.gettempdir()) / f"drill-pytest-{os.getuid()}-{name}.lock"
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH)
        yield
