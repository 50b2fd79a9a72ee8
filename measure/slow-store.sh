#!/bin/bash
# Measures `ls -l` on a store with high latency, by the number of requests that the store serves at
# once, and how much faster the alternatives are.
#
#   measure/slow-store.sh [FILES]        as root; some 7 minutes for 20,000 files on a quiet machine
#
# The store (pando mount --delay) needs 500 us for a look-up and 500 us for attributes, for every
# kind of request. Rows: depth 1, 8, 32, unlimited. Columns: a naive server (no READDIRPLUS) and
#   plain   ls -l
#   warm    pando warm, and ls -l after it: both together
#   boost   pando boost -- ls -l
#   ls      pando ls -l
#   plus    a server with READDIRPLUS, and ls -l
# Each starts with the kernel's caches dropped. Figures are the seconds of one run, with the
# speed-up over plain in parentheses. The last column is the largest number of items that the store
# served at once. PANDO is the command to measure, DELAY_US the delay. With LINKS=1 the files are
# symbolic links, and reading a link takes the same delay again.
set -u -o pipefail
cd "$(dirname "$(readlink -f "$0")")/.." || exit 1

files=${1:-20000}
delay_us=${DELAY_US:-500}
pando=${PANDO:-target/release/pando}
links=${LINKS:-}
drop=/proc/sys/vm/drop_caches

fail() {
    echo "slow-store.sh: $*" >&2
    exit 1
}

[[ $files =~ ^[1-9][0-9]*$ ]] || fail "FILES must be a number, for example 20000"
[ -w $drop ] || fail "needs root, and a writable $drop"
command -v getfattr >/dev/null || fail "needs getfattr (apt install attr)"
[ -x "$pando" ] || cargo build --locked --release || fail "cannot build $pando"
pando=$(readlink -f "$pando")

work=$(mktemp -d)
grove=$work/grove
server=
leave() {
    trap '' PIPE # The reader of the output may have exited.
    [ -n "$server" ] && "$pando" umount "$grove" 2>/dev/null
    umount -l "$grove" 2>/dev/null
    rm -rf "$work"
}
trap leave EXIT
trap 'exit 130' INT TERM

# Mounts with these options, and makes the files.
start() {
    rm -f "$work/ready"
    "$pando" mount "$@" "$grove" >"$work/ready" 2>&1 &
    server=$!
    # The first line says that it is mounted. If the mount fails, the command exits.
    until [ -s "$work/ready" ]; do
        kill -0 $server 2>/dev/null || fail "not mounted: $(cat "$work/ready")"
        read -r -t 0.02 _ < <(:) || true
    done
    grep -q 'pando umount' "$work/ready" || fail "not mounted: $(cat "$work/ready")"
    mkdir "$grove/d"
    # Each name is looked up before it is made, one at a time, so that the largest number served at
    # once is that of the measured commands.
    (cd "$grove/d" && for ((n = 1; n <= files; n++)); do printf -v name 'file%06d' "$n" && make "$name" || exit; done) ||
        fail "cannot make the files"
}

make() {
    if [ -n "$links" ]; then ln -s nowhere "$1"; else : >"$1"; fi
}

stop() {
    "$pando" umount "$grove" || fail "cannot be unmounted"
    wait "$server"
    server=
}

# The largest number of items that the store has served at once since it was mounted.
served() {
    getfattr --absolute-names --only-values -n system.pandofs.requests "$grove" | sed 's/.*"in_flight_max": \([0-9]*\).*/\1/'
}

# Seconds of a command with cold caches. It must print at least one line for each file.
timed() {
    local begin end lines
    echo 2 >$drop
    echo 2 >$drop
    begin=$(date +%s%N)
    lines=$("$@" | wc -l) || fail "$* failed"
    end=$(date +%s%N)
    ((lines >= files)) || fail "$*: $lines lines for $files files"
    awk -v ns=$((end - begin)) 'BEGIN { printf "%.2f", ns / 1e9 }'
}

warm_and_ls() {
    "$pando" warm --quiet "$grove/d" && ls -l "$grove/d"
}

# Seconds, and the speed-up over plain.
cell() {
    awk -v seconds="$1" -v plain="$2" 'BEGIN { printf "%.2f (%.1fx)", seconds, plain / seconds }'
}

has() {
    "$pando" help "$1" >/dev/null 2>&1
}

# An item costs the same alone and in a batch: a look-up and its attributes.
delays="lookup=${delay_us}us,getattr=${delay_us}us${links:+,readlink=${delay_us}us}"

echo "$files ${links:+links, not }files, $delays; $(uname -sr), $(nproc) cores, $("$pando" --version), $(ls --version | head -1)"
echo
echo "| depth | naive, \`ls -l\` | \`pando warm\`, \`ls -l\` | \`pando boost -- ls -l\` | \`pando ls -l\` | READDIRPLUS, \`ls -l\` | items at once, naive / plus |"
echo "| ---: | ---: | ---: | ---: | ---: | ---: | ---: |"
for depth in 1 8 32 unlimited; do
    limit=()
    [ $depth = unlimited ] || limit=(--depth $depth)
    start --no-readdirplus --delay "$delays" "${limit[@]}"
    plain=$(timed ls -l "$grove/d")
    warm=$(timed warm_and_ls)
    boost=- list=-
    has boost && boost=$(cell "$(timed "$pando" boost -- ls -l "$grove/d")" "$plain")
    has ls && list=$(cell "$(timed "$pando" ls -l "$grove/d")" "$plain")
    naive_served=$(served)
    stop
    start --delay "$delays" "${limit[@]}"
    plus=$(timed ls -l "$grove/d")
    echo "| $depth | $plain | $(cell "$warm" "$plain") | $boost | $list | $(cell "$plus" "$plain") | $naive_served / $(served) |"
    stop
done
