#!/bin/sh
# Installs the appliance from a release file, on a systemd box without dpkg. On Debian use the package.
#
#   install.sh --bundle FILE --key RELEASE.pub     first install
#
# Later versions come by `conductor upgrade FILE`. Nothing is fetched. The signature is checked with
# openssl before anything of the release is believed; this script itself came with it, so take it from
# where the key came from, or compare: tar -xOf FILE install.sh | sha256sum
#
# Needs root, systemd 252 or later, GNU tar, openssl 3, and the Python that the release names.
# ROOT=DIR in the environment installs into a folder (a chroot): accounts and systemd are then left alone.
set -eu

die() { echo "install.sh: $*" >&2; exit 1; }

bundle='' key='' root=${ROOT:-}
while [ $# -gt 0 ]; do
    case $1 in
    --bundle | --key) [ $# -ge 2 ] || die "$1 needs a file" ;;
    -h | --help) sed -n '2,12s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) die "no such option: $1 (see --help)" ;;
    esac
    case $1 in
    --bundle) bundle=$2 ;;
    --key) key=$2 ;;
    esac
    shift 2
done
[ -f "$bundle" ] || die "--bundle FILE is needed"
[ -f "$key" ] || die "--key FILE is needed: the public key of who made the release"
[ "$(id -u)" = 0 ] || die "run it as root"
for tool in tar openssl sha256sum sed; do
    command -v "$tool" >/dev/null || die "$tool is missing"
done
[ -n "$root" ] || [ -d /run/systemd/system ] || die "systemd does not run here"

# In the target's own file system: the version is moved in place by one rename.
mkdir -p "$root/opt/conductor/versions" "$root/var/lib"
work=$(mktemp -d "$root/opt/conductor/.install.XXXXXX")
trap 'rm -rf "$work"' EXIT

tar -xf "$bundle" -C "$work" manifest.json manifest.sig || die "$bundle is no release file"
openssl pkeyutl -verify -pubin -inkey "$key" -rawin -in "$work/manifest.json" \
    -sigfile "$work/manifest.sig" >/dev/null 2>&1 ||
    die "$key has not signed this release: nothing was changed"

# One value of the manifest, which was signed: its maker writes one to a line.
value() { sed -n "s/^ \"$1\": \"\{0,1\}\([^\",]*\)\"\{0,1\},\{0,1\}\$/\1/p" "$work/manifest.json"; }

[ "$(value kind)" = "conductor release 1" ] || die "this is no release that can be installed here"
version=$(value version) series=$(value python)
case $version in '' | *[!0-9A-Za-z.+~-]*) die "the manifest cannot be understood" ;; esac
[ -x "$root/usr/bin/python$series" ] || die "this release needs Python $series: /usr/bin/python$series"
home=$root/opt/conductor/versions/$version
[ ! -e "$home" ] || die "version $version is there already: use 'conductor upgrade' for another one"

echo "version $version: unpacking"
tar -xf "$bundle" -C "$work"
(cd "$work" && sed -n '/^ "files": {/,/^ }/p' manifest.json |
    sed -n -e 's/^  "\([^"]*\)": {$/\1/p' -e 's/^   "sha256": "\([0-9a-f]*\)".*/\1/p' |
    while read -r name && read -r sum; do echo "$sum  $name"; done >sums &&
    sha256sum --quiet -c sums) || die "the release is not what was signed: take a fresh copy"
[ -z "$(find "$work" ! -type f ! -type d)" ] || die "$bundle holds links or devices: none of ours does"
[ "$(wc -l <"$work/sums")" = "$(find "$work" -type f ! -path "$work/sums" ! -path "$work/manifest.json" \
    ! -path "$work/manifest.sig" | wc -l)" ] ||
    die "the release holds files that were not signed"

mkdir "$work/tree"
tar -xzf "$work/tree.tar.gz" --no-same-owner -C "$work/tree"
mv "$work/tree/opt/conductor/versions/$version" "$home"
cp -a "$work/tree/usr/." "$root/usr/"
ln -sfn "/opt/conductor/versions/$version" "$root/opt/conductor/current"

if [ -z "$root" ]; then
    systemd-sysusers /usr/lib/sysusers.d/conductor.conf
    systemd-tmpfiles --create /usr/lib/tmpfiles.d/conductor.conf
    systemctl daemon-reload
else
    mkdir -p "$root/etc/conductor" "$root/var/lib/conductor-models"
fi
install -d -m 750 "$root/etc/conductor/release-keys"
install -m 644 "$key" "$root/etc/conductor/release-keys/$(basename "$key" .pub).pub"
if [ -d "$work/models" ]; then
    install -m 640 "$work"/models/* "$root/var/lib/conductor-models/"
    [ -n "$root" ] || chgrp conductor-read "$root"/var/lib/conductor-models/*
fi
echo "installed: run 'conductor setup', then 'systemctl enable --now conductor.target'"
