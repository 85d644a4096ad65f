#!/bin/sh
# Sees to what the build and the tests need beside a Rust toolchain; does nothing where all is there.
set -eu
missing=""
command -v cc >/dev/null 2>&1 || missing="$missing gcc libc6-dev"
command -v python3 >/dev/null 2>&1 || missing="$missing python3"
python3 -m pip --version >/dev/null 2>&1 || missing="$missing python3-pip"
[ -z "$missing" ] && exit 0
if ! command -v apt-get >/dev/null 2>&1; then
    echo "please install:$missing" >&2
    exit 1
fi
sudo=""
[ "$(id -u)" = 0 ] || sudo=sudo
echo "installing:$missing"
$sudo apt-get update -q
# shellcheck disable=SC2086
$sudo apt-get install -y -q $missing
