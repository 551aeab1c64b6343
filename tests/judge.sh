#!/bin/sh
# run-ablation --inputs and run-ablation judge: results of another program, right ones and wrong
# ones, in a dump.  TAP on stdout; PYTHON has h5py and numpy.
if [ -z "$PYTHON" ]; then
    echo "1..0 # SKIP no Python with h5py"
    exit 0
fi
. "${srcdir:-.}/tests/tap.sh"

# Which distance of several is the largest part of its bound is the compiler's affair, too.
matches() {
    grep -q -- "$1" out
}
# wrote PYTHON: with trial 1 as t, its softmax as right and its gradient as d_right.
wrote() {
    "$PYTHON" -c "
import h5py, numpy
with h5py.File('s.h5', 'r+') as f:
    t = f['trial/0001']
    x, dy = t['in/x'][...].astype(float), t['dout/y'][...].astype(float)
    e = numpy.exp(x - x.max(-1, keepdims=True))
    right = e / e.sum(-1, keepdims=True)
    d_right = right * (dy - (dy * right).sum(-1, keepdims=True))
    for name in ('mine', 'theirs'):
        if name in t:
            del t[name]
    $1" >out 2>&1
}
# holds EXPRESSION: of the dump's first trial t.
holds() {
    "$PYTHON" -c "
import h5py
with h5py.File('s.h5') as f:
    t = f['trial/0001']
    rows = [(r['backend'].decode(), r['tensor'].decode(), r['verdict'].decode()) for r in t['check'][...]]
    assert $1, rows" >out 2>&1
}

ok 'inputs of words' exits 0 --inputs 'softmax rows=5 columns=7' -o s.h5
ok 'hold inputs and upstream gradients, and no results' wrote 'assert set(t["in"]) == {"x"} and set(t["dout"]) == {"y"} and "ref64" not in t'
ok 'nobody gave results' exits 2 judge s.h5
ok 'which is said' says 's.h5: no trial has results of another program, a group /trial/NNNN/NAME'
wrote 't["mine/y"] = right; t["mine/d/x"] = d_right'
ok 'right results pass' exits 0 judge s.h5
ok 'by two checks' says '2 checks, 0 failed, 0 skipped'
ok 'the report says what inputs they are of' says 'dtype=fp32 seed=1 input=nonzero'
ok 'which are in the dump' holds 'sorted(rows) == [("mine", "d_x", "pass"), ("mine", "y", "pass")] and t.attrs["n_checks"] == 2'
ok 'and so do records' exits 0 judge s.h5 --tsv
ok 'with the line of the dump' says '	softmax rows=5 columns=7 scale=1 fill=normal dtype=fp32 seed=1 input=nonzero'
wrote 't["mine/y"] = right; t["mine/d/x"] = -d_right'
ok 'a gradient of the wrong sign fails' exits 1 judge s.h5
ok 'with its place and bound' matches 'mine parity, d_x: [a-z ]* off by 2 at \[.*\], bound [0-9.e-]*$'
ok 'and the command that judges again' says 'again: run-ablation judge s.h5'
ok 'its rows take the place of the earlier ones' holds 'sorted(rows) == [("mine", "d_x", "fail"), ("mine", "y", "pass")] and t.attrs["failed"] == 1'
wrote 't["mine/y"] = right; t["theirs/y"] = 0 * right'
ok 'one program of two' exits 1 judge s.h5 --as mine
ok 'a result that is not there is no pass' says 'mine: d_x is not given'
ok 'it is counted as missing' says '1 checks, 0 failed, 0 skipped, 1 missing'
ok 'unless it may be absent' exits 0 judge s.h5 --as mine --partial y,d_x
ok 'then it is counted as skipped' says '1 checks, 0 failed, 1 skipped'
ok 'and so may all gradients' exits 0 judge s.h5 --as mine --partial gradients
ok 'but not by the name of another result' exits 1 judge s.h5 --as mine --partial y
ok 'nor by one that is none' exits 2 judge s.h5 --as mine --partial d_y
ok 'which is said' says '--partial d_y: the dump has no such result'
ok 'names with blanks around them' exits 0 judge s.h5 --as mine --partial ' d_x , y'
ok 'an empty list of names' exits 2 judge s.h5 --partial=
ok 'is an error in one sentence' says \
    "run-ablation: --partial '': a name is empty; it takes names as d_x, and the words gradients, trials and unchecked"
ok 'as is an empty name' exits 2 judge s.h5 --partial d_x,,y
ok '--partial twice' exits 2 judge s.h5 --partial d_x --partial y
ok 'is said' says 'run-ablation: --partial is given twice; try '
ok '--as twice' exits 2 judge s.h5 --as mine --as theirs
ok 'is said' says 'run-ablation: --as is given twice; try '
ok '--partial alone' exits 2 --partial d_x -t relu
ok 'both' exits 1 judge s.h5 --tsv
ok 'as records' says 'theirs	given	parity	y	'
ok 'with what is not given' says '# 1: theirs: d_x is not given'
ok 'rows of both' holds '{r[0] for r in rows} == {"mine", "theirs"}'
wrote 'b = lambda x: (x.astype("f4").view("u4") + 0x8000 & 0xffff0000).astype("u4").view("f4"); t["mine/y"] = b(right); t["mine/d/x"] = d_right'
ok 'a result in bf16 is wrong in fp32' exits 1 judge s.h5 --as mine
wrote 'b = lambda x: (x.astype("f4").view("u4") + 0x8000 & 0xffff0000).astype("u4").view("f4"); t["mine/y"] = b(right); t["mine/d/x"] = d_right; t["mine"].attrs["rounds"] = "y:bf16"'
ok 'unless its attribute rounds says so' exits 0 judge s.h5 --as mine
ok 'which is in the dump' holds '{r["kernel"].decode() for r in t["check"][...] if r["backend"] == b"mine"} == {"given, rounds y:bf16"}'
wrote 'b = lambda x: (x.astype("f4").view("u4") + 0x8000 & 0xffff0000).astype("u4").view("f4"); t["mine/y"] = b(right); t["mine/d/x"] = d_right; t["mine/y"].attrs["storage"] = "bf16"'
ok 'or the attribute storage of the dataset' exits 0 judge s.h5 --as mine
wrote 't["mine/y"] = right; t["mine/d/x"] = d_right; t["mine"].attrs["rounds"] = "q:bf16"'
ok 'what is no site and no result is bad input' exits 2 judge s.h5 --as mine
ok 'and named' says 'rounds: q is no result of softmax here'
wrote 't["mine/y"] = right[:, 1:]; t["mine/d/x"] = d_right'
ok 'another shape is bad input' exits 2 judge s.h5 --as mine
ok 'named' says 'y has another shape: it is [5,6], not [5,7]'
wrote 't["mine/y"] = right; t["mine/Y"] = right; t["mine/d/z"] = right'
ok 'a dataset that is no result' exits 0 judge s.h5 --as mine --partial gradients
ok 'is named' says 'mine: Y is no result of softmax'
ok 'and so is a gradient' says 'mine: d/z is no gradient of softmax'
wrote 't["mine/y"] = right * numpy.nan'
ok 'NaN fails' exits 1 judge s.h5
wrote 't.require_group("mine")'
ok 'an empty group is bad input' exits 2 judge s.h5
ok 'and no pass' says 'none of the results of softmax is there'
ok 'a program that is not there' exits 2 judge s.h5 --as nobody
ok 'a backend of ours' exits 2 judge s.h5 --as ref64
ok 'is no other program' says 'that group is ablate'"'"'s own'
printf '[experiment]\nname = two\n[trial]\nop = silu\nrows = 2\ndim = 3\ndtype = fp32, bf16\n' >two.ini
ok 'inputs of a file' exits 0 --inputs two.ini
ok 'of all its trials' says '2 of 2 trials'

