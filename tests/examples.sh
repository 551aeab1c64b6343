#!/bin/sh
# The programs in examples/ compile against the installed library and run, and README.md quotes them.
# MAKE, CC, NVCC, CFLAGS, LDFLAGS, PKG_CONFIG and srcdir come from the Makefile.  With CHECK_GPU=yes
# the one for GPUs runs under compute-sanitizer as well.
PATH=$PATH:/usr/local/cuda/bin
. "$srcdir/tests/installed.sh"

skip() {
    echo "$1"
    return 77
}

compiles() {
    $CC -std=c11 $CFLAGS "$srcdir/examples/call.c" -o "$tmp/call" $(pc --cflags --libs ablate) $LDFLAGS
}
# It has no kernel of its own, so that any architecture will do.
compiles_cuda() {
    $NVCC -std=c++17 "$srcdir/examples/call.cu" -o "$tmp/call_cuda" $(pc --cflags --libs ablate)
}
# Its lines on out and d_k have numbers, and neither nan nor inf.
prints() {
    "$tmp/call" >"$tmp/out" 2>&1 || { cat "$tmp/out"; return 1; }
    cat "$tmp/out"
    for name in out d_k; do
        grep -Eq "^$name:( -?[0-9]+(\.[0-9]+)?(e-?[0-9]+)?){4} \.\.\.$" "$tmp/out" || return 1
    done
    grep -q '^kernel [a-z]' "$tmp/out"
}
# refused WORDS PATTERN: status 1, and one line, on stderr, that has the pattern.
refused() {
    "$tmp/call" "$1" >"$tmp/out" 2>"$tmp/err"
    status=$?
    echo "status $status"
    cat "$tmp/out" "$tmp/err"
    [ $status = 1 ] && [ ! -s "$tmp/out" ] && [ $(wc -l <"$tmp/err") = 1 ] && grep -q "$2" "$tmp/err"
}
sanitized() {
    "$tmp/call_cuda" >/dev/null 2>&1
    [ $? = 77 ] && skip "`"$tmp/call_cuda"`" && return
    compute-sanitizer --error-exitcode 9 "$tmp/call_cuda"
}
# The lines of README.md's C are those of the example, in their order.
quoted() {
    awk '/^## / { here = $0 == "## From C" } here && /^```/ { inside = $0 == "```c"; next }
        here && inside && NF' "$srcdir/README.md" | sed 's/^ *//' >"$tmp/quoted"
    sed 's/^ *//' "$srcdir/examples/call.c" >"$tmp/example"
    [ $(wc -l <"$tmp/quoted") -ge 10 ] && awk '
        FILENAME == ARGV[1] { line[++n] = $0; next }
        next_one <= n && $0 == line[next_one] { next_one++ }
        BEGIN { next_one = 1 }
        END { if (next_one <= n) { print "not in examples/call.c: " line[next_one]; exit 1 } }' \
        "$tmp/quoted" "$tmp/example"
}

ok 'README.md quotes examples/call.c' quoted
if [ -z "$PKG_CONFIG" ]; then
    echo "ok $((n + 1)) - the examples # SKIP there is no pkg-config"
    echo "1..$((n + 1))"
    exit 0
fi
ok 'make install' installs
there=$(dirname "$(find "$tmp/there" -name libablate.a)")
ok 'examples/call.c compiles with the shared library' compiles
ok 'it prints the first numbers of out and d_k, and the kernel' prints
ok 'other words' "$tmp/call" 'softmax rows=3 columns=5'
ok 'a key that is not there: one sentence, status 1' refused 'e74_cell step=3' "unknown key 'step'"
ok 'an operation that is not there' refused 'e75_cell' e75_cell
ok 'an operation without a backward pass' refused 'histogram' 'has no backward pass'

case $NVCC in
'') no='built without CUDA' ;;
emulated) no='the kernels are emulated' ;;
*) no= ;;
esac
if [ -n "$no" ]; then
    ok 'examples/call.cu' skip "$no"
else
    ok 'examples/call.cu compiles with the shared library' compiles_cuda
    ok 'its graph of both passes computes what ref32 does' "$tmp/call_cuda"
    ok 'other words' "$tmp/call_cuda" 'gemm M=30 N=20 K=50 accumulate=yes'
    if [ "${CHECK_GPU-}" = yes ] && command -v compute-sanitizer >/dev/null; then
        ok 'compute-sanitizer finds nothing' sanitized
    fi
fi
echo "1..$n"
