"""Makes release files inside the guest, run by the appliance's own Python: versions that differ
from the installed one in name, and as said.

    releases.py FOLDER      release.key, release.pub, {good,newformat,broken}.release, and
                            stranger.release, which an unknown key has signed
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

import releasefile

from conductor.process import keyfiles

CURRENT = Path("/opt/conductor/current").resolve()
SERIES = f"python{sys.version_info[0]}.{sys.version_info[1]}"


def version(tree: Path, name: str) -> Path:
    """A version that borrows the packages of the installed one, but has the appliance itself."""
    home = tree / "opt/conductor/versions" / name
    site = home / "lib" / SERIES / "site-packages"
    shutil.copytree(CURRENT / "share", home / "share")
    theirs = CURRENT / "lib" / SERIES / "site-packages"
    shutil.copytree(theirs / "conductor", site / "conductor")
    (site / "borrowed.pth").write_text(f"{theirs}\n")
    program = site / "conductor/__init__.py"
    program.write_text(program.read_text().replace(f'"{CURRENT.name}"', f'"{name}"'))
    shutil.rmtree(site / "conductor/__pycache__", ignore_errors=True)
    (home / "bin").mkdir()
    (home / "bin/python").symlink_to(f"/usr/bin/{SERIES}")
    shutil.copy(CURRENT / "pyvenv.cfg", home)
    text = (CURRENT / "bin/conductor").read_text()
    (home / "bin/conductor").write_text(text.replace(CURRENT.name, name))
    (home / "bin/conductor").chmod(0o755)
    return home


def main(folder: Path) -> None:
    key_file = folder / "release.key"
    keyfiles.generate(key_file, folder / "release.pub", "release")
    keyfiles.generate(folder / "stranger.key", folder / "stranger.pub", "release")
    key = keyfiles.load_private(key_file, "release")
    stranger = keyfiles.load_private(folder / "stranger.key", "release")
    for name, number, signer in (
        ("good", "9.0.0", key),
        ("newformat", "9.0.1", key),
        ("broken", "9.0.2", key),
        ("stranger", "9.0.3", stranger),
    ):
        with tempfile.TemporaryDirectory() as work:
            tree = Path(work)
            home = version(tree, number)
            state_format = 2 if name == "newformat" else 1
            (home / "share/state-format").write_text(f"{state_format}\n")
            if name == "newformat":
                migrate = home / "share/migrate"
                migrate.write_text("#!/bin/sh\necho of format 2 >$2/marker\n")
                migrate.chmod(0o755)
            if name == "broken":  # passes its self-test, and cannot serve
                api = home / f"lib/{SERIES}/site-packages/conductor/api"
                shutil.rmtree(api / "__pycache__")  # it would be believed
                (api / "server.py").write_text("1 / 0\n")
            contents = releasefile.Contents(
                number, SERIES.removeprefix("python"), state_format, tree, {}
            )
            releasefile.write(folder / f"{name}.release", contents, signer, level=1)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
