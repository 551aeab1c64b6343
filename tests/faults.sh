#!/bin/sh
# Is each line of the lists in faults/ a fault that can be planted?  It has four or five fields, a name
# that no line before it has, a file that is there, and a sed expression; each of its substitutions
# changes this file.  Whether the suites notice the fault is tested by check-faults.sh, which takes
# minutes.  TAP on stdout.
srcdir=${srcdir:-.}
tmp=$(mktemp -d "${TMPDIR:-/tmp}/faults.XXXXXX") || exit 1
trap 'rm -rf "$tmp"' EXIT
n=0

# ok NAME REASON: a line of TAP, failed if there is a reason.
ok() {
    n=$((n + 1))
    test -z "$2" || printf 'not '
    echo "ok $n - $1"
    test -z "$2" || echo "# $2"
}

# The faults of lists $@, each as three lines: its name (or the whole line), its file, its sed
# expression; where the line itself is wrong the file is empty, and the reason is the third.
lines() {
    awk -F ' [|] ' '
        /^#/ || !NF { next }
        NF < 4 || NF > 5 { print; print ""; print NF " fields, and not four or five"; next }
        $1 !~ /^[A-Za-z0-9_]+$/ { print; print ""; print "the name is no word"; next }
        seen[$1]++ { print $1; print ""; print "an earlier fault has the same name"; next }
        { print $1; print $2; print $3 }' "$@"
}

# Why fault FILE SED cannot be planted; nothing if it can.
wrong() {
    case $1 in
    *' in '*)
        test -f "$srcdir/${1#* in }" || echo "there is no file ${1#* in }"
        set -- "${1% in *}" "$2"
        ;;
    *.h | *.cuh)
        echo "a header is compiled in no object of its own: HEADER in FILE"
        return
        ;;
    esac
    if [ -z "$1" ]; then
        echo "$2"
    elif [ ! -f "$srcdir/$1" ]; then
        echo "there is no file $1"
    elif ! sed "$2" "$srcdir/$1" >"$tmp/copy" 2>"$tmp/err"; then
        head -n 1 "$tmp/err"
    elif cmp -s "$srcdir/$1" "$tmp/copy"; then
        echo "its sed expression does not change $1: $2"
    else
        idle "$srcdir/$1" "$2"
    fi
}

# The first of several substitutions in expression SED that changes nothing of FILE, if there is one.
# Those behind a replacement that has "/; s/" in its own text are not tested.
idle() {
    cp "$1" "$tmp/before"
    echo "$2" | awk '{ gsub("/; s/", "/\ns/"); print }' | while IFS= read -r command; do
        sed "$command" "$tmp/before" >"$tmp/after" 2>/dev/null || break
        cmp -s "$tmp/before" "$tmp/after" && echo "a part of its sed expression changes nothing: $command" && break
        mv "$tmp/after" "$tmp/before"
    done
}

# Each fault of lists $@, as "NAME: REASON", without a reason if there is none.
faults() {
    lines "$@" | while IFS= read -r name && IFS= read -r file && IFS= read -r expression; do
        echo "$name: $(wrong "$file" "$expression")"
    done
}

faults "$srcdir"/tests/faults/*.list >"$tmp/found"
while IFS= read -r line; do
    ok "${line%%: *}" "${line#*: }"
done <"$tmp/found"
test -s "$tmp/found" || ok "faults" "there is no fault in it"

# A list of mistakes: each of them is reported.
cat >"$tmp/bad" <<'EOF'
good | ref/gemm.c | s/alpha/beta/ | it changes the file
good | ref/gemm.c | s/beta/alpha/ | the name is there already
short | ref/gemm.c | s/alpha/beta/
two words | ref/gemm.c | s/alpha/beta/ | a name of two words
lost | ref/no_such_file.c | s/alpha/beta/ | no such file
alone | gpu/gpu.cuh | s/GPU/CPU/ | a header without a file that includes it
unused | gpu/gpu.cuh in gpu/no_such_file.cu | s/GPU/CPU/ | in no such file
dead | ref/gemm.c | s/no such text/beta/ | it changes nothing
half | ref/gemm.c | s/alpha/beta/; s/no such text/beta/ | its second command changes nothing
broken | ref/gemm.c | s/alpha/beta | no sed expression
EOF
faults "$tmp/bad" >"$tmp/found"
count=$(wc -l <"$tmp/found") clean=$(grep -c ': $' "$tmp/found")
test "$count" = 10 && test "$clean" = 1 && grep -qx 'good: ' "$tmp/found" && why= ||
    why="of 8 lines $((count - clean)) were reported, not 9"
ok "nine mistakes in a list of faults are reported" "$why"
while read -r name reason; do
    grep -q "^$name.*: .*$reason" "$tmp/found" && why= || why="not reported: $reason"
    ok "a fault that is $name: $reason" "$why"
done <<'EOF'
good same name
short 3 fields
two no word
lost no file
alone HEADER in FILE
unused no file
dead does not change
half a part
broken sed:
EOF
echo "1..$n"
