"""Secrets that only this machine can read: `systemd-creds`, by a key of the machine or its TPM."""

from __future__ import annotations

import tempfile
from pathlib import Path

from conductor.box.command import Run


def sealed(run: Run, name: str, secret: bytes) -> bytes | None:
    """A secret as `LoadCredentialEncrypted=` takes it, by that name alone (systemd-creds(1)).

    None where this machine has no such program, or the program no key. In the clear it lies for a
    moment in a file of ours, in memory where `/run` is.
    """
    memory = Path("/run")
    try:
        with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
            clear, closed = Path(folder) / "clear", Path(folder) / "closed"
            clear.touch(mode=0o600)
            clear.write_bytes(secret)
            done = run(["systemd-creds", "encrypt", f"--name={name}", str(clear), str(closed)])
            return closed.read_bytes() if done.good else None
    except OSError:
        return None


def opens(run: Run, name: str, file: Path) -> bool:
    """Whether this machine can read it, by that name."""
    return run(["systemd-creds", "decrypt", f"--name={name}", str(file), "-"]).good
