#!/bin/sh
# Who includes whom: one direction between folders, and no circle of files.  includes.sh -p prints the
# arrows between folders, with the number of includes.
set -u
export LC_ALL=C
srcdir=${srcdir:-$(dirname "$0")/..}
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT

# Folders from the top down: a file includes files of its own line or of lines below.
cat >"$tmp/order" <<'END'
experiments
common/api
common
common/page
common/report
common/store
common/run
common/plan
common/ablation
common/train
common/judge ref gpu
gpu/attention gpu/e74 gpu/element gpu/pattern gpu/quantised gpu/row gpu/task
gpu/dual_memory
gpu/gemm
gpu/device
gpu/*.cuh
gpu/emulate
common/program
common/ops
common/call
common/statistics
common/base
END

# FILE and what it includes by a path, a pair on a line.
(
    cd "$srcdir" || exit 1
    find common ref gpu data experiments -type f \( -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' \
        -o -name '*.cc' \) -exec awk -F'"' '/^ *# *include "[^"]*\// { print FILENAME, $2 }' {} + |
        sort -u
) >"$tmp/pairs"

# A folder: that below common/ or gpu/, or the top one.  The headers in gpu/ are apart: all kernels see
# them, and the sources beside them, the backend, see the kernels' library.
cat >"$tmp/folder.awk" <<'END'
function folder(file) {
    if (file ~ /^gpu\/[^\/]*h$/) return "gpu/*.cuh"
    if (match(file, /^(common|gpu)\/[^\/]*\//)) return substr(file, 1, RLENGTH - 1)
    return substr(file, 1, index(file, "/") - 1)
}
END

if [ "${1-}" = -p ]; then
    awk "$(cat "$tmp/folder.awk")"'
        folder($1) != folder($2) { n[folder($1) " -> " folder($2)]++ }
        END { for (a in n) print a, n[a] }' "$tmp/pairs" | sort
    exit
fi

n=0
# ok NAME FILE: FILE, which lists what is wrong, is empty.
ok() {
    n=$((n + 1))
    if [ -s "$2" ]; then
        echo "not ok $n - $1"
        sed 's/^/# /' "$2"
    else
        echo "ok $n - $1"
    fi
}

# upward PAIRS: those from a folder to one that is not below it.
upward() {
    awk "$(cat "$tmp/folder.awk")"'
        FILENAME == ARGV[1] { for (i = 1; i <= NF; i++) line[$i] = FNR; next }
        { a = folder($1); b = folder($2) }
        !(a in line) || !(b in line) { print $1 " includes " $2 ": no folder of the order"; next }
        a != b && line[a] >= line[b] { print $1 " includes " $2 }' "$tmp/order" "$1"
}

# circles PAIRS: the files of each circle.
circles() {
    awk '$1 != $2' "$1" | tsort 2>&1 >/dev/null | sed -n 's/^tsort: //p'
}

[ $(wc -l <"$tmp/pairs") -gt 500 ] || { echo "Bail out! the includes of $srcdir could not be read"; exit 1; }
upward "$tmp/pairs" >"$tmp/found"
ok "a folder includes only folders below it" "$tmp/found"
# The emulator's own files and kernels see each other through emulate.h.
grep -v '^gpu/emulate/' "$tmp/pairs" >"$tmp/rest"
circles "$tmp/rest" >"$tmp/found"
ok "no circle of files" "$tmp/found"
find "$srcdir/common" -maxdepth 1 -type f ! -name '*.o' | awk 'NR > 2' >"$tmp/flat"
ok "at most two files lie flat in common/" "$tmp/flat"

# What is planted is found.
{ cat "$tmp/pairs"; echo "common/base/err.c common/plan/plan.h"; } >"$tmp/bad"
upward "$tmp/bad" | grep -c 'err.c includes' | grep -qx 1 || echo "an include of a folder above" >"$tmp/missed"
{ cat "$tmp/rest"; echo "common/call/contract.h common/call/run.h"; } >"$tmp/bad"
circles "$tmp/bad" | grep -q 'common/call/contract.h' || echo "a circle" >>"$tmp/missed"
{ cat "$tmp/pairs"; echo "common/run/trial.c data/input.h"; } >"$tmp/bad"
upward "$tmp/bad" | grep -q data/input.h || echo "an include of data/" >>"$tmp/missed"
touch "$tmp/missed"
ok "what is planted is found" "$tmp/missed"
echo "1..$n"
