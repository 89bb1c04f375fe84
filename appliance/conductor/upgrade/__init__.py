"""Versions beside each other: an upgrade that can be taken back, and copies of what must last.

    layout.py     where things stand on a box
    versions.py   which versions are there; switching from one to another
    release.py    a release file: who signed it, what is in it, unpacking it
    archive.py    configuration and state in one file, and back
    manager.py    what systemd is asked to do
    steps.py      upgrade and rollback, in their order

Left out: making release files (`systemd/package/bundle.py`), and what apt does with the package.
"""
