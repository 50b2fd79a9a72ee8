#!/bin/bash
# Compares operations of a few nanoseconds between two versions, wherever the linker puts their
# functions.
#
#   measure/placement.sh OLD [WORKLOAD...]    OLD: a checkout of the other version
#                                             WORKLOAD: of pando bench [lseek stat open-same]
#
# The rate of such an operation depends on the addresses of its functions, by up to a factor of two,
# and a change anywhere moves them. So this links each version 24 times (PLACEMENTS) with its
# functions in random order, and runs random pairs in turns for 240 seconds (SECONDS_EACH) for each
# workload. Prints the median of the ratios of new to old with its 95 % interval, and the range of
# rates over the placements. Builds both versions. Needs jq, and an idle machine.
set -eu -o pipefail
old=$(readlink -f "$1")
workloads=("${@:2}")
[ ${#workloads[@]} -gt 0 ] || workloads=(lseek stat open-same)
new=$PWD placements=${PLACEMENTS:-24} each=${SECONDS_EACH:-240}
out=$(mktemp -d /var/tmp/pando-placement.XXXXXX)
trap 'rm -rf "$out"' EXIT
lld=$(echo "$(rustc --print sysroot)"/lib/rustlib/*/bin/gcc-ld)

# The command that links, and its inputs.
for version in old new; do
    (cd "${!version}" && cargo rustc --locked --release --target-dir "$out/$version" -p pandofs --bin pando -- \
        -C save-temps --print link-args >"$out/$version.link")
    for ((n = 0; n < placements; n++)); do
        link=$(tail -1 "$out/$version.link" | sed "s|\"-o\" \"[^\"]*\"|\"-o\" \"$out/$version.$n\"|")
        (cd "${!version}" && eval "$link \"-B$lld\" -fuse-ld=lld -Wl,--strip-debug -Wl,--shuffle-sections='.text*=$((n + 1))'")
    done
done

rates() { # VERSION PLACEMENT WORKLOAD SEED
    "$out/$1.$2" bench run "$3" --target mem --threads 1,2 --seconds 0.1 --warmup 0.04 --repeat 1 \
        --seed "$4" --json "$out/json" >/dev/null
    jq -r ".[] | \"$1 $2 $3 \\(.threads) \\(.ops_per_s.median)\"" "$out/json"
}
for workload in "${workloads[@]}"; do
    end=$((SECONDS + each))
    for ((round = 0; SECONDS < end; round++)); do
        order=(old new)
        ((RANDOM % 2)) && order=(new old)
        seed=$RANDOM
        for version in "${order[@]}"; do
            rates "$version" $((RANDOM % placements)) "$workload" "$seed" | sed "s/^/$round /"
        done
    done
done >"$out/rates"

awk '{ rate[$4 " " $5, $1, $2] = $6 }
    END { for (key in rate) { split(key, k, SUBSEP); if (k[3] == "new") print k[1], rate[key] / rate[k[1], k[2], "old"] } }' \
    "$out/rates" | sort -k1,2 -k3g | awk '
    function show() {
        h = 0.98 * sqrt(n); lo = int(n / 2 - h); hi = int(n / 2 + h) + 1
        if (lo < 1) lo = 1
        if (hi > n) hi = n
        printf("%s: new / old = %.3f (%.3f to %.3f), %d pairs\n", last, r[int((n + 1) / 2)], r[lo], r[hi], n)
    }
    { key = $1 ", threads: " $2; if (key != last && n) { show(); n = 0 } last = key; r[++n] = $3 }
    END { show() }'
awk '{ key = $4 ", threads: " $5 ", " $2; if (!(key in low) || $6 < low[key]) low[key] = $6; if ($6 > high[key]) high[key] = $6 }
    END { for (key in low) printf("%s: %.1f to %.1f M/s\n", key, low[key] / 1e6, high[key] / 1e6) }' "$out/rates" | sort
