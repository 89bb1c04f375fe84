#!/usr/bin/env bash
# Prints the path of a root file system for guest.sh that is made of this machine's own Debian: the files
# of the installed packages that the checks need, and nothing else of the machine. Some seconds, where
# debootstrap takes minutes; what is not installed here is fetched by apt.
#
#   ownroot.sh
#
# The cache is ${XDG_CACHE_HOME:-~/.cache}/conductor-systemd. Needs root and a Debian with systemd; ends
# with 3 where that cannot be had.
set -euo pipefail
# What the package depends on or recommends, and what the core checks look with.
wanted=(systemd systemd-sysv dbus iproute2 nftables python3 libstdc++6 libgomp1 procps openssl)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/conductor-systemd

here() { dpkg-query -W -f='${db:Status-Status} ${Package}\n' "$@" 2>/dev/null | sed -n 's/^installed //p' || true; }

# What Debian expects everywhere, what is wanted, and everything that those stand on.
closure() {
    local -a asked
    mapfile -t asked < <(
        here "${wanted[@]}" apt
        dpkg-query -W -f='${Essential} ${Priority} ${Package}\n' |
            awk '$1 == "yes" || $2 == "required" { print $3 }'
    )
    apt-cache depends --recurse --installed --no-recommends --no-suggests --no-conflicts --no-breaks \
        --no-replaces --no-enhances "${asked[@]}" | grep -v '^[ <]' | sort -u |
        xargs dpkg-query -W -f='${db:Status-Status} ${binary:Package}\n' 2>/dev/null |
        sed -n 's/^installed //p'
}

# The names that the packages' files have on a disk where /bin and /lib are links.
files() {
    local one
    for one in "$@"; do
        cat "/var/lib/dpkg/info/$one.list" 2>/dev/null || cat "/var/lib/dpkg/info/${one%:*}.list"
    done | sed -E 's#^/(bin|sbin|lib|lib32|lib64|libx32)/#/usr/\1/#' |
        grep -vxE '/\.|/(bin|sbin|lib|lib32|lib64|libx32)' | sed 's#^/##'
    # Made at the installation, so in nobody's list.
    printf '%s\n' usr/bin/sh usr/lib/python3 etc/{passwd,group,shadow,gshadow,nsswitch.conf}
    (cd / && find usr/bin usr/sbin -lname '/etc/alternatives/*'; find etc/alternatives
        find usr/lib/python3.* -name __pycache__ -not -path '*/test/*' -exec find {} \;)
}

copied() {
    local new=$1 folder
    shift
    mkdir -p "$new"/{proc,sys,dev,run,tmp,mnt,root,results} "$new"/var/lib/dpkg/{info,triggers,updates}
    for folder in bin sbin lib lib32 lib64 libx32; do
        mkdir -p "$new/usr/$folder"
        ln -s "usr/$folder" "$new/$folder"
    done
    files "$@" | sort -u | tar -C / -cf - --no-recursion --ignore-failed-read --verbatim-files-from -T - \
        2>/dev/null | tar -C "$new" -xpf - --keep-directory-symlink
    dpkg-query -s "$@" >"$new/var/lib/dpkg/status"
    cp -p /var/lib/dpkg/info/format "$new/var/lib/dpkg/info/"
    touch "$new"/var/lib/dpkg/{available,diversions,statoverride}
    for folder in "$@"; do
        cp -p "/var/lib/dpkg/info/$folder".* "$new/var/lib/dpkg/info/" 2>/dev/null ||
            cp -p "/var/lib/dpkg/info/${folder%:*}".* "$new/var/lib/dpkg/info/"
    done
    chmod 1777 "$new/tmp"
    ldconfig -r "$new"
}

# What this machine has not installed: apt works out which packages those are for the new root.
fetched() {
    local new=$1 debs=$1.debs
    local -a lacking apt
    mapfile -t lacking < <(printf '%s\n' "${wanted[@]}" | grep -vxFf <(here "${wanted[@]}"))
    [ ${#lacking[@]} != 0 ] || return 0
    apt=(apt-get -qq -o "Dir::State::status=$new/var/lib/dpkg/status"
        -o "Dir::Cache::archives=$debs" -o Debug::NoLocking=1)
    mkdir -p "$debs/partial"
    apt+=(install --download-only -y --no-install-recommends "${lacking[@]}")
    "${apt[@]}" || { apt-get -qq update && "${apt[@]}"; }
    # shellcheck disable=SC2046  # no name of a package has a space
    set -- $(find "$debs" -name '*.deb')
    [ $# = 0 ] || dpkg --root="$new" --force-unsafe-io -i "$@"
    rm -rf "$debs"
}

build() {
    local new=$root.new
    rm -rf --one-file-system "$new"
    mkdir -p "$new"
    copied "$new" "${packages[@]}"
    fetched "$new"
    # A fixed id: systemd would take an empty one for a first boot, and ask.
    echo 00000000000000000000000000000abc >"$new/etc/machine-id"
    mv "$new" "$root"
}

[ "$(id -u)" = 0 ] && command -v dpkg-query apt-cache >/dev/null && [ -n "$(here systemd python3)" ] ||
    { echo "ownroot.sh: this is no Debian with systemd, or you are not root" >&2; exit 3; }
mkdir -p "$cache"
mapfile -t packages < <(closure)
root=$cache/own-$(dpkg-query -W "${packages[@]}" | cat - "$0" | sha256sum | cut -c1-8)
exec 9>"$root.lock"
flock 9 # one builds, the others wait for it
trap '[ -d "$root" ] || { tail -n 5 "$root.log" >&2; exit 3; }' EXIT
[ -d "$root" ] || build 9>&- >"$root.log" 2>&1
echo "$root"