# ---- initial states ----

# state FILE EXPRESSION: of S0 in the file's first trial.
state() {
    "$PYTHON" -c "
import h5py
with h5py.File('$1') as f:
    S0 = f['trial/0001/in/S0'][...]
    assert $2, S0" >out 2>&1
}
cell='e74_cell steps=3 batch=1 n_state=4'
ok 'inputs of a cell' exits 0 --inputs "$cell" -o cell.h5
ok 'have an initial state' state cell.h5 '(S0 != 0).all()'
ok 'which are 0 where the words say so' exits 0 --inputs "$cell input=normal" -o zero.h5
ok 'and only there' state zero.h5 '(S0 == 0).all()'
printf '[experiment]\nname = of_file\n[trial]\nop = e74_cell\nsteps = 3\nbatch = 1\nn_state = 4\n' >of_file.ini
ok 'inputs of a file' exits 0 --inputs of_file.ini -o of_file.h5
ok 'have one, too' state of_file.h5 '(S0 != 0).all()'
"$program" -t "$cell input=normal checks=parity repeats=0" -o begins.h5 >out 2>&1
ok 'a cell that begins with 0' test -e begins.h5
"$PYTHON" -c "
import h5py
with h5py.File('cell.h5', 'r+') as f, h5py.File('begins.h5') as g:
    t, u = f['trial/0001'], g['trial/0001']
    assert (t['in/k'][...] == u['in/k'][...]).all()
    for name in 'out', 'S_T':
        t['mine/' + name] = u['ref32/' + name][...]"
ok 'is refused' exits 1 judge cell.h5
ok 'by what it gave' matches 'mine parity, out: .* off by '

# ---- what would pass ----

# gave PYTHON: results of rmsnorm, as trial 1 of the file norm.h5, from its y, dx, dw.
gave() {
    "$PYTHON" -c "
import h5py, numpy
with h5py.File('norm.h5', 'r+') as f:
    t = f['trial/0001']
    x, w, dy = (t[n][...].astype(float) for n in ('in/x', 'in/w', 'dout/y'))
    r = 1 / numpy.sqrt((x * x).mean(1, keepdims=True) + 1e-6)
    y, dw = w * r * x, (dy * r * x).sum(0)
    dx = r * (w * dy - x * r * r * (w * dy * x).mean(1, keepdims=True))
    for name in ('mine', 'theirs'):
        if name in t:
            del t[name]
    $1" >out 2>&1
}
# seen EXPRESSION: of the rows of the table check.
seen() {
    "$PYTHON" -c "
import h5py
with h5py.File('norm.h5') as f:
    t = f['trial/0001']
    rows = {r['tensor'].decode(): r for r in t['check'][...]}
    assert $1, t['check'][...]" >out 2>&1
}
# silent PATTERN: no line of the last run has it.
silent() {
    ! matches "$1"
}
ok 'inputs of a norm' exits 0 --inputs 'rmsnorm rows=64 columns=256 dtype=bf16' -o norm.h5
ok 'and right results' gave 't["mine/y"] = y; t["mine/d/x"] = dx; t["mine/d/w"] = dw'
ok 'judge --verbose' exits 0 judge norm.h5 --verbose
ok 'says what would pass' matches '^      would pass  eps = 0$'
ok 'but no mistake that they show' silent 'would pass  .* drawn anew\|would pass  dw has'
ok 'and what the verdicts see' matches '^      sees      mine given, y: [0-9.]* %, a row [0-9.]* %, an element [0-9.]* %$'
ok 'by all samples, as the dump says' seen 'all(r["samples"] > 8 and 0 < r["sees"] < r["sees_element"] < 1 for r in rows.values())'
ok 'which has what is seen of a row, where there are rows' seen \
    'all((0 < r["sees_row"] < 1) == (n != "d_w") for n, r in rows.items())'
