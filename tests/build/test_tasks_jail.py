"""What a program that a model wrote may not do, and how its end is told."""

from __future__ import annotations

import os
import socket
import time
from dataclasses import replace
from pathlib import Path

import pytest

from conductor_build.tasks.common import Void
from conductor_build.tasks.jail import Jail

JAIL = Jail(wall_s=5)


def said(source: str, jail: Jail = JAIL) -> str:
    return jail.run(source).output.decode()


def attempt(what: str) -> str:
    """A program that says whether it got away with something."""
    lines = "\n".join(f"    {line}" for line in what.splitlines())
    tried = f"try:\n{lines}\n    print('done')\nexcept OSError:\n    print('refused')\n"
    return f"import os, socket, sys\n{tried}"


def test_a_program_runs_with_its_input_and_tells_how_it_ended():
    done = JAIL.run("import sys\nprint(sys.stdin.read() + '!')\nsys.exit(3)\n", b"hello")
    assert (done.status, done.output) == (3, b"hello!\n")


def test_it_has_no_environment_and_a_folder_of_its_own(monkeypatch):
    monkeypatch.setenv("SECRET_KEY", "s3cret")
    out = said("import os\nprint(sorted(os.environ))\nprint(os.listdir('.'))\n")
    assert "SECRET_KEY" not in out
    assert out.endswith("[]\n")


@pytest.mark.parametrize(
    "what",
    [
        "socket.create_connection(('127.0.0.1', PORT), 1)",
        "socket.create_connection(('198.51.100.1', 80), 1)",
    ],
)
def test_it_reaches_no_network_not_even_this_machine(what):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert said(attempt(what.replace("PORT", str(port)))) == "refused\n"


def test_it_reads_and_writes_no_file_of_ours(tmp_path):
    ours = tmp_path / "ours.txt"
    ours.write_text("private")
    assert said(attempt(f"open({str(ours)!r}).read()")) == "refused\n"
    assert said(attempt(f"open({str(tmp_path / 'new')!r}, 'w')")) == "refused\n"
    assert said(attempt("open('/etc/passwd').read()")) == "refused\n"
    assert said(attempt("open('mine.txt', 'w').write('x')")) == "done\n"
    assert list(tmp_path.iterdir()) == [ours]


def test_it_sees_no_process_of_ours_and_can_signal_none():
    assert said(attempt(f"os.kill({os.getpid()}, 0)")) == "refused\n"


def test_it_has_only_so_much_memory():
    tried = "try:\n    x = bytearray(2 << 30)\nexcept MemoryError:\n    print('no')\n"
    assert said(tried) == "no\n"


def test_it_has_only_so_much_cpu_time():
    begun = time.monotonic()
    done = Jail(cpu_s=1, wall_s=20).run("while True: pass")
    assert done.status is not None and done.status < 0
    assert time.monotonic() - begun < 10


def test_one_that_sleeps_is_ended_and_so_is_what_it_started(tmp_path):
    source = "import os, time\nif os.fork() == 0:\n    os.setsid()\ntime.sleep(977)\n"
    done = Jail(wall_s=0.5).run(source)
    assert done.status is None
    time.sleep(0.1)
    here = (path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if path.exists())
    assert not any(b"/jail-" in line for line in here)


def test_one_that_writes_without_end_is_ended():
    done = Jail(wall_s=5).run("while True: print('x' * 10000)")
    assert done.status is not None and done.status != 0
    assert len(done.output) <= 1 << 20


def test_it_cannot_fill_the_disk():
    source = "for i in range(400):\n    open(str(i), 'wb').write(b'x' * 900_000)\n"
    assert said(attempt(source)) == "refused\n"


def test_the_locks_that_hold_are_told():
    assert JAIL.run("").locks >= {"landlock"} or JAIL.run("").locks >= {"net"}


def test_where_nothing_keeps_the_network_away_nothing_is_run_unless_asked(tmp_path, monkeypatch):
    # An inside that finds no lock, as on an old kernel without namespaces.
    inside = tmp_path / "inside.py"
    inside.write_text(
        "import os, sys, subprocess\nos.write(int(sys.argv[1]), b'locks \\n')\n"
        "status = subprocess.call(sys.argv[3:])\n"
        "os.write(int(sys.argv[1]), b'ended %d\\n' % status)\n"
    )
    monkeypatch.setattr("conductor_build.tasks.jail._INSIDE", inside)
    with pytest.raises(Void, match="no_jail"):
        JAIL.run("print(1)")
    assert replace(JAIL, weak=True).run("print(1)").output == b"1\n"


def test_a_jail_that_breaks_is_a_void_and_no_verdict(tmp_path, monkeypatch):
    monkeypatch.setattr("conductor_build.tasks.jail._INSIDE", tmp_path / "missing.py")
    with pytest.raises(Void, match="no_jail"):
        JAIL.run("print(1)")


def test_it_imports_nothing_that_is_installed():
    assert said("try:\n    import click\nexcept ImportError:\n    print('no')\n") == "no\n"
