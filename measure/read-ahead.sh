#!/bin/bash
# Measures programs that know nothing of pandofs on a mount of a source with high latency, with and
# without read-ahead.
#
#   measure/read-ahead.sh [FILES]    as root; some 2 minutes for 10,000 files on a quiet machine
#
# The source is a directory in memory. The server takes 500 us for each name, inode or list of
# extended attributes that it asks the source for, in 32 calls at once (--source-delay). The
# directory has FILES files with up to two extended attributes each. Each run starts with nothing
# cached. Prints the seconds of one run with --no-read-ahead --no-readdirplus, the seconds with
# everything on, and the ratio. PANDO is the command to measure.
set -u -o pipefail
cd "$(dirname "$(readlink -f "$0")")/.." || exit 1

files=${1:-10000}
pando=${PANDO:-target/release/pando}
drop=/proc/sys/vm/drop_caches

fail() {
    echo "read-ahead.sh: $*" >&2
    exit 1
}

[[ $files =~ ^[1-9][0-9]*$ ]] || fail "FILES must be a number, for example 10000"
[ -w $drop ] || fail "needs root, and a writable $drop"
for program in getfattr rsync; do
    command -v $program >/dev/null || fail "needs $program (apt install attr rsync)"
done
[ -x "$pando" ] || cargo build --locked --release || fail "cannot build $pando"
pando=$(readlink -f "$pando")

work=$(mktemp -d)
source=$work/source shown=$work/shown
leave() {
    trap '' PIPE # The reader of the output may have exited.
    umount "$shown" 2>/dev/null
    umount "$source" 2>/dev/null
    rm -rf --one-file-system "$work"
}
trap leave EXIT
trap 'exit 130' INT TERM

mkdir "$source" "$shown" "$work/empty"
mount -t tmpfs none "$source" || fail "cannot mount a tmpfs"
"$pando" bench mktree "$source/d" 1 "$files" 2 >/dev/null || fail "cannot make the files"

# Seconds of a command on a new mount of the source with these options. Its output is not needed.
timed() {
    local options=$1 begin end
    shift
    # shellcheck disable=SC2086 # Several words.
    "$pando" mount --daemon --source "$source" --exclusive --source-delay 500us $options "$shown" >/dev/null || fail "cannot mount"
    echo 2 >$drop
    begin=$(date +%s%N)
    "$@" >/dev/null || fail "$* failed"
    end=$(date +%s%N)
    "$pando" umount "$shown" || fail "cannot unmount"
    awk -v ns=$((end - begin)) 'BEGIN { printf "%.2f", ns / 1e9 }'
}

row() {
    local naive ahead
    naive=$(timed "--no-read-ahead --no-readdirplus" "${@:2}") || exit 1
    ahead=$(timed "" "${@:2}") || exit 1
    awk -v what="$1" -v naive="$naive" -v ahead="$ahead" \
        'BEGIN { printf "| %s | %.2f | %.2f | %.1fx |\n", what, naive, ahead, naive / ahead }'
}

echo "$files files; $(uname -sr), $(nproc) cores, $("$pando" --version), $(ls --version | head -1)"
echo
echo "| program | without read-ahead, s | with, s | |"
echo "| --- | ---: | ---: | ---: |"
row '`ls -l`' ls -l "$shown/d"
row '`getfattr -Rd`' getfattr -Rd --absolute-names "$shown/d"
row '`du -s`' du -s "$shown/d"
row '`find -size +1M`' find "$shown/d" -size +1M
row '`rsync -na`' rsync -na "$shown/d/" "$work/empty/"
row '`rsync -naX`' rsync -naX "$shown/d/" "$work/empty/"
