#!/usr/bin/env bash
# Boots Debian with systemd, installs the package there, and runs the checks of booted/ in it:
# `make test-system`. Needs root, debootstrap and the development set (make test).
#
#   run.sh [-c] [-s SUITE] [-k EXPRESSION] [-t SECONDS] PACKAGE.deb
#
#   -c              the core only, on a root file system made of this machine's own packages: core.sh
#   -s SUITE        Debian's suite, by default this machine's
#   -k EXPRESSION   only those checks, as pytest takes it
#   -t SECONDS      after which the guest is ended, by default 600
set -euo pipefail
here=$(realpath "$(dirname "$0")")
repository=$(realpath "$here/../..")
suite='' only=() core=''
limit_s=600
while getopts cs:k:t: option; do
    case $option in
    c) core=yes only+=(-m 'not full') ;;
    s) suite=$OPTARG ;;
    t) limit_s=$OPTARG ;;
    k) only+=(-k "$OPTARG") ;;
    *) exit 2 ;;
    esac
done
shift $((OPTIND - 1))
package=$(realpath "${1:?usage: run.sh [-c] [-s SUITE] [-k EXPRESSION] [-t SECONDS] PACKAGE.deb}")

if [ -n "$core" ]; then root=$("$here/ownroot.sh"); else root=$("$here/rootfs.sh" $suite); fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/over/opt/checks/site" "$work/results"
cp -r "$here/booted/." "$work/over/opt/checks/"
cp -r "$repository/systemd/units" "$work/over/opt/checks/units"
cp "$repository/systemd/nginx/conductor.conf" "$work/over/opt/checks/nginx.conf"
ln "$package" "$work/over/opt/checks/package.deb" 2>/dev/null ||
    cp "$package" "$work/over/opt/checks/package.deb"
cp "$repository/systemd/package/releasefile.py" "$work/over/opt/checks/"
model=$("$repository/.venv/bin/conductor" models list --json 2>/dev/null |
    "$repository/.venv/bin/python" -c '
import json, sys
print(next((m["file"] if m["present"] else "" for m in json.load(sys.stdin) if m["id"] == "smollm2-135m"), ""))')
[ ! -f "$model" ] || cp "$model" "$work/over/opt/checks/model.gguf"
# The checks' own tools, which are plain Python: the package brings none.
for one in _pytest pytest py.py pluggy iniconfig packaging pygments; do
    cp -r "$repository"/.venv/lib/python3.*/site-packages/"$one" "$work/over/opt/checks/site/"
done

status=0
"$here/guest.sh" "$root" "$work/over" "$work/results" "$limit_s" \
    /usr/bin/env PYTHONPATH=/opt/checks:/opt/checks/site PYTHONDONTWRITEBYTECODE=1 TERM=dumb \
    /usr/bin/python3 -m pytest -q -rA --tb=short -p no:cacheprovider --durations=15 \
    --maxfail=8 -c /dev/null --rootdir=/opt/checks "${only[@]}" /opt/checks || status=$?
cat "$work/results/output.txt" 2>/dev/null || tail -n 50 "$work/results/console.txt"
if [ "$status" != 0 ]; then
    kept=$(mktemp -d)
    cp -r "$work/results/." "$kept/"
    echo "run.sh: the guest's journal and console are in $kept" >&2
fi
exit "$status"
