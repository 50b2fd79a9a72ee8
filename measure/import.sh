#!/bin/bash
# Measures copies into a mount beside the same copies into tmpfs: a tar stream with `tar` and with
# `pando import`, and its directory with `cp -a` and with `pando cp -a`.
#
#   measure/import.sh [PANDO [DIRECTORY...]]    PANDO: the command to measure [target/release/pando]
#                                               DIRECTORY: what is copied [/usr/share/doc]
#
# Needs root and /dev/fuse. Everything lies in memory, so no disk is measured. Each of 15 rounds
# (ROUNDS) runs all of them in random order. Prints the median of milliseconds, and the median of
# the ratios to tmpfs in the same round. With `taskset -c 0`, client and server share a CPU,
# and no request wakes up another one, which is expensive in some virtual machines.
set -eu -o pipefail
pando=$(readlink -f "${1:-target/release/pando}")
what=("${@:2}")
[ ${#what[@]} -gt 0 ] || what=(/usr/share/doc)
rounds=${ROUNDS:-15}
work=$(mktemp -d /var/tmp/pando-import.XXXXXX)
finish() {
    "$pando" umount "$work/mount/grove" 2>/dev/null || true
    umount "$work/mount" "$work/tmpfs" 2>/dev/null || true
    rm -rf --one-file-system "$work"
}
trap finish EXIT
mkdir "$work/mount" "$work/tmpfs"
mount -t tmpfs tmpfs "$work/tmpfs"
mount -t tmpfs tmpfs "$work/mount"
"$pando" mount --daemon "$work/mount/grove" >/dev/null
from=$work/mount/from
mkdir "$from"
cp -a "${what[@]}" "$from"
tar -C "$from" -cf "$work/mount/tar" .
echo "$(find "$from" -type f | wc -l) files, $(find "$from" -type d | wc -l) directories," \
    "$(($(stat -c %s "$work/mount/tar") >> 20)) MiB in a tar stream"

ways=(tmpfs-tar mount-tar mount-import tmpfs-cp mount-cp mount-pando-cp)
# Copies in one way, and prints the nanoseconds.
one() {
    local to=$work/tmpfs begin
    [[ $1 == mount-* ]] && to=$work/mount/grove
    begin=$(date +%s%N)
    case $1 in
        *-tar) tar -C "$to" -xf "$work/mount/tar" ;;
        *-import) "$pando" import "$work/mount/tar" "$to" ;;
        *-pando-cp) "$pando" cp -a "$from"/* "$to" ;;
        *-cp) cp -a "$from"/* "$to" ;;
    esac
    echo $(($(date +%s%N) - begin))
    find "$to" -mindepth 1 -delete
}
for way in "${ways[@]}"; do one "$way" >/dev/null; done
for ((round = 0; round < rounds; round++)); do
    for way in $(shuf -e "${ways[@]}"); do echo "$round $way $(one "$way")"; done
done >"$work/times"
median() { sort -g | awk '{ value[NR] = $1 } END { print value[int((NR + 1) / 2)] }'; }
for way in "${ways[@]}"; do
    base=tmpfs-${way##*-}
    [[ $way == *-import ]] && base=tmpfs-tar
    time=$(awk -v way="$way" '$2 == way { print $3 / 1e6 }' "$work/times" | median)
    ratio=$(awk -v way="$way" -v base="$base" '{ time[$1, $2] = $3 }
        END { for (round = 0; (round, way) in time; round++) print time[round, way] / time[round, base] }' "$work/times" | median)
    printf '%-15s %7.0f ms %6.2fx\n' "$way" "$time" "$ratio"
done
