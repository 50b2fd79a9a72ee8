#!/bin/bash
# Measures programs on a mounted store, in turns with the host's file system and other servers.
#
#   measure/store.sh [PANDO [NAME=COMMAND...]]   PANDO: the command to measure
#                                                [target/release/pando]
#                                                COMMAND mounts another file system, with its data
#                                                in the directory $1, on the directory $2
#
#   measure/store.sh target/release/pando 'passthrough_hp=passthrough_hp "$1" "$2"' \
#     'juicefs=juicefs format -q --storage file --bucket "$1/" sqlite3://$1.db store &&
#              juicefs mount -q -d sqlite3://$1.db "$2"'
#
# Needs root, /dev/fuse, git and tar. All directories lie below DIR (/var/tmp). Prints the
# milliseconds of each program in each of 3 rounds (ROUNDS), and a table of medians in seconds:
#   untar    a tar of FILES (6,900) files of /usr
#   clone    git clone of a repository of REPOSITORY (50,000) files, and git status
#   install  pip install of PACKAGES from the wheels in WHEELS, if these are given
#   rm       rm -rf of what the three have made
set -eu -o pipefail
here=$(dirname "$(readlink -f "$0")")
pando=$(readlink -f "${1:-target/release/pando}")
others=("${@:2}")
files=${FILES:-6900} repository=${REPOSITORY:-50000} rounds=${ROUNDS:-3}
dir=$(mktemp -d "${DIR:-/var/tmp}/pando-store.XXXXXX")
trap 'umount -l "$dir/mount" 2>/dev/null || true; rm -rf --one-file-system "$dir"' EXIT
mkdir "$dir/mount" "$dir/repository"

(cd /usr && find . -xdev \( -type f -size -512k -o -type d -o -type l \) -print0 | head -z -n "$files" |
    tar --create --no-recursion --null --files-from=- --file="$dir/tar") || [ $? = 141 ]
source "$here/repository.sh"
make_repository "$dir/repository" "$repository"
$git -C "$dir/repository" gc -q

in_untar() { mkdir untar && tar --extract --file="$dir/tar" --directory=untar; }
in_clone() { $git clone -q --no-local "$dir/repository" clone && $git -C clone status >/dev/null; }
in_install() {
    # shellcheck disable=SC2086 # several packages
    # In the tree, too, is what pip unpacks.
    TMPDIR=$PWD pip install -q --root-user-action=ignore --no-compile --no-index --find-links "$WHEELS" --target install $PACKAGES
}
in_rm() { rm -rf untar clone install; }
# Prints the milliseconds, and whether the program has failed. What it says goes to the log.
milliseconds() {
    local begin=${EPOCHREALTIME/./} failed=
    "$@" >>"$dir/log" 2>&1 || failed=failed
    echo "$(((${EPOCHREALTIME/./} - begin) / 1000))" $failed
}

# Runs all programs in the current directory.
programs() {
    local what
    for what in untar clone ${WHEELS:+install} rm; do
        echo "$1 $what $(milliseconds "in_$what")"
    done
}

for ((round = 0; round < rounds; round++)); do
    for name in host store "${others[@]}"; do
        data=$dir/data/${name%%=*}.$round
        mkdir -p "$data"
        case $name in
        host) ;;
        store) "$pando" mount --daemon --store "$data" "$dir/mount" >/dev/null ;;
        *) bash -ec "${name#*=}" mount "$data" "$dir/mount" >/dev/null ;;
        esac
        [ "$name" = host ] && (cd "$data" && programs host)
        if [ "$name" != host ]; then
            (cd "$dir/mount" && programs "${name%%=*}")
            umount "$dir/mount"
        fi
        sync "$dir/tar"
    done
done | tee "$dir/times"

awk '{ times[$1, $2] = times[$1, $2] " " $3; if (!($1 in seen)) names[++n] = $1; seen[$1]
       if (!($2 in known)) programs[++p] = $2; known[$2] }
     function median(text,   all, count, i, j, swap) {
         count = split(text, all)
         for (i = 2; i <= count; i++) for (j = i; j > 1 && all[j] + 0 < all[j - 1] + 0; j--) { swap = all[j]; all[j] = all[j - 1]; all[j - 1] = swap }
         return all[int((count + 1) / 2)] / 1000
     }
     END { printf "%-16s", "seconds"; for (j = 1; j <= p; j++) printf "%10s", programs[j]; print ""
           for (i = 1; i <= n; i++) { printf "%-16s", names[i]
               for (j = 1; j <= p; j++) printf "%10.2f", median(times[names[i], programs[j]]); print "" } }' "$dir/times"
