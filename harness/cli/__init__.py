"""The `drill` command: one file a subcommand, thin, and nothing here imports torch."""

import errno
import sys

import click

from harness import __version__

_COMMANDS = {
    "list": "harness.cli.list_drills",
    "show": "harness.cli.show",
    "new": "harness.cli.new",
    "run": "harness.cli.run",
    "collect": "harness.cli.collect",
    "diagnose": "harness.cli.diagnose",
    "checklist": "harness.cli.checklist",
    "gate": "harness.cli.gate",
    "doctor": "harness.cli.doctor",
    "monitor": "harness.cli.monitor",
    "postmortem": "harness.cli.postmortem",
    "cost": "harness.cli.cost",
}


class _LazyGroup(click.Group):
    """Loads a subcommand's module when it is asked for, so that --help stays fast."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        from importlib import import_module

        command = import_module(_COMMANDS[cmd_name]).command
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(_SUMMARIES.items()))


_SUMMARIES = {
    "list": "drills, one line each",
    "show": "one drill: what it breaks, its parameters and where each value comes from",
    "new": "a drill of your own: its YAML, its script and its test, ready to run and to edit",
    "run": "break a small copy of a job on purpose and check that the right rank is blamed",
    "collect": "take evidence from a running job that was started without drill, and diagnose it",
    "diagnose": "say what happened, from the files of a run or an incident",
    "checklist": "run the pre-training checklist, look at it, sign it",
    "gate": "let a launch through, or say what is in the way",
    "doctor": "can this machine be drilled?",
    "monitor": "metrics, alert rules and panels of a training job",
    "postmortem": "what an incident cost and where the time went, filled in from a run",
    "cost": "what an MFU point, a hang and a checkpoint interval cost",
}


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="drill")
def cli() -> None:
    """Drills for distributed PyTorch training.

    Break it on purpose, and check that the break is noticed, collected, and blamed on the right rank.
    """


def main() -> None:
    """Run the command; every error that a person can cause is one message and an exit code."""
    from harness.model.errors import DrillError

    try:
        cli(standalone_mode=False)
    except click.exceptions.Abort:
        sys.exit(130)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except DrillError as error:
        click.echo(f"drill: {error}", err=True)
        sys.exit(error.exit_code)
    except BrokenPipeError:
        # Whoever read us has gone: end as a process killed by SIGPIPE would, not as a failed drill.
        sys.stderr.close()
        sys.exit(141)
    except Exception as error:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EIO):
            click.echo(f"drill: cannot write: {error.strerror}", err=True)
            sys.exit(4)
        import traceback

        traceback.print_exc()
        click.echo("drill: internal error: this is a bug here; the bundle, if any, is kept", err=True)
        sys.exit(5)
