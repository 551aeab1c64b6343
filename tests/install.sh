#!/bin/sh
# The files of `make install` can be used, and the library exports only the
# symbols that it should.  MAKE, CC, CXX, CFLAGS, LDFLAGS, PKG_CONFIG and srcdir come from the
# Makefile.
. "$srcdir/tests/installed.sh"

# compiles PACKAGE PROGRAM
compiles() {
    $CC $CFLAGS "$srcdir/tests/installed.c" -o "$2" $(pc --cflags --libs "$1") $LDFLAGS
}
without_path() (
    unset LD_LIBRARY_PATH
    "$@"
)
unprefixed() {
    nm "$@" --defined-only | awk 'NF == 3 && $3 !~ /^abl_/ { print; bad = 1 }
        $3 ~ /^abl_/ { ours = 1 } END { exit bad || !ours }'
}
# The libraries that a file needs, or with SONAME its own name, one a line.
dynamic() {
    readelf -d "$1" | sed -n "s/.*(${2:-NEEDED}).*\[\(.*\)\]/\1/p"
}
# A function of an enum's name would hide it.
is_cxx() {
    {
        echo "#include \"$1\""
        sed -n 's/.*enum \(abl_[a-z0-9_]*\).*/void take_\1(\1);/p' "$1" | sort -u
    } >"$tmp/header.cc" && grep -q take_abl_dtype "$tmp/header.cc" && $CXX -fsyntax-only "$tmp/header.cc"
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
ok 'the header is C++ as well' is_cxx "$tmp/there$includedir/ablate.h"
if [ -n "$PKG_CONFIG" ]; then
    ok 'a program of 20 lines links with the shared library' compiles ablate "$tmp/shared"
    ok 'which it needs' needs_ours "$tmp/shared"
    ok 'and runs, by its run path' without_path "$tmp/shared"
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
# to PREFIX GOAL [VARIABLE=VALUE]: make it for that prefix, whatever the options of configure were.
to() (
    unset MAKEFLAGS MFLAGS MAKELEVEL LD_LIBRARY_PATH
    prefix=$1
    shift
    $MAKE "$@" prefix="$prefix" exec_prefix="$prefix" bindir="$prefix/bin" includedir="$prefix/include" \
        libdir="$prefix/lib" datarootdir="$prefix/share" datadir="$prefix/share" mandir="$prefix/share/man"
)
# README's lines, for a prefix of one's own, and with what pkg-config says there.
readme() (
    unset LD_LIBRARY_PATH
    PKG_CONFIG_PATH=$tmp/home/lib/pkgconfig
    export PKG_CONFIG_PATH
    $CC $CFLAGS "$srcdir/examples/call.c" $($PKG_CONFIG --cflags --libs ablate) $LDFLAGS -o "$tmp/call" && "$tmp/call"
)
program_runs() (
    cd "$tmp" && without_path "$tmp/home/bin/run-ablation" -o "$tmp/out.h5" -t 'relu rows=3'
)
# No file is left, nor a folder of its own.
nothing_left() {
    ! find "$tmp/home" ! -type d -o -name 'ablate*' | grep .
}
ok 'make install into a prefix of one'"'"'s own' to "$tmp/home" install
ok 'the program runs there, without LD_LIBRARY_PATH' program_runs
if [ -n "$PKG_CONFIG" ]; then
    ok 'README'"'"'s lines of C find the library when the program starts' readme
fi
# Python's package, without a library of its own, where the loader has the prefix.
python_finds() (
    [ -n "$PYTHON" ] && "$PYTHON" -c 'import numpy' 2>/dev/null || { echo "no Python with numpy"; exit 77; }
    case $CFLAGS in *-fsanitize*) echo "the library has sanitizers"; exit 77 ;; esac
    cp -R "$srcdir/python/ablate" "$tmp/ablate" && chmod -R u+w "$tmp/ablate" && rm -rf "$tmp/ablate/_lib" && unset ABLATE_LIBRARY &&
        cd "$tmp" && "$@" PYTHONDONTWRITEBYTECODE=1 "$PYTHON" -c 'import ablate; print(ablate.op("softmax"))'
)
ok 'Python finds the library by LD_LIBRARY_PATH' python_finds env LD_LIBRARY_PATH="$tmp/home/lib"
ok 'and by ABLATE_LIBRARY' python_finds env ABLATE_LIBRARY="$tmp/home/lib/libablate.so"
ok 'make uninstall' to "$tmp/home" uninstall
ok 'leaves nothing of it' nothing_left

# A stand-in for ldconfig, which knows one folder and notes when it is to renew the cache; and one for id.
mkdir "$tmp/bin"
cat >"$tmp/bin/ldconfig" <<EOF
#!/bin/sh
case "\$*" in *N*) echo "$tmp/known/lib: (from /etc/ld.so.conf.d/x.conf:1)" ;; *) echo renewed >>"$tmp/renewed" ;; esac
EOF
cat >"$tmp/bin/id" <<EOF
#!/bin/sh
test "\$*" = -u && echo "\$PRETENDED_UID" || exec /usr/bin/id "\$@"
EOF
chmod +x "$tmp/bin/ldconfig" "$tmp/bin/id"
# renews YES|NO UID PREFIX GOAL [VARIABLE=VALUE]
renews() (
    rm -f "$tmp/renewed"
    wanted=$1 PRETENDED_UID=$2 PATH=$tmp/bin:$PATH
    export PRETENDED_UID PATH
    shift 2
    to "$@" && case $wanted in
    yes) test -f "$tmp/renewed" ;;
    no) test ! -f "$tmp/renewed" ;;
    esac
)
ok 'root renews the cache of the loader for a folder of its' renews yes 0 "$tmp/known" install
ok 'and after make uninstall' renews yes 0 "$tmp/known" uninstall
ok 'not for another folder' renews no 0 "$tmp/other" install
ok 'nobody else does' renews no 1000 "$tmp/known" install
ok 'nor is it renewed with DESTDIR' renews no 0 "$tmp/known" install DESTDIR="$tmp/dest"
# The system's own folders need no run path, and distributions refuse one.
run_path() {
    file=$(find "$tmp/$1" -name ablate.pc) && grep '^Libs:' "$file" && grep -q -- '-rpath=' "$file"
}
no_run_path() {
    ! run_path "$1"
}
ok 'a run path is in ablate.pc' run_path other
renews no 0 /usr install DESTDIR="$tmp/system" >/dev/null 2>&1
ok 'but not for /usr/lib' no_run_path system
ok 'the man page is there' test -s "$tmp/there$mandir/man1/run-ablation.1"
ok 'the program runs' "$tmp/there$bindir/run-ablation" --version
for file in "$tmp/there$pkgdatadir"/experiments/*.ini; do
    ok "$(basename "$file") is a plan" plans "$file"
done
echo "1..$n"
