#!/bin/sh
# timed.sh SUITE [ARGUMENT...]: a suite of `make check`, and after its TAP a comment with the time that it
# took: seconds, and the processors' seconds in its own code and in the system's.  `make slowest` sorts them.
# One that takes longer than SUITE_LIMIT seconds (half an hour) is ended, and has failed.
start=$(date +%s.%N)
timeout --foreground "${SUITE_LIMIT:-1800}" "$@"
status=$?
[ $status != 124 ] || echo "Bail out! it took over ${SUITE_LIMIT:-1800} s"
end=$(date +%s.%N)
file=$(mktemp "${TMPDIR:-/tmp}/timed.XXXXXX") || exit $status
times >"$file" # (in a pipe it would be another shell's)
awk -v start="$start" -v end="$end" '
    function seconds(time) { split(time, part, "m"); return part[1] * 60 + part[2] }
    NR == 2 { printf "# took %.1f s, user %.1f, system %.1f\n", end - start, seconds($1), seconds($2) }' "$file"
rm -f "$file"
exit $status
