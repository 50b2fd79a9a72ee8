#!/bin/bash
# Measures `pando boost`, program by program: on a store with high latency and a naive server, and
# its cost where calls are fast.
#
#   measure/boost.sh [--counts] [--write] [PANDO]
#
# --counts omits the times, for a machine that is not quiet. --write puts the tables into
# docs/boost.md. PANDO is the command to measure [target/release/pando]. Needs root, because it
# mounts. The environment may set FILES, DEPTH and RUNS.
set -u -o pipefail
cd "$(dirname "$(readlink -f "$0")")/.." || exit 1

counts= write=
while [[ ${1-} == --* ]]; do
    case $1 in
        --counts) counts=1 ;;
        --write) write=1 ;;
        *) sed -n '5,9s/^# *//p' "$0" >&2; exit 2 ;;
    esac
    shift
done
pando=$(readlink -f "${1:-${CARGO_TARGET_DIR:-target}/release/pando}")
[ -x "$pando" ] || { echo "$pando does not exist: run cargo build --release" >&2; exit 1; }
[ "$(id -u)" = 0 ] || { echo "needs root, to mount" >&2; exit 1; }
files=${FILES:-2000} depth=${DEPTH:-32} runs=${RUNS:-5}
export NO_COLOR=1 LC_ALL=C TIMEFORMAT=%R

work=$(mktemp -d)
store=$work/store
cleanup() {
    trap '' PIPE # The reader of the output may have exited.
    "$pando" umount "$store" >/dev/null 2>&1 || "$pando" umount --lazy "$store" >/dev/null 2>&1
    rm -rf "$work"
}
trap cleanup EXIT

# ---- A store with high latency: one directory of $files files, and ten small ones.
"$pando" mount --delay lookup=500us,getattr=500us --depth "$depth" --no-readdirplus --daemon "$store" >/dev/null || exit 1
mkdir "$store/tree" && (cd "$store/tree" && for i in $(seq "$files"); do : >"f$i"; done) || exit 1
for d in $(seq 10); do mkdir "$store/tree/d$d" && (cd "$store/tree/d$d" && touch $(seq 50)); done
if command -v git >/dev/null; then (cd "$store/tree" && git init -q . && git add d1) || exit 1; fi

# Remounting a file system drops the kernel's dentries of it.
drop_names() { mount -i -o remount,rw,nosuid,nodev "$store"; }

walk='import os,sys
for d,_,names in os.walk(sys.argv[1]):
    for n in names: os.lstat(os.path.join(d,n))'
nodejs='const fs=require("fs"); const d=process.argv[1]; for (const n of fs.readdirSync(d)) fs.lstatSync(d+"/"+n)'
perls='opendir(D,$ARGV[0]); for (readdir D) { lstat "$ARGV[0]/$_" }'

log=$work/log
# Seconds of a command without and with boost, after the kernel's dentries were dropped.
plain() { drop_names; { time "$@" >/dev/null 2>&1; } 2>&1; }
boosted() { drop_names; { time "$pando" -v boost -- "$@" >/dev/null 2>"$log"; } 2>&1; }

# The variant that runs first; it alternates.
first=plain

# Measures one program (a name, then the command), and prints its line of the table.
row() {
    local name=$1 plain= with= asked once factor
    shift
    command -v "$1" >/dev/null || { printf '| %s | not installed |\n' "$name"; return; }
    if [ -n "$counts" ]; then
        with=$(boosted "$@")
    else
        # Run it once before, so that the program and its libraries are cached for both variants.
        plain "$@" >/dev/null
        if [ "$first" = plain ]; then
            plain=$(plain "$@") with=$(boosted "$@") first=boosted
        else
            with=$(boosted "$@") plain=$(plain "$@") first=plain
        fi
    fi
    asked=$(sed -n 's/.* boosted .* asked=\([0-9]*\).*/\1/p' "$log")
    once=$(sed -n 's/.* boosted .* most_at_once=\([0-9]*\).*/\1/p' "$log")
    if grep -q unboosted "$log"; then asked="$asked ($(sed -n 's/.*unboosted: \([^,;]*\).*/\1/p' "$log"))"; fi
    if [ -n "$counts" ]; then
        printf '| %s | %s | %s |\n' "$name" "$asked" "$once"
    else
        factor=$(awk -v a="$plain" -v b="$with" 'BEGIN { printf "%.1f", a / b }')
        printf '| %s | %s | %s | %s | %s | %sx |\n' "$name" "$asked" "$once" "$plain" "$with" "$factor"
    fi
}

