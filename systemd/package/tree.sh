#!/usr/bin/env bash
# Lays out one version of the appliance as it stands on a box: what the Debian package and the offline
# bundle have in common.
#
#   tree.sh ROOT [PYTHON]     PYTHON is the interpreter of the box's version (default python3.11:
#                             Debian 12; python3.13: Debian 13). It is used to build, not packed.
#
#   opt/conductor/versions/V/{bin,lib,share}   an environment of its own, whole: the install fetches
#                                              nothing and compiles nothing
#   usr/lib/{systemd,sysusers.d,tmpfiles.d}    copies of share/, where systemd looks
#   usr/{bin,share}                            links into /opt/conductor/current
#
# The locked packages are kept in ${XDG_CACHE_HOME:-~/.cache}/conductor-packages between builds. With
# TAKEN=DIR in the environment they are taken from that virtual environment (taken.py): for tests.
set -euo pipefail
cd "$(dirname "$0")/../.."
root=$(realpath -m "${1:?usage: tree.sh ROOT [PYTHON]}")
python=${2:-python3.11}
series=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
version=${CONDUCTOR_VERSION:-$(sed -n 's/^version = "\(.*\)"$/\1/p' pyproject.toml)}
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || date +%s)}
home=/opt/conductor/versions/$version
site=$root$home/lib/python$series/site-packages
share=$root$home/share
pip=("$python" -m pip --disable-pip-version-check)

# The packages of the lock, compiled. The key is what they are made of: the lock, and this file.
locked() {
    local cache key new
    key=$(cat requirements/appliance.txt "$0" | sha256sum | cut -c1-12)
    cache=${XDG_CACHE_HOME:-$HOME/.cache}/conductor-packages
    packages=$cache/$series-$key
    [ ! -d "$packages" ] || return 0
    echo "packages of the lock, for Python $series (once)"
    mkdir -p "$cache"
    new=$(mktemp -d "$packages.XXXX")
    "${pip[@]}" install -qq --no-deps --require-hashes --only-binary :all: --no-compile \
        --target "$new" -r requirements/appliance.txt
    trim "$new"
    "$python" -m compileall -q -j 0 --invalidation-mode unchecked-hash -s "$new" \
        -p "/opt/conductor/current/lib/python$series/site-packages" "$new" || true
    chmod -R u+rwX,go+rX,go-w "$new"
    mv -T "$new" "$packages"
}

# What no process of ours reaches: a proxy's web pages, models of a cloud's services (the one provider
# is `openai`), converters of networks, tests. Licences stay.
trim() {
    rm -rf "$1"/bin "$1"/litellm/proxy/{_experimental,swagger} "$1"/botocore/data/*/ \
        "$1"/onnxruntime/{transformers,quantization,tools}
    find "$1" -type d \( -name tests -o -name test \) -prune -exec rm -rf {} +
}

environment() {
    local work
    mkdir -p "$(dirname "$site")" "$root$home/bin"
    if [ -n "${TAKEN:-}" ]; then
        "$python" systemd/package/taken.py requirements/appliance.txt \
            "$TAKEN/lib/python$series/site-packages" "$site"
        trim "$site"
    else
        locked
        cp -alT "$packages" "$site" 2>/dev/null || cp -aT "$packages" "$site"
    fi
    work=$(mktemp -d)
    .venv/bin/python -m pip wheel -qq --no-deps --no-build-isolation -w "$work" .
    "${pip[@]}" install -qq --no-deps --no-compile --no-index --target "$work/ours" "$work"/*.whl
    cp -r "$work/ours/conductor" "$work"/ours/*.dist-info "$site/"
    rm -rf "$work"
    sed -i "s/^__version__ = .*/__version__ = \"$version\"/" "$site/conductor/__init__.py"
    "$python" -m compileall -q --invalidation-mode unchecked-hash -s "$root" "$site/conductor"
    ln -s "/usr/bin/python$series" "$root$home/bin/python"
    printf 'home = /usr/bin\ninclude-system-site-packages = false\nversion = %s\n' "$series" \
        >"$root$home/pyvenv.cfg"
    cat >"$root$home/bin/conductor" <<PROGRAM
#!$home/bin/python -IB
from conductor.cli.main import main

main()
PROGRAM
    chmod 755 "$root$home/bin/conductor"
}

# Everything that is not Python, all below share/: so that a version is whole by itself.
shared() {
    local folder
    mkdir -p "$share/configs" "$share/doc"
    for folder in units sysusers.d tmpfiles.d air-gapped nftables examples nginx workers; do
        [ ! -d "systemd/$folder" ] || cp -rT "systemd/$folder" "$share/$folder"
    done
    cp -r configs/models.yaml configs/policy.yaml configs/examples "$share/configs/"
    [ ! -d systemd/configs ] || cp -rT systemd/configs "$share/configs"
    cp docs/*.md NOTICE "$share/doc/"
    cp systemd/package/state-format "$share/"
}

placed() {
    local page
    mkdir -p "$root"/usr/{bin,share/doc,share/man/man1,share/bash-completion/completions}
    for folder in sysusers.d tmpfiles.d; do
        mkdir -p "$root/usr/lib/$folder"
        cp "$share/$folder"/* "$root/usr/lib/$folder/"
    done
    mkdir -p "$root/usr/lib/systemd/system"
    cp "$share"/units/* "$root/usr/lib/systemd/system/"
    for page in systemd/man/*.1; do
        [ ! -e "$page" ] || gzip -9nc "$page" >"$root/usr/share/man/man1/$(basename "$page").gz"
    done
    [ ! -e systemd/completion/conductor.bash ] ||
        cp systemd/completion/conductor.bash "$root/usr/share/bash-completion/completions/conductor"
    ln -s /opt/conductor/current/bin/conductor "$root/usr/bin/conductor"
    ln -s /opt/conductor/current/share "$root/usr/share/conductor"
    ln -s /opt/conductor/current/share/doc "$root/usr/share/doc/conductor"
}

environment
shared
placed
chmod -R u+rwX,go+rX,go-w "$root"
