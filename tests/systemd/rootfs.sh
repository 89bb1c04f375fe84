#!/usr/bin/env bash
# Prints the path of a Debian root file system that guest.sh boots; makes it first when it is not in
# the cache (some minutes: debootstrap, from the mirror that this machine's own apt uses).
#
#   rootfs.sh [SUITE]      SUITE is by default this machine's
#
# The cache is ${XDG_CACHE_HOME:-~/.cache}/conductor-systemd. Needs root and debootstrap.
set -euo pipefail
suite=${1:-$(. /etc/os-release && echo "$VERSION_CODENAME")}
# What the package depends on or recommends, and what the checks look with.
packages=systemd,systemd-sysv,dbus,iproute2,nftables,python3,libstdc++6,libgomp1,nginx-light,openssl,procps,man-db
cache=${XDG_CACHE_HOME:-$HOME/.cache}/conductor-systemd
root=$cache/$suite-$(sha256sum <<<"$packages" | cut -c1-8)

# The mirror of the suite in apt's own sources, or of this machine's suite: one mirror has them all.
mirror() {
    apt-get indextargets --format '$(RELEASE) $(SITE)' 'Created-By: Packages' 'Component: main' 2>/dev/null |
        awk -v suite="$suite" '$1 == suite { print $2; found = 1; exit } !any && $1 !~ /-/ { any = $2 }
                               END { if (!found && any) print any }'
}

build() {
    local from new=$root.new log=$root.log proxy
    from=$(mirror)
    [ -n "$from" ] || { echo "rootfs.sh: apt's sources name no mirror" >&2; exit 2; }
    proxy=$(apt-config shell P Acquire::http::Proxy | sed -n "s/^P='\(.*\)'$/\1/p")
    [ -z "$proxy" ] || export http_proxy=${http_proxy:-$proxy}
    echo "rootfs.sh: building $suite once, log in $log" >&2
    rm -rf --one-file-system "$new"
    debootstrap --variant=minbase --include="$packages" "$suite" "$new" "$from" >"$log" 2>&1 ||
        { tail -n 5 "$log" >&2; exit 3; }
    # A fixed id: systemd would take an empty one for a first boot, and ask.
    echo 00000000000000000000000000000abc >"$new/etc/machine-id"
    rm -rf "$new"/var/cache/apt/archives/*.deb "$new"/var/lib/apt/lists/*
    mkdir -p "$new/results"
    mv "$new" "$root"
}

mkdir -p "$cache"
exec 9>"$root.lock"
flock 9 # one builds, the others wait for it
[ -d "$root" ] || build 9>&-
echo "$root"
