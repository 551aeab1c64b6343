#!/bin/sh
# run-ablation --summary: settings compared over seeds, as tables and as CSV.  TAP on stdout; PYTHON has
# h5py and numpy, and its own csv and statistics judge.
if [ -z "$PYTHON" ]; then
    echo "1..0 # SKIP no Python with h5py"
    exit 0
fi
. "${srcdir:-.}/tests/tap.sh"

# refuses SENTENCE ARGUMENTS...: status 2 and one line.
refuses() {
    sentence=$1
    shift
    exits 2 "$@" && says "$sentence" && test "$(wc -l <out)" = 1
}
# csv FILE ARGUMENTS...: the summary as CSV, in the file rows.
csv() {
    "$program" --summary "$@" --csv >rows 2>out
}
# holds FILE EXPRESSION: of `rows`, the CSV's records, and `trials`, those of the dump FILE; prepared
# by the functions below.
cat >now.py <<'END'
import csv, h5py, math, statistics, sys
raw = open("rows", newline="", encoding="utf-8").read()
rows = list(csv.DictReader(raw.splitlines(True), strict=True))
trials = [t for t in h5py.File(sys.argv[1])["trial"].values() if t.attrs["complete"]]
def text(x):
    return x.decode() if isinstance(x, bytes) else str(x)
def time(trial, backend, which):
    if "time" not in trial:
        return math.nan
    found = [r["median"] for r in trial["time"][...]
             if text(r["backend"]) == backend and text(r["pass"]) == which]
    return float(found[0]) if found else math.nan
def checks(trial, backend):
    return [r for r in trial["check"][...] if text(r["backend"]) == backend] if "check" in trial else []
def ratio(trial, backend):
    return max((r["error"] / r["bound"] for r in checks(trial, backend) if r["bound"] > 0),
               default=math.nan)
def error(trial, backend, kernel):
    found = [float(r["error"]) for r in checks(trial, backend)
             if text(r["check"]) in ("parity", "differences")]
    if text(trial.attrs.get("yardstick", "")) == backend + " " + kernel:
        def values(which):
            return {n: g[...] for g in (trial[which], trial[which].get("d", {}))
                    for n, g in g.items() if isinstance(g, h5py.Dataset)} if which in trial else {}
        mine, truth = values(backend), values("ref64")
        if mine: # the outputs and gradients that are saved have the error that the file has
            worst = max(abs(mine[n] - truth[n]).max() / max(abs(truth[n]).max(), 1e-300) for n in mine)
            assert worst <= trial.attrs["yardstick_error"] * 1.0001 and worst > 0, (worst, dict(trial.attrs))
        found.append(float(trial.attrs["yardstick_error"]))
    return max(found, default=math.nan)
def number(cell):
    return math.nan if cell == "" else float(cell)
def same(cell, x):
    x = float(x)
    return cell == "" if math.isnan(x) else math.isclose(float(cell), x, rel_tol=1e-12)
def agrees(*keys):
    """Mean and standard deviation of each row are those of Python's statistics."""
    assert rows
    for row in rows:
        of = [t for t in trials if all(text(t.attrs.get(k, "")) == row[k] for k in keys)]
        assert len(of) == int(row["trials"]), row
        found = {"forward_s": [time(t, row["backend"], "forward") for t in of],
                 "backward_s": [time(t, row["backend"], "backward") for t in of],
                 "ratio": [ratio(t, row["backend"]) for t in of],
                 "error": [error(t, row["backend"], row["kernel"]) for t in of]}
        found["total_s"] = [a + b for a, b in zip(found["forward_s"], found["backward_s"])]
        for name, values in found.items():
            values = [float(v) for v in values if not math.isnan(v)]
            mean = statistics.mean(values) if values else math.nan
            sd = statistics.stdev(values) if len(values) > 1 else math.nan
            assert int(row[name + "_n"]) == len(values)
            assert same(row[name + "_mean"], mean) and same(row[name + "_sd"], sd), (name, row, mean, sd)
            if name in ("ratio", "error"):
                assert same(row[name + "_max"], max(values, default=math.nan)), row
        every = [c for t in of for c in checks(t, row["backend"])]
        assert int(row["checks"]) == len(every)
        assert int(row["failed"]) == sum(text(c["verdict"]) == "fail" for c in every)
    return True
