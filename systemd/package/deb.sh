#!/usr/bin/env bash
# Builds the Debian package. `make deb`.
#
#   deb.sh OUT [PYTHON]     PYTHON as in tree.sh; COMPRESSION (0 to 19, default 9) in the environment
set -euo pipefail
cd "$(dirname "$0")/../.."
out=$(realpath -m "${1:?usage: deb.sh OUT [PYTHON]}")
python=${2:-python3.11}
series=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
version=${CONDUCTOR_VERSION:-$(sed -n 's/^version = "\(.*\)"$/\1/p' pyproject.toml)}
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || date +%s)}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$work/root
systemd/package/tree.sh "$root" "$python"

mkdir -p "$root/DEBIAN" "$out"
sed -e "s/@VERSION@/$version/; s/@SERIES@/$series/g; s/@NEXT@/${series%.*}.$((${series#*.} + 1))/" \
    -e "s/@SIZE@/$(du -sk "$root" | cut -f1)/" systemd/package/control.in >"$root/DEBIAN/control"
for script in postinst prerm postrm; do
    sed "s/@VERSION@/$version/" "systemd/package/$script" >"$root/DEBIAN/$script"
    chmod 755 "$root/DEBIAN/$script"
done
(cd "$root" && find opt usr -type f -print0 | sort -z | xargs -0 md5sum) >"$root/DEBIAN/md5sums"
package=$out/conductor-appliance_${version}_py${series}_amd64.deb
dpkg-deb --root-owner-group -Zzstd "-z${COMPRESSION:-9}" --build "$root" "$package" >"$work/log" ||
    { cat "$work/log" >&2; exit 1; }
echo "$package ($(du -h "$package" | cut -f1))"
