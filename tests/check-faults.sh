#!/bin/sh
# Planted faults: mistakes that published kernels have made.  The lists in faults/, one for each
# family of operations, hold them as lines
#
#     name | file | sed expression | description
#     name | file | sed expression | description | text of the first failed check
#
# where file is FILE, or HEADER in FILE, which includes it.
#
# Compile each into a copy of its file, a reference (in all precisions) or a
# kernel, link it before the archive, so that the archive's own object is not
# pulled, and see which suite is the first to notice.  A suite is run for the
# file's operation alone.  Kernels are judged where they can run: compiled by
# nvcc on a GPU, or else by emulation.  There a missing barrier shows for
# certain, because threads run in a fixed order; on a GPU it may not.
#
# `make check-faults` sets
#
#     CC, FLAGS       the command that compiles a reference
#     MAKE            make, which compiles a kernel by Makefile's own rule for .cu
#     OBJEXT          the suffix of an object of that rule
#     LIBS            the libraries of a test, the archive first
#     SUITES          the tests' objects for references, in the order that they
#                     are tried
#     KERNEL_SUITES   those for kernels; none: built without CUDA
#     OWN_SUITES      those of one operation, whose name they have: tried last
#     SAMPLE_SUITES   those for judgement by sample
#     PROGRAM_SUITES  those for programs
#     TRAIN_SUITES    those for training
#     COPY_SUITES     those for copies to a device and back; none: built without CUDA
#     MATCH_SUITES    those for sizes of models, and for models that are made equal
#     ABLATION_SUITES those for what runs of training say of each other
#     RUN_SUITES      those for times and memory: their judgement, the roofline, their tables
#     BY_SAMPLE       the object of tests/by_sample: in place of the suites, say whether full
#                     judgement of large cases sees the fault, and whether a sample does
#     PYTHON          for tests/definitions; empty: a fault that only it would see is not judged
#     srcdir, JOBS
#
# check-faults.sh [NAME...]: these faults, or those in files whose path begins
# with NAME; default: all of them.
set -eu
tmp=faults.tmp
enough=6                        # failed checks, after which a suite may stop
NOT_NOTICED=1 NOT_MADE=2 NOT_JUDGED=3 NOTICED_ELSEWHERE=4    # results of judge()