def groups(*keys):
    found = []
    for row in rows:
        if tuple(row[k] for k in keys) not in found:
            found.append(tuple(row[k] for k in keys))
    return found
def ascending(values):
    return list(values) == sorted(values)
END
holds() {
    { cat now.py && printf 'assert %s, rows\n' "$2"; } >this.py
    "$PYTHON" this.py "$1" >out 2>&1
}

# ---- seeds ----

cat >seeds.ini <<'END'
[experiment]
name = seeds
repeats = 3
backends = ref64, ref32
[trial]
op = e74_cell
steps = 8
batch = 2
n_state = 4
state = full, diagonal
nonlin = tanh, linear
seed = 1, 2, 3
END
ok 'a dump of three seeds' exits 0 seeds.ini
ok 'is summarised' exits 0 --summary seeds.h5
cp out seeds.txt
ok 'by the settings that vary' says 'e74_cell  12 trials in 4 groups by state, nonlin'
ok 'over seeds' says 'mean ± standard deviation over seed'
ok 'its order is said' says 'best first, by the shortest forward + backward of a backend that is right'
ok 'as CSV' csv seeds.h5
ok 'mean and standard deviation are those of Python' holds seeds.h5 'agrees("state", "nonlin")'
ok 'for each group and backend' holds seeds.h5 \
    'len(rows) == 8 and {r["backend"] for r in rows} == {"ref64", "ref32"} and {r["op"] for r in rows} == {"e74_cell"}'
ok 'the best group first' holds seeds.h5 \
    'ascending([min(number(r["total_s_mean"]) for r in rows if (r["state"], r["nonlin"]) == g) for g in groups("state", "nonlin")])'
ok 'and its fastest backend' holds seeds.h5 \
    'all(ascending([number(r["total_s_mean"]) for r in rows if (r["state"], r["nonlin"]) == g]) for g in groups("state", "nonlin"))'
ok 'the error of a yardstick, which is not judged, too' holds seeds.h5 \
    'all(0 < number(r["error_mean"]) < 1e-4 and r["error_n"] == "3" for r in rows if r["backend"] == "ref32")'
ok 'lines end as RFC 4180 has it' holds seeds.h5 'raw.count("\r\n") == raw.count("\n") == 9'
"$PYTHON" - >out 2>&1 <<'END'
import csv, re
rows = list(csv.DictReader(open("rows", newline="")))
lines = [l for l in open("seeds.txt") if re.search(r" ref(64|32) +plain ", l)]
assert len(lines) == len(rows) == 8
for line, row in zip(lines, rows):
    mean, sd, unit = re.findall(r"([0-9.]+) ± ([0-9.e-]+) (ns|us|ms|s)", line)[0]
    unit = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1}[unit]
    assert abs(float(mean) * unit / float(row["forward_s_mean"]) - 1) < 6e-3, line
    assert abs(float(sd) * unit - float(row["forward_s_sd"])) <= 6e-2 * float(row["forward_s_sd"]), line
END
ok 'the tables have the same numbers' test $? = 0
COLUMNS=80 "$program" --summary seeds.h5 >out 2>&1
ok 'in 80 columns' "$PYTHON" -c '
lines = open("out", encoding="utf-8").read().split("\n")
assert len(lines) > 10 and max(map(len, lines)) <= 80 and sum(" ref32 " in l for l in lines) == 4'
ok 'by one key' csv seeds.h5 --by state
ok 'over all others' holds seeds.h5 'agrees("state") and len(rows) == 4 and "nonlin" not in rows[0]'
"$program" --summary seeds.h5 --by state >out 2>&1
ok 'which are named' says 'standard deviation over nonlin, seed'
ok 'by two keys' csv seeds.h5 --by seed,state
ok 'one of them the seed' holds seeds.h5 'agrees("seed", "state") and len(rows) == 12'
ok 'in the order that --by has' holds seeds.h5 'list(rows[0])[:3] == ["op", "seed", "state"]'
ok 'a key that does not vary' csv seeds.h5 --by steps
ok 'makes one group' holds seeds.h5 'agrees("steps") and len(rows) == 2 and rows[0]["steps"] == "8"'
ok 'a key twice' csv seeds.h5 --by state,state
ok 'is a key' holds seeds.h5 'list(rows[0])[:3] == ["op", "state", "backend"]'
ok 'all settings' csv seeds.h5 --by state,nonlin,seed
ok 'have no standard deviation' holds seeds.h5 \
    'agrees("state", "nonlin", "seed") and len(rows) == 24 and not any(r["forward_s_sd"] for r in rows)'
