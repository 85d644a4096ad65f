#!/bin/sh
# How a profile is taken: one model alone, on two workers at once, and what each says of the other. Prints a section
# of docs/validation.md and draws its figure; takes some LIMIT (2m) for each of the two.
set -eu
weir=${WEIR:-target/release/weir}
limit=${LIMIT:-2m}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
sed -e "s|\.\./target/|$folder/|; s|\.\./models|$PWD/models|; s|^max-batch = .*|&\\nworkers = 2\\ncores = [0, 1]|" \
    config/digits.toml >"$folder/digits.toml"
echo '$ weir profile digits.toml --alone'
"$weir" profile "$folder/digits.toml" --limit "$limit" --alone 2>&1 | sed "s|$folder/||"
echo
echo '$ weir profile digits.toml --check'
"$weir" profile "$folder/digits.toml" --check 2>&1 || echo "exit code $?"
echo
echo '$ weir profile digits.toml --figure figures'
"$weir" profile "$folder/digits.toml" --limit "$limit" --figure "$folder" 2>&1 | sed "s|$folder/||"
echo
echo '$ weir profile digits.toml --check'
"$weir" profile "$folder/digits.toml" --check 2>&1 || echo "exit code $?"
[ -z "${FIGURE:-}" ] || cp "$folder/digits-l-tract.svg" "$FIGURE"
