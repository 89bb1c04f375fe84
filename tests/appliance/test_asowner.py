"""Work by hand on a service's files is done as the account that they belong to."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from conductor.errors import StartError
from conductor.process.asowner import become_owner

OTHER = 65534
WRITES = """
import os, sys
from pathlib import Path
from conductor.process.asowner import become_owner
folder = Path(sys.argv[1])
become_owner(folder / "made" / "later", reading=Path(sys.argv[2]))
print(os.getuid(), os.getgid(), os.getgroups())
try:
    (folder / "planted").write_text("x")
except PermissionError:
    print("refused")
(folder / "own").write_text("x")
try:
    os.setuid(0)
except PermissionError:
    print("for good")
"""

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="becoming somebody takes root")


@needs_root
def test_root_becomes_the_owner_for_good_and_cannot_be_led_astray(tmp_path: Path) -> None:
    folder, precious = tmp_path / "state", tmp_path / "precious"
    folder.mkdir()
    precious.write_text("here")
    (folder / "planted").symlink_to(precious)
    os.chown(folder, OTHER, OTHER)
    for above in (tmp_path, *tmp_path.parents[:3]):
        above.chmod(above.stat().st_mode | 0o011)
    argv = [sys.executable, "-c", WRITES, str(folder), str(tmp_path)]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [f"{OTHER} {OTHER} [0]", "refused", "for good"]
    assert precious.read_text() == "here"
    assert (folder / "own").stat().st_uid == OTHER


@needs_root
def test_a_link_does_not_choose_whom_root_becomes(tmp_path: Path) -> None:
    link = tmp_path / "state"
    link.symlink_to("/nowhere")
    os.lchown(link, OTHER, OTHER)
    with pytest.raises(StartError, match="is a link"):
        become_owner(link)


def test_where_the_owner_is_at_work_nothing_changes(tmp_path: Path) -> None:
    before = os.getuid(), os.getgroups()
    become_owner(tmp_path)
    assert (os.getuid(), os.getgroups()) == before