coverage() {
    local tree=$store/tree
    echo "A store that takes 0.5 ms for a look-up and 0.5 ms for attributes, $depth requests at once, $((files + 500)) files:"
    echo
    if [ -n "$counts" ]; then
        printf '| program | asked ahead | at once |\n| --- | ---: | ---: |\n'
    else
        printf '| program | asked ahead | at once | plain, s | boosted, s | factor |\n'
        printf '| --- | ---: | ---: | ---: | ---: | ---: |\n'
    fi
    row '`ls -l`' ls -l "$tree"
    row '`ls -lR`' ls -lR "$tree"
    row '`find -printf %s`' find "$tree" -printf '%s\n'
    row '`du -a`' du -a "$tree"
    row '`tar c`' sh -c 'tar cf - -C "$1" . | cat' sh "$tree"
    row '`rsync -a`' sh -c 'rsync -a --exclude .git "$1/" "$2"; rm -rf "$2"' sh "$tree" "$work/copy"
    row '`cp -a`' sh -c 'cp -a "$1" "$2"; rm -rf "$2"' sh "$tree" "$work/copy"
    row '`git status`' git -C "$tree" status --porcelain -unormal
    row 'Python `os.walk`, `lstat`' python3 -c "$walk" "$tree"
    row 'Perl `readdir`, `lstat`' perl -e "$perls" "$tree"
    row 'Node.js `readdirSync`, `lstatSync`' node -e "$nodejs" "$tree"
    row '`exa -l`' exa -l "$tree"
    row '`getfattr -R`' getfattr -R "$tree"
    row '`bfs -printf %s`' bfs "$tree" -printf '%s\n'
    if command -v go >/dev/null; then row '`go list` (a Go program)' go list -e -C "$tree" ./...; fi
}

# ---- Fast calls: 300 directories of 300 files in memory. CPU seconds of the program, and with the
# helper.
cpu() {
    python3 - "$1" "$pando" "$work/fast" <<'PY'
import os, subprocess, sys
runs, pando, tree = int(sys.argv[1]), sys.argv[2], sys.argv[3]
inner = """
import os, subprocess, sys
program = subprocess.Popen(sys.argv[1:], stdout=subprocess.DEVNULL)
used = os.wait4(program.pid, 0)[2]
print(used.ru_utime + used.ru_stime)
"""
def once(boost):
    command = ([pando, "boost", "--"] if boost else []) + [sys.executable, "-c", inner, "ls", "-lR", tree]
    program = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    seconds = float(program.stdout.read())
    used = os.wait4(program.pid, 0)[2]
    return seconds, used.ru_utime + used.ru_stime
least = {}
for _ in range(runs):
    for boost in (False, True):
        mine = once(boost)
        least[boost] = tuple(map(min, zip(mine, least.get(boost, mine))))
for name, part in (("the program itself", 0), ("with the helper, and its start", 1)):
    plain, boosted = least[False][part], least[True][part]
    print(f"| {name} | {plain:.3f} | {boosted:.3f} | {100 * (boosted / plain - 1):+.1f} % |")
PY
}

calls() {
    local plain with
    strace -f -c -S calls -o "$work/calls" ls -lR "$work/fast" >/dev/null
    plain=$(awk '$NF == "total" { print $4 }' "$work/calls")
    "$pando" boost -- strace -f -c -S calls -o "$work/calls" ls -lR "$work/fast" >/dev/null
    with=$(awk '$NF == "total" { print $4 }' "$work/calls")
    printf '| system calls of the program | %s | %s | %s |\n' "$plain" "$with" \
        "$(awk -v a="$plain" -v b="$with" 'BEGIN { printf "%+.2f %%", 100 * (b / a - 1) }')"
}

cost() {
    mkdir "$work/fast"
    for d in $(seq 300); do mkdir "$work/fast/$d" && (cd "$work/fast/$d" && touch $(seq 300)); done
    ls -lR "$work/fast" >/dev/null
    echo 'Where calls are fast, `ls -lR` of 300 directories of 300 files each'"$([ -n "$counts" ] || echo ", CPU seconds, minimum of $runs runs")"':'
    echo
    printf '| | plain | boosted | more |\n| --- | ---: | ---: | ---: |\n'
    command -v strace >/dev/null && calls
    if [ -z "$counts" ] && command -v python3 >/dev/null; then cpu "$runs"; fi
}

tables=$work/tables
{ coverage; echo; cost; } | tee "$tables"
if [ -n "$write" ]; then
    sed -i -e "/<!-- measured -->/,/<!-- end -->/{//!d}" -e "/<!-- measured -->/r $tables" docs/boost.md
fi