# Field $2 of fault $1.
field() {
    awk -F ' [|] ' -v name="$1" -v n="$2" '$1 == name { print $n }' "$srcdir"/tests/faults/*.list
}

# File $1 with expression $2 applied, to file $3.  Returns 0 if that changes it.
plant() {
    sed "$2" "$srcdir/$1" >"$3"
    ! cmp -s "$srcdir/$1" "$3"
}

# File $1 behind header $2, whose guard leaves out the one without the fault.
behind_header() {
    echo "#include \"$2\"" && cat "$srcdir/$1"
}

# The names of the faults that the arguments choose.
chosen() {
    awk -F ' [|] ' -v words="$*" '
        BEGIN { n = split(words, word, " ") }
        /^#/ || !NF { next }
        seen[$1]++ {
            print "check-faults: there are two faults " $1 | "cat >&2"
            exit 2
        }
        {
            take = !n
            for (i = 1; i <= n; i++)
                if ($1 == word[i] || index($2, word[i]) == 1)
                    take = used[i] = 1
            if (take)
                print $1
        }
        END {
            for (i = 1; i <= n; i++)
                if (!used[i]) {
                    print "check-faults: there is no fault " word[i] | "cat >&2"
                    exit 2
                }
        }' "$srcdir"/tests/faults/*.list
}

# The words of file $1: OP of OP.c and OP.cu, OP_KERNEL of OP_KERNEL.cu and OP_KERNEL_PART of
# OP_KERNEL_PART.cu; of gpu/e74/cell/KERNEL/PART.cu e74_cell_KERNEL_PART.
words() {
    case $1 in
    gpu/*/*/*/*) echo "${1%.*}" | sed 's,^gpu/,,; s,/,_,g' ;;
    *) basename "${1%.*}" ;;
    esac
}

# The operation that file $1 belongs to; of what passes and backends share, a chain of operations, with
# sums and workspace; nothing if it is shared by more.
operation() {
    op=$(words "$1")
    case $1 in
    common/call/ahead.c | common/call/transfer.c) return ;;
    */backend.* | common/call/*.c) op=e74_block ;;
    esac
    until grep -x "OP($op)" "$srcdir/common/call/ops.def"; do
        case $op in
        *_*) op=${op%_*} ;;
        *) return ;;
        esac
    done | sed 's/OP(\(.*\))/\1/'
}

# The kernel that file $1 of operation $2 has in its name, if one has that name; else nothing.
kernel() {
    word=$(words "$1")
    word=${word#"${2:-$word}"}
    word=${word#_}
    while [ -n "$word" ]; do
        if find "$srcdir/gpu" \( -name "$2*.cu" -o -path "*/$(echo "$2" | tr _ /)/*.cu" \) \
            -exec cat {} + |
            grep -Eq "\"$word\"|(KERNEL|RUNG|IMPL)[(,].*[ (]$word[,)]"; then
            echo "$word"
            return
        fi
        case $word in
        *_*) word=${word%_*} ;;
        *) return 0 ;;
        esac
    done
}

# The operations in operation $1's contract that have no reference of their own.
beside() {
    test ! -f "$srcdir/common/ops/$1.c" ||
        sed -n 's/^const struct op op_\([a-z0-9_]*\) = .*/\1/p' "$srcdir/common/ops/$1.c" |
        while read -r op; do
            test -f "$srcdir/ref/$op.c" || echo "$op"
        done
}

# The suites of operation $1 alone.
own() {
    for suite in $OWN_SUITES; do
        test "$(basename "${suite%.*}")" != "$1" || echo "$suite"
    done
}

