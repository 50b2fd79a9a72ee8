#!/bin/bash
# Measures how the order in which a directory's inodes are read affects the time on a disk with
# seek time, and draws the reads.
#
#   measure/seek.sh [FILES] [SVG]        as root; less than ten minutes for 100,000 files
#
# The disk is a file on a mount (pando mount --delay read=2ms --seek 5ms --depth 1). It serves one
# request at a time, in 2 ms plus up to 5 ms for the seek. It has an ext4 image, loop-mounted with
# direct I/O, so that each block that ext4 reads is a request. The image is first mounted without
# ext4's own read-ahead of inode tables (inode_readahead_blks=1), like a file system whose inodes
# are not in tables. Then it is mounted with read-ahead, which is the default of ext4.
#
# Each command starts with cold caches: `ls -l` (which reads inodes in the directory's order, that
# of a hash), `pando warm` in directory order and in inode order with one call at a time, `pando
# warm` with its defaults, and `pando ls -l`. The reads of all commands are drawn, offset over time,
# to SVG [seek.svg]. SPEEDUP divides the delays: with 10, the script takes a tenth of the time, and
# the printed seconds are a tenth.
set -u -o pipefail
here=$(dirname "$(readlink -f "$0")")
files=${1:-100000}
svg=$(readlink -m "${2:-seek.svg}")
cd "$here/.." || exit 1
pando=${PANDO:-target/release/pando}
speedup=${SPEEDUP:-1}
drop=/proc/sys/vm/drop_caches

fail() {
    echo "seek.sh: $*" >&2
    exit 1
}

[[ $files =~ ^[1-9][0-9]*$ ]] || fail "FILES must be a number, for example 100000"
[ -w $drop ] || fail "needs root, and a writable $drop"
command -v mkfs.ext4 >/dev/null || fail "needs mkfs.ext4 (apt install e2fsprogs)"
[ -x "$pando" ] || cargo build --locked --release || fail "cannot build $pando"
pando=$(readlink -f "$pando")

work=$(mktemp -d)
# The image is made in memory, which is fast.
image=$(mktemp -p /dev/shm pando-seek.XXXXXX)
grove=$work/grove
mnt=$work/mnt
loop=
server=
leave() {
    trap '' PIPE # The reader of the output may have exited.
    umount -l "$mnt" 2>/dev/null
    [ -n "$loop" ] && losetup -d "$loop" 2>/dev/null
    [ -n "$server" ] && "$pando" umount "$grove" 2>/dev/null
    umount -l "$grove" 2>/dev/null
    rm -rf "$work" "$image"
}
trap leave EXIT
trap 'exit 130' INT TERM
mkdir "$mnt"

# Files are made in one order and listed in another one, because ext4 hashes the names.
truncate -s $((64 + files / 1500))M "$image"
mkfs.ext4 -q -F -N $((files + 1000)) "$image" || fail "mkfs.ext4 failed"
mount -o loop "$image" "$mnt" || fail "no loop device"
mkdir "$mnt/d"
(cd "$mnt/d" && seq -f 'file%06.0f' "$files" | xargs -n 1000 touch)
umount "$mnt"

us() {
    awk -v us="$1" -v by="$speedup" 'BEGIN { printf "%dus", us / by }'
}
"$pando" mount --delay "read=$(us 2000)" --seek "$(us 5000)" --depth 1 --trace-reads "$work/reads.csv" "$grove" >"$work/ready" 2>&1 &
server=$!
until [ -s "$work/ready" ]; do
    kill -0 $server 2>/dev/null || fail "not mounted: $(cat "$work/ready")"
    read -r -t 0.02 _ < <(:) || true
done
grep -q 'pando umount' "$work/ready" || fail "not mounted: $(cat "$work/ready")"
cp --sparse=always "$image" "$grove/disk"
echo mark >"$grove/mark"

titles=
# Marks a run in the list of reads: it is between two reads of another file.
mark() {
    dd if="$grove/mark" of=/dev/null iflag=direct bs=4096 count=1 status=none || fail "the mark cannot be read"
}

# Runs one command with cold caches.
timed() {
    local title=$1 options=$2 begin end lines
    shift 2
    echo 3 >$drop
    loop=$(losetup --find --show --read-only --direct-io=on "$grove/disk") || fail "no loop device"
    mount -t ext4 -o "ro,noload,$options" "$loop" "$mnt" || fail "cannot mount the image"
    mark
    begin=$(date +%s%N)
    lines=$("$@" | wc -l) || fail "$* failed"
    end=$(date +%s%N)
    mark
    ((lines >= 1)) || fail "$* printed nothing"
    umount "$mnt" && losetup -d "$loop" || fail "cannot be unmounted"
    loop=
    titles+="${titles:+;}$title, $options"
    echo "| $title | $options | $(awk -v ns=$((end - begin)) 'BEGIN { printf "%.1f", ns / 1e9 }') |"
}

echo "$files files on ext4, read=$(us 2000), seek up to $(us 5000); $(uname -sr), $(nproc) cores, $("$pando" --version)"
echo
echo "| from cold | ext4 | seconds |"
echo "| --- | --- | ---: |"
for options in inode_readahead_blks=1 inode_readahead_blks=32; do
    timed "ls -l" $options ls -l "$mnt/d"
    timed "pando warm --order directory --max-inflight 1" $options "$pando" warm --order directory --max-inflight 1 "$mnt/d"
    timed "pando warm --max-inflight 1" $options "$pando" warm --max-inflight 1 "$mnt/d"
    timed "pando warm" $options "$pando" warm "$mnt/d"
    if "$pando" help ls >/dev/null 2>&1; then
        timed "pando ls -l" $options "$pando" ls -l "$mnt/d"
    fi
done
"$pando" umount "$grove" && wait "$server"
server=
awk -f "$here/offsets.awk" -v titles="$titles" "$work/reads.csv" >"$svg" || fail "cannot draw $svg"
echo
echo "drawn: $svg"