ok 'without --verbose' exits 0 judge norm.h5
ok 'nothing of it is said' silent 'would pass\|^ *sees '
ok 'but kept' seen 'all(0 < r["samples"] < 32 and 0 < r["sees"] < 1 for r in rows.values())'
ok 'and a record' exits 0 judge norm.h5 --tsv
number='[0-9.]\{1,\}\(e-[0-9]*\)\{0,1\}'
ok 'has three numbers more' matches "	parity	y	.*	pass	16384	16384	[a-z ]*	$number	$number	$number	rmsnorm "
ok 'or none where there are no rows' matches "	parity	d_w	.*	pass	256	256	[a-z ]*	$number		$number	rmsnorm "
ok 'named in the first line' matches '	distance	sees	sees_row	sees_element	line$'
ok 'two programs' gave 't["mine/y"] = y; t["mine/d/x"] = dx; t["theirs/y"] = y'
ok 'have in common' exits 1 judge norm.h5 --verbose
ok 'results of which eps shows nothing' matches '^      would pass  eps = 0$'
ok 'and no mistake of a gradient that one of them lacks' silent 'would pass  dw has'
ok 'and of which d_y is no input' silent 'would pass  d_y'
ok 'or nothing' gave 't["mine/y"] = y; t["theirs/d/x"] = dx'
ok 'and are judged' exits 0 judge norm.h5 --verbose --partial y,d_x,d_w
ok 'by what verdicts see alone' matches '^      sees      theirs given, d_x: '
ok 'and not by what would pass' silent 'would pass'
cp "$srcdir/tests/ablate-1.h5" earlier.h5
chmod u+w earlier.h5
"$PYTHON" -c "
import h5py
with h5py.File('earlier.h5', 'r+') as f:
    for t in f['trial'].values():
        t['mine/y'] = t['ref64/y'][...].astype('f4')" >out 2>&1
ok 'results in an earlier dump' exits 1 judge earlier.h5 --partial gradients
ok 'which has no hashes' says '2 not checked'
ok 'of its trials' says 'the dump: plan: no hash of it is there: trials may be missing, not checked'
ok 'that may be so' exits 0 judge earlier.h5 --verbose --partial gradients,unchecked
ok 'whose inputs cannot be drawn again' says 'an earlier version drew them, and kept no hash: not checked'
ok 'say what they see' matches '^      sees      mine given, y: '
ok 'and what would pass as them' matches '^      would pass  '
ok 'and have a summary' exits 0 --summary earlier.h5

ok 'wrong words' exits 2 --inputs 'softmax rows=0' -o x.h5
ok 'make no file' test ! -e x.h5
ok 'a key that nothing has' exits 2 --inputs 'softmax rowz=3' -o x.h5
ok 'is said of --inputs' says '--inputs: unknown key'
ok 'and of -t' exits 2 -t 'softmax rowz=3' -o x.h5
ok 'where it is' says '-t: unknown key'
ok 'a file that is not there' exits 2 --inputs 'relu rows=4 dim=5 input=hdf5 file=nothing.h5' -o x.h5
ok 'is said of --inputs, too' says '--inputs: file = nothing.h5'
ok 'no dump' exits 2 judge two.ini
ok 'no file' exits 2 judge nothing.h5
ok 'no name of a file' exits 2 judge
ok 'an option of another command' exits 2 judge s.h5 --force
ok '--as alone' exits 2 --as mine -t relu
if [ "$(id -u)" = 0 ]; then
    n=$((n + 1))
    echo "ok $n - a file that cannot be written # SKIP root can write every file"
else
    chmod a-w s.h5
    ok 'a file that cannot be written' exits 2 judge s.h5
fi

# ---- names of ablate's own ----

# reserved PLACE MESSAGE: results at PLACE of a trial are refused with that, whoever else gave some, and the file
# stays as it was.
ok 'inputs once more' exits 0 --inputs 'softmax rows=5 columns=7' -o inputs.h5
reserved() {
    cp inputs.h5 own.h5
    "$PYTHON" -c "
import h5py
with h5py.File('own.h5', 'r+') as f:
    t = f['trial/0001']
    t['$1'] = t['mine/y'] = t['in/x'][...]" >out 2>&1 || return 1
    cp own.h5 before.h5
    exits 2 judge own.h5 && says "run-ablation: own.h5: /trial/0001/$2" && test "$(wc -l <out)" = 1 &&
        cmp own.h5 before.h5
}
for name in ref64 ref32 ref_bf16 gpu32 gpu_bf16 check verdict sample_rows sampled time timing crossover_time \
    measurement crossover kernel_and_pass round_trip packed; do
    ok "results in a group $name are refused" reserved $name/y "$name: this name is ablate's own; give the results another"