"$program" --summary seeds.h5 --by state,nonlin,seed >out 2>&1
ok 'and no ±' test "$(grep -c '±' out)" = 0

# ---- times without checks, checks without times ----

sed 's/^repeats.*/repeats = 2\nchecks = none/; s/^name.*/name = times/' seeds.ini >times.ini
"$program" times.ini >out 2>&1
ok 'times without checks' csv times.h5
ok 'have no errors' holds times.h5 'agrees("state", "nonlin") and not any(r["ratio_mean"] for r in rows)'
sed 's/^repeats.*/repeats = 0/; s/^name.*/name = checks/' seeds.ini >checks.ini
"$program" checks.ini >out 2>&1
ok 'checks without times' exits 0 --summary checks.h5
ok 'are ordered by ratio' says 'best first, by the largest error / bound of a backend'
ok 'and have no column of times' test "$(grep -c forward out)" = 0
csv checks.h5
ok 'nor values' holds checks.h5 'agrees("state", "nonlin") and not any(r["forward_s_mean"] for r in rows)'
ok 'the smallest ratio first' holds checks.h5 \
    'ascending([number(r["ratio_mean"]) for r in rows if r["ratio_mean"]]) and len(groups("state", "nonlin")) == 4'
"$program" -t 'softmax rows=2 columns=5 measure=time seed=1,2' --goals report -o measure.h5 >out 2>&1
ok 'measure = time' csv measure.h5
ok 'too' holds measure.h5 'any(r["forward_s_sd"] for r in rows)'
sed 's/^repeats.*/repeats = 0\nchecks = none/; s/^name.*/name = nothing/' seeds.ini >nothing.ini
"$program" nothing.ini >out 2>&1
ok 'neither checks nor times' refuses 'nothing.h5: no trial has checks or times' --summary nothing.h5

# ---- several operations, sections ----

cat >several.ini <<'END'
[experiment]
name = several
repeats = 1
[trial small, "first"]
op = softmax
rows = 2
columns = 5, 7
seed = 1, 2
[trial silus]
op = silu
rows = 2
dim = 3
seed = 1, 2
END
"$program" several.ini >out 2>&1
ok 'several operations' csv several.h5
ok 'have the keys of all' holds several.h5 \
    '{(r["op"], r["columns"]) for r in rows} == {("softmax", "5"), ("softmax", "7"), ("silu", "")}'
csv several.h5 --by section
ok 'sections are a key' holds several.h5 \
    '{r["section"] for r in rows} == {"small, \"first\"", "silus"}'

# ---- other programs ----

"$program" --inputs 'softmax rows=5 columns=7 seed=1,2,3' -o given.h5 >out 2>&1
"$PYTHON" - >out 2>&1 <<'END'
import h5py, numpy
with h5py.File("given.h5", "r+") as f:
    for i, t in enumerate(f["trial"].values()):
        x = t["in/x"][...].astype(float)
        e = numpy.exp(x - x.max(-1, keepdims=True))
        t['a"<b>,c/y'] = e / e.sum(-1, keepdims=True) * (1 + 1e-8 * i)
        t["wrong/y"] = x
        t["wrong"].attrs["rounds"] = "y:bf16"
END
ok 'results of other programs' exits 1 judge given.h5
csv given.h5
ok 'have rows, whatever their names are' holds given.h5 \
    'agrees() and {r["backend"] for r in rows} == {"a\"<b>,c", "wrong"}'
ok 'and their kernels' holds given.h5 \
    '{r["kernel"] for r in rows} == {"given", "given, rounds y:bf16"}'
