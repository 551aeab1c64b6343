#!/bin/sh
# Print the C and CUDA files that .clang-format would lay out differently, and
# how; with -i change them.  format.sh [-i] [FILE...]; default: all of them.
# Needs clang-format 14 (CLANG_FORMAT).  gpu/emulate/ and tests/emulated.cu
# stay as they are: lists of functions of one line, and launches that the
# emulator wants on one.
cd "$(dirname "$0")/.." || exit 1
apply=no
test "${1-}" = -i && { apply=yes; shift; }
test $# -gt 0 || set -- common/*.[ch] common/*/*.[ch] examples/*.c examples/*.cu ref/*.[ch] ref/*/*.[ch] gpu/*.c gpu/device_limits.h gpu/*.cu \
    gpu/*.cuh $(find gpu/*/ -name '*.cu' -o -name '*.cuh') experiments/*.[ch] tests/*.[ch]

# It would put #pragma omp into the first column: it is given as a comment.
laid_out() {
    sed 's,^\( *\)#pragma,\1//#pragma,' "$1" |
        ${CLANG_FORMAT:-clang-format-14} --style=file --assume-filename="$1" |
        sed 's,^\( *\)//#pragma,\1#pragma,'
}

want=$(mktemp) || exit 1
trap 'rm -f "$want"' EXIT
bad=0
for file; do
    laid_out "$file" >"$want"
    test -s "$want" || { echo "$file: clang-format failed"; exit 1; }
    cmp -s "$file" "$want" && continue
    bad=$((bad + 1))
    if [ $apply = yes ]; then
        cat "$want" >"$file"
        echo "$file"
    else
        diff -u "$file" "$want" | sed "2s,.*,+++ $file as .clang-format says,"
    fi
done
test $apply = yes && exit 0
test $bad = 0 || echo "$bad files are laid out differently: tests/format.sh -i changes them"
test $bad = 0
