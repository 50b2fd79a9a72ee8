#!/bin/bash
# Measures the cost of the mount: CPU time of client and server together.
#
#   measure/mount.sh [PANDO [SERVER...]]    PANDO: the command to measure [target/release/pando]
#
# Needs root and /dev/fuse. IO_URING=always or never selects how pando's mount is served (default:
# through io_uring if it is available).
#
# SERVER: another file system to measure instead. It is a command that serves a directory in the
# foreground; the directory is appended as its last argument. The served tree must be empty. An
# example is libfuse's passthrough_ll. It holds each file open, so the number of files is limited.
#   args=cache=always,timeout=86400,xattr
#   ENTRIES=10000 measure/mount.sh target/release/pando \
#       passthrough_ll -f -o "source=/dev/shm/below,$args"
#
# 1. `ls -l` of directories of 10,000 and 100,000 files (ENTRIES), whose names the kernel has not
#    cached: microseconds per entry.
# 2. create + close + unlink of names in one directory, one thread (`pando bench crunl`):
#    microseconds per operation. Once with client and server on cores that the kernel chooses, and
#    once with both on one core, where a request need not wake up another core.
#
# The server's time is that of its process before and after. It is counted in ticks of 10 ms, so the
# work is repeated.
set -eu -o pipefail
pando=$(readlink -f "${1:-target/release/pando}")
other=("${@:2}")
dir=$(mktemp -d)
grove=$dir/grove
trap 'umount -l "$grove" 2>/dev/null || true; rm -rf --one-file-system "$dir"' EXIT
ticks=$(getconf CLK_TCK)

# CPU time of the server with its threads, user and system, in microseconds.
server_us() { sed 's/.*) //' "/proc/$server/stat" | awk -v hz="$ticks" '{ printf "%d", ($12 + $13) * 1e6 / hz }'; }

# The prefix of client and server commands: empty, or taskset.
on=()

start() {
    local serve=("$pando" mount --io-uring "${IO_URING:-auto}")
    ((${#other[@]} == 0)) || serve=("${other[@]}")
    mkdir -p "$grove"
    "${on[@]}" "${serve[@]}" "$grove" >/dev/null &
    server=$!
    until mountpoint -q "$grove"; do kill -0 "$server"; sleep 0.05; done
    # Files of others must not be touched. Without a source, passthrough_ll serves the host's root.
    there=$(ls -A "$grove")
    [ -z "$there" ] || { echo "mount.sh: the tree that ${serve[0]} serves is not empty: give it an empty directory" >&2; exit 1; }
}

# Removes the files before it unmounts: if the tree is another file system, they would stay there.
stop() { rm -rf "${grove:?}/d" "${grove:?}/bench"; umount "$grove"; wait "$server"; }

echo "ls -l through the mount, CPU time in us per entry"
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
echo "crunl through the mount, 1 thread, CPU time in us per operation"
printf '%20s %10s %10s %10s\n' "on" client server together
for where in "any core" "one core"; do
    [ "$where" = "any core" ] || on=(taskset -c 0)
    start
    mkdir "$grove/bench"
    before=$(server_us)
    # Hardly any other work is done, so the server's time is that of the counted operations.
    "${on[@]}" "$pando" bench crunl "dir=$grove/bench" --threads 1 --warmup 0.01 --repeat 3 --seconds 2 --json "$dir/bench.json" >/dev/null
    served=$(($(server_us) - before))
    awk -v w="$where" -v c="$(number cpu_ns_per_op)" -v s="$served" -v n="$(number ops)" \
        'BEGIN { c /= 1000; s /= n; printf "%20s %10.2f %10.2f %10.2f\n", w, c, s, c + s }'
    stop
done
