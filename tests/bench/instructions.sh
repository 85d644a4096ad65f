#!/bin/sh
# Instructions per scheduling step, counted by callgrind: no wall clock, so the same on every run.
#
# Each queue length runs twice, with two step counts; the difference leaves out set-up and exit. A step is
# one completion, one arrival and four polls (rt-core/examples/steps.rs).
set -eu

cd "$(dirname "$0")/../.."
few=2000
many=12000
target=${CARGO_TARGET_DIR:-target}

cargo build --quiet --release -p rt-core --example steps

instructions() {
    valgrind --tool=callgrind --callgrind-out-file=/dev/null "$target/release/examples/steps" "$1" "$2" 2>&1 |
        awk '/Collected/ { print $NF }'
}

echo "| queue length | instructions per step |"
echo "|---:|---:|"
for length in 8 64 512; do
    base=$(instructions "$length" "$few")
    more=$(instructions "$length" "$many")
    echo "| $length | $(((more - base) / (many - few))) |"
done
