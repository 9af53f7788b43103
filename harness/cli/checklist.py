"""`drill checklist run | show | sign`."""

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from harness.cli.common import (
    ENV_FILES,
    ENV_SCRIPTS,
    drills_dir_option,
    err_console,
    json_option,
    out_console,
    write_text,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.checklist.standing import Now
    from harness.checklist.store import Store
    from harness.jobenv import JobEnvironment
    from harness.model.checklist import Checklist, ItemStanding, Obstacle

FILE = click.argument("file", type=click.Path(path_type=Path), metavar="FILE")
OUT = click.option(
    "--out", type=click.Path(path_type=Path), metavar="DIR", help="Folder of results. [runs/checklists]"
)


@click.group("checklist")
def command() -> None:
    """The pre-training checklist: run it, look at it, sign it; `drill gate` opens or not.

    FILE is a checklist, or the name of one that ships: pretrain, smoke.
    """


@command.command("run")
@FILE
@click.option("--item", "items", multiple=True, metavar="ID", help="Only this item. Repeatable.")
@click.option("--resume", is_flag=True, help="Keep what a run that was cut short has finished.")
@click.option("--backend", metavar="auto|gloo|nccl", default="auto", help="gloo rehearses on any machine.")
@click.option("--dry-run", is_flag=True, help="Say what would run and about how long it takes.")
@ENV_FILES
@ENV_SCRIPTS
@OUT
@drills_dir_option
@json_option
def run(
    file: Path,
    items: tuple[str, ...],
    resume: bool,
    backend: str,
    dry_run: bool,
    env_files: tuple[Path, ...],
    env_scripts: tuple[Path, ...],
    out: Path | None,
    drills_dirs: tuple[Path, ...],
    as_json: bool,
) -> None:
    """Run the items of a checklist and keep what they came to.

    Exit code 0: all passed or rehearsed; 1: one failed; 3: one is inconclusive; 4: one could not run.
    What only a person can pass waits for `drill checklist sign`.
    """
    from harness.checklist.schema import find_checklist, read_checklist
    from harness.checklist.store import Store
    from harness.jobenv import read_job_environment

    if backend not in ("auto", "gloo", "nccl"):
        from harness.model.errors import UsageError

        raise UsageError(f"--backend {backend}: allowed are auto, gloo, nccl")
    checklist = read_checklist(find_checklist(file))
    job = read_job_environment([*env_files, *env_scripts])
    store = Store.of(checklist.name, out)
    if dry_run:
        _show_plan(checklist, job, backend, items, as_json=as_json)
        return
    raise SystemExit(_run(checklist, store, job, backend, items, drills_dirs, resume, as_json))


def _run(
    checklist: "Checklist",
    store: "Store",
    job: "JobEnvironment",
    backend: str,
    items: "Sequence[str]",
    drills_dirs: "tuple[Path, ...]",
    resume: bool,
    as_json: bool,
) -> int:
    from harness.bundle.codec import to_json
    from harness.checklist.fingerprint import take_fingerprint
    from harness.checklist.run import Runner, exit_code
    from harness.checklist.surroundings import Surroundings
    from harness.report.checklist import show_end
    from harness.report.checklist_progress import ShownRun

    console = err_console() if as_json else out_console()
    with (
        Surroundings.open(job, store.folder / "bundles", drills_dirs, backend) as around,
        ShownRun(console, err_console()) as shown,
    ):
        around.progress = shown.phase
        fingerprint = take_fingerprint(checklist, job, store.folder)
        finished = Runner(checklist, store, around, fingerprint, shown).run(items, resume=resume)
    show_end(console, checklist, finished.run, finished.entry.path)
    code = 130 if finished.interrupted else exit_code(checklist, finished.run)
    if as_json:
        click.echo(
            json.dumps(
                {
                    "schema": "drill/checklist/1",
                    "checklist": checklist.name,
                    "items": to_json(finished.run.items),
                    "complete": finished.run.complete,
                    "remarks": to_json(finished.run.remarks),
                    "stored": str(finished.entry.path),
                }
            )
        )
    return code


def _show_plan(
    checklist: "Checklist", job: "JobEnvironment", backend: str, only: "Sequence[str]", *, as_json: bool
) -> None:
    from harness.checklist.estimate import estimate
    from harness.report.checklist_progress import show_estimate

    if as_json:
        steps = [
            {"id": step.item.id, "step": step.title, "how": step.how, "seconds": step.seconds}
            for step in estimate(checklist, job, backend, only)
        ]
        click.echo(json.dumps({"schema": "drill/checklist/1", "checklist": checklist.name, "items": steps}))
        return
    show_estimate(out_console(), checklist, estimate(checklist, job, backend, only), job)


@command.command("show")
@FILE
@OUT
@ENV_FILES
@ENV_SCRIPTS
@click.option("--md", type=click.Path(path_type=Path), metavar="FILE", help="Write the table as Markdown.")
@click.option("--html", type=click.Path(path_type=Path), metavar="FILE", help="Write it as an HTML page.")
@json_option
def show(
    file: Path,
    out: Path | None,
    env_files: tuple[Path, ...],
    env_scripts: tuple[Path, ...],
    md: Path | None,
    html: Path | None,
    as_json: bool,
) -> None:
    """The table of all items: outcome, figure, threshold, age, waivers, signatures."""
    from harness.bundle.codec import to_json
    from harness.report.checklist import (
        show_obstacles,
        show_standings,
        standings_markdown,
        standings_page,
    )

    checklist, now, standings, damaged = standings_of(file, out, env_files, env_scripts)
    if md is not None:
        write_text("--md", md, standings_markdown(checklist, standings, now.at))
    if html is not None:
        write_text("--html", html, standings_page(checklist, standings, now.at))
    if as_json:
        items = [
            {
                "id": s.item.id,
                "title": s.item.title,
                "criterion": s.item.criterion,
                "outcome": s.outcome.value,
                "why": s.why,
                "age_s": s.age_s,
                "signed_by": s.signed_by,
                "waiver": to_json(s.waiver),
                "result": to_json(s.result),
            }
            for s in standings
        ]
        document = {"schema": "drill/checklist/1", "checklist": checklist.name, "items": items}
        click.echo(json.dumps(document))
        return
    console = out_console()
    show_standings(console, checklist, standings)
    if obstacles := [*damaged, *(o for s in standings for o in s.obstacles)]:
        console.print("\nopen:")
        show_obstacles(console, obstacles)


@command.command("sign")
@FILE
@click.option("--as", "name", required=True, metavar="NAME", help="Who signs.")
@click.option("--item", "items", multiple=True, metavar="ID", help="Sign for this item only. Repeatable.")
@click.option("--waive", metavar="ID", help="Let this item be open for a while.")
@click.option("--reason", metavar="TEXT", default="", help="With --waive: why.")
@click.option("--owner", metavar="NAME", default="", help="With --waive: who answers for it.")
@click.option("--until", metavar="DATE", default="", help="With --waive: its last day, YYYY-MM-DD.")
@click.option("--ssh-key", type=click.Path(path_type=Path), metavar="FILE", help="Sign with this SSH key.")
@click.option("--gpg", metavar="KEY", help="Sign with this GPG key.")
@ENV_FILES
@ENV_SCRIPTS
@OUT
@json_option
def sign(
    file: Path,
    name: str,
    items: tuple[str, ...],
    waive: str | None,
    reason: str,
    owner: str,
    until: str,
    ssh_key: Path | None,
    gpg: str | None,
    env_files: tuple[Path, ...],
    env_scripts: tuple[Path, ...],
    out: Path | None,
    as_json: bool,
) -> None:
    """Sign for the results as they stand: all of them, single items, or a waiver.

    A name binds nobody by itself: against forgery sign with a key, and let the gate ask for it.
    Exit code 1: an item is in no state to be signed for.
    """
    from harness.bundle.codec import to_json
    from harness.checklist.signing import Key, waiver
    from harness.checklist.signing import sign as sign_for
    from harness.model.errors import UsageError
    from harness.report.checklist import show_obstacles

    if ssh_key is not None and gpg is not None:
        raise UsageError("sign with --ssh-key or with --gpg, not both")
    if waive is None and (reason or owner or until):
        raise UsageError(
            "--reason, --owner and --until say why and for how long an item is waived: --waive ID"
        )
    waivers = (waiver(waive, reason, owner, until),) if waive is not None else ()
    checklist, store, now = opened(file, out, env_files, env_scripts, as_run=True)
    signed = sign_for(checklist, store, now, name, items, waivers, Key(ssh_key, gpg))
    if as_json:
        document = {"signed": signed.path is not None, "stored": signed.path and str(signed.path)}
        click.echo(json.dumps({**document, "sign_off": to_json(signed.sign_off)}))
    if signed.refused:
        console = err_console()
        console.print("nothing was signed: run these again, or waive them", style="bold red")
        show_obstacles(console, [o for standing in signed.refused for o in standing.obstacles])
        raise SystemExit(1)
    if not as_json:
        what = f"waived {waive}" if waive else f"signed for {', '.join(signed.sign_off.covers)}"
        out_console().print(f"{name} {what}; stored in {signed.path}", soft_wrap=True, markup=False)


def opened(
    file: Path,
    out: Path | None,
    env_files: "Sequence[Path]",
    env_scripts: "Sequence[Path]",
    *,
    as_run: bool = False,
) -> "tuple[Checklist, Store, Now]":
    """A checklist, its results, and what they are held against here and now.

    `as_run`: unless other ones are given, the job's own files are those that the newest run was given.
    """
    from harness.checklist.fingerprint import take_fingerprint
    from harness.checklist.schema import find_checklist, read_checklist
    from harness.checklist.standing import Now, files_of_newest
    from harness.checklist.store import Store
    from harness.jobenv import options_of, read_job_environment

    checklist = read_checklist(find_checklist(file))
    store = Store.of(checklist.name, out)
    given = [*env_files, *env_scripts]
    recorded = [] if given else [path for path in map(Path, files_of_newest(store.chain())) if path.is_file()]
    job = read_job_environment([*given, *(recorded if as_run else ())])
    # A gate looks at where it is called; what it tells people to run again takes the files of before.
    options = (*options_of([*given, *recorded]), *(("--out", str(out)) if out else ()))
    fingerprint = take_fingerprint(checklist, job, store.folder)
    return checklist, store, Now(fingerprint, time.time(), options=options)


def standings_of(
    file: Path, out: Path | None, env_files: "Sequence[Path]", env_scripts: "Sequence[Path]"
) -> "tuple[Checklist, Now, list[ItemStanding], list[Obstacle]]":
    """Where every item stands, and what is wrong with the stored results."""
    from harness.checklist.standing import damage, stand

    checklist, store, now = opened(file, out, env_files, env_scripts, as_run=True)
    chain = store.chain()
    standings = stand(checklist, chain, now, accept_rehearsed=False)
    return checklist, now, standings, damage(checklist, chain, now.options)
