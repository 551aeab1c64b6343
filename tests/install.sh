#!/bin/sh
# The files of `make install` can be used, and the library exports only the
# symbols that it should.  MAKE, CC, CXX, CFLAGS, LDFLAGS, PKG_CONFIG and srcdir come from the
# Makefile.
. "$srcdir/tests/installed.sh"

# compiles PACKAGE PROGRAM
compiles() {
    $CC $CFLAGS "$srcdir/tests/installed.c" -o "$2" $(pc --cflags --libs "$1") $LDFLAGS
}
unprefixed() {
    nm "$@" --defined-only | awk 'NF == 3 && $3 !~ /^abl_/ { print; bad = 1 }
        $3 ~ /^abl_/ { ours = 1 } END { exit bad || !ours }'
}
# The libraries that a file needs, or with SONAME its own name, one a line.
dynamic() {
    readelf -d "$1" | sed -n "s/.*(${2:-NEEDED}).*\[\(.*\)\]/\1/p"
}
shared_has_links() (
    cd "$there" && soname=$(dynamic libablate.so SONAME) && echo "$soname" &&
        expr "$soname" : 'libablate\.so\.[0-9][0-9]*$' && test -L "$soname" && test -L libablate.so &&
        test libablate.so -ef "$soname"
)
# libcuda, libcudart, libcublas, libcublasLt, ...
without_cuda() {
    dynamic "$1" >"$tmp/needed" && cat "$tmp/needed" && grep -q '^libc\.' "$tmp/needed" &&
        ! grep -q '^lib\(cu\|nv\)' "$tmp/needed"
}
needs_ours() {
    dynamic "$1" | grep -x "$(dynamic "$there/libablate.so" SONAME)"
}
lacks_ours() {
    ! dynamic "$1" | grep libablate
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
ok 'libablate.a defines abl_... and nothing else' unprefixed -g "$there/libablate.a"
ok 'libablate.so exports abl_... and nothing else' unprefixed -D "$there/libablate.so"
ok 'it is found by its soname and by libablate.so' shared_has_links
ok 'it needs no library of CUDA' without_cuda "$there/libablate.so"
ok 'nor does the program' without_cuda "$tmp/there$bindir/run-ablation"
ok 'the header is C++ as well' $CXX -x c++ -fsyntax-only "$tmp/there$includedir/ablate.h"
if [ -n "$PKG_CONFIG" ]; then
    ok 'a program of 20 lines links with the shared library' compiles ablate "$tmp/shared"
    ok 'which it needs' needs_ours "$tmp/shared"
    ok 'and runs' env LD_LIBRARY_PATH="$there:$LD_LIBRARY_PATH" "$tmp/shared"
    ok 'it links with the archive' compiles ablate-static "$tmp/static"
    ok 'without the shared library' lacks_ours "$tmp/static"
    ok 'and runs' "$tmp/static"
fi
# Another prefix than configure's.  Directories that were options of configure
# stay, so the paths in ablate.pc are compared with its own place.
moves() (
    unset MAKEFLAGS MFLAGS MAKELEVEL
    $MAKE install DESTDIR="$tmp/moved" prefix=/else/where >/dev/null || exit 1
    file=$(find "$tmp/moved" -name ablate.pc)
    libdir=$(dirname "$(find "$tmp/moved" -name libablate.a)")
    grep -qx prefix=/else/where "$file" && grep -qx "libdir=${libdir#"$tmp/moved"}" "$file" &&
        ! grep @ "$file" "${file%.pc}-static.pc" && $MAKE uninstall DESTDIR="$tmp/moved" prefix=/else/where >/dev/null &&
        test -z "$(find "$tmp/moved" ! -type d)"
)
ok 'make install prefix=X says so in ablate.pc, and can be undone' moves
ok 'the man page is there' test -s "$tmp/there$mandir/man1/run-ablation.1"
ok 'the program runs' "$tmp/there$bindir/run-ablation" --version
for file in "$tmp/there$pkgdatadir"/experiments/*.ini; do
    ok "$(basename "$file") is a plan" plans "$file"
done
echo "1..$n"
