"""Exporting a stretch of the log for another system, anchored in the chain it comes from.

An export is a file of lines and a manifest beside it. The manifest is written last: where it is,
the export is whole. It says which records the lines are from, what they continue, the head that
they lead to, and whether the stretch is complete. In `jsonl` the lines are the records' own bytes,
so that their chain can be checked again; `ocsf` and `cef` carry each record's hash.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, Literal

import orjson

from conductor import __version__
from conductor.audit import cef, ocsf
from conductor.audit.sendings import Known, Requests
from conductor.audit.stretch import Stretch
from conductor.errors import AuditError

Format = Literal["jsonl", "ocsf", "cef"]
Maker = Callable[[dict[str, Any], bytes, Known], Iterator[bytes]]
SCHEMAS = {"jsonl": "conductor-audit", "ocsf": f"OCSF {ocsf.SCHEMA}", "cef": "CEF:0"}


class Export:
    """One export: `write` streams it, `manifest` then says what it is."""

    def __init__(self, stretch: Stretch, form: Format) -> None:
        self._stretch = stretch
        self._form = form
        self._digest = hashlib.sha256()
        self._lines = 0
        self._bytes = 0

    def write(self, out: BinaryIO) -> None:
        """Write every line of the stretch.

        Raises:
            AuditError: see `Stretch.entries`.
            OSError: the lines cannot be written.
        """
        make, requests = _MAKERS[self._form], Requests()
        for entry in self._stretch.entries():
            before = requests.known(entry.record)
            for _ in requests.take(entry):
                pass  # what was sent where is for queries; here only who asked matters
            known = requests.known(entry.record)
            if entry.inside:
                for line in make(entry.record, entry.line, known if known.key else before):
                    self._write(out, line)

    def manifest(self) -> dict[str, Any]:
        """What was written, and what the log proves of it."""
        return {
            "format": self._form,
            "schema": SCHEMAS[self._form],
            "product": f"conductor {__version__}",
            "lines": self._lines,
            "bytes": self._bytes,
            "sha256": self._digest.hexdigest(),
            "checkpoint": self._stretch.latest_checkpoint(),
            **self._stretch.coverage().as_json(),
        }

    def _write(self, out: BinaryIO, line: bytes) -> None:
        data = line + b"\n"
        out.write(data)
        self._digest.update(data)
        self._lines += 1
        self._bytes += len(data)


def export_to(stretch: Stretch, form: Format, path: Path) -> dict[str, Any]:
    """Export to a file that is there whole or not at all, its manifest beside it; returns the
    manifest.

    Raises:
        AuditError: the log cannot be read, or the file cannot be written or is there already.
    """
    export, beside = Export(stretch, form), manifest_path(path)
    if path.exists() or beside.exists():
        raise AuditError(f"{path} is there already: an export never replaces another one")
    part = path.with_name(path.name + ".part")
    try:
        with part.open("wb") as file:
            export.write(file)
            _sync(file)
        part.rename(path)
        manifest = export.manifest()
        with beside.open("xb") as file:
            file.write(json.dumps(manifest, indent=2, sort_keys=True).encode() + b"\n")
            _sync(file)
    except OSError as error:
        raise AuditError(f"the export cannot be written: {error.strerror}") from None
    finally:
        part.unlink(missing_ok=True)
    return manifest


def _sync(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())


def manifest_path(path: Path) -> Path:
    """Where an export's manifest stands."""
    return path.with_name(path.name + ".manifest.json")


def _jsonl(_record: dict[str, Any], line: bytes, _known: Known) -> Iterator[bytes]:
    yield line


def _ocsf(record: dict[str, Any], line: bytes, known: Known) -> Iterator[bytes]:
    for event in ocsf.events(record, line, known):
        yield orjson.dumps(event, option=orjson.OPT_SORT_KEYS)


def _cef(record: dict[str, Any], line: bytes, known: Known) -> Iterator[bytes]:
    yield cef.line(record, line, known).encode()


_MAKERS: dict[Format, Maker] = {"jsonl": _jsonl, "ocsf": _ocsf, "cef": _cef}
