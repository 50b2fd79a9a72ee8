#!/bin/bash
# How long `ls -l` takes on a slow store, by the number of requests that the store serves at once, and what helps.
#
#   measure/slow-store.sh [FILES]        as root; some 7 minutes for 20,000 files on a quiet machine
#
# A store (pando mount --delay) that needs 500 us for a name and 500 us for its attributes, whoever asks and however.
# Rows: depth 1, 8, 32, unlimited. Columns: a naive server (no READDIRPLUS) and
#   plain   ls -l
#   warm    pando warm, and ls -l after it: both together
#   boost   pando boost -- ls -l
#   ls      pando ls -l
#   plus    a server with READDIRPLUS, and ls -l
# Each starts with the kernel's caches dropped. Seconds of one run each (in brackets: times as fast as plain), and the
# greatest number of items that the store served at once. PANDO is the command, DELAY_US the delays. With LINKS=1 they are
# symbolic links, and to read where one leads takes as long again.
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

[[ $files =~ ^[1-9][0-9]*$ ]] || fail "FILES is a number, as in 20000"
[ -w $drop ] || fail "needs root, and a $drop that can be written"
command -v getfattr >/dev/null || fail "needs getfattr (apt install attr)"
[ -x "$pando" ] || cargo build --locked --release || fail "cannot build $pando"
pando=$(readlink -f "$pando")

work=$(mktemp -d)
grove=$work/grove
server=
leave() {
    trap '' PIPE # Who read what is printed may have gone.
    [ -n "$server" ] && "$pando" umount "$grove" 2>/dev/null
    umount -l "$grove" 2>/dev/null
    rm -rf "$work"
}
trap leave EXIT
trap 'exit 130' INT TERM

# Mounts with these options, makes the files, and has the kernel forget them.
start() {
    rm -f "$work/ready"
    "$pando" mount "$@" "$grove" >"$work/ready" 2>&1 &
    server=$!
    # The first line says that it is there; if it fails it ends.
    until [ -s "$work/ready" ]; do
        kill -0 $server 2>/dev/null || fail "not mounted: $(cat "$work/ready")"
        read -r -t 0.02 _ < <(:) || true
    done
    grep -q 'pando umount' "$work/ready" || fail "not mounted: $(cat "$work/ready")"
    mkdir "$grove/d"
    # Each name is looked up before it is made: one at a time, so that what is served at once is the measured commands' doing.
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

# How many items the store has served at once, at most, since it was mounted.
served() {
    getfattr --absolute-names --only-values -n system.pandofs.requests "$grove" | sed 's/.*"in_flight_max": \([0-9]*\).*/\1/'
}

# Seconds of a command from cold; what it prints must have a line for each file.
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

# Seconds, and the factor over plain.
cell() {
    awk -v seconds="$1" -v plain="$2" 'BEGIN { printf "%.2f (%.1fx)", seconds, plain / seconds }'
}

has() {
    "$pando" help "$1" >/dev/null 2>&1
}

# An item's cost is the same alone and in a batch: a name and its attributes.
delays="lookup=${delay_us}us,getattr=${delay_us}us${links:+,readlink=${delay_us}us}"

echo "$files ${links:+links, not }files, $delays; $(uname -sr), $(nproc) cores, $("$pando" --version), $(ls --version | head -1)"
echo
echo "| depth | naive, \`ls -l\` | \`pando warm\`, \`ls -l\` | \`pando boost -- ls -l\` | \`pando ls -l\` | READDIRPLUS, \`ls -l\` | at once, naive / plus |"
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