# The copies in $2 of file $1, to objects.
compile() {
    case $1 in
    *.cu)
        # -j1, because the jobs of the make that started this are not shared.
        $MAKE -s -j1 "$2/fault.$OBJEXT" >&2
        ;;
    common/*)
        $CC $FLAGS -O1 -w -c "$2/fault.c" -o "$2/fault.$OBJEXT"
        ;;
    *)
        for real in 64 32 _BF16; do
            $CC $FLAGS -DREF$real -O1 -w -c "$2/fault.c" -o "$2/fault$real.$OBJEXT" || return
        done
        ;;
    esac
}

# Run program $1, for kernel $2 alone unless that is empty, on operations $3..., its TAP until enough
# checks have failed into $1.tap.  Returns 0 if it ended in time.
run() {
    run_program=$1 run_only=${2:+ONLY_KERNEL=$2}
    shift 2
    rm -f "$run_program.status"
    {
        timeout 1200 env $run_only "$run_program" "$@" 2>"$run_program.err" ||
            echo $? >"$run_program.status"
    } | awk -v until="$enough" '{ print } /^not ok/ && ++n == until { stop = 1 }
        stop && /^#/ { exit }' >"$run_program.tap"
    test "$(cat "$run_program.status" 2>/dev/null)" != 124
}

# One line: how many checks of large cases of operations $1... fail in full judgement, and how many
# by sample.  Returns 0 if a sample sees the fault.
judge_by_sample() {
    $CC $FLAGS -o "$dir/by_sample" "$BY_SAMPLE" "$dir"/fault*."$OBJEXT" $LIBS || return $NOT_MADE
    enough=1000000 only=$(kernel "$file" "$op")
    test -z "$only" || ! run "$dir/by_sample" "$only" "$@" ||
        grep -q '^not ok' "$dir/by_sample.tap" || only=
    test -n "$only" || run "$dir/by_sample" '' "$@" ||
        { echo "by_sample hangs"; return $NOT_MADE; }
    full=$(grep -c '^not ok.*, in full$' "$dir/by_sample.tap") || :
    alone=$(grep -c '^not ok.*, of what a sample does not judge$' "$dir/by_sample.tap") || :
    sample=$(grep -c '^not ok.*, by sample$' "$dir/by_sample.tap") || :
    left=$(grep -c '^# .* not judged$' "$dir/by_sample.tap") || :
    grep -q '^1\.\.[0-9]' "$dir/by_sample.tap" || full="$full, died"
    rm -f "$dir/by_sample"
    printf '%-36s in full %s, by sample %d, with results that are not judged %d, failed in these alone %d\n' \
        "$name" "$full" "$sample" "$left" "$alone"
    test "$sample" != 0 || return $NOT_NOTICED
}

# One line: fault, the program that caught it, checks failed of all that ran, the
# first.
# Returns 0 if it was caught, with the first failed check that the list names.
judge() {
    name=$1 dir=$tmp/$1 by='' n=0 all=0 first='' why=''
    case $name in
    unchanged) file=ref/diag_delta.c ;; # (an operation of few cases)
    unchanged_kernel) file=gpu/e74/diag_delta.cu ;;
    *) file=$(field "$name" 2) ;;
    esac
    header=
    case $file in
    *' in '*) header=${file% in *} file=${file#* in } ;;
    esac
    case $file in
    *.cu) suites=$KERNEL_SUITES ;;
    common/call/sample.c | common/judge/*) suites=$SAMPLE_SUITES ;;
    common/call/ahead.c | common/call/transfer.c) suites=$COPY_SUITES ;;
    common/call/run.c | common/call/cost.c) suites="$SUITES $RUN_SUITES" ;;
    common/train/size.c | common/plan/match.c | common/plan/nearest.c | common/run/training_time.c) suites=$MATCH_SUITES ;;
    common/ablation/* | common/statistics/*) suites=$ABLATION_SUITES ;;
    common/run/* | common/report/*) suites=$RUN_SUITES ;;
    common/program/layout.c) suites="$PROGRAM_SUITES $TRAIN_SUITES" ;;
    common/program/*) suites=$PROGRAM_SUITES ;;
    common/train/*) suites=$TRAIN_SUITES ;;
    *) suites=$SUITES ;;
    esac
    op=$(operation "$file")
    ops="$op $(beside "$op")"
    if [ -z "$suites" ]; then
        echo "built without CUDA"
        return $NOT_JUDGED
    fi
    mkdir -p "$dir"
    copy=$dir/fault.${file##*.}
    planted=$copy
    if [ -n "$header" ]; then
        planted=$dir/planted.h
        behind_header "$file" "$planted" >"$copy"
    fi
    plant "${header:-$file}" "$(field "$name" 3)" "$planted" || [ "${name#unchanged}" != "$name" ] ||
        { echo "its sed expression changes nothing"; return $NOT_MADE; }
    compile "$file" "$dir" || return $NOT_MADE
    if [ -n "${BY_SAMPLE-}" ]; then
        judge_by_sample $ops
        return
    fi
    for suite in $suites $(own "$op"); do
        program=$(basename "${suite%.*}")
        $CC $FLAGS -o "$dir/$program" "$suite" "$dir"/fault*."$OBJEXT" $LIBS || return $NOT_MADE
        # Nearly always the file's own kernel fails, which alone takes a fraction of the time.
        only=$(kernel "$file" "$op") n=0
        test -z "$only" || ! run "$dir/$program" "$only" $ops ||
            n=$(grep -c '^not ok' "$dir/$program.tap") || :
        test "$n" != 0 || run "$dir/$program" '' $ops || { echo "$program hangs"; return $NOT_MADE; }
        if skipped=$(grep '^1\.\.0 # SKIP' "$dir/$program.tap"); then
            why=${skipped#*# SKIP }
            continue
        fi
        n=$(grep -c '^not ok' "$dir/$program.tap") || :
        grep -q '^1\.\.[0-9]' "$dir/$program.tap" || test "$n" = "$enough" || n=$((n + 1))    # it died
        all=$((all + $(grep -c '^\(not \)\{0,1\}ok' "$dir/$program.tap")))
        test "$n" = 0 && continue
        by=$program
        first=$(awk '/^not ok/ { seen = 1; next }
            seen { sub(/^# /, ""); sub(/ \(norm [^)]*\)/, ""); sub(/, bound [^,]*/, ""); print; exit }' \
            "$dir/$program.tap")
        test -n "$first" || first="$program died"
        break
    done
    if [ -z "$by" ] && [ -n "$why" ]; then
        echo "$why"
        return $NOT_JUDGED
    fi
    printf '%-30s %-11s %4d of %4d  %s\n' "$name" "${by:-NOT CAUGHT}" "$n" "$all" "$first"
    test -n "$by" || return $NOT_NOTICED
    want=$(field "$name" 5)
    case $first in
    *"$want"*) ;;
    *) echo "$name: caught, but its first failed check does not say '$want'"; return $NOTICED_ELSEWHERE ;;
    esac
}

