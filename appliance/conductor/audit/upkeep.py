"""What people do to a log that nobody is writing: give it a new key, remove what has expired.

The new key is made first, then the log says so under the old one, then the files change places.
After a crash in between, the next start reads from the log which of the two counts.
"""

from __future__ import annotations

from pathlib import Path

from conductor.audit.keys import AuditKey, prepare_successor, promote, same
from conductor.audit.retention import Expired, retain
from conductor.audit.writer import SEGMENT_BYTES, Writer, now
from conductor.errors import AuditError


def rotate(log: Path, keys: Path) -> AuditKey:
    """Make a new key in the folder `keys` and hand the log over to it; returns it.

    Raises:
        AuditError: the appliance is running, the log is damaged, or a file cannot be written.
        ConfigError: a key file cannot be used.
    """
    try:
        key = prepare_successor(keys)
        successor = key.successor
        if successor is None:
            raise AuditError("the new audit key vanished while it was made")
        writer = Writer.open(log, key, SEGMENT_BYTES, {})
        try:
            if writer.seal is None or not same(writer.seal.key.public, successor.public):
                writer.rotate_key(successor)
                promote(successor)
        finally:
            writer.close()
    except OSError as error:
        raise AuditError(f"the audit key cannot be replaced: {error.strerror}") from None
    return successor


def retain_now(log: Path, keys: AuditKey, retention_days: int) -> list[Expired]:
    """Remove what has expired from a log that nobody is writing; returns what was removed.

    Raises:
        AuditError: the appliance is running, a legal hold is in force, or the log is damaged.
    """
    writer = Writer.open(log, keys, SEGMENT_BYTES, {})
    try:
        return retain(writer, retention_days, now())
    except OSError as error:
        raise AuditError(f"the audit log cannot be changed: {error.strerror}") from None
    finally:
        writer.close()
