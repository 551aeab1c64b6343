#!/bin/sh
# Compile each mistake of faults.list into a copy of a reference, link it
# before the archive, so that the archive's own object is not pulled, and see
# which suite notices.  `make check-faults` sets
#
#     CC, FLAGS    what compiles a reference
#     LIBS         what links a test, the archive first
#     SUITES       the tests' objects, in the order that they are tried
#     srcdir, JOBS
#
# check-faults.sh [NAME...]: these faults; default: all of them.
set -eu
list=$srcdir/tests/faults.list
tmp=faults.tmp

# Field $2 of fault $1.
field() {
    awk -F ' [|] ' -v name="$1" -v n="$2" '$1 == name { print $n }' "$list"
}

# One line: fault, programs that caught it, checks failed of all, the first.
# Returns 0 if it was caught.
judge() {
    name=$1 dir=$tmp/$1 by='' failed=0 all=0 first=''
    file=$(field "$name" 2)
    mkdir -p "$dir"
    if [ "$name" = unchanged ]; then
        file=ref/e74_cell.c
        cp "$srcdir/$file" "$dir/fault.c"
    else
        sed "$(field "$name" 3)" "$srcdir/$file" >"$dir/fault.c"
        if cmp -s "$srcdir/$file" "$dir/fault.c"; then
            echo "$name: its sed expression changes nothing"
            return 2
        fi
    fi
    for real in 64 32 16; do
        $CC $FLAGS -DREAL=$real -O1 -w -c "$dir/fault.c" -o "$dir/fault$real.o" || return 2
    done
    for suite in $SUITES; do
        program=$(basename "${suite%.*}")
        $CC $FLAGS -o "$dir/$program" "$suite" "$dir"/fault??.o $LIBS || return 2
        timeout 300 "$dir/$program" >"$dir/$program.tap" 2>"$dir/$program.err" || {
            test $? -ne 124 || { echo "$name: $program hangs"; return 2; }
        }
        n=$(grep -c '^not ok' "$dir/$program.tap") || :
        grep -q '^1\.\.[1-9]' "$dir/$program.tap" || n=$((n + 1))    # it died
        failed=$((failed + n)) all=$((all + $(grep -c '^\(not \)\{0,1\}ok' "$dir/$program.tap")))
        test "$n" = 0 && continue
        by="$by${by:+ }$program"
        test -n "$first" || first=$(awk '/^not ok/ { seen = 1; next }
            seen { sub(/^# /, ""); sub(/ \(norm.*/, ""); print; exit }' "$dir/$program.tap")
        test -n "$first" || first="$program died"
    done
    printf '%-25s %-18s %4d of %4d  %s\n' "$name" "${by:-NOT CAUGHT}" "$failed" "$all" "$first"
    test -n "$by"
}

if [ "${1-}" = --judge ]; then
    judge "$2" >"$tmp/$2.line" 2>"$tmp/$2.err" || echo $? >"$tmp/$2.status"
    exit 0
fi

rm -rf $tmp
mkdir $tmp
names=${*:-$(awk -F ' [|] ' '!/^#/ && NF { print $1 }' "$list")}
# Faults run side by side, a thread each; the unchanged copy must pass.
printf '%s\n' unchanged $names |
    OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 xargs -n 1 -P "${JOBS:-2}" "$SHELL" "$0" --judge

n=0 caught=0
printf '%-25s %-18s %-13s %s\n' fault 'caught by' 'failed checks' first
for name in $names; do
    n=$((n + 1))
    cat "$tmp/$name.line"
    case $(cat "$tmp/$name.status" 2>/dev/null) in
    '') caught=$((caught + 1)) ;;
    1) ;;                           # it ran, and nobody noticed
    *) echo "$name: could not be made"; cat "$tmp/$name.err" ;;
    esac
done
if [ "$(cat $tmp/unchanged.status 2>/dev/null)" != 1 ]; then
    echo "the unchanged copy does not pass:"
    cat $tmp/unchanged.line $tmp/unchanged.err
    exit 1
fi
echo "$n faults, $caught caught"
test $n = $caught && rm -rf $tmp
