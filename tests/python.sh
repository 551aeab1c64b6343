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
export PYTHONPATH="$srcdir/python" PYTHONDONTWRITEBYTECODE=1
export ABLATE_JUDGE_CASES="${ABLATE_JUDGE_CASES:-200}"
(cd "$tmp" && "$PYTHON" -m pytest -p no:cacheprovider -rA --tb=short -q \
    --rootdir="$srcdir/python" -c "$srcdir/python/pyproject.toml" "$srcdir/python/tests") >"$tmp/log" 2>&1

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
awk -v status=$status '
    /^(PASSED|FAILED|ERROR) / {
        name = $0
        sub(/^[A-Z]* /, "", name)
        sub(/ - .*/, "", name)
        gsub(/#/, "", name)
        print ($1 == "PASSED" ? "ok " : "not ok ") ++n " - " name
        bad += $1 != "PASSED"
    }
    / passed|no tests ran/ { closing = $0 }
    END {
        print (n > 100 ? "ok " : "not ok ") ++n " - pytest: " closing
        print (status == 0 ? "ok " : "not ok ") ++n " - README: From Python, and doc/judge.md"
        print "1.." n
        exit
    }' "$tmp/log"
if ! grep -q '^[0-9]* passed' "$tmp/log" || [ $status != 0 ]; then
    tail -60 "$tmp/log" | sed 's/^/# /'
    sed 's/^/# /' "$tmp/readme"
fi
