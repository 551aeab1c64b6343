#!/bin/sh
# The statistics of seeds beside NumPy's and SciPy's.  TAP on stdout.  $srcdir and $PYTHON come from the Makefile.
if [ -z "$PYTHON" ]; then
    echo "1..0 # SKIP no Python with numpy"
    exit 0
fi
tests/statistics --values | PYTHONDONTWRITEBYTECODE=1 "$PYTHON" "${srcdir:-.}/tests/statistics.py"
