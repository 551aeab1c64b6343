# tap.sh - read by suites of shell that run the program in a folder of their own, whose path has a blank.  TAP on stdout.
program=$PWD/run-ablation
tmp=$(mktemp -d "${TMPDIR:-/tmp}/ablate at.XXXXXX") || exit 1
trap 'chmod -R u+w "$tmp"; rm -rf "$tmp"' EXIT
trap 'exit 1' HUP INT TERM
srcdir=$(cd "${srcdir:-.}" && pwd)
cd "$tmp" || exit 1
n=0

# ok WHAT COMMAND...: the last run's output is shown if it fails.
ok() {
    n=$((n + 1)) what=$1
    shift
    if "$@"; then
        echo "ok $n - $what"
    else
        echo "not ok $n - $what"
        sed 's/^/# /' out
    fi
}
# exits STATUS ARGUMENTS...: the program's exit status; its output is in the file out.
exits() {
    want=$1
    shift
    "$program" "$@" >out 2>&1
    test $? = "$want"
}
says() {
    grep -qF -- "$1" out
}
