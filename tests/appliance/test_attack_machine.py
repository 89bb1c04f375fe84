"""Somebody else on the machine: what lies where they can read it, and where they could step in."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from conductor.cli.firststart import prepare
from conductor.errors import StartError
from conductor.process.unixsocket import check_folder, listen
from support.appliance import appliance, egress_of, short_directory
from support.configs import local_worker, remote_worker, small_site
from support.processes import command, environment

PUBLIC = {"permit.pub", "appliance.yaml", "workers.yaml", "policy.yaml"}
"""What others may know; the YAML files are the test's own."""


def open_to_others(root: Path) -> list[str]:
    """Files below `root` that others can read, where they can get that far; folders that they can
    write to."""
    found = []
    for folder, folders, files in os.walk(root):
        if Path(folder) != root and not Path(folder).stat().st_mode & stat.S_IXOTH:
            folders.clear()
            continue
        found += [name for name in files if (Path(folder) / name).lstat().st_mode & 0o007]
        found += [name for name in folders if (Path(folder) / name).stat().st_mode & stat.S_IWOTH]
    return sorted(found)


async def test_nothing_is_open_to_others_even_under_an_open_umask() -> None:
    before = os.umask(0)
    try:
        async with appliance() as box:
            await box.ask()
            root = box.site.appliance.paths.run.parent
            assert set(open_to_others(root)) <= PUBLIC
            (root / "s").chmod(0o755)
            assert set(open_to_others(root)) <= PUBLIC
            sockets = [path for path in root.rglob("*") if path.is_socket()]
            assert {stat.S_IMODE(path.stat().st_mode) for path in sockets} == {0o600} and sockets
    finally:
        os.umask(before)


def test_no_socket_stands_where_everybody_may_put_one() -> None:
    with short_directory() as folder:
        for mode in (0o777, 0o1777, 0o702):
            folder.chmod(mode)
            with pytest.raises(StartError, match="chmod o-w"):
                listen(folder / "x.sock")
        folder.chmod(0o755)
        listen(folder / "x.sock").close()
        check_folder(folder / "not there yet")


async def test_serve_and_egress_do_not_start_where_everybody_may_stand_in_for_the_planner() -> None:
    with short_directory() as folder:
        workers = [local_worker("a", port=9), remote_worker("b")]
        site = small_site(folder, workers=workers)
        prepare(site)
        site.appliance.paths.run.chmod(0o777)
        with pytest.raises(StartError, match="chmod o-w"):
            async with egress_of(site):
                pass
        from conductor.api.server import serving

        with pytest.raises(StartError, match="chmod o-w"):
            async with serving(site):
                pass


def test_no_process_leaves_a_core_dump() -> None:
    code = (
        "import resource, click, conductor.cli.main as m\n"
        "resource.setrlimit(resource.RLIMIT_CORE, (1 << 20, 1 << 20))\n"
        "@m.conductor.command('look')\n"
        "def look(): print(resource.getrlimit(resource.RLIMIT_CORE))\n"
        "m.main()\n"
    )
    said = subprocess.run(
        [sys.executable, "-c", code, "look"], env=environment(), capture_output=True, check=True
    )
    assert said.stdout.split() == [b"(0,", b"0)"]
    assert subprocess.run([*command("--version")], env=environment(), check=True).returncode == 0
