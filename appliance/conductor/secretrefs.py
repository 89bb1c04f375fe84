"""Secrets stand in files, credentials or the environment; configuration only points at them.

    env:NAME           an environment variable
    file:/path         a file that not everybody may read, less one trailing line end
    credential:name    a file below $CREDENTIALS_DIRECTORY, as systemd's LoadCredential= puts it

Errors name the reference, never what was found there.
"""

from __future__ import annotations

import hmac
import os
import re
import stat
from pathlib import Path

from conductor.core import SecretRef
from conductor.errors import SecretUnavailable
from conductor.strictyaml.values import Value

MAX_BYTES = 64 * 1024

# Names of variables in capitals only: a pasted key then cannot pass for a name and be printed.
_NAMES = {
    "env": re.compile(r"[A-Z_][A-Z0-9_]{0,63}"),
    "credential": re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"),
    "file": re.compile(r"[^\x00-\x1f]{1,4096}"),
}
_VISIBLE = re.compile(r"[\x21-\x7e]+")


class Secret:
    """A secret in memory. It shows as asterisks wherever it is printed, and cannot be pickled."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """The secret itself. Call this where it is used, never to pass it on."""
        return self._text

    def __eq__(self, other: object) -> bool:
        """In constant time."""
        if not isinstance(other, Secret):
            return NotImplemented
        return hmac.compare_digest(self._text.encode(), other._text.encode())

    def __hash__(self) -> int:
        return hash((Secret, self._text))

    def __repr__(self) -> str:
        return "Secret('***')"

    def __str__(self) -> str:
        return "***"

    def __reduce__(self) -> str:
        raise TypeError("a secret is not written down")


def read_ref(value: Value, root: Path) -> SecretRef | None:
    """A reference written in YAML; relative files stand below `root`. None has been reported."""
    text = value.text()
    scheme, _, name = text.partition(":")
    if not text:
        return None
    if scheme not in _NAMES or not _NAMES[scheme].fullmatch(name):
        value.fault(
            "bad-secret",
            f"{value.name} must say where the secret stands (env:NAME, file:/path or "
            "credential:name), never the secret itself",
        )
        return None
    if scheme == "file":
        return SecretRef("file", str(root / name))
    return SecretRef("credential", name) if scheme == "credential" else SecretRef("env", name)


def resolve(ref: SecretRef, credentials_dir: Path | None = None) -> Secret:
    """Fetch a secret. `credentials_dir` defaults to $CREDENTIALS_DIRECTORY.

    Raises `SecretUnavailable` when it is absent, empty, too long, readable by everybody, or holds
    anything that could not stand in an HTTP header.
    """
    if ref.scheme == "env":
        text = os.environ.get(ref.name, "")
    elif ref.scheme == "file":
        text = _file(ref, Path(ref.name))
    else:
        text = _file(ref, _credentials(ref, credentials_dir) / ref.name)
    if not _VISIBLE.fullmatch(text):
        raise SecretUnavailable(str(ref), "it must be one line of visible ASCII, and not empty")
    return Secret(text)


def _credentials(ref: SecretRef, directory: Path | None) -> Path:
    named = os.environ.get("CREDENTIALS_DIRECTORY", "")
    if directory is None and not named:
        raise SecretUnavailable(str(ref), "no $CREDENTIALS_DIRECTORY: is LoadCredential= set?")
    return directory or Path(named)


def _file(ref: SecretRef, path: Path) -> str:
    try:
        # O_NONBLOCK: opening a pipe must not wait for its writer.
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            data = file.read(MAX_BYTES + 1) if stat.S_ISREG(mode) else b""
    except FileNotFoundError:
        raise SecretUnavailable(str(ref), "there is no such file") from None
    except OSError:
        raise SecretUnavailable(str(ref), "it cannot be opened: check owner and mode") from None
    if mode & stat.S_IRWXO:
        raise SecretUnavailable(str(ref), "everybody may read or change it: chmod o-rwx")
    if not data or len(data) > MAX_BYTES:
        raise SecretUnavailable(str(ref), f"it must be a file of 1 to {MAX_BYTES} bytes")
    return data.decode("ascii", "replace").removesuffix("\n").removesuffix("\r")
