#!/usr/bin/env bash
# The checks of booted/ that every change has to pass: `make test-system-core`. They are those that are
# not marked `full`; the package is built from the virtual environment that is there, and the guest from
# the machine's own Debian, so that nothing is downloaded but what lacks.
#
# Ends with 0, after one line that says why, where no such guest can be booted: whoever is not root, or
# has another system, still has `make test`. Prints the seconds that each phase took.
set -euo pipefail
cd "$(dirname "$0")/../.."
python=.venv/bin/python

skip() { echo "test-system-core: left out: $*"; exit 0; }

[ "$(id -u)" = 0 ] || skip "only root can boot a guest"
[ -x /lib/systemd/systemd ] || skip "this machine has no systemd to boot"
for tool in dpkg-deb unshare script nsenter ip; do
    command -v "$tool" >/dev/null || skip "$tool is not installed"
done
unshare --mount --pid --fork --net true 2>/dev/null || skip "no namespaces can be made here"
series=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
[ -x "/usr/bin/python$series" ] ||
    skip "the environment is of Python $series, and this system has another one"

SECONDS=0
phase() { echo "test-system-core: $1: $SECONDS s"; SECONDS=0; }
root=$(tests/systemd/ownroot.sh) || skip "no root file system can be made of this machine"
phase "root file system ($root)"
TAKEN=.venv COMPRESSION=1 systemd/package/deb.sh var/system-core "$python"
phase "package"
tests/systemd/run.sh -c -t 300 "var/system-core/conductor-appliance_"*"_py${series}_amd64.deb"
phase "guest"
