#!/bin/sh
# Floods beside promises for ten minutes each, or SECONDS_EACH: what the flooded services still answer, and what the reserved
# streams missed, as a table of docs/validation.md. They are the tests of that name, longer; what they assert holds here as well.
set -eu
export WEIR_FLOOD_SECONDS=${SECONDS_EACH:-600}
told=$(mktemp)
trap 'rm -f "$told"' EXIT
cargo test --workspace --test e2e promise::floods -- --nocapture --test-threads 1 >"$told" 2>&1 || failed=$?
echo "$WEIR_FLOOD_SECONDS s; load average $(cut -d ' ' -f 1 /proc/loadavg)"
echo
echo '| flood | alone /s | flooded /s | of that | reserved requests missed | reading, of a core |'
echo '|---|---:|---:|---:|---:|---:|'
# The first of a test stands behind its name.
grep -o '| [^|]* | [0-9]* | [0-9]* | [0-9]* % | [0-9]* of [0-9]* | [0-9]* % |' "$told" || true
[ -z "${failed:-}" ] || { grep -A 3 'panicked' "$told" >&2; exit "$failed"; }
