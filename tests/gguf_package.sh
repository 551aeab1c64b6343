#!/bin/sh
# PyPI's package gguf and ablate unpack the same blocks, and the tensors of the same file, to the same
# bits.  The package is installed for this test alone where that is possible; else the test is
# skipped.  BLOCKS are unpacked of each format [20000].
if [ -z "$PYTHON" ] || ! "$PYTHON" -c 'import numpy, h5py' 2>/dev/null; then
    echo "1..0 # SKIP no Python with numpy and h5py"
    exit 0
fi
case $CFLAGS in
*-fsanitize*)
    echo "1..0 # SKIP Python is not built with the sanitizers that the library is built with"
    exit 0
    ;;
esac
srcdir=$(cd "${srcdir:-.}" && pwd)
tmp=$(mktemp -d "${TMPDIR:-/tmp}/ablate.XXXXXX") || exit 1
trap 'rm -rf "$tmp"' EXIT
trap 'exit 1' HUP INT TERM
export ABLATE_LIBRARY="$PWD/libablate.so" ABLATE_PROGRAM="$PWD/run-ablation"
export PYTHONPATH="$srcdir/python:$tmp/site" PYTHONDONTWRITEBYTECODE=1

# A mirror that does not answer must not stop the suite.
"$PYTHON" -c 'import gguf' 2>/dev/null || for python in "$PYTHON" python3; do
    timeout 120 $python -m pip install -q --no-deps --disable-pip-version-check --retries 1 \
        --target "$tmp/site" 'gguf>=0.17' pyyaml tqdm >"$tmp/log" 2>&1 && break
done
if ! "$PYTHON" -c 'import gguf' 2>/dev/null; then
    echo "1..0 # SKIP the package gguf is not there, and cannot be installed"
    exit 0
fi
cd "$tmp" && "$PYTHON" "$srcdir/tests/gguf_package.py" "$srcdir/tests/small.gguf" "${BLOCKS:-20000}"
