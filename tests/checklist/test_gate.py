"""What opens a gate, what keeps it shut, and who may sign: each obstacle with the command that removes it."""

import dataclasses
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.checklist.keys import Verifiers
from harness.checklist.signing import Key, sign, waiver
from harness.checklist.standing import Now, stand
from harness.checklist.store import Store
from harness.model.checklist import Checklist, ItemOutcome
from harness.model.errors import PrerequisiteError, UsageError
from tests.checklist.made import (
    BAD,
    GOOD,
    PERSON,
    StopAfter,
    checklist,
    item,
    now,
    prints,
    run,
    standings,
)

REHEARSED = item(
    "card",
    json.dumps({**json.loads(prints({"rate": 1}, "rate == 1")), "rehearsal": {"takes": "1s"}}),
    needs="gpu",
)


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runbook.md").write_text("what to do")
    return Store(tmp_path / "results")


def why(made: Checklist, store: Store, **how: float) -> dict[str, str]:
    """What is in the way, by item."""
    return {
        id_: standing.obstacles[0].why
        for id_, standing in standings(made, store, **how).items()  # type: ignore[arg-type]
        if standing.obstacles
    }


def test_a_signed_pass_opens(tmp_path: Path, store: Store) -> None:
    """Run, then signed: nothing is in the way."""
    made = checklist(tmp_path, GOOD, PERSON)
    assert why(made, store) == {"good": "never run", "person": "never run"}
    run(made, store)
    assert why(made, store) == {
        "good": "nobody has signed for it",
        "person": "only a person can pass it, and nobody has",
    }

    sign(made, store, now(made, store), "Ada")

    found = standings(made, store)
    assert {s.signed_by for s in found.values()} == {"Ada"}
    assert {s.outcome for s in found.values()} == {ItemOutcome.PASS}
    assert not any(s.obstacles for s in found.values())


def test_a_failed_item_cannot_be_signed_away(tmp_path: Path, store: Store) -> None:
    """Nothing is stored; the item is named with the command that runs it again."""
    made = checklist(tmp_path, GOOD, BAD)
    run(made, store)

    signed = sign(made, store, now(made, store), "Ada")

    assert signed.path is None
    assert [standing.item.id for standing in signed.refused] == ["bad"]
    assert "drill checklist run" in signed.refused[0].obstacles[0].remedy
    assert len(store.chain().entries) == 1


def test_single_items_can_be_signed_for(tmp_path: Path, store: Store) -> None:
    """The person's own item, beside one that is still open."""
    made = checklist(tmp_path, GOOD, BAD, PERSON)
    run(made, store)

    sign(made, store, now(made, store), "Ada", ["person"])

    assert set(why(made, store)) == {"good", "bad"}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            lambda made: made.path.write_text(made.path.read_text() + "# changed\n"),
            "checklist itself was changed",
        ),
        (lambda made: os.environ.update(NCCL_DEBUG="INFO"), "environment NCCL_DEBUG was not set, is 'INFO'"),
        (lambda made: (made.path.parent / "model.py").write_text("lr = 2"), "code uncommitted was"),
    ],
)
def test_results_hold_for_what_they_were_run_for(
    tmp_path: Path,
    store: Store,
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[Checklist], object],
    said: str,
) -> None:
    """Another checklist, environment or code: it says what differs."""
    monkeypatch.setenv("NCCL_DEBUG", "x")
    monkeypatch.delenv("NCCL_DEBUG")
    (tmp_path / "model.py").write_text("lr = 1")
    subprocess.run(("git", "init", "-q"), check=True)
    subprocess.run(
        ("git", "-c", "user.name=x", "-c", "user.email=x", "commit", "-q", "--allow-empty", "-m", "x"),
        check=True,
    )
    made = checklist(tmp_path, GOOD)
    run(made, store)
    sign(made, store, now(made, store), "Ada")
    assert not why(made, store)

    change(made)

    assert said in why(made, store)["good"]


