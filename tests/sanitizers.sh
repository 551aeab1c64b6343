#!/bin/sh
# tests/once under each tool of compute-sanitizer, all of them at the same time.
# Minutes, so only where CHECK_GPU=yes asks for it, as `make check-gpu` does: each
# tool then has another sixteenth of the cases; with CHECK_LONG=yes all of them.
# TAP on stdout.
#
# A tool that takes more than SANITIZE_SECONDS (400; with all cases, 3600) fails.
PATH=$PATH:/usr/local/cuda/bin
test "${CHECK_LONG-}" = yes && long=yes seconds=3600 || long='' seconds=400
seconds=${SANITIZE_SECONDS:-$seconds}
dir=`mktemp -d "${TMPDIR:-/tmp}/sanitizers.XXXXXX"` || exit 1
trap 'rm -rf "$dir"' EXIT
n=0

skip_all() {
    echo "1..0 # SKIP $1"
    exit 0
}

# clean STATUS: did the tool whose output is in $log end well, the program too, and neither object?
# racecheck has a summary of its own; where the tool saw no device, none.
clean() {
    [ "$1" = 0 ] && grep -q '^========= .*SUMMARY: 0 ' "$log" &&
        ! grep '^========= .*SUMMARY: ' "$log" | grep -qv 'SUMMARY: 0 ' &&
        grep -q '^1\.\.[1-9]' "$log" && ! grep -q '^not ok' "$log"
}

# watch N TOOL [OPTION...] -- [ARGUMENT...]: the program, with these arguments,
# under that tool, with these options; check number N.
watch() {
    n=$1 tool=$2 options= log=$dir/$1.log
    shift 2
    while [ "$1" != -- ]; do
        options="$options $1"
        shift
    done
    shift
    timeout -k 10 "$seconds" compute-sanitizer --tool $tool --error-exitcode 9 $options \
        tests/once "$@" >"$log" 2>&1
    status=$?
    name="$tool: tests/once${*:+ $*}"
    if clean $status; then
        echo "ok $n - $name"
        echo "# `grep -c '^ok' "$log"` cases"
        grep '^========= .*SUMMARY' "$log" | sed 's/^/# /'
        return
    fi
    echo "not ok $n - $name"
    case $status in
    124 | 137) echo "# not done within $seconds s, after `grep -c '^ok' "$log"` cases" ;;
    *) echo "# exit status $status" ;;
    esac
    # The first complaint whole, with the line that says why, and how it ended.
    grep -A1 '^not ok\|^=========' "$log" | head -20 | sed 's/^/# /'
    tail -5 "$log" | sed 's/^/# ... /'
}

[ "${CHECK_GPU-}" = yes ] || skip_all "minutes: make check-gpu runs it"
command -v compute-sanitizer >/dev/null || skip_all "there is no compute-sanitizer"
tests/once --small linear >"$dir/log" 2>&1
why=`sed -n 's/^1\.\.0 # SKIP //p; s/^# gpu32: \(emulated.*\)/\1/p' "$dir/log"`
[ -z "$why" ] || skip_all "$why"

# start TOOL [OPTION...] -- [ARGUMENT...]: watch, in parallel with the tools started before.
start() {
    n=$((n + 1))
    test -n "$long" || set -- "$@" --part $((4 * n - 3))/16
    watch $n "$@" >"$dir/$n.tap" &
}

start memcheck --
# Under racecheck `persistent` ends in an illegal access within its first launch, looked at or not
# (--kernel-name, --kernel-name-exclude); without the tool, and under the other three, it is clean.
# Nor does the tool know barrier.arrive, which the kernel needs: it reports two warps that exchange
# 128 bytes.  The emulator with --with-cuda=emulate-race knows it.
start racecheck --racecheck-report analysis -- --small --without persistent --without template_d
# initcheck does not see the stores of the TMA, and calls the elements unwritten: the products in bf16 are stored
# so, and some of cuBLAS.  The emulator with --with-cuda=emulate-race does, and
# checks all kernels.
start initcheck -- --unpoisoned --without cublas --backend gpu32
# It keeps a table of barriers: by default too short for `persistent`, and 65536 do not fit the GPU.
start synccheck --num-cuda-barriers 2048 --
wait
for i in `seq $n`; do
    cat "$dir/$i.tap"
done
echo "1..$n"
