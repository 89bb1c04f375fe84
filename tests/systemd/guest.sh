#!/usr/bin/env bash
# Boots a root file system with systemd as PID 1 in namespaces of its own, runs one program there as
# root, shuts down, and ends with the program's exit status.
#
#   guest.sh ROOT OVER RESULTS SECONDS PROGRAM [ARGUMENT...]
#
#   ROOT      as rootfs.sh prints it; never changed: a layer in memory takes what the guest writes
#   OVER      a folder whose files are laid over ROOT, as root's
#   RESULTS   a folder that the guest sees as /results: output.txt (what PROGRAM printed), journal.txt,
#             console.txt, and whatever the guest writes there
#
# Own namespaces: mounts, processes, network (an empty one), names, IPC, cgroups. Not users: root of the
# guest is root of this machine, so only the project's own units belong in it. Filters of cgroup v2
# (IPAddressDeny=, DeviceAllow=) work there; MemoryMax= and TasksMax= only where the machine delegates
# those controllers. There is no hardware and no udev. 124: the guest took longer than SECONDS.
set -euo pipefail
self=$(realpath "$0")
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin

# 1. Outside: private mounts, for all that follows.
outside() {
    [ $# -ge 5 ] && [ "$(id -u)" = 0 ] || { sed -n '2,16s/^# \{0,1\}//p' "$self" >&2; exit 2; }
    export ROOT OVER RESULTS SECONDS_LEFT=$4
    ROOT=$(realpath "$1") OVER=$(realpath "$2") RESULTS=$(realpath "$3")
    shift 4
    exec unshare --mount --propagation private "$BASH" "$self" :layers "$@"
}

# 2. The layers, a cgroup, and a limit in time around the rest.
layers() {
    local work status=0 group
    work=$(mktemp -d)
    mount -t tmpfs -o size=6g,mode=755 guest "$work"
    mkdir "$work"/{upper,scratch,root,cgroup}
    mount -t overlay -o "lowerdir=$ROOT,upperdir=$work/upper,workdir=$work/scratch" guest "$work/root"
    cp -rT --no-preserve=ownership --preserve=mode,links,timestamps "$OVER" "$work/root"
    driver "$work/root" "$@"
    mount -t cgroup2 cgroup2 "$work/cgroup"
    group=$work/cgroup/guest-$$
    mkdir "$group"
    trap 'end_all "$group"' EXIT
    export WORK=$work GROUP=$group
    # `script` lends the guest a terminal: PID 1 wants a console before its journal stands.
    timeout -s KILL "$SECONDS_LEFT" script -qefc \
        "exec unshare --fork --kill-child --mount --pid --net --uts --ipc '$BASH' '$self' :cgroup" \
        "$RESULTS/console.txt" >/dev/null 2>&1 </dev/null || status=$?
    [ "$status" != 137 ] || status=124
    exit "$status"
}

# The target that PID 1 boots to, and the service that runs PROGRAM and then ends the guest.
driver() {
    local root=$1 units=$1/etc/systemd/system
    shift
    mkdir -p "$units" "$root/etc/guest"
    echo guest >"$root/etc/hostname"
    printf '%q ' "$@" >"$root/etc/guest/program"
    # It ends a little before the guest is killed, so that the journal can still be written.
    echo "LIMIT=$((SECONDS_LEFT > 40 ? SECONDS_LEFT - 25 : SECONDS_LEFT / 2))" >"$root/etc/guest/run"
    cat >>"$root/etc/guest/run" <<'RUN'
cd /results
timeout -s INT -k 10 "$LIMIT" bash /etc/guest/program >output.txt 2>&1 </dev/null
status=$?
journalctl --no-pager -o short-precise >journal.txt 2>&1
sync
systemctl exit $status --no-block
RUN
    cat >"$units/guest.target" <<'UNIT'
[Unit]
Requires=basic.target
After=basic.target
Wants=guest.service
UNIT
    cat >"$units/guest.service" <<'UNIT'
[Unit]
After=basic.target
[Service]
Type=oneshot
TimeoutStartSec=infinity
ExecStart=/bin/bash /etc/guest/run
UNIT
    # These would touch the machine's kernel, which the guest shares.
    ln -sf /dev/null "$units/systemd-modules-load.service"
    ln -sf /dev/null "$units/sys-kernel-debug.mount"
    ln -sf /dev/null "$units/sys-kernel-tracing.mount"
}

# 3. First process of the new namespaces: its cgroup becomes the root of those that the guest sees.
cgroup() {
    echo 0 >"$GROUP/cgroup.procs"
    exec unshare --cgroup "$BASH" "$self" :boot
}

# 4. The file systems that PID 1 expects, then PID 1 itself.
boot() {
    local root=$WORK/root name
    mount -t proc proc "$root/proc"
    mount -o bind,ro "$root/proc/sys" "$root/proc/sys"
    [ ! -e "$root/proc/sysrq-trigger" ] || mount --bind /dev/null "$root/proc/sysrq-trigger"
    mount -t sysfs -o ro sysfs "$root/sys"
    mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
    mount -t tmpfs -o mode=755 run "$root/run"
    mount -t tmpfs -o mode=1777 tmp "$root/tmp"
    mount -t tmpfs -o mode=755 dev "$root/dev"
    for name in null zero full random urandom tty; do
        touch "$root/dev/$name"
        mount --bind "/dev/$name" "$root/dev/$name"
    done
    mkdir "$root"/dev/{pts,shm}
    mount -t devpts -o newinstance,ptmxmode=0666 devpts "$root/dev/pts"
    mount -t tmpfs -o mode=1777 shm "$root/dev/shm"
    ln -s pts/ptmx "$root/dev/ptmx"
    ln -s /proc/self/fd "$root/dev/fd"
    touch "$root/dev/console"
    mount --bind "$(tty)" "$root/dev/console"
    mount --bind "$RESULTS" "$root/results"
    hostname guest
    cd "$root"
    pivot_root . mnt
    hash -r
    umount -l /mnt
    mount --make-rshared / # else what LoadCredential= mounts never reaches the units
    ip link set lo up
    exec env -i container=lxc TERM=dumb PATH="$PATH" \
        setpriv --bounding-set -sys_module,-sys_rawio,-sys_time \
        /lib/systemd/systemd --show-status=1 systemd.unit=guest.target
}

end_all() {
    local group=$1 tries=50
    while [ -d "$group" ] && [ $((tries--)) -gt 0 ]; do
        [ ! -e "$group/cgroup.kill" ] || echo 1 >"$group/cgroup.kill" || true
        find "$group" -depth -type d -exec rmdir {} + 2>/dev/null || sleep 0.1
    done
}

case ${1:-} in
:layers | :cgroup | :boot)
    stage=${1#:}
    shift
    "$stage" "$@"
    ;;
*) outside "$@" ;;
esac
