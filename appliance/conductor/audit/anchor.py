"""Checkpoints on their way off the box: what is given out, and what is brought back to verify with.

Whoever holds the box and its key can write the whole log anew. What they cannot change is a
checkpoint that somebody else has kept: in a SIEM, on paper, on another appliance.
"""

from __future__ import annotations

from pathlib import Path

from conductor.audit.checkpoint import MAX_NOTE_BYTES, Note, read_checkpoint, read_note
from conductor.audit.segments import latest_note
from conductor.errors import AuditError


def latest(directory: Path) -> str:
    """The signed checkpoint written last, exactly as it is to be kept elsewhere.

    Raises:
        AuditError: the log is not sealed, or was not yet open for a moment.
    """
    try:
        note = latest_note(directory)
    except OSError as error:
        raise AuditError(f"the checkpoint cannot be read: {error.strerror}") from None
    if note is None:
        raise AuditError(
            "no checkpoint is here: give the log's folder, of an appliance that has an audit key"
        )
    return note


def read(path: Path) -> Note:
    """A checkpoint from a file that was kept elsewhere; several signatures may stand below it.

    Raises:
        AuditError: the file cannot be read, or holds none.
    """
    try:
        with path.open("rb") as file:
            text = file.read(MAX_NOTE_BYTES + 1).decode()
        note = read_note(text.replace("\r\n", "\n").rstrip("\n") + "\n")
        read_checkpoint(note)
    except OSError as error:
        raise AuditError(f"the anchor cannot be read: {error.strerror}") from None
    except ValueError:
        raise AuditError("the anchor is no checkpoint: give the signed note as written") from None
    return note