if [ "${1-}" = --judge ]; then
    judge "$2" >"$tmp/$2.line" 2>"$tmp/$2.err" || echo $? >"$tmp/$2.status"
    exit 0
fi

# How judge() ended for $1: its return value.
status() {
    cat "$tmp/$1.status" 2>/dev/null || echo 0
}

rm -rf $tmp
mkdir $tmp
names=$(chosen "$@")
# Faults run at the same time, each with one thread; the unchanged copies must pass.
unchanged='unchanged unchanged_kernel'
printf '%s\n' $unchanged $names |
    OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 xargs -n 1 -P "${JOBS:-2}" "$SHELL" "$0" --judge

if [ -n "${BY_SAMPLE-}" ]; then
    for name in $unchanged $names; do
        cat $tmp/$name.line
        case $(status "$name") in
        0 | $NOT_NOTICED) ;;
        *) cat $tmp/$name.err ;;
        esac
    done | tee $tmp/lines
    grep -v '^unchanged' $tmp/lines | awk '
        / in full [0-9]*, died,/ { died++; next }
        / in full 0, by sample 0,/ && ! / alone 0$/ { others++; next }
        / in full 0, by sample 0,/ { none++; next }
        / in full 0,/ { alone++; next }
        / by sample 0,/ { missed++; next }
        / in full / { both++ }
        END {
            print both + missed " faults seen by full judgement, of which a sample sees " both + 0 \
                "; " alone + 0 " by a sample alone, " others + 0 \
                " only in results that a sample says it does not judge, " none + 0 " by neither; " \
                died + 0 " end the program"
            exit missed != 0
        }' && ! grep -q '^unchanged.* [1-9][0-9]*, with' $tmp/lines
    exit
fi
n=0 caught=0 left=0
printf '%-30s %-11s %-13s %s\n' fault 'caught by' 'failed checks' first
for name in $names; do
    case $(status "$name") in
    $NOT_JUDGED)
        left=$((left + 1)) why=$(cat "$tmp/$name.line")
        continue
        ;;
    $NOT_MADE)
        echo "$name: could not be made"
        cat "$tmp/$name.line" "$tmp/$name.err"
        ;;
    *) cat "$tmp/$name.line" ;;
    esac
    n=$((n + 1))
    test "$(status "$name")" != 0 || caught=$((caught + 1))
done
for name in $unchanged; do
    case $(status "$name") in
    $NOT_NOTICED | $NOT_JUDGED) ;;
    *)
        echo "the unchanged copy does not pass:"
        cat "$tmp/$name.line" "$tmp/$name.err"
        exit 1
        ;;
    esac
done
test $left = 0 || echo "$left faults not judged: $why"
echo "$n faults, $caught caught"
test $n = $caught && rm -rf $tmp
