#!/bin/bash
# Measures the cost of listings: one directory with 100,000 files that have two extended attributes
# each, and 300 directories of 1,000 files, on ext4, XFS and btrfs (loop images made here), cold and
# warm, with pando and with the common tools.
#
#   measure/listing.sh [PANDO]    PANDO: the command to measure; if missing, a release build is made
#
# Needs root. The environment may set RUNS (5), WARM (3 warm runs for each cold one), FILES
# (100000), DIRS (300), PER_DIR (1000), SYSTEMS ("ext4 xfs btrfs"), and WORK (a directory with 4 GiB
# free; /var/tmp). Prints Markdown. Cold means: unmounted, caches dropped, mounted again. Each round
# runs all tools one after the other, so that other load disturbs all of them equally. Figures are
# medians. Output goes through a pipe. CPU is user and system time of the tool.
set -u -o pipefail
here=$(dirname "$(readlink -f "$0")")
runs=${RUNS:-5} warm=${WARM:-3} systems=${SYSTEMS:-ext4 xfs btrfs}
files=${FILES:-100000} dirs=${DIRS:-300} per_dir=${PER_DIR:-1000}
[ "$(id -u)" = 0 ] || { echo "$0: needs root: it mounts, and drops caches" >&2; exit 1; }
for program in cc setfattr getfattr losetup; do
    command -v $program >/dev/null || { echo "$0: needs $program (Debian: gcc attr mount)" >&2; exit 1; }
done
pando=${1:-}
if [ -z "$pando" ]; then
    (cd "$here/.." && cargo build --release --quiet --bin pando) || exit 1
    pando=${CARGO_TARGET_DIR:-$here/../target}/release/pando
fi
pando=$(readlink -f "$pando")

work=$(mktemp -d "${WORK:-/var/tmp}/pando-listing.XXXXXX")
root=$work/root
mkdir "$root"
clean() {
    trap '' PIPE # The reader of the output may have exited.
    cd /
    mountpoint -q "$root" && umount "$root"
    rm -rf "$work"
}
trap clean EXIT
trap 'exit 130' INT TERM
bare=$work/bare
cc -O2 -pthread -o "$bare" "$here/bare.c" || exit 1

attach() { mount -o loop "$work/image" "$root"; }

# Makes a file system with the two trees.
populate() {
    truncate -s 4G "$work/image"
    case $1 in
        ext4) mkfs.ext4 -q -N $((files + dirs * per_dir + 100000)) "$work/image" ;;
        xfs) mkfs.xfs -q -f "$work/image" ;;
        btrfs) mkfs.btrfs -q -f "$work/image" >"$work/said" 2>&1 || { cat "$work/said" >&2; return 1; } ;;
        *) echo "unknown file system $1" >&2; return 1 ;;
    esac || return 1
    attach || return 1
    mkdir "$root/flat" "$root/many"
    (
        cd "$root/flat" || exit 1
        seq -f 'file%07.0f' "$files" | xargs touch
        seq -f 'file%07.0f' "$files" | xargs setfattr -n user.grove -v aspen
        seq -f 'file%07.0f' "$files" | xargs setfattr -n user.trunks -v 47000
        cd "$root/many" || exit 1
        seq -f 'dir%04.0f' "$dirs" | xargs mkdir
        for dir in *; do seq -f "$dir/file%05.0f" "$per_dir"; done | xargs touch
    ) || return 1
    umount "$root"
}

cool() {
    mountpoint -q "$root" && umount "$root"
    sync
    echo 3 >/proc/sys/vm/drop_caches
    attach
}

failed=0

# Appends the wall and CPU time of a command to a file, if it succeeds.
clock() {
    local out=$1 TIMEFORMAT='%R %U %S'
    shift
    { time "$@" 2>"$work/said"; } 2>"$work/time" | cat >/dev/null
    if ((PIPESTATUS[0] == 0)); then
        awk '{ print $1, $2 + $3 }' "$work/time" >>"$out"
    else
        failed=1
        { echo "failed: $*" | cut -c1-200; head -3 "$work/said"; } >&2
    fi
}

