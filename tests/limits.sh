#!/bin/sh
# A contract with as many parameters and tensors as a call has space for compiles; one with more does
# not, in C and in C++, and C's message says why.  TAP on stdout.
srcdir=${srcdir:-.}
tmp=$(mktemp -d "${TMPDIR:-/tmp}/limits.XXXXXX") || exit 1
trap 'rm -rf "$tmp"' EXIT
n=0

# ok NAME REASON: a line of TAP, failed if there is a reason.
ok() {
    n=$((n + 1))
    test -z "$2" || printf 'not '
    echo "ok $n - $1"
    test -z "$2" || echo "# $2"
}

# contract PARAMETERS TENSORS: its source.
contract() {
    cat <<END
#include "common/call/contract.h"
struct made { void *x[$2]; };
static const struct param params[$1] = {SIZE_PARAM("rows", 'M', 1, "rows")};
static const struct arg args[] = {{"x", "M", IN}};
const struct op op_made = {.name = "made", SIGNATURE(made, params, args)};
END
}

# compiles FILE: does it?
compiles() {
    ${CC:-cc} -std=c11 -I"$srcdir" -c "$1" -o "$tmp/made.o" >"$tmp/out" 2>&1
}

# refused NAME PARAMETERS TENSORS WORDS: such a contract does not compile, and the message has WORDS.
refused() {
    contract "$2" "$3" >"$tmp/made.c"
    if compiles "$tmp/made.c"; then
        ok "$1" "it compiles"
    else
        ok "$1" "$(grep -q "$4" "$tmp/out" || head -n 1 "$tmp/out")"
    fi
}

limit() {
    sed -n "s/.*$1 = \([0-9]*\).*/\1/p" "$srcdir/common/call/call.h" | head -n 1
}
params=$(limit MAX_PARAMS)
args=$(limit MAX_ARGS)

contract "$params" "$args" >"$tmp/made.c"
ok "$params parameters and $args tensors" "$(compiles "$tmp/made.c" || head -n 1 "$tmp/out")"
refused "no more parameters" $((params + 1)) "$args" "more than MAX_PARAMS parameters"
refused "no more tensors" "$params" $((args + 1)) "more than MAX_ARGS tensors"

# C++ has SIGNATURE's initialisers only since C++20; the limit is one of C++17, too.
for count in 64 65; do
    cat >"$tmp/made.cc" <<END
#include "common/call/contract.h"
extern const int n;
const int n = AT_MOST($count, 64, "more");
END
    ${CXX:-c++} -std=c++17 -I"$srcdir" -c "$tmp/made.cc" -o "$tmp/made.o" >"$tmp/out" 2>&1
    status=$?
    test $((status != 0)) = $((count > 64)) && why= || why="status $status"
    ok "C++: $count where 64 are the most" "$why"
done
echo "1..$n"
