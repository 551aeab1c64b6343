#!/bin/sh
# Ablations by training as a user runs them: a search of rates, runs that confirm, variants compared, tables in the dump
# and as CSV.  TAP on stdout.  $srcdir and $PYTHON come from the Makefile.
. "${srcdir:-.}/tests/runner_tap.sh"

cat >whole.ini <<'INI'
[experiment]
name = small
measure = train
backends = ref32
seed = 5
baseline = z
[model z]
mixer = e74
proj = full
z_mod = row
n_state = 4
width = 8
[model none]
mixer = none
width = 8
[task bits]
task = parity
length = 6
eval = 6, 12, 24
[task words]
task = word
length = 4
[train]
updates = 8
batch = 8
eval_rows = 32
eval_every = 4
lr = 1e-1, 1e-4, 1e-2
seed = 1 .. 3
confirm = 11 .. 17
[trial]
model = z, none
task = bits, words
INI

# plan NAME STATUS PATTERN SED: the plan, changed by SED.
plan() {
    sed "$4" whole.ini >now.ini
    does "$1" "$2" "$3" "$run" -n now.ini
}

# ---- plans ----

plan "confirming runs stand behind a cell's search, at its best rate" 0 "^64	train mixer=none .* task=word .* lr=best .* seed=17" ""
cp out planned
does "searching ones before them" 0 "^9 0 1;10 1 11;16 1 17;17 0 1;" \
    awk -F'	' '$1 == 9 || $1 == 10 || $1 == 16 || $1 == 17 { seed = $2; sub(/.* seed=/, "", seed); sub(/ .*/, "", seed)
        printf "%d %d %d;", $1, $2 ~ /lr=best/, $1 == 9 ? 1 : seed }' planned
plan "a baseline that is there not" 2 "now.ini:6: baseline = zz: no \[trial\] has a variant zz; did you mean 'z'?" "s/^baseline.*/baseline = zz/"
plan "a model of two variants as baseline" 2 "now.ini:6: baseline = z: \[model z\] has several variants: name one, as z_tanh or z_linear" "s/^proj.*/&\nnonlin = tanh, linear/"
plan "one of them" 0 "^1	" "s/^proj.*/&\nnonlin = tanh, linear/; s/^baseline.*/baseline = z_linear/"
plan "pairs" 0 "^1	" "s/^baseline.*/compare = none : z/"
plan "pairs beside a baseline" 2 "now.ini:7: compare beside baseline: give one of them" "s/^baseline.*/&\ncompare = none : z/"
plan "a pair without ':'" 2 "compare: a pair is A : B; there is no ':' behind none" "s/^baseline.*/compare = none/"
plan "a pair of three" 2 "compare: a pair is A : B; there is a second ':' behind z" "s/^baseline.*/compare = none : z : z/"
plan "a pair with itself" 2 "compare: z : z compares it with itself" "s/^baseline.*/compare = z : z/"
plan "a pair with nothing" 2 "compare: a name is missing" "s/^baseline.*/compare = none :/"
plan "a margin below 0" 2 "margin = -1: must be" "s/^baseline.*/&\nmargin = -1/"
plan "a confirming seed that searches" 2 "z on bits: seed 3 is to confirm, and searches, too" "s/^confirm.*/confirm = 3 .. 9/"
plan "a seed twice" 2 "confirm = 3 is listed twice\|seed: 3 is listed twice\|listed twice" "s/^confirm.*/confirm = 13, 13/"
plan "the best rate in an ini" 2 "lr = best: confirm = SEEDS makes such runs" "s/^lr.*/lr = 1e-2, best/"
plan "a pair twice" 2 "compare: none : z is there twice" "s/^baseline.*/compare = z : none, none : z/"
does "or in words, which have no search" 2 "lr = best: no search has found it; give a rate" "$run" -n -t "train mixer=none updates=2 batch=2 lr=best"
does "confirm in words" 2 "confirm: only a \[trial\], or its \[train\], of an ini" "$run" -n -t "train mixer=none confirm=3"
does "a baseline in words" 2 "baseline: only an ini of measure = train" "$run" -n -t "train mixer=none baseline=z"
plan "a baseline of checks" 2 "now.ini:6: baseline: only an ini of measure = train" "s/^measure.*/measure = check/"
plan "a cell in two trials that differ" 2 "z on bits has another batch than in the \[trial\] of line 31" '$a[trial]\nmodel = z\ntask = bits\nbatch = 9'
plan "a run twice" 2 "z on bits: its run of seed 1 is there twice" '$a[trial]\nmodel = z\ntask = bits'
plan "further seeds of a cell" 0 "^67	" '$a[trial]\nmodel = z\ntask = bits\nseed = 21\nconfirm = 22'

