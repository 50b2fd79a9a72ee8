#!/bin/bash
# Measures reads and writes on a mount of a host directory, in turns with the host itself.
#
#   measure/passthrough.sh [PANDO [OPTION...]]   PANDO: the command to measure
#                                                [target/release/pando]
#                                                OPTION: of pando mount, such as -o noatime, with
#                                                which the server reads and writes
#
# Needs /dev/fuse, fio, and root. The file of SIZE (512m) lies below DIR (/var/tmp), and in the page
# cache. Prints KiB/s on host and mount in each of 7 rounds (ROUNDS) of 2 seconds (SECONDS_EACH),
# and the medians of the ratios of mount to host: sequential by 64 KiB, and random by 4 KiB.
set -eu -o pipefail
here=$(dirname "$(readlink -f "$0")")
pando=$(readlink -f "${1:-target/release/pando}")
options=("${@:2}")
rounds=${ROUNDS:-7} seconds=${SECONDS_EACH:-2} size=${SIZE:-512m}
dir=$(mktemp -d "${DIR:-/var/tmp}/pando-passthrough.XXXXXX")
trap 'umount -l "$dir/mount" 2>/dev/null || true; rm -rf --one-file-system "$dir"' EXIT
mkdir "$dir/host" "$dir/mount"
"$pando" mount --daemon --source "$dir/host" "${options[@]}" "$dir/mount"

# In fio's terse output, field 7 is the bandwidth of reads, and field 48 that of writes.
rate() {
    local field=7 block=64k
    [[ $2 == *write ]] && field=48
    [[ $2 == rand* ]] && block=4k
    fio --name="$2" --filename="$dir/$1/file" --rw="$2" --bs="$block" --size="$size" --ioengine=psync \
        --invalidate=0 --runtime="$seconds" --time_based --fsync_on_close=0 --output-format=terse |
        cut -d ';' -f "$field"
}

SECONDS_EACH=1 rate host write >/dev/null
for ((round = 0; round < rounds; round++)); do
    for what in read randread write randwrite; do
        order=(host mount)
        ((round % 2)) && order=(mount host)
        declare -A took=()
        for where in "${order[@]}"; do took[$where]=$(rate "$where" "$what"); done
        echo "$what ${took[host]} ${took[mount]}"
    done
done | tee "$dir/rates"
awk -f "$here/ratios.awk" "$dir/rates"
"$pando" umount "$dir/mount"
