#!/bin/sh
# The Python package over this build's library: its pytest suites, each test a line of TAP, and the
# lines of README's section "From Python".  PYTHON has numpy and pytest.
if [ -z "$PYTHON" ] || ! "$PYTHON" -c 'import numpy, pytest' 2>/dev/null; then
    echo "1..0 # SKIP no Python with numpy and pytest"
    exit 0
fi
case $CFLAGS in
*-fsanitize*)
    echo "1..0 # SKIP Python is not built with the sanitizers that the library is built with"
    exit 0
    ;;
esac
tmp=$(mktemp -d "${TMPDIR:-/tmp}/ablate at.XXXXXX") || exit 1
trap 'rm -rf "$tmp"' EXIT
trap 'exit 1' HUP INT TERM
srcdir=$(cd "${srcdir:-.}" && pwd)
export ABLATE_LIBRARY="$PWD/libablate.so" ABLATE_PROGRAM="$PWD/run-ablation"
export PYTHON PYTHONPATH="$srcdir/python" PYTHONDONTWRITEBYTECODE=1
export ABLATE_JUDGE_CASES="${ABLATE_JUDGE_CASES:-200}"
# A process for each file of tests, so many at once: the largest first, which take longest.
processes=$(getconf _NPROCESSORS_ONLN)
[ "$processes" -le 4 ] || processes=4
threads=$(($(getconf _NPROCESSORS_ONLN) / processes))
[ "${OMP_NUM_THREADS:-$threads}" -lt "$threads" ] || export OMP_NUM_THREADS="$threads" OPENBLAS_NUM_THREADS="$threads"
mkdir "$tmp/logs"
(cd "$tmp" && ls -S "$srcdir/python/tests" | sed -n 's/^\(test_.*\)[.]py$/\1/p' |
    xargs -P "$processes" -I NAME sh -c '"$PYTHON" -m pytest -p no:cacheprovider -rA --tb=short -q --rootdir="$2/python" \
        -c "$2/python/pyproject.toml" "$2/python/tests/$1.py" >"logs/$1" 2>&1; echo "$1 $?" >>ended' sh NAME "$srcdir")
cat "$tmp"/logs/* >"$tmp/log"
# 5: all of its tests are of what is not there.
files=$(ls "$tmp/logs" | wc -l)
ended=$(grep -c ' [05]$' "$tmp/ended")

# README and doc/judge.md: what they show is what their lines print.
sed -n '/^## From Python/,/^## /p' "$srcdir/README.md" >"$tmp/README.md"
cp "$srcdir/doc/judge.md" "$tmp"
(cd "$tmp" && "$PYTHON" - <<'EOF') >"$tmp/readme" 2>&1
import doctest, sys
failed = 0
for name in "README.md", "judge.md":
    text = open(name, encoding="utf-8").read().replace("```python", "").replace("```", "")
    test = doctest.DocTestParser().get_doctest(text, {}, name, name, 0)
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    runner.run(test)
    print(f"{name}: {runner.tries} lines, {runner.failures} failed")
    failed += not runner.tries or runner.failures
sys.exit(failed)
EOF
status=$?
awk -v status=$status -v files=$files -v ended=$ended '
    /^(PASSED|FAILED|ERROR) / {
        name = $0
        sub(/^[A-Z]* /, "", name)
        sub(/ - .*/, "", name)
        gsub(/#/, "", name)
        print ($1 == "PASSED" ? "ok " : "not ok ") ++n " - " name
        bad += $1 != "PASSED"
    }
    /^[0-9]* passed/ { sum += $1 }
    END {
        print (n > 100 && sum + bad == n && ended == files && files > 10 ? "ok " : "not ok ") ++n " - pytest: " \
            sum " passed in " files " files"
        print (status == 0 ? "ok " : "not ok ") ++n " - README: From Python, and doc/judge.md"
        print "1.." n
        exit
    }' "$tmp/log"
if [ "$ended" != "$files" ] || [ $status != 0 ]; then
    grep -v ' [05]$' "$tmp/ended" | while read -r name _; do
        tail -60 "$tmp/logs/$name" | sed 's/^/# /'
    done
    sed 's/^/# /' "$tmp/readme"
fi