# ---- a run ----

does "an ablation" 0 "^z  *[0-9 ]*  *[0-9 ]*  *[0-9.e-]*!*  *0\.[0-9]* \[0\.[0-9]* 0\.[0-9]*\].*  -$" "$run" whole.ini
cp out said
does "its variants against the baseline" 0 "^none .* \(worse, p\|no difference shown\|better, p\|equal\)" cat said
does "each task has its head" 0 "^2$" grep -c "length .*chance 0\.[0-9]*, IQM \[95 %\] of 7 seeds$" said
if ! "$PYTHON" -c 'import h5py' 2>err; then
    skip "what the dump says, by another definition" "no h5py"
else
    cat >again.py <<'PYTHON'
# All statistics from the curves and tests of the runs, by NumPy alone.
import itertools
import sys
import h5py
import numpy as np
f = h5py.File(sys.argv[1])
runs = [t for t in f["trial"].values()]
text = lambda x: x.decode() if isinstance(x, bytes) else x
def iqm(x):
    x = np.sort(x)
    return x[len(x) // 4:len(x) - len(x) // 4].mean()
def of(variant, task, confirms):
    return [t for t in runs if t.attrs["variant"] == variant and t.attrs["task_name"] == task
            and ("confirms" in t.attrs) == confirms]
def accuracy(t, length):
    if length == t["test"].attrs["length"]:
        return t["test"].attrs["accuracy"]
    return t["lengths/accuracy"][list(t["lengths/length"][()]).index(length)]
cells, tests, rates, pairs = (f[n][()] for n in ("cells", "tests", "rates", "pairs"))
assert len(cells) == 4 and len(rates) == 12 and len(tests) == 2 * 3 + 2, (len(cells), len(rates), len(tests))
best = {}
for c in cells:
    variant, task = text(c["variant"]), text(c["task"])
    search = of(variant, task, False)
    found = sorted({t.attrs["lr"] for t in search})
    values = [iqm(np.array([t["eval/accuracy"][-1] for t in search if t.attrs["lr"] == lr])) for lr in found]
    reached = [np.median([t.attrs["learned_at"] or np.inf for t in search if t.attrs["lr"] == lr]) for lr in found]
    k = min(range(len(found)), key=lambda i: (-values[i], reached[i], found[i]))
    assert c["lr"] == found[k] and c["rates"] == 3 and c["confirmed"] == 1 and c["seeds"] == 7, (c, found, values)
    assert c["at_end"] == (-1 if k == 0 else k == 2)
    mine = [r for r in rates if text(r["variant"]) == variant and text(r["task"]) == task]
    assert [r["lr"] for r in mine] == found and [r["chosen"] for r in mine] == [i == k for i in range(3)]
    assert np.allclose([r["validated"] for r in mine], values, rtol=0, atol=1e-14)
    confirming = of(variant, task, True)
    assert all(t.attrs["lr"] == found[k] and f'lr={found[k]:.15g} ' in t.attrs["again"] and "lr=best" in t.attrs["line"]
               for t in confirming) and [t.attrs["seed"] for t in confirming] == list(range(11, 18))
    x = np.array([accuracy(t, t["test"].attrs["length"]) for t in confirming])
    assert c["solved"] == (x >= 0.99).sum()
    best[variant, task] = confirming
for t in tests:
    x = np.array([accuracy(r, t["length"]) for r in best[text(t["variant"]), text(t["task"])]])
    assert abs(iqm(x) - t["iqm"]) < 1e-14 and x.min() <= t["low"] <= t["iqm"] <= t["high"] <= x.max(), t
for p in pairs:
    task = text(p["task"])
    a, b = (np.array([accuracy(r, p["length"]) for r in best[text(p[v]), task]]) for v in ("variant", "against"))
    d = a - b
    ways = np.array(list(itertools.product((-1, 1), repeat=len(d)))) @ d / len(d)
    assert abs(d.mean() - p["difference"]) < 1e-14
    assert abs(p["p"] - (np.abs(ways) >= abs(d.mean()) - 1e-12).mean()) < 1e-12, p
    assert text(p["against"]) == "z" and p["seeds"] == 7 and (text(p["verdict"]) != "") == (p["length"] == (24 if task == "bits" else 4))
    assert np.isnan(p["p_holm"]) or p["p_holm"] == p["p"]  # one pair of a task
print("good", len(pairs))
PYTHON
    does "what the dump says, by another definition" 0 "^good 4$" "$PYTHON" again.py small.h5
fi

# ---- the same file, however it came to be ----

cat >same.py <<'PYTHON'
import sys
import h5py
import numpy as np
def contents(name):
    found = {}
    def see(path, x):
        if isinstance(x, h5py.Dataset) and "speed" not in path:
            rows = x[()]
            found[path] = (rows if rows.dtype.names is None else
                           [rows[c] for c in rows.dtype.names if "second" not in c and "tokens_per_s" not in c])
    h5py.File(name).visititems(see)
    return found
a, b = (contents(n) for n in sys.argv[1:])
assert a.keys() == b.keys() and len(a) > 500, (len(a), len(b))
for k in a:
    for x, y in zip(a[k], b[k]) if isinstance(a[k], list) else [(a[k], b[k])]:
        assert np.array_equal(x, y, equal_nan=x.dtype.kind == "f"), k
print("same")
PYTHON
same() {
    if "$PYTHON" -c 'import h5py' 2>err; then
        does "$1" 0 "^same$" "$PYTHON" same.py "$2" "$3"
    else
        skip "$1" "no h5py"
    fi
}
OMP_NUM_THREADS=3 "$run" -o three.h5 whole.ini >out 2>err
same "three side by side: the same as these" small.h5 three.h5
"$run" -o cut.h5 whole.ini >out 2>err &
child=$!
i=0
while [ $i -lt 200 ] && kill -0 $child 2>/dev/null && [ "`grep -c '^ *[0-9][0-9]*  ' out`" -lt 20 ]; do
    sleep 0.02
    i=$((i + 1))
done
kill -KILL $child 2>/dev/null
wait $child 2>/dev/null
does "killed, it goes on" 0 "64 runs, 0 diverged\|runs, 0 diverged" "$run" --resume -o cut.h5 whole.ini
same "to the same file" small.h5 cut.h5
does "another baseline is another plan" 2 "holds another plan: baseline = z, not none" sh -c 'sed "s/^baseline.*/baseline = none/" whole.ini >other.ini && "$0" --resume -o small.h5 other.ini' "$run"
does "a finished one is shown again" 0 "^none .* \(worse, p\|no difference shown\|better, p\|equal\)" "$run" --resume whole.ini

# ---- a run that cannot be made ----

sed "s/^lr.*/lr = 1e-2/; s/^seed = 1.*/seed = 1/; s/^updates.*/updates = 3/" whole.ini >few.ini
does "few seeds are no test" 0 "^none .* \(too few seeds\|equal\|no difference\|worse\|better\)" "$run" few.ini -o few.h5
sed "s/^confirm.*//; s/^lr.*/lr = 1e-2, 1e-3/" whole.ini >search.ini
does "seeds that chose the rate are marked" 0 "of 3 seeds, the same that chose the rate" "$run" search.ini -o search.h5
does "and three are too few for a test" 0 "^none .* too few seeds" "$run" --summary search.h5
sed 's/^baseline.*/compare = none : z/' few.ini >pairs.ini
does "declared pairs have lines of their own" 0 "^bits  none against z at 24: .* of 7 seeds: " "$run" pairs.ini -o pairs.h5

# ---- a corpus that changes ----

cat >corpus.ini <<'INI'
[experiment]
name = corpus
measure = train
backends = ref32
save = none
[task text]
task = bytes
file = text
length = 8
[train]
updates = 6000
batch = 8
eval_rows = 8
lr = 1e-2
seed = 1
confirm = 2
checkpoint_every = 0.02
[trial]
mixer = none
width = 16
task = text
INI
# write LETTERS: the corpus, always of one size.
write() {
    awk -v of="$1" 'BEGIN { for (i = 0; i < 2000; i++) printf "%s", substr(of, i % length(of) + 1, 1) }' >text.new
    mv text.new text
}
# await FILE: until it is there, or the program has ended.
await() {
    while [ ! -s "$1" ] && kill -0 $child 2>/dev/null; do
        sleep 0.01
    done
}
write abcdefg
cp text text.was
OMP_NUM_THREADS=1 "$run" -o corpus.h5 corpus.ini >out 2>err &
child=$!
await corpus.state/0001
write gfedcba
wait $child
got=$?
[ $got = 2 ] && [ "`wc -c <text`" = "`wc -c <text.was`" ] &&
    grep -q "FAILED: text: has changed since the experiment began$" out
ok $? "a run that would learn from a corpus that has changed, at the same size, is an error"
sed -n 's/^ *again: run-ablation -t //p' out >again
does "the line to repeat it, which confirms, runs by itself" 0 "^1	train .* lr=0.01 .* seed=2 file=text" sh -c 'eval "\"\$0\" -n -t `cat again`"' "$run"
does "it does not go on with it" 2 "trial 1 read another text then: fnv1a64 [0-9a-f]*, 2000 bytes, now fnv1a64" "$run" --resume -o corpus.h5 corpus.ini
cp text.was text
does "it does with that which it had: the confirming run was not made" 0 "2 of 2 trials" "$run" --resume -o corpus.h5 corpus.ini
sed 's/^updates.*/updates = 200000/' corpus.ini >long.ini
"$run" -o long.h5 long.ini >out 2>err &
child=$!
await long.state/0001
kill -INT $child
wait $child
write gfedcba
does "nor does an unfinished run" 2 "trial 1 read another text then" "$run" --resume -o long.h5 long.ini
rm long.h5.part
does "also where its checkpoint is all that is left" 2 "long.state/0001: is of another corpus: 'fnv1a64 [0-9a-f]*, 2000 bytes', not 'fnv1a64 [0-9a-f]*, 2000 bytes'; take it with --resume=anyway" \
    "$run" --resume -o long.h5 long.ini
sed -i 's/^updates.*/until = 6000\n&/' long.ini
does "unless it is to be taken, of another line besides" 0 "long.state/0001: the run goes on at update [0-9]* of 6000, though that is of another line, corpus" \
    "$run" --resume=anyway -o long.h5 long.ini

sed 's/^confirm.*//; s/^lr.*/lr = 1e-2/; s/^seed = 1.*/seed = 1/; s/^updates.*/updates = 2/' whole.ini >one.ini
does "one seed has no interval" 0 "^none  *112  *0  *[01]\.[0-9]*  *[01]\.[0-9]*  *[01]/1 " "$run" one.ini -o one.h5
does "in the table of tests" 0 "^bits,none,24,accuracy,1,0\.[0-9]*,nan,nan,nan,nan$\|^bits,none,24,accuracy,1,0\.[0-9]*,,,,$" "$run" --summary one.h5 --csv --by tests
does "its page" 0 "^wrote" "$run" --report one.h5 -o one.html
does "has none either: neither in a table" 0 "^0$" sh -c 'grep -c "<td class=\"n\">[01][.][0-9]* \[" one.html || true'
does "nor below a figure" 0 '<td class="n">0[.][0-9]*</td><td class="n">–</td><td class="n">–</td><td>0[.][0-9]*</td></tr>$' cat one.html
does "nor a whisker in one, but for those of shares" 0 "^0$" sh -c 'grep -c "class=\"whisker s[0-9]*\" d=\"M[0-9.]* [0-9.]*V" one.html || true'
does "nor has a pair of one seed" 0 "^bits  none against z at 24: [-+]0\.[0-9]* of 1 seed: too few seeds$" \
    sh -c 'sed "s/^baseline.*/compare = none : z/" one.ini >one_pair.ini && "$0" one_pair.ini -o one_pair.h5' "$run"

# Beyond 24 seeds p is not exact, and that is said.
sed 's/^confirm.*/confirm = 11 .. 35/; s/^eval = .*//; s/^task = bits, words/task = bits/; /^.task words/,/^length/d' few.ini >many.ini
sed 's/^confirm.*/confirm = 11 .. 34/' many.ini >exact.ini
does "p of 25 seeds is drawn" 0 "^  p of 25 seeds is of 1048576 drawn ways to give signs, and not exact$" "$run" many.ini -o many.h5
"$run" --report many.h5 -o many.html >out 2>err
does "says the page, too" 0 "p is of the sign-flip test, two-sided, exact up to 24 seeds, and beyond, as here, of 1048576 drawn ways" cat many.html
"$run" exact.ini -o exact.h5 >said 2>err
does "of 24 it is exact" 0 "^0$" sh -c 'grep -c "drawn" said || true'
"$run" --report exact.h5 -o exact.html >out 2>err
does "on the page, too" 0 "p is of the exact sign-flip test, two-sided, adjusted by Holm" cat exact.html

# A verdict that failed, of another dump, in the place of those of a run that confirms.
"$run" -t "softmax rows=2 columns=2" -o checked.h5 >out 2>err
if "$PYTHON" -c 'import h5py' 2>err; then
    cp small.h5 failed.h5
    "$PYTHON" - >out 2>err <<'PYTHON'
import h5py
f = h5py.File("failed.h5", "a")
t = f["trial/0010"]
if "check" in t:
    del t["check"]
h5py.File("checked.h5").copy("trial/0001/check", t, name="check")
rows = t["check"][()]
rows["verdict"][0] = b"fail"
t["check"][...] = rows
PYTHON
    does "the page of it" 0 "^wrote" "$run" --report failed.h5 -o failed.html
    does "has the words that repeat it, with its rate" 0 "Words of the trial.*<code>train [^<]*mixer=e74 [^<]* lr=[0-9][^<]* seed=11 eval=[^<]*</code>" \
        sh -c 'tr "\n" " " <failed.html | grep -o "Words of the trial.*train [^<]*</code>"'
else
    skip "the page of it" "no h5py"
    skip "has the words that repeat it, with its rate" "no h5py"
fi

# ---- summaries ----

does "a summary" 0 "^bits  length 6, chance 0.500, IQM" "$run" --summary small.h5
does "runs as CSV" 0 "^64,words,none,[0-9.e-]*,17,1,done,8," "$run" --summary small.h5 --csv
does "pairs as CSV" 0 "^bits,none,z,24,accuracy,7," "$run" --summary small.h5 --csv --by pairs
does "a table that there is not" 2 "^run-ablation: --by tasks: a dump of training has runs cells tests rates pairs sizes" "$run" --summary small.h5 --csv --by tasks
does "tables without --csv" 2 "of a dump of training --csv has tables" "$run" --summary small.h5 --by pairs

echo "1..$n"
