#!/bin/sh
# Builds a Python wheel of what `make` has built, the programs and the Python client, with PyPI's tools: wheel.sh [FOLDER]
set -eu
cd "$(dirname "$0")/.."
: "${WEIR:=target/release/weir}"
folder=${1:-target}
tools=target/wheel-tools
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT

tests/deps.sh wheel "$tools"
PATH=$PWD/$tools/bin:$PATH
mkdir "$stage/programs"
cp "$WEIR" "${WEIR%weir}weir-lab" "$stage/programs"
if command -v strip > /dev/null; then
    strip --strip-unneeded "$stage"/programs/*
fi
WEIR_PROGRAMS=$stage/programs pip wheel --quiet --disable-pip-version-check --no-deps \
    --wheel-dir "$stage" client/python
# The newest symbols that the programs ask of the C library tell which one they need: it becomes the wheel's tag.
if ! auditwheel repair --wheel-dir "$stage/audited" "$stage"/*.whl > "$stage/said" 2>&1; then
    cat "$stage/said" >&2
    exit 1
fi
mkdir -p "$folder"
rm -f "$folder"/weir-*.whl
mv "$stage"/audited/*.whl "$folder"
ls "$folder"/weir-*.whl
