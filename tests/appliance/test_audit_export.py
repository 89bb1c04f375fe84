"""Exports: anchored in the chain, whole or not there, with every record of the stretch."""

from __future__ import annotations

import hashlib
import json
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from conductor.audit.export import Format, export_to, manifest_path
from conductor.audit.record import GENESIS, hash_line
from conductor.audit.stretch import Stretch
from conductor.errors import AuditError
from support.fullday import full_day


def exported(
    tmp_path: Path, form: Format, since: str | None = None, until: str | None = None
) -> tuple[list[bytes], dict[str, Any]]:
    log = full_day(tmp_path / "audit")
    out = tmp_path / "out"
    manifest = export_to(Stretch(log.directory, since, until), form, out)
    assert json.loads(manifest_path(out).read_text()) == json.loads(json.dumps(manifest))
    return out.read_bytes().splitlines(), manifest


def test_jsonl_holds_the_records_own_bytes_so_that_their_chain_can_be_checked(
    tmp_path: Path,
) -> None:
    lines, manifest = exported(tmp_path, "jsonl")
    assert json.loads(lines[0])["prev"] == manifest["first_prev"] == GENESIS
    for before, after in pairwise(lines):
        assert json.loads(after)["prev"] == hash_line(before)
    assert hash_line(lines[-1]) == manifest["last_hash"] == manifest["head"]
    assert manifest["complete"] and manifest["contiguous"]


def test_a_part_of_the_log_is_tied_to_what_stands_before_and_after_it(tmp_path: Path) -> None:
    lines, manifest = exported(
        tmp_path, "jsonl", "2026-08-01T09:00:00.000Z", "2026-08-01T09:20:00.000Z"
    )
    assert (manifest["first_seq"], manifest["last_seq"]) == (2, 8)
    assert [json.loads(line)["seq"] for line in lines] == list(range(2, 9))
    assert json.loads(lines[0])["prev"] == manifest["first_prev"] != GENESIS
    assert hash_line(lines[-1]) == manifest["last_hash"] != manifest["head"]


@pytest.mark.parametrize("form", ["jsonl", "ocsf", "cef"])
def test_the_manifest_fits_the_file(tmp_path: Path, form: Format) -> None:
    lines, manifest = exported(tmp_path, form)
    data = (tmp_path / "out").read_bytes()
    assert manifest["lines"] == len(lines) and manifest["bytes"] == len(data)
    assert manifest["sha256"] == hashlib.sha256(data).hexdigest()


@pytest.mark.parametrize("form", ["ocsf", "cef"])
def test_every_record_is_exported_with_its_hash(tmp_path: Path, form: Format) -> None:
    lines, manifest = exported(tmp_path, form)
    (path,) = (tmp_path / "audit").glob("audit-*.jsonl")
    for record in path.read_bytes().splitlines():
        assert any(hash_line(record).encode() in line for line in lines)
    assert manifest["records"] == len(path.read_bytes().splitlines())


def test_the_same_log_gives_the_same_export(tmp_path: Path) -> None:
    first, _ = exported(tmp_path / "a", "ocsf")
    second, _ = exported(tmp_path / "b", "ocsf")
    assert first == second


def test_an_export_never_replaces_another_one(tmp_path: Path) -> None:
    log = full_day(tmp_path / "audit")
    out = tmp_path / "out"
    export_to(Stretch(log.directory, None, None), "jsonl", out)
    before = out.read_bytes()
    with pytest.raises(AuditError, match="there already"):
        export_to(Stretch(log.directory, None, None), "cef", out)
    assert out.read_bytes() == before


def test_an_export_that_fails_leaves_nothing(tmp_path: Path) -> None:
    log = full_day(tmp_path / "audit")
    stretch = Stretch(log.directory, None, None)
    (path,) = log.directory.glob("audit-*.jsonl")
    path.write_bytes(path.read_bytes()[:-400])
    with pytest.raises(AuditError):
        export_to(stretch, "jsonl", tmp_path / "out")
    assert [p.name for p in tmp_path.iterdir()] == ["audit"]


# -- CEF ----------------------------------------------------------------------------------------

_HEADER_FIELD = r"(?:[^|\\]|\\[|\\])*"
_CEF = re.compile(rf"CEF:0(?:\|({_HEADER_FIELD}))" + rf"\|({_HEADER_FIELD})" * 5 + r"\|(.*)\Z")
_PAIR = re.compile(r"(\w+)=((?:[^=\\]|\\[=\\nr])*?)(?= \w+=|\Z)")
KEYS = {
    "rt", "externalId", "cat", "deviceProcessName", "suser", "suid", "destinationServiceName",
    "out", "outcome", "reason", "act", "flexString1", "flexString1Label", "cn1", "cn1Label", "cn2",
    "cn2Label", *(f"cs{n}" for n in range(1, 7)), *(f"cs{n}Label" for n in range(1, 7)),
}  # fmt: skip
"""All of them in the dictionary of the Common Event Format."""


def cef(line: bytes) -> tuple[tuple[str, ...], dict[str, str]]:
    """Header and extension, read as a SIEM does; fails on anything that is not escaped."""
    match = _CEF.match(line.decode())
    assert match is not None
    *header, extension = match.groups()
    pairs = _PAIR.findall(extension)
    assert " ".join(f"{key}={value}" for key, value in pairs) == extension
    assert KEYS.issuperset(key for key, _ in pairs)
    unescape = {"\\n": "\n", "\\r": "\r", "\\=": "=", "\\\\": "\\"}
    read = {key: re.sub(r"\\[nr=\\]", lambda m: unescape[m[0]], value) for key, value in pairs}
    return tuple(header), read


def test_cef_lines_can_be_read_back_with_what_they_say(tmp_path: Path) -> None:
    lines, _ = exported(tmp_path, "cef")
    read = [cef(line) for line in lines]
    sent = next(fields for header, fields in read if header[3] == "egress")
    assert (sent["cs1Label"], sent["cs1"], sent["cs2"]) == ("rule", "allow-us", "internal")
    assert (sent["suser"], sent["destinationServiceName"], sent["out"]) == (
        "svc-app", "us-place", "100"
    )  # fmt: skip
    assert (sent["act"], sent["rt"]) == ("allowed", "1785574800000")
    refused = [fields for _, fields in read if fields.get("act") == "blocked"]
    assert [fields["cs1"] for fields in refused] == ["baseline.remote,floor.clearance"]


def test_nothing_in_a_record_can_break_out_of_its_cef_field(tmp_path: Path) -> None:
    lines, _ = exported(tmp_path, "cef")
    changes = [cef(line)[1] for line in lines if b"|policy|" in line]
    assert [fields["suid"] for fields in changes] == ["0", "1000"]
    assert [fields["outcome"] for fields in changes] == ["active", "refused"]
    assert changes[1]["reason"] == "revision:old-revision,of|=\nx"


def test_cef_lines_tell_who_approved_what_to_where(tmp_path: Path) -> None:
    lines, _ = exported(tmp_path, "cef")
    _, accepted, refused = (cef(line)[1] for line in lines if b"|approval|" in line)
    names = ("suser", "suid", "destinationServiceName", "cs2", "cs3", "cs6", "reason")
    assert [accepted[name] for name in names] == [
        "anna", "1000", "us-place", "restricted+pii", "0f0f", "read-by-anna", "accepted"
    ]  # fmt: skip
    assert refused["reason"] == "malformed"