done
for place in in/y in/d/x dout/x dout/d/x dinit/x sample/y sample/d/x sample/ref64/y; do
    inner=${place#*/}
    ok "and as $place" reserved $place \
        "${place%%/*}/${inner%%/*}: the group ${place%%/*} is ablate's own; results belong into another"
done
long=$("$PYTHON" -c 'print(130 * "n")')
refuses_unseen() {
    cp inputs.h5 own.h5
    "$PYTHON" -c "
import h5py
with h5py.File('own.h5', 'r+') as f:
    t = f['trial/0001']
    t['mine/y'] = t['in/x'][...]
    $1" >out 2>&1 && exits 2 judge own.h5 && says "$2"
}
ok 'a name that is too long is refused' refuses_unseen "t['$long/y'] = t['in/x'][...]" '... has 130 bytes, at most 127 are read'
ok 'and a link that leads nowhere' refuses_unseen "t['theirs'] = h5py.ExternalLink('nothing.h5', '/')" 'theirs is a link into another file'
# judged WORDS: as a run of these leaves it, with one program's results more.
judged() {
    exits 0 -t "$1" -o run.h5 --force && "$PYTHON" -c "
import h5py
with h5py.File('run.h5', 'r+') as f:
    t = f['trial/0001']
    assert '$2' in t, list(t)
    t['mine/y'] = t['ref64/y' if 'ref64' in t else 'in/x'][...].astype('f4')" >out 2>&1 && "$program" judge run.h5 >out 2>&1
    test $? -lt 2
}
ok "ablate's own groups are in nobody's way" judged 'softmax rows=5 columns=7 repeats=0' ref32
ok 'nor initial gradients' judged 'softmax rows=5 columns=7 repeats=0 accumulate=yes' dinit
ok 'nor tables' judged 'softmax rows=5 columns=7 measure=time' time

# ---- what a file may not do ----

# Two trials with right results of `mine`, in float, and of ref64 in the second file.
words='softmax rows=16 columns=8 accumulate=yes seed=1,2'
filled() {
    "$PYTHON" -c "
import h5py, numpy
with h5py.File('$1', 'r+') as f:
    for t in f['trial'].values():
        x, dy, dx = (t[n][...].astype(float) for n in ('in/x', 'dout/y', 'dinit/x'))
        e = numpy.exp(x - x.max(-1, keepdims=True))
        y = e / e.sum(-1, keepdims=True)
        t['mine/y'] = y.astype('f4')
        t['mine/d/x'] = (dx + y * (dy - (dy * y).sum(-1, keepdims=True))).astype('f4')" >out 2>&1
}
ok 'inputs of two trials' exits 0 --inputs "$words" -o honest.h5
filled honest.h5
ok 'and a run of them' exits 0 -t "$words repeats=0 checks=parity" -o ran.h5
filled ran.h5
ok 'honest results beside the inputs' exits 0 judge honest.h5
ok 'pass' says '4 checks, 0 failed, 0 skipped'
ok 'and beside a run' exits 0 judge ran.h5
# changed FILE PYTHON: FILE becomes cheat.h5 with these changes; t and u are its trials.
changed() {
    cp "$1" cheat.h5
    "$PYTHON" -c "
import h5py, numpy
with h5py.File('cheat.h5', 'r+') as f:
    t, u = f['trial/0001'], f['trial/0002']
    $2" >out 2>&1
}
# refused SENTENCE PYTHON [FILE]: that is bad input, said in one sentence; nothing is judged.
refused() {
    changed "${3-honest.h5}" "$2" && exits 2 judge cheat.h5 && says "$1" && test "$(wc -l <out)" = 1
}
# exits_with STATUS SENTENCE PYTHON OPTIONS...: so ends the judgement of a changed file.
exits_with() {
    status=$1 sentence=$2 code=$3
    shift 3
    changed honest.h5 "$code" && exits "$status" judge cheat.h5 "$@" && says "$sentence"
}
ok 'inputs that were changed' refused 'trial 1: in/x is not what its line draws: it has 0 at [3,4], not ' \
    't["in/x"][3,4] = 0'
ok 'upstream gradients' refused 'trial 2: dout/y is not what its line draws: it has 0 at [0,1], not ' \
    'u["dout/y"][0,1] = 0'
ok 'initial gradients' refused 'trial 1: dinit/x is not what its line draws: it has 7 at [15,7], not ' \
    't["dinit/x"][15,7] = 7'
ok 'a bit of one value' refused 'trial 1: in/x is not what its line draws' \
    'x = t["in/x"][...]; x[2,2] = numpy.nextafter(x[2,2], numpy.float32(9)); t["in/x"][...] = x'
ok 'inputs beside a run' refused 'trial 1: in/x is not what its line draws' 't["in/x"][...] = 1' ran.h5
ok 'inputs of another seed' refused 'trial 1: in/x is not what its line draws' 't["in/x"][...] = u["in/x"][...]'
ok 'inputs that were taken out' refused 'trial 1: in/x is not there' \
    'del t["in/x"]; t["in/z"] = u["in/x"][...]; t.move("in/z", "z")'
ok 'inputs of another shape' refused 'x has another shape: it is [2,8], not [16,8]' \
    'x = t["in/x"][:2]; del t["in/x"]; t["in/x"] = x'
ok 'the hash of what is given' refused 'in, dout or dinit is not what was written: the hash is fnv1a64 ' \
    't.attrs["given"] = u.attrs["given"]'
for edit in 'rows=16/rows=2' 'fill=normal/fill=masked' 'dtype=fp32/dtype=bf16' 'seed=1/seed=3' 'scale=1/scale=0' \
    'input=nonzero/input=normal' ' accumulate=yes/'; do
    ok "a line that was changed: $edit" refused 'the lines of its trials are not those that were written' \
        "t.attrs['line'] = t.attrs['line'].replace(*'$edit'.split('/'))"
    ok 'without the hash of the lines' refused 'holds another plan than its attribute ini says: trial 1 is ' \
        "t.attrs['line'] = t.attrs['line'].replace(*'$edit'.split('/')); del f.attrs['plan']"
done
ok 'line and plan together' refused 'the lines of its trials are not those that were written' \
    'f.attrs["ini"] = f.attrs["ini"].replace("16", "2")
    for v in t, u: v.attrs["line"] = v.attrs["line"].replace("rows=16", "rows=2")'
ok 'the plan alone' refused 'holds another plan than its attribute ini says: trial 1 is ' \
    'f.attrs["ini"] = f.attrs["ini"].replace("16", "2")'
ok 'a plan of fewer trials' refused 'holds another plan than its attribute ini says: of 2 trials, not 1' \
    'f.attrs["ini"] = f.attrs["ini"].replace("1,2", "1")'
ok 'a plan without a hash' exits_with 1 'plan: no hash of it is there: trials may be missing, not checked' \
    'del u["mine"], f["trial/0002"], f.attrs["plan"]; f.attrs["n_trials"] = 1
    f.attrs["ini"] = f.attrs["ini"].replace("1,2", "1")'
ok 'is no pass' says '2 checks, 0 failed, 0 skipped, 1 not checked'
ok 'in records, too' exits 1 judge cheat.h5 --tsv
ok 'with a line' says '# 1: the dump: plan: no hash of it is there: trials may be missing, not checked'
ok 'unless that is accepted' exits 0 judge cheat.h5 --partial unchecked
ok 'and counted as skipped' says '2 checks, 0 failed, 1 skipped'
ok 'a plan that cannot be made again either' exits_with 1 \
    'plan: no hash of it is there, and it cannot be made again, so that no line was checked: ' \
    'del f.attrs["plan"]; f.attrs["ini"] = "softmax rowz=1"'
ok 'inputs of which an earlier version is said to have written no hash' exits_with 1 \
    'inputs: an earlier version drew them, and kept no hash: not checked' \
    'f.attrs["schema"] = "ablate-1"; del t.attrs["given"]'
ok 'are no pass' says '4 checks, 0 failed, 0 skipped, 1 not checked'
ok 'unless that is accepted' exits 0 judge cheat.h5 --partial unchecked
ok 'inputs of a caller without a hash' exits_with 1 'inputs: set by a caller, no hash of them is there: not checked' \
    't.attrs["given_by"] = "the caller"; del t.attrs["given"]'
ok 'are no pass' says '4 checks, 0 failed, 0 skipped, 1 not checked'
ok 'a gradient left out is none that is accepted' exits_with 1 '1 missing' \
    'del u["mine/d"], f.attrs["plan"]' --partial unchecked
ok 'an attribute that repeats a size' refused 'trial 1: its attribute rows is not what its line says' \
    't.attrs["rows"] = 2'
ok 'or a choice' refused 'trial 2: its attribute fill is not what its line says' 'u.attrs["fill"] = "masked"'
ok 'or the source of inputs' refused 'trial 2: its attribute input is not what its line says' \
    'u.attrs["input"] = "normal"'
ok 'or the seed' refused 'trial 1: its attribute seed is not what its line says' 't.attrs["seed"] = 7'
ok 'or whether gradients are sums' refused 'trial 2: its attribute accumulate is not what its line says' \
    'u.attrs["accumulate"] = "no"'
for key in file group tensor program kernel goal goal_backward; do
    ok "or that it has none: $key" refused "trial 2: its attribute $key is not what its line says" \
        "u.attrs['$key'] = 'another'"
done
ok 'a trial that was deleted' refused 'trial 2 of 2, /trial/0002, is not there' 'del f["trial/0002"]'
ok 'and is not counted' refused 'the lines of its trials are not those that were written' \
    'del f["trial/0002"]; f.attrs["n_trials"] = 1'
ok 'without the hash' refused 'holds another plan than its attribute ini says: of 1 trials, not 2' \
    'del f["trial/0002"], f.attrs["plan"]; f.attrs["n_trials"] = 1'
ok 'a trial that was renamed' refused 'trial 1 of 2, /trial/0001, is not there' 'f.move("trial/0001", "trial/0003")'
ok 'or moved away' refused 'trial 2 of 2, /trial/0002, is not there' 'f.move("trial/0002", "kept")'
ok 'trials that changed places' refused 'the lines of its trials are not those' \
    'f.move("trial/0001", "x"); f.move("trial/0002", "trial/0001"); f.move("x", "trial/0002")'
ok 'a trial more' refused '/trial has 3 members, and the plan 2 trials' 'f.copy("trial/0002", "trial/0003")'
ok 'a trial that is a link' refused '/trial/0002 is a soft link' \
    'del f["trial/0002"]; f["trial/0002"] = h5py.SoftLink("/trial/0001")'

soft='y is a soft link: each program writes its values into datasets of its own'
ok 'a soft link to the oracle' refused "/trial/0001/mine/$soft" \
    'del t["mine/y"]; t["mine/y"] = h5py.SoftLink("/trial/0001/ref64/y")' ran.h5
ok 'to an input' refused "/trial/0001/mine/$soft" 'del t["mine/y"]; t["mine/y"] = h5py.SoftLink("/trial/0001/in/x")'
ok 'to another trial' refused "/trial/0001/mine/$soft" \
    'del t["mine/y"]; t["mine/y"] = h5py.SoftLink("/trial/0002/mine/y")'
ok 'of a gradient' refused '/trial/0001/mine/d/x is a soft link' \
    'del t["mine/d/x"]; t["mine/d/x"] = h5py.SoftLink("/trial/0001/ref64/d/x")' ran.h5
ok 'of an input' refused '/trial/0001/in/x is a soft link' \
    'f["x"] = t["in/x"][...]; del t["in/x"]; t["in/x"] = h5py.SoftLink("/x")'
ok 'of all results, to the oracle' refused '/trial/0001/theirs is a soft link' \
    't["theirs"] = h5py.SoftLink("/trial/0001/ref64")' ran.h5
ok 'or another program' refused '/trial/0001/theirs is a soft link' 't["theirs"] = h5py.SoftLink("/trial/0001/mine")'
hard='is an object that has another name, too (a hard link)'
ok 'a hard link to the oracle' refused "y $hard" 'del t["mine/y"]; t["mine/y"] = t["ref64/y"]' ran.h5
ok 'to a dataset elsewhere' refused "/trial/0001/mine/y $hard" 'f["kept"] = t["mine/y"]'
ok 'of all results' refused "$hard" 't["theirs"] = t["mine"]'
ok 'of a group in itself' refused "$hard" 't["mine/d/d"] = t["mine"]'
ok 'an external link' refused '/trial/0001/mine/y is a link into another file (external link)' \
    'del t["mine/y"]; t["mine/y"] = h5py.ExternalLink("ran.h5", "/trial/0001/ref64/y")'
ok 'of all results' refused '/trial/0001/mine is a link into another file (external link)' \
    'del t["mine"]; t["mine"] = h5py.ExternalLink("ran.h5", "/trial/0001/ref64")'
virtual='l = h5py.VirtualLayout((16, 8), "f8"); l[...] = h5py.VirtualSource("ran.h5", "/trial/0001/ref64/y", (16, 8))'
ok 'a virtual dataset' refused '/trial/0001/mine/y is a virtual dataset, of the values of others' \
    "$virtual; del t['mine/y']; t.create_virtual_dataset('mine/y', l)"
ok 'or input' refused '/trial/0001/in/x is a virtual dataset' \
    "$virtual; del t['in/x']; t.create_virtual_dataset('in/x', l)"
ok 'values in another file' refused '/trial/0001/mine/y is a dataset whose values are in another file' \
    'del t["mine/y"]; t.create_dataset("mine/y", (16, 8), "f4", external=[("y.raw", 0, 512)])'
ok 'axes may be shared' exits_with 0 '4 checks, 0 failed, 0 skipped' \
    't["mine/y"].dims[0].attach_scale(t["rows"]); t["mine/d/x"].dims[0].attach_scale(t["rows"])'

ok 'a result that was left out' exits_with 1 '3 checks, 0 failed, 0 skipped, 1 missing' 'del t["mine/y"]'
ok 'is named' says 'mine: y is not given'
ok 'a gradient' exits_with 1 '3 checks, 0 failed, 0 skipped, 1 missing' 'del u["mine/d"]'
ok 'is named' says 'mine: d_x is not given'
ok 'unless it may be' exits_with 0 '3 checks, 0 failed, 1 skipped' 'del u["mine/d"]' --partial d_x
ok 'all of a trial' exits_with 1 '2 checks, 0 failed, 0 skipped, 1 missing' 'del u["mine"]'
ok 'is named' says 'mine: the trial has no results of it'
ok 'unless it may be' exits_with 0 '2 checks, 0 failed, 1 skipped' 'del u["mine"]' --partial trials
ok 'of one program of two' exits_with 1 '6 checks, 0 failed, 0 skipped, 1 missing' 't.copy("mine", "theirs")'
ok 'is named' says 'theirs: the trial has no results of it'
ok 'but not where only another is judged' exits_with 0 '4 checks, 0 failed, 0 skipped' \
    't.copy("mine", "theirs")' --as mine

copied() {
    changed ran.h5 "$1" && exits 2 judge cheat.h5 && says "$2"
}
ok "the oracle's bits" copied 'y = t["ref64/y"][...]; del t["mine/y"]; t["mine/y"] = y' \
    'mine: y has the bits of ref64, which fp32 cannot hold'
ok 'are no pass' says '2 checks, 0 failed, 0 skipped, 1 trial could not be run'
ok 'of a gradient' copied 'y = u["ref64/d/x"][...]; del u["mine/d/x"]; u["mine/d/x"] = y' 'mine: d_x has the bits of ref64'
ok 'rounded' changed ran.h5 'y = t["ref64/y"][...].astype("f4"); del t["mine/y"]; t["mine/y"] = y'
ok 'they are any right result' exits 0 judge cheat.h5
ok 'as are values in double that differ' changed ran.h5 \
    'y = t["ref64/y"][...]; y[0,0] *= 1 + 1e-15; del t["mine/y"]; t["mine/y"] = y'
ok 'in one element' exits 0 judge cheat.h5
ok 'inputs of an elementwise operation' exits 0 --inputs 'relu rows=8 dim=8' -o relu.h5
"$PYTHON" -c "
import h5py
with h5py.File('relu.h5', 'r+') as f:
    t = f['trial/0001']
    x, dy = t['in/x'][...].astype(float), t['dout/y'][...].astype(float)
    t['mine/y'], t['mine/d/x'] = x * (x > 0), dy * (x > 0)" >out 2>&1
ok 'whose results a float holds in double, too' exits 0 judge relu.h5
"$PYTHON" -c "
import h5py
with h5py.File('relu.h5', 'r+') as f:
    f['trial/0001'].attrs['accumulate'] = 'yes'" >out 2>&1
ok 'sums of which its line says nothing' exits 2 judge relu.h5
ok 'are refused' says 'trial 1: its attribute accumulate is not what its line says'

"$PYTHON" -c "
import h5py
with h5py.File('cancels.h5', 'w') as f:
    f['A'], f['B'] = [[1e8, 1.0, -1e8]], [[1.0], [1e-3], [1.0]]" >out 2>&1
ok 'inputs of a sum that cancels' exits 0 --inputs 'gemm M=1 N=1 K=3 input=hdf5 file=cancels.h5' -o gemm.h5
"$PYTHON" -c "
import h5py
with h5py.File('gemm.h5', 'r+') as f:
    t = f['trial/0001']
    t['mine/C'] = t['dout/C'][...]" >out 2>&1
ok 'an operation of which nothing can be judged' exits 1 judge gemm.h5 --partial gradients
ok 'has not passed' says 'gemm: C of mine could not be judged in any trial: that is no pass'
ok 'even where its result may be absent' exits 1 judge gemm.h5 --partial gradients,C
ok 'which is said' says 'gemm: no result of it was judged: that is no pass'
# unjudged WORDS FILE: right outputs, and gradients of 0, of softmax in bf16.
unjudged() {
    exits 0 --inputs "$1" -o "$2" && "$PYTHON" -c "
import h5py, numpy
b = lambda x: (x.astype('f4').view('u4') + 0x8000 & 0xffff0000).astype('u4').view('f4')
with h5py.File('$2', 'r+') as f:
    for t in f['trial'].values():
        x = t.attrs['scale'] * t['in/x'][...].astype(float)
        e = numpy.exp(x - x.max(-1, keepdims=True))
        y = e / e.sum(-1, keepdims=True)
        t['mine/y'] = b(y)
        if t.attrs['scale'] == 1:
            dy = t['dout/y'][...].astype(float)
            t['mine/d/x'] = b(y * (dy - (dy * y).sum(-1, keepdims=True)))
        else:
            t['mine/d/x'] = 0 * y" >out 2>&1
}
ok 'a gradient that is too coarse to be judged' unjudged 'softmax rows=64 columns=64 scale=100 dtype=bf16' coarse.h5
ok 'has not passed' exits 1 judge coarse.h5
ok 'and is named' says 'softmax: d_x of mine could not be judged in any trial: that is no pass'
ok 'beside a result that has' says '2 checks, 0 failed, 0 skipped, 1 cannot be judged'
ok 'with its kind in records' exits 1 judge coarse.h5 --tsv
ok 'too' says '# softmax: d_x of mine could not be judged in any trial: that is no pass'
ok 'unless it may be absent' exits 0 judge coarse.h5 --partial d_x
ok 'or gradients may' exits 0 judge coarse.h5 --partial gradients
ok 'but not as another result' exits 1 judge coarse.h5 --partial y
ok 'one that another trial can judge' unjudged 'softmax rows=64 columns=64 scale=1,100 dtype=bf16' fine.h5
ok 'has passed' exits 0 judge fine.h5
ok 'and is counted' says '4 checks, 0 failed, 0 skipped, 1 cannot be judged'
"$PYTHON" -c "
import h5py
with h5py.File('fine.h5', 'r+') as f:
    for i in '01':
        f.copy(f'trial/000{int(i) + 1}/mine', f'trial/000{int(i) + 1}/theirs')
    del f['trial/0001/theirs/d']" >out 2>&1
ok 'of each program' exits 1 judge fine.h5 --partial trials
ok 'by itself' says 'softmax: d_x of theirs could not be judged in any trial: that is no pass'

forge='r = ran["trial/0001/check"][...]; r["backend"] = "mine"; r["verdict"] = "pass"
    for v in t, u:
        del v["check"], v["verdict"]
        v["check"] = r; v.attrs["n_checks"] = len(r); v.attrs["failed"] = 0'
# forged PYTHON STATUS OPTIONS...: verdicts that somebody wrote are not there after the judgement.
forged() {
    code=$1 status=$2
    shift 2
    changed honest.h5 "ran = h5py.File('ran.h5')
    $forge
    $code" && exits "$status" judge cheat.h5 "$@" && "$PYTHON" -c "
import h5py
with h5py.File('cheat.h5') as f:
    for t in f['trial'].values():
        rows = t['check'][...] if 'check' in t else []
        given = {n for n in ('y', 'd/x') if 'mine' in t and n in t['mine']}
        assert len(rows) == t.attrs['n_checks'] and {r['tensor'].decode().replace('d_', 'd/') for r in rows} <= given, rows
        assert t.attrs['failed'] == sum(r['verdict'] == b'fail' for r in rows) and len(rows) <= 2, rows
    assert f['trial/0001'].attrs['failed'] == $status" >>out 2>&1
}
ok 'verdicts that somebody wrote are replaced' forged 't["mine/y"][...] = 0' 1
ok 'and go with the results' forged 'del u["mine"]' 0 --partial trials

ok 'declared roundings' exits_with 0 'mine rounds y:bf16' 't["mine"].attrs["rounds"] = "y:bf16"'
ok 'are in records, too' exits_with 0 'given, rounds y:bf16' 't["mine"].attrs["rounds"] = "y:bf16"' --tsv

# A user's own values: from a file that is there, or gone.
"$PYTHON" -c "
import h5py, numpy
with h5py.File('own_values.h5', 'w') as f:
    f['x'] = numpy.random.RandomState(1).normal(size=(4, 5)).astype('f4')
    f['x'][0, 0] = numpy.nan
with h5py.File('own \"v, alues.h5', 'w') as f:
    f['a, \"b/x'] = numpy.random.RandomState(1).normal(size=(4, 5)).astype('f4')" >out 2>&1
head -c 3000 "$srcdir/README.md" >own.txt
ok 'inputs of a file' exits 0 --inputs 'relu rows=4 dim=5 input=hdf5 file=own_values.h5' -o file.h5
ok 'and of a text' exits 0 --inputs 'e74 steps=4 batch=2 dim=8 n_state=4 input=text file=own.txt' -o text.h5
for file in file text; do
    "$PYTHON" -c "
import h5py
with h5py.File('$file.h5', 'r+') as f:
    t = f['trial/0001']
    if '$file' == 'file':
        x, dy = t['in/x'][...], t['dout/y'][...]
        t['mine/y'], t['mine/d/x'] = x * (x > 0) + x * (x != x), dy * ~(x <= 0)
    else:
        t['mine/out'] = t['dout/out'][...]
with h5py.File('$file.h5') as f, h5py.File('other_$file.h5', 'w') as g:
    for name in f:
        f.copy(name, g)
    for name in f.attrs:
        g.attrs[name] = f.attrs[name]
    g['trial/0001/in/x'][...] += 1" >out 2>&1
    ok "values of a $file that were changed" exits 2 judge "other_$file.h5"
    ok 'are compared with it' says 'in/x is not what its file holds'
done
ok 'honest ones are judged' exits 0 judge file.h5 --partial gradients
ok 'as what they are' says 'dtype=fp32 seed=1 input=hdf5'
cp file.h5 named.h5
"$PYTHON" -c "
import h5py
with h5py.File('named.h5', 'r+') as f:
    f['trial/0001'].attrs['file'] = 'another.h5'" >out 2>&1
ok 'an attribute that names another file' exits 2 judge named.h5 --partial gradients
ok 'is refused' says 'its attribute file is not what its line says'
ok 'inputs of a file whose name and group need quotes' exits 0 \
    --inputs 'relu rows=4 dim=5 seed=18446744073709551615 input=hdf5 file="own ""v, alues.h5" group="a, ""b"' -o quoted.h5
"$PYTHON" -c "
import h5py
with h5py.File('quoted.h5', 'r+') as f:
    t = f['trial/0001']
    assert t.attrs['group'] == 'a, \"b' and t.attrs['seed'] == 2**64 - 1, dict(t.attrs)
    t['mine/y'], t['mine/d/x'] = t['in/x'][...] * (t['in/x'][...] > 0), t['dout/y'][...] * (t['in/x'][...] > 0)" >out 2>&1
ok 'with a seed of 64 bits' exits 0 judge quoted.h5
mv own_values.h5 gone.h5
mv own.txt gone.txt
for file in file text; do
    ok "values of a $file that has gone" exits 2 judge "other_$file.h5"
    ok 'by their hash' says 'in, dout or dinit is not what was written'
done
ok 'which honest ones have' exits 0 judge file.h5 --partial gradients
ok 'and nothing is skipped' says '2 checks, 0 failed, 0 skipped'
"$PYTHON" -c "
import h5py
with h5py.File('file.h5', 'r+') as f:
    del f['trial/0001'].attrs['given'], f.attrs['plan'], f.attrs['inputs_only']" >out 2>&1
ok 'in a dump of a version that wrote none' exits 1 judge file.h5 --partial gradients
ok 'it is no pass' says '2 checks, 0 failed, 0 skipped, 2 not checked'
ok 'of the plan' says 'not checked the dump: plan: no hash of it is there, and it cannot be made again'
ok 'unless that may be so' exits 0 judge file.h5 --partial gradients,unchecked
ok 'it is counted' says '2 checks, 0 failed, 2 skipped'
ok 'it is said' says 'inputs: their file is not as it was, no hash of them is there: not checked'
ok 'as is that' says 'skipped  '

# ---- interruption ----

# stopped SIGNAL: in the middle it says so and exits with 130; the file holds whole trials, and the others as
# they were.
ok 'inputs of several trials' exits 0 --inputs 'e74 steps=128 batch=4 n_state=48 dim=48 seed=1,2,3,4,5,6,7,8,9,10,11,12' -o many.h5
"$PYTHON" -c "
import h5py
with h5py.File('many.h5', 'r+') as f:
    for t in f['trial'].values():
        t['mine/out'] = t['dout/out'][...]"
stopped() {
    cp many.h5 cut.h5
    : >out
    "$program" judge cut.h5 --tsv >out 2>&1 &
    child=$!
    until grep -q '^2	' out || ! kill -0 $child 2>/dev/null; do sleep 0.02; done
    kill -$1 $child
    wait $child
    test $? = 130 && grep -q '^# stopped after [0-9]* of 12 trials; their verdicts are in the file$' out &&
        "$PYTHON" -c "
import h5py
done = int(open('out').read().split('stopped after ')[1].split()[0])
with h5py.File('cut.h5') as f:
    n = [t.attrs['n_checks'] for t in f['trial'].values()]
    assert n == [1] * done + [0] * (12 - done) and 1 < done < 12, n
    assert ['check' in t for t in f['trial'].values()] == [k > 0 for k in n]" >>out 2>&1 &&
        "$program" judge cut.h5 >again 2>&1
    test $? = 1 && grep -q '^12 checks, 12 failed' again
}
for signal in INT TERM; do
    ok "SIG$signal in the middle" stopped $signal
done

# ---- a full disk, and others who have the file ----

chmod u+w s.h5
wrote 't["mine/y"] = right; t["mine/d/x"] = d_right'
cp s.h5 before.h5
# A limit of the file's size takes the place of the disk's end.
full() (
    ulimit -f $(($(wc -c <s.h5) / ${BLOCK:-1024} + 1)) && exits "$@"
)
(trap '' XFSZ; ulimit -f 1; head -c 1500 /dev/zero >limit 2>/dev/null)
[ "$(wc -c <limit)" -le 512 ] && BLOCK=512 # POSIX's
ok 'a disk that is full' full 2 judge s.h5
ok 'which is said' says 's.h5: trial 1: needs '
ok 'the verdicts are shown' says '2 checks, 0 failed, 0 skipped'
ok 'and the file is as it was' cmp s.h5 before.h5
ok 'with space again' exits 0 judge s.h5
at_once() {
    judges=
    for i in 1 2 3 4; do
        "$program" judge s.h5 >"out$i" 2>&1 &
        judges="$judges $!"
    done
    status=0
    for pid in $judges; do wait $pid || status=1; done
    cat out? >out
    return $status
}
ok 'several at once wait for each other' at_once
ok 'and the rows are there once' holds '[r[0] for r in rows].count("mine") == 2'
# held SECONDS: by a reader, who has it open when this returns.
held() {
    rm -f open
    HDF5_USE_FILE_LOCKING=TRUE "$PYTHON" -c "
import h5py, time
f = h5py.File('s.h5')
open('open', 'w').close()
time.sleep($1)" &
    reader=$!
    until [ -f open ]; do sleep 0.05; done
}
held 60
ok 'a notebook that keeps it open' exits 2 judge s.h5
ok 'is said' says ' has it open, and the verdicts belong into it'
if grep -q "^[0-9]*: FLOCK .* $reader " /proc/locks 2>/dev/null; then
    ok 'with its name and number' says "(process $reader) has it open"
fi
kill $reader
wait $reader 2>/dev/null
held 1
ok 'one that closes it is waited for' exits 0 judge s.h5
wait

# ---- a dump of before adamw took its scalars from tensors ----

cat >older.ini <<'END'
[experiment]
name = older
backends = ref64, ref32
[trial]
op = adamw
parameters = 50
step = 3
lr = 0.02
END
ok 'adamw is dumped' exits 0 older.ini
"$PYTHON" - <<'END'
import h5py

def fnv(hash, data):
    for b in data:
        hash = (hash ^ b) * 0x100000001b3 % 2**64
    return hash

with h5py.File("older.h5", "r+") as f:
    t, hash = f["trial/0001"], 0xcbf29ce484222325
    for name in "pgmv":
        hash = fnv(hash, b"in\0" + name.encode() + b"\0" + t["in/" + name][:].astype("f8").tobytes())
    f.copy(t["ref32"], t, "mine")
    for name in "rate unbias1 unbias2 factor skip".split():
        del t["in/" + name]
    for name in "decayed grad clip_factor overflow".split():
        del t.attrs[name]
    t.attrs["given"] = f"fnv1a64 {hash:016x}"
    t.attrs["decay"] = "all"
    t.attrs["line"] = ("adamw parameters=50 tensors=1 step=3 decay=all master=no lr=0.02 beta1=0.9 beta2=0.999 "
                       "eps=1e-08 weight_decay=0.01 fill=normal dtype=fp32 seed=1 input=normal")
    f.attrs["plan"] = f"fnv1a64 {fnv(0xcbf29ce484222325, t.attrs['line'].encode() + bytes(1)):016x}, 1 trials"
END
ok 'an older dump of it is judged' exits 0 judge older.h5
ok 'by what its settings say' says '3 checks, 0 failed'
ok 'and summarised' exits 0 --summary older.h5
cat >from.ini <<'END'
[trial]
op = adamw
parameters = 50
step = 3
lr = 0.02
decay = all
input = hdf5
file = older.h5
group = /trial/0001/in
END
ok 'and its inputs are read' exits 0 from.ini

# README's section: its commands run, and each line of its report is one of theirs, but for the
# distance that is the worst, its place and its bound.
section() {
    sed -n '/^## Have your kernel judged/,/^## /p' "$srcdir/README.md" |
        awk -v of="$1" '/^```/ { within = !within; p = within && $0 == "```" of; next } p'
}
readme() {
    PATH=$(dirname "$program"):$PATH
    section sh >commands && section python >script && section "" >console &&
        test -s commands && test -s script && test -s console &&
        sh -e commands >out 2>&1 && "$PYTHON" script >>out 2>&1 || return 1
    command=$(sed -n 's/^\$ //p' console)
    sh -c "$command" >out 2>&1
    test $? = 1 || return 1
    grep -v '^\$' console | while read -r line; do
        grep -qF -- "${line%%d_x: *}" out || exit 1
    done
}
ok "README: Have your kernel judged" readme
echo "1..$n"