# The median of a column of a file. With an even number of lines, the mean of the two in the middle.
median() {
    [ -e "$1" ] || { printf failed; return; }
    awk -v column="$2" '{ print $column }' "$1" | sort -n |
        awk '{ a[NR] = $1 } END { printf "%.3f", (a[int((NR + 1) / 2)] + a[int(NR / 2) + 1]) / 2 }'
}

# Runs each line of "name: command" from stdin, cold and warm, and prints a table.
table() {
    local names=() commands=() line round again index command
    while IFS= read -r line; do
        names+=("${line%%: *}")
        commands+=("${line#*: }")
    done
    rm -f "$work"/cold.* "$work"/warm.*
    for ((round = 0; round < runs; round++)); do
        for index in "${!names[@]}"; do
            read -ra command <<<"${commands[index]}"
            command -v "${command[0]}" >/dev/null || continue
            cool
            clock "$work/cold.$index" "${command[@]}"
        done
        # Everything is cached now, and each tool runs directly after the others equally often.
        for ((again = 0; again < warm; again++)); do
            for index in "${!names[@]}"; do
                read -ra command <<<"${commands[index]}"
                command -v "${command[0]}" >/dev/null || continue
                clock "$work/warm.$index" "${command[@]}"
            done
        done
    done
    echo
    echo "| $1 | cold, s | cold CPU | warm, s | warm CPU |"
    echo "| --- | ---: | ---: | ---: | ---: |"
    for index in "${!names[@]}"; do
        if command -v "${commands[index]%% *}" >/dev/null; then
            printf '| `%s` | %s | %s | %s | %s |\n' "${names[index]}" "$(median "$work/cold.$index" 1)" \
                "$(median "$work/cold.$index" 2)" "$(median "$work/warm.$index" 1)" "$(median "$work/warm.$index" 2)"
        else
            printf '| `%s` | not installed | | | |\n' "${names[index]}"
        fi
    done
}

# The fields of ls -l, as formats of find and bfs.
fields='%M\t%n\t%u\t%g\t%s\t%TY-%Tm-%Td\t%TH:%TM\t%f\n'

echo "$(date +%Y-%m-%d), $(uname -sr), $(nproc) x $(awk -F': ' '/model name/ { print $2; exit }' /proc/cpuinfo)," \
    "$(awk '/MemTotal/ { printf "%.0f GiB", $2 / 1048576 }' /proc/meminfo); $runs runs, medians; load before:" \
    "$(cut -d' ' -f1 /proc/loadavg)."
echo "$("$pando" --version), $(ls --version | head -1), $(find --version | head -1)," \
    "$(bfs --version 2>/dev/null | head -1 || echo no bfs)."
for system in $systems; do
    populate "$system" || { mountpoint -q "$root" && umount "$root"; echo; echo "$system: cannot be made here"; continue; }
    flat=$root/flat many=$root/many
    table "$system: $files files, names and attributes" <<END
bare loop: $bare $flat
bare loop, 4 threads, inode order: $bare -t 4 $flat
ls -l: ls -l $flat
ls -lU: ls -lU $flat
find -printf: find $flat -printf $fields
bfs -printf: bfs $flat -printf $fields
exa -l: exa -l $flat
pando ls -l: $pando ls -l $flat
pando ls -lU: $pando ls -lU $flat
pando ls -l --json: $pando ls -l --json $flat
END
    table "$system: the same, with extended attributes" <<END
bare loop -x: $bare -x $flat
bare loop -x, 4 threads, inode order: $bare -x -t 4 $flat
getfattr -d -R: getfattr -d -R $flat
exa -l --extended: exa -l --extended $flat
pando ls -lU --xattr: $pando ls -lU --xattr $flat
pando ls --json --xattr: $pando ls --json --xattr $flat
END
    table "$system: $dirs x $per_dir files, names and attributes" <<END
bare loop: $bare $(seq -f "$many/dir%04.0f" -s ' ' "$dirs")
ls -lR: ls -lR $many
ls -lRU: ls -lRU $many
find -printf: find $many -printf $fields
bfs -printf: bfs $many -printf $fields
exa -lR: exa -lR $many
pando ls -lR: $pando ls -lR $many
pando ls -lRU: $pando ls -lRU $many
pando ls -lR --json: $pando ls -lR --json $many
END
    mountpoint -q "$root" && umount "$root"
    rm -f "$work/image"
done
exit "$failed"
