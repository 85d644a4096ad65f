#!/bin/sh
# Runs each fuzz target for FUZZ_SECONDS, or those that are named; says so where there is no fuzzer. What it finds is in
# fuzz/targets/artifacts. It begins with what fuzz/corpora has; with FUZZ_KEEP=1 that is made anew of all that was found to differ.
#
# No sanitizer: there is no unsafe code of ours in what is fuzzed, and without one a stable toolchain is enough.
set -eu
cd "$(dirname "$0")/targets"
if ! cargo fuzz --version >/dev/null 2>&1; then
    echo "fuzzing: NOT DONE, cargo-fuzz is not installed (cargo install cargo-fuzz)"
    exit 0
fi
if ! command -v c++ >/dev/null 2>&1; then
    echo "fuzzing: NOT DONE, the fuzzer needs a C++ compiler"
    exit 0
fi
[ $# -gt 0 ] || set -- problem certificate answer sharing client_frames daemon_frames http_call http_answer grpc_call grpc_answer \
    recording policy experiment
for target; do
    mkdir -p "corpus/$target"
    kept="../corpora/$target.tar.gz"
    [ ! -e "$kept" ] || tar -xzf "$kept" -C "corpus/$target"
    seeds="../seeds/$target"
    [ "$target" != experiment ] || seeds=../../sim/experiments
    [ "$target" != answer ] || seeds="$seeds ../seeds/problem"
    echo "fuzzing $target for ${FUZZ_SECONDS:-60} s"
    # shellcheck disable=SC2086
    cargo fuzz run --fuzz-dir . --sanitizer none "$target" "corpus/$target" $seeds -- -dict=../problem.dict -max_len=4096 \
        -timeout=20 -max_total_time="${FUZZ_SECONDS:-60}" -verbosity=0 -print_final_stats=1
    [ -n "${FUZZ_KEEP:-}" ] || continue
    mkdir -p "corpus/$target.least" ../corpora
    # shellcheck disable=SC2086
    cargo fuzz run --fuzz-dir . --sanitizer none "$target" "corpus/$target.least" "corpus/$target" $seeds -- -merge=1 -max_len=4096 \
        -verbosity=0
    # Of the same files always the same bytes.
    tar -C "corpus/$target.least" --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner --mode=0644 -cf - . | gzip -9n >"$kept"
    rm -r "corpus/$target.least"
done
