"""Doing a service's work by hand: as the account that its files belong to, whoever types.

As root, what is written into a folder of a service would belong to root, so that the service could
not start again; and a service that was broken into could have left a link there, through which root
would write anywhere.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from conductor.errors import StartError


def become_owner(folder: Path, *, reading: Path | None = None) -> None:
    """Become, for good, the owner of `folder`, or where it is not there yet of the folder that it
    is to be made in. The group of `reading` is kept, for what has to be read there.

    Nothing happens unless we are root and the owner is not. Raises `StartError` when `folder` is a
    link, since whoever has put it there would choose whom we become.
    """
    if os.geteuid() != 0:
        return
    there = folder
    while not os.path.lexists(there) and there != there.parent:
        there = there.parent
    seen = there.lstat()
    if there.is_symlink():
        raise StartError(f"{there} is a link: name the folder itself")
    if seen.st_uid == 0:
        return
    groups = []
    if reading is not None:
        with suppress(OSError):
            groups = [reading.stat().st_gid]
    os.setgroups(groups)
    os.setresgid(seen.st_gid, seen.st_gid, seen.st_gid)
    os.setresuid(seen.st_uid, seen.st_uid, seen.st_uid)
