"""`drill gate FILE`."""

import dataclasses
import json
from pathlib import Path

import click

from harness.cli.checklist import FILE, OUT, opened
from harness.cli.common import ENV_FILES, ENV_SCRIPTS, json_option


@click.command("gate")
@FILE
@click.option("--accept-rehearsed", is_flag=True, help="A rehearsal on CPUs is enough for this job.")
@click.option(
    "--allowed-signers",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Only SSH signatures of these people count (ssh-keygen's allowed_signers).",
)
@click.option("--gpg", is_flag=True, help="Only GPG signatures that the keyring knows count.")
@ENV_FILES
@ENV_SCRIPTS
@OUT
@json_option
def command(
    file: Path,
    accept_rehearsed: bool,
    allowed_signers: Path | None,
    gpg: bool,
    env_files: tuple[Path, ...],
    env_scripts: tuple[Path, ...],
    out: Path | None,
    as_json: bool,
) -> None:
    """Let the launch through, or say what is in the way. FILE is the checklist.

    Exit code 0: every item has passed or is waived, nothing has expired, all of it fits this code,
    configuration and machine, and it is signed. 1: not so; 4: there is no result at all.
    """
    from harness.bundle.codec import to_json
    from harness.checklist.keys import Verifiers
    from harness.checklist.standing import damage, nothing_run, stand
    from harness.model.errors import PrerequisiteError
    from harness.report.obstacles import obstacle_lines

    if allowed_signers is not None and not allowed_signers.is_file():
        raise PrerequisiteError(f"--allowed-signers {allowed_signers}: no such file")
    checklist, store, now = opened(file, out, env_files, env_scripts)
    now = dataclasses.replace(now, verifiers=Verifiers(allowed_signers, gpg))
    chain = store.chain()
    standings = stand(checklist, chain, now, accept_rehearsed=accept_rehearsed)
    obstacles = [
        *damage(checklist, chain, now.options),
        *(obstacle for standing in standings for obstacle in standing.obstacles),
    ]
    nothing = not any(entry.run for entry in chain.entries) and chain.broken is None
    if nothing and not obstacles:
        obstacles.append(nothing_run(checklist, now.options))
    if as_json:
        document = {"schema": "drill/gate/1", "open": not obstacles, "obstacles": to_json(obstacles)}
        waived = [to_json(s.waiver) for s in standings if s.waiver and not s.obstacles]
        click.echo(json.dumps({**document, "waivers": waived}))
    elif obstacles:
        click.echo(f"gate closed: {checklist.name}: {len(obstacles)} in the way", err=True)
        for line in obstacle_lines(obstacles):
            click.echo(line, err=True)
    else:
        waived_ids = [s.item.id for s in standings if s.waiver is not None]
        people = ", ".join(sorted({s.signed_by for s in standings if s.signed_by}))
        note = f"; waived: {', '.join(waived_ids)}" if waived_ids else ""
        click.echo(
            f"gate open: {checklist.name}: {len(standings)} items, signed by {people or 'nobody'}{note}"
        )
    if obstacles:
        raise SystemExit(4 if nothing else 1)
