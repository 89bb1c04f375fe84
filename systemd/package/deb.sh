#!/usr/bin/env bash
# Builds the Debian package: an environment of its own under /opt, whole, so that the install fetches
# nothing and compiles nothing. `make deb`.
#
#   deb.sh OUT [PYTHON]     PYTHON is the interpreter of the box's version (default python3.11:
#                           Debian 12; python3.13: Debian 13). It is used to build, not packed.
set -euo pipefail
cd "$(dirname "$0")/../.."
out=$(realpath -m "${1:?usage: deb.sh OUT [PYTHON]}")
python=${2:-python3.11}
series=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' pyproject.toml)
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || date +%s)}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$work/root
home=/opt/conductor/versions/$version
site=$root$home/lib/python$series/site-packages
pip=("$python" -m pip --disable-pip-version-check)

echo "packages of the lock, for Python $series"
mkdir -p "$site" "$root$home/bin" "$out"
"${pip[@]}" install -qq --no-deps --require-hashes --only-binary :all: --no-compile \
  --target "$site" -r requirements/appliance.txt
.venv/bin/python -m pip wheel -qq --no-deps --no-build-isolation -w "$work" .
"${pip[@]}" install -qq --no-deps --no-compile --no-index --target "$site" "$work"/conductor_appliance-*.whl
rm -rf "$site/bin" "$site"/conductor_build "$site"/conductor_kernels

echo "environment"
ln -s "/usr/bin/python$series" "$root$home/bin/python"
printf 'home = /usr/bin\ninclude-system-site-packages = false\nversion = %s\n' "$series" > "$root$home/pyvenv.cfg"
cat > "$root$home/bin/conductor" <<END
#!$home/bin/python -IB
from conductor.cli.main import main

main()
END
chmod 755 "$root$home/bin/conductor"
"$python" -m compileall -q -j 0 --invalidation-mode unchecked-hash -s "$root" "$site" || true

echo "units, accounts, configuration, documents"
install -d "$root/usr/lib/systemd/system" "$root/usr/lib/sysusers.d" "$root/usr/lib/tmpfiles.d"
install -m 644 systemd/units/* "$root/usr/lib/systemd/system/"
install -m 644 systemd/sysusers.d/* "$root/usr/lib/sysusers.d/"
install -m 644 systemd/tmpfiles.d/* "$root/usr/lib/tmpfiles.d/"
install -d "$root/usr/share/conductor" "$root/usr/share/doc/conductor" "$root/usr/bin"
cp -r systemd/air-gapped systemd/examples "$root/usr/share/conductor/"
install -d "$root/usr/share/conductor/configs"
cp -r configs/models.yaml configs/policy.yaml configs/examples "$root/usr/share/conductor/configs/"
[ ! -d systemd/configs ] || cp -r systemd/configs/. "$root/usr/share/conductor/configs/"
[ ! -d systemd/man ] || { install -d "$root/usr/share/man/man1"; gzip -9nk -c systemd/man/conductor.1 > "$root/usr/share/man/man1/conductor.1.gz"; }
cp docs/*.md NOTICE "$root/usr/share/doc/conductor/"
ln -s /opt/conductor/current/bin/conductor "$root/usr/bin/conductor"

install -d "$root/DEBIAN"
sed -e "s/@VERSION@/$version/; s/@SERIES@/$series/g; s/@NEXT@/${series%.*}.$((${series#*.} + 1))/" \
  -e "s/@SIZE@/$(du -sk "$root" | cut -f1)/" systemd/package/control.in > "$root/DEBIAN/control"
for script in postinst prerm postrm; do
  sed "s/@VERSION@/$version/" "systemd/package/$script" > "$root/DEBIAN/$script"
  chmod 755 "$root/DEBIAN/$script"
done
(cd "$root" && find opt usr -type f -print0 | sort -z | xargs -0 md5sum) > "$root/DEBIAN/md5sums"
package="$out/conductor-appliance_${version}_py${series}_amd64.deb"
chmod -R go-w "$root"
dpkg-deb --root-owner-group -Zzstd -z6 --build "$root" "$package" > "$work/dpkg.log" || { cat "$work/dpkg.log" >&2; exit 1; }
echo "$package ($(du -h "$package" | cut -f1))"
