#!/bin/bash
# Measures a mount of a host directory when everything is cached: programs that look at many files
# again, in turns on the host and on the mount.
#
#   measure/source.sh [PANDO [OPTION...]]    PANDO: the command to measure [target/release/pando]
#                                            OPTION: of pando mount, such as --no-watch, or
#                                            --cached-inodes 300000: there are 101,000 inodes
#
# Needs /dev/fuse and git, and root if the kernel is to report changes. The directory is a git
# repository of 50,000 files (FILES), 100 in a directory, below DIR (default: /var/tmp). Prints
# milliseconds for `find -ls` and `git status` in each of 9 rounds (ROUNDS), and the medians of the
# ratios of mount to host. Before each round more than a second passes, in which attributes expire
# if the kernel is not told of changes.
set -eu -o pipefail
here=$(dirname "$(readlink -f "$0")")
pando=$(readlink -f "${1:-target/release/pando}")
options=("${@:2}")
files=${FILES:-50000} rounds=${ROUNDS:-9}
dir=$(mktemp -d "${DIR:-/var/tmp}/pando-source.XXXXXX")
trap 'umount -l "$dir/mount" 2>/dev/null || true; rm -rf --one-file-system "$dir"' EXIT
mkdir "$dir/host" "$dir/mount"

source "$here/repository.sh"
make_repository "$dir/host" "$files"
"$pando" mount --daemon --source "$dir/host" "${options[@]}" "$dir/mount"

in_find() { find "$dir/$1" -ls >/dev/null; }
in_status() { $git --no-optional-locks -C "$dir/$1" status >/dev/null; }
milliseconds() {
    local begin=${EPOCHREALTIME/./}
    "$@"
    echo $(((${EPOCHREALTIME/./} - begin) / 1000))
}

for what in find status; do "in_$what" host; "in_$what" mount; done
for ((round = 0; round < rounds; round++)); do
    sleep 1.1
    for what in find status; do
        order=(host mount)
        ((round % 2)) && order=(mount host)
        declare -A took=()
        for where in "${order[@]}"; do took[$where]=$(milliseconds "in_$what" "$where"); done
        echo "$what ${took[host]} ${took[mount]}"
    done
done | tee "$dir/times"
awk -f "$here/ratios.awk" "$dir/times"
"$pando" umount "$dir/mount"
