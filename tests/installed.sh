# installed.sh - sourced by tests that use what `make install` makes: tmp, a folder that goes at the end, and
# has no blank, which a shell does not read from pkg-config;
# ok, a line of TAP; installs and pc, of an installation below tmp, whose libraries are in $there.
case $TMPDIR in
*[[:space:]]*) TMPDIR=/tmp ;;
esac
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
# What pkg-config says of a package for a program that was installed for good.
pc() {
    PKG_CONFIG_PATH=$there/pkgconfig $PKG_CONFIG "--define-variable=libdir=$there" \
        "--define-variable=includedir=$tmp/there$includedir" "$@"
}