ok 'what failed is counted' holds given.h5 '[r["failed"] for r in rows] == ["0", "3"]'
ok 'and the tables have them' exits 0 --summary given.h5
ok 'as they are' says 'a"<b>,c'
"$PYTHON" - >out 2>&1 <<'END'
import h5py, numpy, shutil
shutil.copy("seeds.h5", "bad.h5")
with h5py.File("bad.h5", "r+") as f:
    for t in f["trial"].values():
        if t.attrs["state"] == "diagonal":
            rows = t["check"][...]
            rows["verdict"][0], rows["error"][0] = "fail", numpy.nan
            t["check"][...] = rows
            rows = t["time"][...]
            rows["median"] /= 1e3
            t["time"][...] = rows
END
ok 'a fast backend that is wrong' csv bad.h5
ok 'comes behind one that is right' holds bad.h5 \
    'all(r["backend"] == "ref32" for r in rows if r["state"] == "diagonal" and r["ratio_mean"] == "")
assert [r["backend"] for r in rows if r["state"] == "diagonal" and r["nonlin"] == "tanh"] == ["ref32", "ref64"]'
ok 'NaN is an infinite error' holds bad.h5 \
    '{r["error_mean"] for r in rows if r["failed"] == "3"} == {"inf"} and {r["error_sd"] for r in rows if r["failed"] == "3"} == {""}'

"$PYTHON" - >out 2>&1 <<'END'
import h5py, shutil
shutil.copy("seeds.h5", "unsure.h5")
with h5py.File("unsure.h5", "r+") as f:
    rows = f["trial/0001/check"][...]
    rows["verdict"][0], rows["error"][0] = "cannot be judged", 1e9
    f["trial/0001/check"][...] = rows
END
ok 'what cannot be judged' exits 0 --summary unsure.h5
ok 'is counted' says 'cannot be judged'
csv unsure.h5
ok 'and has no error' holds unsure.h5 \
    'sum(int(r["unjudged"]) for r in rows) == 1 and all(number(r["error_max"]) < 1 for r in rows if r["error_max"])'

# ---- parts ----

"$PYTHON" - >out 2>&1 <<'END'
import h5py, shutil
shutil.copy("seeds.h5", "some.h5.part")
with h5py.File("some.h5.part", "r+") as f:
    for i, t in enumerate(f["trial"].values()):
        t.attrs["complete"] = int(i < 5)
shutil.copy("some.h5.part", "none.h5.part")
with h5py.File("none.h5.part", "r+") as f:
    for t in f["trial"].values():
        t.attrs["complete"] = 0
END
ok 'a part' exits 0 --summary some.h5.part
ok 'says how many trials it lacks' says '7 of 12 trials are not finished, and not counted'
csv some.h5.part
ok 'in CSV on stderr' says '7 of 12 trials are not finished, and not counted'
ok 'and has the others' holds some.h5.part 'agrees("state", "nonlin")'
ok 'none is finished' refuses 'none.h5.part: no trial of 12 is finished' --summary none.h5.part
ok 'a dump of an earlier schema' exits 0 --summary "$srcdir/tests/ablate-1.h5"

# ---- what is refused ----

ok 'an unknown key' refuses '--by bogus: no trial has this setting; the settings are state, nonlin, seed, ' \
    --summary seeds.h5 --by state,bogus
ok 'an empty key' refuses '--by has an empty name' --summary seeds.h5 --by state,
ok 'no key' refuses '--by has an empty name' --summary seeds.h5 --by ''
ok 'a file that is no dump' refuses 'seeds.ini: is no HDF5 file' --summary seeds.ini
ok 'no file' refuses 'nowhere.h5: No such file' --summary nowhere.h5
ok '--by alone' refuses '--by needs --summary' seeds.ini --by state
ok '--by in place of a file' refuses '--summary needs an argument, and --by is an option' --summary --by seed
ok '--csv alone' refuses '--csv needs --summary' seeds.ini --csv
ok 'a second file' refuses '--summary takes one file; leave out x.h5' --summary seeds.h5 x.h5
ok 'another option' refuses '--summary takes only --by and --csv beside it' --summary seeds.h5 --tsv
ok 'a full disk' sh -c '"$0" --summary seeds.h5 --csv >/dev/full 2>out; test $? = 2' "$program"
echo "1..$n"