def test_other_machines_matter_to_hardware_only(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was measured on other nodes says nothing of these; whether the checkpoint resumes does."""
    made = checklist(tmp_path, GOOD, REHEARSED, job="cpu")
    run(made, store)
    sign(made, store, now(made, store), "Ada")

    monkeypatch.setenv("SLURM_JOB_NODELIST", "node[001-128]")

    assert set(why(made, store)) == {"card"}
    assert "topology nodes was" in why(made, store)["card"]


def test_a_rehearsal_is_not_enough_for_a_gpu_job(tmp_path: Path, store: Store) -> None:
    """Unless the caller says that it is; a checklist of a CPU job says so itself."""
    made = checklist(tmp_path, REHEARSED, job="gpu")
    run(made, store)
    sign(made, store, now(made, store), "Ada")

    assert "only rehearsed" in why(made, store)["card"]
    assert not why(made, store, accept_rehearsed=True)
    assert standings(made, store)["card"].outcome is ItemOutcome.REHEARSED


def test_results_expire(tmp_path: Path, store: Store) -> None:
    """Hardware after a day, the rest after a week, or as the item says."""
    short = item("short", prints({"a": 1}, "a == 1"), valid_for="2h")
    made = checklist(tmp_path, GOOD, REHEARSED, short)
    run(made, store)
    sign(made, store, now(made, store), "Ada")

    assert not why(made, store, later_s=3600)
    assert set(why(made, store, later_s=3 * 3600)) == {"short"}
    assert set(why(made, store, later_s=25 * 3600)) == {"short", "card"}
    assert set(why(made, store, later_s=8 * 86400)) == {"short", "card", "good"}
    assert "25 h old and holds for 24 h" in why(made, store, later_s=25 * 3600 + 60)["card"]


def test_a_clock_that_is_wrong_opens_nothing(tmp_path: Path, store: Store) -> None:
    """A result from the future is of a machine whose clock is ahead, or ours is behind."""
    made = checklist(tmp_path, GOOD)
    run(made, store)

    assert "a clock is wrong" in why(made, store, later_s=-7200)["good"]


def test_a_run_after_the_signature_wants_another(tmp_path: Path, store: Store) -> None:
    """A signature is for the very results that the person saw."""
    made = checklist(tmp_path, GOOD)
    run(made, store)
    sign(made, store, now(made, store), "Ada")
    run(made, store)

    assert why(made, store) == {"good": "run again after Ada signed"}


def test_a_damaged_signature_counts_for_nothing(tmp_path: Path, store: Store) -> None:
    """Edited into covering another item: it is no signature any more, and neither is what it followed."""
    made = checklist(tmp_path, GOOD)
    run(made, store)
    signed = sign(made, store, now(made, store), "Ada")
    assert signed.path is not None
    signed.path.write_text(signed.path.read_text().replace("Ada", "Bob"))

    assert why(made, store) == {"good": "never run"}


def test_a_waiver_needs_a_reason_an_owner_and_an_end() -> None:
    """And it ends within ninety days."""
    at = time.time()
    day = time.strftime("%Y-%m-%d", time.gmtime(at + 3 * 86400))

    granted = waiver("bad", " a  new card\nis coming ", "Bob", day, at)

    assert (granted.reason, granted.owner) == ("a new card is coming", "Bob")
    assert 3 * 86400 <= granted.until - at < 4 * 86400
    for reason, owner, until in (
        ("", "Bob", day),
        ("x", " ", day),
        ("x", "Bob", "9999-12-31"),
        ("x", "Bob", ""),
    ):
        with pytest.raises(UsageError):
            waiver("bad", reason, owner, until, at)
    with pytest.raises(UsageError, match="is over"):
        waiver("bad", "x", "Bob", "2020-01-01", at)
    with pytest.raises(UsageError, match="90 days"):
        waiver("bad", "x", "Bob", "2999-01-01", at)


def test_a_waived_item_is_let_through_until_the_day_is_over(tmp_path: Path, store: Store) -> None:
    """It shows as waived, with reason, owner and end; afterwards it is in the way again."""
    made = checklist(tmp_path, GOOD, BAD)
    run(made, store)
    day = time.strftime("%Y-%m-%d", time.gmtime(time.time() + 86400))
    sign(made, store, now(made, store), "Ada", waivers=[waiver("bad", "new card", "Bob", day)])
    sign(made, store, now(made, store), "Ada")

    assert not why(made, store)
    standing = standings(made, store)["bad"]
    assert standing.outcome is ItemOutcome.WAIVED
    assert standing.why == f"new card (owner Bob, until {day})"
    later = why(made, store, later_s=3 * 86400)
    assert list(later) == ["bad"]
    assert later["bad"].startswith(f"its waiver ended on {day}, and fail")


def test_who_cannot_sign(tmp_path: Path, store: Store) -> None:
    """Without a name, without results, for an item that does not exist."""
    made = checklist(tmp_path, GOOD)
    with pytest.raises(PrerequisiteError, match="no results to sign"):
        sign(made, store, now(made, store), "Ada")
    run(made, store)
    with pytest.raises(UsageError, match="there is no item 'x'; there are: good"):
        sign(made, store, now(made, store), "Ada", ["x"])
    with pytest.raises(UsageError, match="say who signs"):
        sign(made, store, now(made, store), "  ")


@pytest.fixture
def keys(tmp_path: Path) -> Callable[[str], Path]:
    """SSH keys by name; each is allowed to sign for its name."""

    def make(name: str) -> Path:
        key = tmp_path / f"key-{name}"
        subprocess.run(
            ("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", str(key)), check=True
        )
        with (tmp_path / "allowed").open("a") as file:
            file.write(f"{name} {key.with_suffix('.pub').read_text()}")
        return key

    return make


@pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="no ssh-keygen")
def test_ssh_signatures_count_where_they_are_asked_for(
    tmp_path: Path, store: Store, keys: Callable[[str], Path]
) -> None:
    """The right key opens; a name alone, another's key, or a key that nobody allowed does not."""
    made = checklist(tmp_path, GOOD)
    run(made, store)
    ada, bob = keys("Ada"), keys("Bob")

    def in_the_way() -> str:
        asked = Now(
            now(made, store).fingerprint, time.time(), Verifiers(allowed_signers=tmp_path / "allowed")
        )
        (standing,) = stand(made, store.chain(), asked, accept_rehearsed=False)
        return standing.obstacles[0].why if standing.obstacles else ""

    sign(made, store, now(made, store), "Ada")
    assert in_the_way() == "Ada signed without a key"
    sign(made, store, now(made, store), "Ada", key=Key(ssh=bob))
    assert in_the_way() == "ssh-keygen does not accept Ada's signature"
    sign(made, store, now(made, store), "Ada", key=Key(ssh=ada))
    assert in_the_way() == ""


@pytest.mark.skipif(shutil.which("gpg") is None, reason="no gpg")
def test_gpg_signatures_count_where_they_are_asked_for(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A key in the keyring whose name is the signer's; another's name is told from it."""
    home = tmp_path / "gpg"
    home.mkdir(mode=0o700)
    monkeypatch.setenv("GNUPGHOME", str(home))
    generate = (
        "gpg",
        "--batch",
        "--quiet",
        "--passphrase",
        "",
        "--quick-generate-key",
        "Ada <ada@example.org>",
    )
    subprocess.run(generate, check=True, capture_output=True)
    made = checklist(tmp_path, GOOD)
    run(made, store)

    def in_the_way() -> str:
        asked = Now(now(made, store).fingerprint, time.time(), Verifiers(gpg=True))
        (standing,) = stand(made, store.chain(), asked, accept_rehearsed=False)
        return standing.obstacles[0].why if standing.obstacles else ""

    try:
        for other in ("Mallory", "Ad", "example", "GOODSIG"):
            sign(made, store, now(made, store), other, key=Key(gpg="ada@example.org"))
            assert f"Ada <ada@example.org>'s, not {other}'s" in in_the_way()
        sign(made, store, now(made, store), "Ada", key=Key(gpg="ada@example.org"))
        assert in_the_way() == ""
    finally:
        subprocess.run(("gpgconf", "--kill", "all"), check=True)


def cli(*arguments: str, cwd: Path, **environ: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        (sys.executable, "-m", "harness.cli", *arguments),
        cwd=cwd,
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_the_commands_from_nothing_to_an_open_gate(tmp_path: Path, store: Store) -> None:
    """Exit codes and words at each stage, as a launch script sees them."""
    checklist(tmp_path, GOOD, PERSON)

    nothing = cli("gate", "mine.yaml", cwd=tmp_path)
    ran = cli("checklist", "run", "mine.yaml", "--json", cwd=tmp_path)
    unsigned = cli("gate", "mine.yaml", "--json", cwd=tmp_path)
    signed = cli("checklist", "sign", "mine.yaml", "--as", "Ada", cwd=tmp_path)
    opened = cli("gate", "mine.yaml", cwd=tmp_path)
    otherwise = cli("gate", "mine.yaml", cwd=tmp_path, NCCL_ALGO="Ring")

    assert (nothing.returncode, nothing.stdout) == (4, "")
    assert "good, person: never run" in nothing.stderr
    assert "drill checklist run mine.yaml --item good --item person" in nothing.stderr
    document = json.loads(ran.stdout)
    assert (ran.returncode, document["schema"]) == (0, "drill/checklist/1")
    assert [i["outcome"] for i in document["items"]] == ["pass", "not_run"]
    gate = json.loads(unsigned.stdout)
    assert (unsigned.returncode, gate["schema"], gate["open"]) == (1, "drill/gate/1", False)
    assert [set(o) for o in gate["obstacles"]] == [{"item", "why", "remedy"}] * 2
    assert signed.returncode == 0, signed.stderr
    assert (opened.returncode, opened.stdout) == (0, "gate open: mine: 2 items, signed by Ada\n"), (
        opened.stderr
    )
    assert otherwise.returncode == 1
    assert "environment NCCL_ALGO was not set, is 'Ring'" in otherwise.stderr


def test_the_gate_imports_little() -> None:
    """It sits in every launch: no torch, no rich, none of the rooms that run or diagnose."""
    code = (
        "import sys; from click.testing import CliRunner; from harness.cli import cli\n"
        "CliRunner().invoke(cli, ['gate', 'none.yaml'])\n"
        "import harness.checklist.standing, harness.checklist.store\n"
        "print([m for m in sys.modules if m.split('.')[0] in ('torch', 'numpy', 'hyperscan', 'polars')\n"
        "       or m.startswith(('harness.diagnose', 'harness.launch', 'harness.experiment'))])"
    )

    done = subprocess.run((sys.executable, "-c", code), capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"


def test_show_writes_what_a_launch_review_needs(tmp_path: Path, store: Store) -> None:
    """Table, Markdown and HTML: outcome, figure, threshold, waiver; nothing of it is markup by accident."""
    hostile = item("hostile", prints({"rate": 1, "device": "<script>|x|</script>"}, "rate == 1"))
    made = checklist(tmp_path, hostile, BAD)
    run(made, store)
    day = time.strftime("%Y-%m-%d", time.gmtime(time.time() + 86400))
    sign(made, store, now(made, store), "Ada", waivers=[waiver("bad", "<b>new</b> card", "Bob", day)])

    done = cli(
        *("checklist", "show", "mine.yaml", "--out", str(tmp_path), "--md", "x.md", "--html", "x.html"),
        cwd=tmp_path,
    )
    moved = store.folder.rename(tmp_path / "mine")
    again = cli(
        *("checklist", "show", "mine.yaml", "--out", str(tmp_path), "--md", "x.md", "--html", "x.html"),
        cwd=tmp_path,
    )

    assert done.returncode == again.returncode == 0, done.stderr
    assert moved.exists()
    assert "waived" in again.stdout and "nobody has signed for it" in again.stdout
    markdown, page = (tmp_path / "x.md").read_text(), (tmp_path / "x.html").read_text()
    assert "<script>" not in markdown.replace("`<script>", "") and "<script>" not in page
    assert f"until {day}" in page
    assert "## Waivers" in markdown and "## Open" in markdown


@pytest.mark.parametrize(
    ("step", "keys", "said"),
    [
        (prints({"rate": 1}, "rate == 1", code=4), {}, "not run: "),
        (
            json.dumps({**json.loads(prints({"rate": 1}, "rate == 1")), "rehearsal": {"takes": "1s"}}),
            {"needs": "gpu"},
            "only rehearsed",
        ),
    ],
)
def test_a_signature_passes_the_persons_own_step_only(
    tmp_path: Path, store: Store, step: str, keys: dict[str, str], said: str
) -> None:
    """What a machine had to measure beside it was not run, or was rehearsed: no name makes that a pass."""
    made = checklist(tmp_path, item("both", step, "{manual: I have looked}", **keys), job="gpu")
    run(made, store)

    sign(made, store, now(made, store), "Ada")

    assert said in why(made, store)["both"]


def test_signing_takes_the_jobs_files_of_the_run(tmp_path: Path, store: Store) -> None:
    """Nobody has to repeat them; the gate looks at its own environment, and its remedies name them."""
    checklist(tmp_path, GOOD)
    (tmp_path / "launch.sh").write_text("export NCCL_DEBUG=WARN\n")
    ran = cli("checklist", "run", "mine.yaml", "--env-from-script", "launch.sh", cwd=tmp_path)
    assert "sign it: drill checklist sign mine.yaml --as NAME" in ran.stdout

    signed = cli("checklist", "sign", "mine.yaml", "--as", "Ada", cwd=tmp_path)

    assert signed.returncode == 0, signed.stderr
    assert cli("gate", "mine.yaml", cwd=tmp_path, NCCL_DEBUG="WARN").returncode == 0
    shut = cli("gate", "mine.yaml", cwd=tmp_path, NCCL_DEBUG="INFO")
    assert shut.returncode == 1
    assert "drill checklist run mine.yaml --item good --env-from-script launch.sh" in shut.stderr
    (tmp_path / "launch.sh").write_text("export NCCL_DEBUG=INFO\n")
    assert cli("checklist", "sign", "mine.yaml", "--as", "Ada", cwd=tmp_path).returncode == 1


def test_a_dry_run_is_one_json_document_too(tmp_path: Path, store: Store) -> None:
    """What would run, how, and for how long; nothing is stored."""
    checklist(tmp_path, GOOD, PERSON)

    said = json.loads(cli("checklist", "run", "mine.yaml", "--dry-run", "--json", cwd=tmp_path).stdout)

    assert [(step["id"], step["how"]) for step in said["items"]] == [
        ("good", "for real"),
        ("person", "for a person"),
    ]
    assert not (tmp_path / "runs").exists()


def one_day() -> str:
    """The day after tomorrow."""
    return time.strftime("%Y-%m-%d", time.gmtime(time.time() + 2 * 86400))


def test_a_waiver_is_of_one_checklist(tmp_path: Path, store: Store) -> None:
    """Copied into another one's folder, or left from before the file was changed, it excuses nothing."""
    made = checklist(tmp_path, BAD)
    waived = (waiver("bad", "a spare is on its way", "ops", one_day()),)
    run(made, store)
    sign(made, store, now(made, store), "Ada", (), waived)
    assert not why(made, store)

    other = dataclasses.replace(made, name="other")
    assert why(other, store)["bad"].startswith("fail: ")

    made.path.write_text(made.path.read_text() + "# changed\n")
    assert why(made, store)["bad"].startswith("its waiver is of the checklist before it was changed, and ")


def test_a_waiver_from_the_future_does_not_count(tmp_path: Path, store: Store) -> None:
    """Its machine's clock is ahead, and so may be its end."""
    made = checklist(tmp_path, BAD)
    waived = (waiver("bad", "a spare is on its way", "ops", one_day()),)
    run(made, store)
    sign(made, store, now(made, store, later_s=3600), "Ada", (), waived)

    assert why(made, store)["bad"].startswith("its waiver is from the future")


def test_waivers_alone_are_no_result(tmp_path: Path, store: Store) -> None:
    """Where every item is waived and nothing was ever run, the gate says so with code 4."""
    made = checklist(tmp_path, GOOD)
    sign(made, store, now(made, store), "Ada", (), (waiver("good", "no time", "ops", one_day()),))

    shut = cli("gate", "mine.yaml", "--out", str(tmp_path), cwd=tmp_path)
    assert shut.returncode == 4
    store.folder.rename(tmp_path / "mine")
    shut = cli("gate", "mine.yaml", "--out", str(tmp_path), cwd=tmp_path)

    assert shut.returncode == 4
    assert "every item is waived, and nothing was ever run" in shut.stderr


def test_a_run_that_was_cut_short_takes_the_older_results_with_it(tmp_path: Path, store: Store) -> None:
    """A pass from before does not stand for an item that was being run again; resumed, it counts again."""
    made = checklist(tmp_path, GOOD, item("next", prints({"rate": 1}, "rate == 1")))
    run(made, store)
    sign(made, store, now(made, store), "Ada")
    assert not why(made, store)

    run(made, store, listener=StopAfter("good"))

    (standing,) = [s for s in standings(made, store).values() if s.item.id == "next"]
    assert "cut short" in standing.obstacles[0].why
    assert "--resume --item next" in standing.obstacles[0].remedy
    run(made, store, ["next"], resume=True)
    sign(made, store, now(made, store), "Ada")
    assert not why(made, store)


def test_the_code_is_that_of_this_folder(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not that of a repository that git's own variables point to; changes in a clone inside it count, too."""
    for folder in (tmp_path, tmp_path / "inner", tmp_path / "clean"):
        folder.mkdir(exist_ok=True)
        subprocess.run(("git", "init", "-q", str(folder)), check=True)
    (tmp_path / "inner" / "model.py").write_text("lr = 1")
    made = checklist(tmp_path, GOOD)
    run(made, store)
    sign(made, store, now(made, store), "Ada")
    commit = ("git", "-c", "user.name=x", "-c", "user.email=x", "commit", "-q", "--allow-empty", "-m", "x")
    subprocess.run(commit, check=True)
    run(made, store)
    sign(made, store, now(made, store), "Ada")
    assert not why(made, store)

    monkeypatch.setenv("GIT_DIR", str(tmp_path / "clean" / ".git"))
    assert not why(made, store)
    subprocess.run(commit, check=True, cwd=tmp_path / "inner", env=environ_of_folder())
    assert "code uncommitted was" in why(made, store)["good"]


def environ_of_folder() -> dict[str, str]:
    """The environment without git's own variables."""
    return {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
