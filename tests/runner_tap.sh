# runner_tap.sh - read by suites of shell that look at an exit status and at both streams of a program,
# in a folder of their own, whose path has a blank.  TAP on stdout; a suite ends with a line "1..$n".
# $srcdir, $PYTHON and $CC come from the Makefile.
srcdir=`cd "${srcdir:-.}" && pwd`
run=`pwd`/run-ablation
dir=`mktemp -d "${TMPDIR:-/tmp}/${folder:-ablate at}.XXXXXX"` || exit 1
trap 'rm -rf "$dir"' EXIT
cd "$dir" || exit 1
n=0

# ok STATUS NAME: STATUS is 0 for a pass; out and err are shown where it is not.
ok() {
    n=$((n + 1))
    if [ "$1" = 0 ]; then
        echo "ok $n - $2"
    else
        echo "not ok $n - $2"
        for f in out err; do
            [ -f $f ] && sed "s/^/# $f: /" $f | tail -15
        done
    fi
}
skip() {
    n=$((n + 1))
    echo "ok $n - $1 # SKIP $2"
}
# does NAME STATUS PATTERN COMMAND...: it exits with STATUS and prints PATTERN on either stream.
does() {
    name=$1 status=$2 pattern=$3
    shift 3
    "$@" >out 2>err
    got=$?
    [ $got = "$status" ] && cat out err | grep -q -- "$pattern"
    e=$?
    [ $e = 0 ] || echo "# exit $got, expected $status and: $pattern"
    ok $e "$name"
}
# opens NAME PATTERN FILE [TRIAL...]: h5py and xarray open FILE, NumPy computes the same, and that prints
# PATTERN.
opens() {
    name=$1 pattern=$2
    shift 2
    if [ -z "$PYTHON" ]; then
        skip "$name" "no Python with numpy and h5py"
        return
    fi
    "$PYTHON" "$srcdir/tests/dump.py" "$@" >out 2>err && ! grep -q '^not ok' out && grep -q -- "$pattern" out
    ok $? "$name"
}
# same_dumps NAME A B: they have the same trials (same.py), but for the attributes that $may_differ names; $without is 0 where
# there is h5py.
may_differ=
same_dumps() {
    if [ $without = 0 ]; then
        "$PYTHON" "$srcdir/tests/same.py" "$2" "$3" $may_differ >out 2>err
        ok $? "$1"
    else
        skip "$1" "no h5py"
    fi
}
# milliseconds COMMAND...: how long it takes.
milliseconds() {
    began=`date +%s%N`
    "$@" >out 2>err
    echo $(((`date +%s%N` - began) / 1000000))
}
# wrong_tanh: for wrongly and others, a library with a tanh that is wrong where the oracle calls it, so that
# checks of its gradients fail.
wrong_tanh() {
    echo 'double tanh(double x) { return x / (x < 0 ? 1 - x : 1 + x); }' >tanh.c
    $CC -shared -fPIC -o tanh.so tanh.c || exit 1
}
wrongly() {
    preloaded tanh.so "$run" "$@"
}
# preloaded LIBRARY COMMAND...: with a library of $dir before the others, found by its name: the folder may
# have blanks, and LD_PRELOAD has one between two libraries.
preloaded() {
    library=$1
    shift
    env LD_LIBRARY_PATH="$dir${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" LD_PRELOAD="$library${LD_PRELOAD:+:$LD_PRELOAD}" \
        ASAN_OPTIONS="$ASAN_OPTIONS:verify_asan_link_order=0" "$@"
}
