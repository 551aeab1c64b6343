#!/bin/sh
# How much faster several GPUs of one host are than one, and whether they give the same file.
#     scaling.sh '1 2 4 8' FILE.ini...
# For each file, one GPU and each count a line: seconds, how many times as fast as one GPU, of what all of them could give
# at most, and whether all datasets but those of times have the bits of one GPU's.  With MPIRUN='mpirun -n' each count above
# one runs once more as so many ranks.  RUN_ABLATION is the program; DIR, a folder that is there, keeps the dumps; PYTHON has
# h5py.  A copy of each file, with its devices, is beside it while it runs: what it reads is looked for there.
if [ $# -lt 2 ]; then
    sed -n '2,7s/^# *//p' "$0" >&2
    exit 2
fi
for count in $1; do
    case $count in
    *[!0-9]* | 0*)
        echo "scaling.sh: '$count': counts of GPUs are whole numbers from 1, with spaces between them" >&2
        exit 2
        ;;
    esac
done
run=${RUN_ABLATION:-run-ablation} dir=${DIR:-.} counts="1 $(echo " $1 " | sed 's/ 1 / /g')"
same=$(dirname "$0")/../tests/same.py
shift

# now: seconds since some moment.
now() {
    date +%s.%N
}

# of_devices FILE COUNT: the ini with the first COUNT devices, and no others, however they are written.
of_devices() {
    awk -v n="$2" '
        function devices(i) {
            printf "device = 0"
            for (i = 1; i < n + 0; i++)
                printf ", %d", i
            print ""
        }
        dropped && /^[ \t]+[^ \t;#]/ && !/=/ { next }
        { dropped = /^[ \t]*device[ \t]*[=:]/ }
        dropped { next }
        { print }
        /^[ \t]*\[experiment\]/ { there = 1; devices() }
        END {
            if (!there) {
                print "[experiment]"
                devices()
            }
        }' "$1"
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
    if ! [ -r "$ini" ]; then
        echo "$ini: cannot be read" >&2
        failed=1
        continue
    fi
    copy=$(dirname "$ini")/$name.scaling-$$.ini
    trap 'rm -f "$copy"' EXIT
    trap 'exit 1' HUP INT TERM
    for count in $counts; do
        [ -n "$alone" ] || [ "$count" = 1 ] || break
        of_devices "$ini" "$count" >"$copy" || exit 1
        dump=$dir/$name-$count.h5
        timed "$count" "$count" "$run" --force -o "$dump" "$copy"
        [ -n "$MPIRUN" ] && [ "$count" -gt 1 ] || continue
        dump=$dir/$name-mpi-$count.h5
        timed "mpirun -n $count" "$count" $MPIRUN "$count" "$run" --force -o "$dump" "$copy"
    done
    rm -f "$copy"
done
[ -z "$failed" ]
