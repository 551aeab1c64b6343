#!/bin/sh
# The files of `make install` can be used, and the library exports only the
# symbols that it should.  MAKE, CC, CXX, CFLAGS, LDFLAGS, PKG_CONFIG and srcdir come from the
# Makefile.
tmp=$(mktemp -d "${TMPDIR:-/tmp}/ablate.XXXXXX") || exit 1
trap 'rm -rf "$tmp"' EXIT
trap 'exit 1' HUP INT TERM
n=0

# ok WHAT COMMAND...: its output is shown if it fails; 77 is a skip, and why.
ok() {
    n=$((n + 1)) what=$1
    shift
    "$@" >"$tmp/log" 2>&1
    case $? in
    0) echo "ok $n - $what" ;;
    77) echo "ok $n - $what # SKIP `cat "$tmp/log"`" ;;
    *)
        echo "not ok $n - $what"
        sed 's/^/# /' "$tmp/log"
        ;;
    esac
}

installs() (
    unset MAKEFLAGS MFLAGS MAKELEVEL
    $MAKE install DESTDIR="$tmp/there"
)
# A variable of ablate.pc, as it is for a program that was installed for good.
pc() {
    PKG_CONFIG_PATH=$there/pkgconfig $PKG_CONFIG "$@" ablate
}
compiles() {
    $CC $CFLAGS "$srcdir/tests/installed.c" -o "$tmp/installed" $(pc --static --cflags --libs \
        "--define-variable=libdir=$there" "--define-variable=includedir=$tmp/there$includedir") \
        $LDFLAGS
}
unprefixed() {
    nm -g --defined-only "$there/libablate.a" | awk 'NF == 3 && $3 !~ /^abl_/ { print; bad = 1 }
        $3 ~ /^abl_/ { ours = 1 } END { exit bad || !ours }'
}
# As in runner.sh: the only fault of a plan is that it needs too much memory.
plans() {
    "$tmp/there$bindir/run-ablation" -n "$1" >/dev/null 2>"$tmp/wrong" && return
    grep -v ': .* needs .* of memory, ' "$tmp/wrong" && return 1
    [ -s "$tmp/wrong" ] || return 1
    echo "it needs more memory than there is here"
    return 77
}

ok 'make install' installs
there=$(dirname "$(find "$tmp/there" -name libablate.a)")
ok 'the library defines abl_... and nothing else' unprefixed
ok 'the header is C++ as well' $CXX -x c++ -fsyntax-only "$tmp/there$includedir/ablate.h"
if [ -n "$PKG_CONFIG" ]; then
    ok 'a program of 20 lines links' compiles
    ok 'and runs' "$tmp/installed"
fi
# Another prefix than configure's.  Directories that were options of configure
# stay, so the paths in ablate.pc are compared with its own place.
moves() (
    unset MAKEFLAGS MFLAGS MAKELEVEL
    $MAKE install DESTDIR="$tmp/moved" prefix=/else/where >/dev/null || exit 1
    file=$(find "$tmp/moved" -name ablate.pc)
    libdir=$(dirname "$(find "$tmp/moved" -name libablate.a)")
    grep -qx prefix=/else/where "$file" && grep -qx "libdir=${libdir#"$tmp/moved"}" "$file" &&
        ! grep @ "$file" && $MAKE uninstall DESTDIR="$tmp/moved" prefix=/else/where >/dev/null &&
        test -z "$(find "$tmp/moved" -type f)"
)
ok 'make install prefix=X says so in ablate.pc, and can be undone' moves
ok 'the man page is there' test -s "$tmp/there$mandir/man1/run-ablation.1"
ok 'the program runs' "$tmp/there$bindir/run-ablation" --version
for file in "$tmp/there$pkgdatadir"/experiments/*.ini; do
    ok "$(basename "$file") is a plan" plans "$file"
done
echo "1..$n"
