"""Signatures by the user's own tools: ssh-keygen and gpg. The keys never come near us."""

import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.model.errors import PrerequisiteError, UsageError

NAMESPACE = "drill-checklist"
"""What ssh-keygen binds a signature to, so that one made for another purpose does not count."""

LIMIT_S = 120.0
"""A person may have to type a passphrase or touch a token."""


@dataclass(frozen=True)
class Verifiers:
    """Whom a gate believes: an allowed_signers file of ssh, the keyring of gpg."""

    allowed_signers: Path | None = None
    gpg: bool = False

    @property
    def any(self) -> bool:
        """Whether a signature with a key is asked for."""
        return self.gpg or self.allowed_signers is not None


def sign_with_ssh(payload: bytes, key: Path) -> dict[str, str]:
    """Sign with an SSH key; for a public key its agent is asked.

    Raises:
        PrerequisiteError: no ssh-keygen, or no such key.
        UsageError: ssh-keygen refuses.
    """
    tool = _tool("ssh-keygen", "openssh-client")
    if not key.exists():
        raise PrerequisiteError(f"--ssh-key {key}: no such file")
    with tempfile.TemporaryDirectory(prefix="drill-sign-") as folder:
        message = Path(folder) / "results"
        message.write_bytes(payload)
        _run((tool, "-Y", "sign", "-n", NAMESPACE, "-f", str(key), str(message)), f"--ssh-key {key}")
        return {"kind": "ssh", "text": message.with_name("results.sig").read_text()}


def sign_with_gpg(payload: bytes, key: str) -> dict[str, str]:
    """Sign with a GPG key, detached and armoured.

    Raises:
        PrerequisiteError: no gpg.
        UsageError: gpg refuses.
    """
    tool = _tool("gpg", "gnupg")
    with tempfile.TemporaryDirectory(prefix="drill-sign-") as folder:
        message = Path(folder) / "results"
        message.write_bytes(payload)
        _run((tool, "--batch", "--armor", "--detach-sign", "--local-user", key, str(message)), f"--gpg {key}")
        return {"kind": "gpg", "text": message.with_name("results.asc").read_text()}


def why_not_verified(
    payload: bytes, signature: dict[str, str], name: str, verifiers: Verifiers
) -> str | None:
    """None if one of the asked tools vouches for `name`'s signature, else the reason."""
    kind, text = signature.get("kind"), signature.get("text", "")
    if not kind:
        return f"{name} signed without a key"
    with tempfile.TemporaryDirectory(prefix="drill-verify-") as folder:
        signed = Path(folder) / "signature"
        signed.write_text(text)
        if kind == "ssh" and verifiers.allowed_signers is not None:
            command: Sequence[str] = (
                *(_tool("ssh-keygen", "openssh-client"), "-Y", "verify", "-n", NAMESPACE),
                *("-f", str(verifiers.allowed_signers), "-I", name, "-s", str(signed)),
            )
            done = subprocess.run(command, input=payload, capture_output=True, timeout=LIMIT_S)
            return None if done.returncode == 0 else f"ssh-keygen does not accept {name}'s signature"
        if kind == "gpg" and verifiers.gpg:
            return _gpg_verdict(payload, signed, name)
    return f"{name} signed with {kind}, which is not what this gate asks for"


def _gpg_verdict(payload: bytes, signed: Path, name: str) -> str | None:
    message = signed.with_name("results")
    message.write_bytes(payload)
    command = (_tool("gpg", "gnupg"), "--batch", "--status-fd", "1", "--verify", str(signed), str(message))
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=LIMIT_S)
    good = next((line for line in done.stdout.splitlines() if "] GOODSIG " in line), "")
    if done.returncode != 0 or not good:
        return f"gpg does not accept {name}'s signature"
    user = good.partition("] GOODSIG ")[2].partition(" ")[2].strip()
    return None if name in _names_of(user) else f"gpg says that the key is {user}'s, not {name}'s"


def _names_of(user: str) -> tuple[str, ...]:
    """What the owner of ``Ada Lovelace (work) <ada@x.org>`` may sign as: all of it, the name, the address."""
    found = re.fullmatch(r"([^(<]*?)\s*(?:\([^)]*\))?\s*(?:<([^<>]*)>)?", user)
    parts = found.groups() if found else ()
    return (user, *(part for part in parts if part))


def _tool(name: str, package: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise PrerequisiteError(f"there is no {name} here: apt-get install {package}")
    return found


def _run(command: Sequence[str], option: str) -> None:
    try:
        done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        raise UsageError(f"{option}: {command[0]} did not answer within {LIMIT_S:g} s") from None
    if done.returncode != 0:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        raise UsageError(f"{option}: {said[-1] if said else 'the tool refused'}")
