#!/usr/bin/env bash
# slow, no_asan, no_tsan: 20 s; a sanitizer's library needs a program that was linked for it, and Python was not
# What would break: the Python package: its calls, buffers, errors, interrupts and ends, on 1 to 8 ranks. By hand also with
# pytest's arguments: SOURCE_DIR=. BUILD_DIR=build/dev tests/bindings/test_python.sh -k groups
set -u
SOURCE_DIR=$(realpath "$SOURCE_DIR")
BUILD_DIR=$(realpath "$BUILD_DIR")

# The first in PATH, or Debian's.
for python in python3 /usr/bin/python3; do
	"$python" -c 'import numpy, pytest' 2>/dev/null && break
	python=
done
[ -n "$python" ] || { echo "NumPy or pytest for Python 3 is not installed"; exit 77; }
export BUILD_DIR SOURCE_DIR LIBTUTTI=$BUILD_DIR/libtutti.so.1
export PYTHONPATH=$SOURCE_DIR/bindings/python PYTHONDONTWRITEBYTECODE=1 OPENBLAS_NUM_THREADS=1
exec "$python" -m pytest -q -p no:cacheprovider --durations=5 "$SOURCE_DIR/tests/bindings/python" "$@"
