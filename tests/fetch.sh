#!/bin/sh
# Fetches ONNX Runtime's library, ONNX's test models and models of others from PyPI into the target folder, of one version
# and with checked hashes; does nothing where they are there.
set -eu
cd "$(dirname "$0")/.."
target=${CARGO_TARGET_DIR:-target}
stamp="$target/onnxruntime/fetched.txt"
cmp -s tests/fetched.txt "$stamp" && exit 0

wheels=$(mktemp -d)
trap 'rm -rf "$wheels"' EXIT
echo "fetching onnxruntime, onnx and models from PyPI into $target"
# One wheel for everybody, whatever Python is here: nothing of Python's in it is used.
if ! python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: \
    --python-version 3.11 --implementation cp --abi cp311 --platform "manylinux_2_28_$(uname -m)" \
    --require-hashes --requirement tests/fetched.txt --dest "$wheels"; then
    echo "fetching failed: the tests need PyPI once, or a mirror of it that pip is set up for" \
        "(PIP_INDEX_URL, or 'pip config set global.index-url URL')" >&2
    exit 1
fi
rm -rf "$target/onnxruntime" "$target/onnx-models"
mkdir -p "$target/onnxruntime" "$target/onnx-models"
python3 - "$wheels" "$target" <<'PYTHON'
import pathlib, sys, zipfile
wheels, target = map(pathlib.Path, sys.argv[1:])
for wheel in wheels.glob("*.whl"):
    archive = zipfile.ZipFile(wheel)
    for name in archive.namelist():
        file = pathlib.PurePath(name)
        if file.match("onnxruntime/capi/libonnxruntime*.so*"):
            # Without its version, as the loader asks for it.
            place = target / "onnxruntime" / (file.name.split(".so")[0] + ".so")
        elif file.match("onnx/backend/test/data/light/*.onnx"):
            place = target / "onnx-models" / file.name
        elif file.suffix == ".onnx" and not file.parts[0].startswith("onnx"):
            # Some wheels have a `model.onnx` only.
            place = target / "onnx-models" / (file.name if file.stem != "model" else file.parts[0] + ".onnx")
        else:
            continue
        place.write_bytes(archive.read(name))
PYTHON
cp tests/fetched.txt "$stamp"
