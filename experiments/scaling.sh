#!/bin/sh
# How much faster several GPUs of one host are than one, and whether they give the same file.
#     scaling.sh '1 2 4 8' FILE.ini...
# For each file and count a line: seconds, how many times as fast as one GPU, of what all of them could give at most,
# and whether all datasets but those of times have the bits of one GPU's.  With MPIRUN='mpirun -n' each count above one
# runs once more as so many ranks.  RUN_ABLATION is the program; DIR, a folder that is there, keeps the dumps; PYTHON has h5py.
if [ $# -lt 2 ]; then
    sed -n '2,6s/^# *//p' "$0" >&2
    exit 2
fi
run=${RUN_ABLATION:-run-ablation} dir=${DIR:-.} counts=$1
same=$(dirname "$0")/../tests/same.py
shift

# now: seconds since some moment.
now() {
    date +%s.%N
}

# one_of FILE COUNT: the ini with the first COUNT devices.
of_devices() {
    awk -v n="$2" '/^[ \t]*device[ \t]*=/ { next }
        { print }
        /^\[experiment\]/ { printf "device = 0"; for (i = 1; i < n; i++) printf ", %d", i; print "" }' "$1"
}

# timed HOW COUNT COMMAND...: a line of the table, of the dump $dump beside $one, that of one GPU.
timed() {
    how=$1 count=$2
    shift 2
    began=$(now)
    "$@" >"$dump.txt" 2>&1
    status=$?
    seconds=$(echo "$began $(now)" | awk '{ print $2 - $1 }')
    if [ $status -ne 0 ] && [ $status -ne 1 ]; then
        echo "$name: $how: exit status $status: $(tail -n 1 "$dump.txt")" >&2
        failed=1
        return
    fi
    [ -n "$alone" ] || alone=$seconds one=$dump
    equal=yes
    [ "$dump" = "$one" ] || "${PYTHON:-python3}" "$same" "$one" "$dump" \
        time speed crossover device yardstick_error >"$dump.same" 2>&1 || equal=no failed=1
    echo "$alone $seconds $count" | awk -v name="$name" -v how="$how" -v equal=$equal \
        '{ printf "%-24s %-14s %9.1f %9.2f %8.0f %%  %s\n", name, how, $2, $1 / $2, 100 * $1 / $2 / $3, equal }'
}

failed=
printf '%-24s %-14s %9s %9s %10s  %s\n' experiment devices seconds "times one" "of linear" "equal bits"
for ini in "$@"; do
    name=$(basename "$ini" .ini) alone=
    for count in $counts; do
        of_devices "$ini" "$count" >"$dir/$name-$count.ini"
        dump=$dir/$name-$count.h5
        timed "$count" "$count" "$run" --force -o "$dump" "$dir/$name-$count.ini"
        [ -n "$MPIRUN" ] && [ "$count" -gt 1 ] || continue
        dump=$dir/$name-mpi-$count.h5
        timed "mpirun -n $count" "$count" $MPIRUN "$count" "$run" --force -o "$dump" "$dir/$name-$count.ini"
    done
done
[ -z "$failed" ]
