#!/bin/sh
# Instructions per scheduling step and per simulated request, counted by callgrind: no wall clock, so the same on
# every run.
#
# Everything runs twice, with two counts; the difference leaves out set-up and exit. A step is one completion, one
# arrival and four polls (rt-core/examples/steps.rs); a request is drawn, scheduled, served and measured
# (sim/examples/requests.rs).
set -eu

cd "$(dirname "$0")/../.."
few=2000
many=12000
target=${CARGO_TARGET_DIR:-target}

cargo build --quiet --release -p rt-core --example steps --example shared_steps
cargo build --quiet --release -p sim --example requests

instructions() {
    valgrind --tool=callgrind --callgrind-out-file=/dev/null "$target/release/examples/$@" 2>&1 |
        awk '/Collected/ { print $NF }'
}

echo "| workers | queue length | instructions per step | with shield and selection |"
echo "|---:|---:|---:|---:|"
for workers in 1 64; do
    for length in 8 64 512; do
        printf '| %s | %s |' "$workers" "$length"
        for mode in plain shielded; do
            base=$(instructions steps "$length" "$workers" "$few" "$mode")
            more=$(instructions steps "$length" "$workers" "$many" "$mode")
            printf ' %s |' "$(((more - base) / (many - few)))"
        done
        echo
    done
done

echo
echo "| rule | workers | instructions per step of a device |"
echo "|---|---:|---:|"
for rule in earliest turns; do
    for workers in 1 64; do
        base=$(instructions shared_steps "$rule" "$workers" 64 "$few")
        more=$(instructions shared_steps "$rule" "$workers" 64 "$many")
        echo "| $rule | $workers | $(((more - base) / (many - few))) |"
    done
    base=$(instructions shared_steps "$rule" 64 64 "$few" mixed)
    more=$(instructions shared_steps "$rule" 64 64 "$many" mixed)
    echo "| $rule | 64, out of order | $(((more - base) / (many - few))) |"
done

echo
echo "| arrivals | batches of up to | instructions per request |"
echo "|---|---:|---:|"
for process in constant poisson; do
    for batch in 1 4 16; do
        base=$(instructions requests "$process" "$batch" "$few")
        more=$(instructions requests "$process" "$batch" "$many")
        echo "| $process | $batch | $(((more - base) / (many - few))) |"
    done
done
