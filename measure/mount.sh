#!/bin/bash
# What the mount costs: processor time of client and server together.
#
#   measure/mount.sh [PANDO [SERVER...]]    as root, with /dev/fuse; PANDO: the command (target/release/pando)
#
# IO_URING=always or never: how pando's mount is served (default: through io_uring where it can be had).
#
# SERVER: another file system to measure instead: a command that serves in the foreground the directory that is its last
# word, here added; what it serves must be empty. As in (libfuse's example; it holds each file open, so no more than there
# may be)
#   ENTRIES=10000 measure/mount.sh target/release/pando passthrough_ll -f -o source=/dev/shm/below,cache=always,timeout=86400,xattr
#
# 1. `ls -l` of directories of 10,000 and 100,000 files (ENTRIES), names unknown to the kernel before: microseconds per entry.
# 2. create + close + unlink of names in one directory, one thread (`pando bench crunl`): microseconds per operation; with
#    client and server where the kernel puts them, and with both on one processor, which no request has to wake up then.
# The server's time is that of its process before and after; it counts in ticks of 10 ms, so work is repeated.
set -eu -o pipefail
pando=$(readlink -f "${1:-target/release/pando}")
other=("${@:2}")
dir=$(mktemp -d)
grove=$dir/grove
trap 'umount -l "$grove" 2>/dev/null || true; rm -rf --one-file-system "$dir"' EXIT
ticks=$(getconf CLK_TCK)

# Its own and its threads' time in microseconds, user and system.
server_us() { sed 's/.*) //' "/proc/$server/stat" | awk -v hz="$ticks" '{ printf "%d", ($12 + $13) * 1e6 / hz }'; }

# What runs client and server where: nothing, or taskset.
on=()

start() {
    local serve=("$pando" mount --io-uring "${IO_URING:-auto}")
    ((${#other[@]} == 0)) || serve=("${other[@]}")
    mkdir -p "$grove"
    "${on[@]}" "${serve[@]}" "$grove" >/dev/null &
    server=$!
    until mountpoint -q "$grove"; do kill -0 "$server"; sleep 0.05; done
    # What others have there is not for us to touch: passthrough_ll without a source serves the whole machine.
    there=$(ls -A "$grove")
    [ -z "$there" ] || { echo "mount.sh: what ${serve[0]} serves is not empty; give it an empty directory" >&2; exit 1; }
}

# What was made is removed first: below another file system it would stay.
stop() { rm -rf "${grove:?}/d" "${grove:?}/bench"; umount "$grove"; wait "$server"; }

echo "ls -l through the mount, us of processor time per entry"
printf '%10s %10s %10s %10s\n' entries client server together
for entries in ${ENTRIES:-10000 100000}; do
    start
    mkdir "$grove/d"
    (cd "$grove/d" && seq -f 'file-%07.0f' "$entries" | xargs touch)
    client=0 before=$(server_us) rounds=$((300000 / entries))
    for ((i = 0; i < rounds; i++)); do
        echo 2 >/proc/sys/vm/drop_caches
        us=$( { TIMEFORMAT='%U %S'; time ls -l "$grove/d" >/dev/null; } 2>&1 | awk '{ printf "%d", ($1 + $2) * 1e6 }')
        client=$((client + us))
    done
    served=$(($(server_us) - before)) n=$((entries * rounds))
    awk -v e="$entries" -v c="$client" -v s="$served" -v n="$n" \
        'BEGIN { printf "%10d %10.2f %10.2f %10.2f\n", e, c / n, s / n, (c + s) / n }'
    stop
done

number() { grep -o "\"$1\": *[0-9.]*" "$dir/bench.json" | head -n 1 | grep -o '[0-9.]*$'; }

echo
echo "crunl through the mount, 1 thread, us of processor time per operation"
printf '%20s %10s %10s %10s\n' "on" client server together
for where in "any processor" "one processor"; do
    [ "$where" = "any processor" ] || on=(taskset -c 0)
    start
    mkdir "$grove/bench"
    before=$(server_us)
    # Next to nothing besides what is counted: the server's time is that of the counted operations.
    "${on[@]}" "$pando" bench crunl "dir=$grove/bench" --threads 1 --warmup 0.01 --repeat 3 --seconds 2 --json "$dir/bench.json" >/dev/null
    served=$(($(server_us) - before))
    awk -v w="$where" -v c="$(number cpu_ns_per_op)" -v s="$served" -v n="$(number ops)" \
        'BEGIN { c /= 1000; s /= n; printf "%20s %10.2f %10.2f %10.2f\n", w, c, s, c + s }'
    stop
done
