#!/bin/sh
# Does build-aux/compare_sass.py say which kernels of two builds differ?  The tool that disassembles
# is cat, of files laid out as cuobjdump -sass prints them.  TAP on stdout.
srcdir=${srcdir:-.}
dir=`mktemp -d "${TMPDIR:-/tmp}/sass.XXXXXX"` || exit 1
trap 'rm -rf "$dir"' EXIT
n=0
printf '#!/bin/sh\ncat "$2"\n' >"$dir/dump" && chmod +x "$dir/dump" || exit 1

# kernel NAME INSTRUCTION...: prints it as cuobjdump does.
kernel() {
    printf '\t\tFunction : %s\n' "$1"
    shift
    printf '        /*0000*/  %s ;   /* 0x1 */\n' "$@"
}

# says NAME STATUS PATTERN: the comparison of before with after exits and prints so.
says() {
    n=$((n + 1))
    CUOBJDUMP=$dir/dump "$PYTHON" "$srcdir/build-aux/compare_sass.py" "$dir/before" "$dir/after" \
        >"$dir/out" 2>&1
    got=$?
    if [ $got = "$2" ] && grep -q "$3" "$dir/out"; then
        echo "ok $n - $1"
    else
        echo "not ok $n - $1"
        sed 's/^/# /' "$dir/out"
    fi
}

if [ -z "${PYTHON-}" ]; then
    echo "1..0 # SKIP there is no Python"
    exit 0
fi
{ kernel one FADD FMUL; kernel two 'CALL _Z5helperf' EXIT; kernel one FADD FMUL; } >"$dir/before"
cp "$dir/before" "$dir/after"
says "the same" 0 "^3 kernels before, 3 after: 3 are the same, 0 renamed, 0 only before, 0 only after$"
{ kernel first FADD FMUL; kernel two 'CALL _Z6otherf' EXIT; kernel one FADD FMUL; } >"$dir/after"
says "another name, and another name of a function that it calls" 0 "2 are the same, 1 renamed, 0 only before"
{ kernel one FADD FMUL; kernel two 'CALL _Z5helperf' EXIT; kernel one FADD FADD; } >"$dir/after"
says "another instruction" 1 "2 are the same, 0 renamed, 1 only before, 1 only after"
says "whose it is" 1 "^only after: one$"
{ kernel one FADD FMUL; kernel one FADD FMUL; } >"$dir/after"
says "one that is gone" 1 "^only before: two$"
: >"$dir/after"
says "no kernel at all" 2 "has no kernel"
echo "1..$n"
