#!/bin/sh
# measure = train as a user runs it: the first lines of doc/training.md, plans, dumps, the page, messages.
# TAP on stdout.  $srcdir, $PYTHON and $NVCC come from the Makefile.  In a build without CUDA a run that learns is the
# first; where there is a GPU, or an emulated one, it is judged.
. "${srcdir:-.}/tests/runner_tap.sh"

small="width=8 batch=4 length=6 updates=12 n_state=4 eval_rows=8"

# run_on BACKEND TASK [LINE]: a short run there that keeps its first batches.
run_on() {
    type=fp32
    [ "$1" = gpu_bf16 ] && type=bf16
    printf '%s\n' "[experiment]" "measure = train" "backends = $1" "save = final" "[trial]" "op = train" "mixer = e74" \
        "task = $2" "width = 8" "batch = 4" "length = 7" "updates = 6" "n_state = 4" "eval_rows = 8" "dtype = $type" "$3" >"$1.$2.ini"
    "$run" "$1.$2.ini" --force >out 2>err
}

# ---- a run ----

gpus=
for gpu in gpu32 gpu_bf16; do
    if [ -n "$NVCC" ] && run_on $gpu word; then
        gpus="$gpus $gpu"
    fi
done
if [ -z "$gpus" ]; then
    does "parity is learned" 0 "^   1  ref32 .* 1\.0000 *1\.0000 .* done" "$run" -t "train mixer=e74 proj=full z_mod=row \
        n_state=16 width=32 task=parity length=32 lr=1e-2 updates=100 batch=64" -o parity.h5
    cp out said
    does "it says how many runs there were" 0 "^1 run, 0 diverged" cat said
    does "and that no GPU was judged" 0 "skipped .* no GPU trains" cat said
else
    does "a run on a GPU is judged" 0 "^   1  gpu32 .* done .* ok" "$run" -t "train mixer=e74 $small task=parity" -o parity.h5
    cp out said
    does "call by call, and beside the oracle's" 0 "judged    updates 1, 2, .* call by call" cat said
    does "free running" 0 "the first [0-9]* beside the oracle's own run" cat said
fi
does "its page" 0 "^wrote parity.html" "$run" --report parity.h5 -o parity.html
does "has its curves" 0 'class="curve s0"' cat parity.html
does "as records" 0 "^1	[a-z0-9_]*	test	12	" "$run" --tsv -t "train mixer=none $(echo "$small" | sed 's/n_state=4 //')"

does "a summary of one run is its row" 0 "^e74  *[0-9 ]*  *[0-9 ]*  *[01]\.[0-9]*  *[01]/1 " "$run" --summary parity.h5

"$run" -t "train mixer=none $(echo "$small" | sed 's/n_state=4 //') seed=1,2" -o two.h5 >out 2>err
does "several runs of words have no variants" 2 "two.h5: its 2 runs are of -t, which names no variants" "$run" --summary two.h5

# ---- the same again ----

for twice in 1 2; do
    "$run" -t "train mixer=e74 $small task=word save=final seed=5" -o same$twice.h5 >out 2>err || cat err
done
if "$PYTHON" -c 'import h5py' 2>err; then
    "$PYTHON" - same1.h5 same2.h5 >out 2>err <<'PYTHON'
import sys
import h5py
import numpy as np
a, b = (h5py.File(name)["trial/0001"] for name in sys.argv[1:])
names = []
a.visititems(lambda name, x: names.append(name) if isinstance(x, h5py.Dataset) else None)
def same(x, y):
    return x.dtype == y.dtype and x.shape == y.shape and (np.array_equal(x, y) if x.dtype.kind not in "f"
                                                          else np.array_equal(x, y, equal_nan=True))
assert len(names) > 25, names
for name in names:
    x, y = a[name][()], b[name][()]
    if x.dtype.names:
        for column in x.dtype.names:
            assert same(x[column], y[column]), (name, column)
    else:
        assert same(x, y), name
assert a["batch/token"].shape == (5, 6, 4) and not same(a["start/x.E"][()], a["final/x.E"][()])
assert np.isfinite(a["curve/loss"][()]).all() and a["curve/update"][()].tolist() == list(range(1, 13))
PYTHON
    ok $? "the same seed twice: all datasets have the same bits"
else
    skip "the same seed twice: all datasets have the same bits" "no h5py"
fi

# ---- the same batches everywhere ----

if "$PYTHON" -c 'import h5py' 2>err; then
    for task in parity counter word copy mqar bytes; do
        line=
        [ $task = bytes ] && line="file = $srcdir/README.md"
        [ $task = mqar ] && line="pairs = 1
vocabulary = 32"
        [ $task = counter ] && line="supervise = last"
        for backend in ref32 ref64 $gpus; do
            run_on $backend $task "$line" || cat err
        done
        "$PYTHON" - $task ref32 ref64 $gpus >out 2>err <<'PYTHON'
import sys
import h5py
import numpy as np
task, *names = sys.argv[1:]
runs = [h5py.File(f"{name}.{task}.h5")["trial/0001"] for name in names]
first = runs[0]["batch"]
assert first["token"].shape == (5, 7, 4) and len(np.unique(first["token"][()])) > 1
for name, r in zip(names, runs):
    assert list(r["batch"]) == list(first), name
    for of in first:
        assert np.array_equal(first[of][()], r["batch"][of][()]), (name, of)
assert np.any(first["token"][0] != first["token"][1])
PYTHON
        ok $? "$task: the first batches are the same on ref32, ref64$gpus"
    done
else
    skip "the first batches are the same" "no h5py"
fi

does "one validation, at the end" 0 "^1	[a-z0-9_]*	validation	12	" "$run" --tsv -t "train mixer=none task=parity `echo "$small" | sed 's/n_state=4 //'` eval_every=0" -o ends.h5
does "an update that overflows is no failure" 0 "1 run, 1 diverged" "$run" -t "train mixer=e74 proj=full nonlin=linear z_mod=row $small task=parity lr=1000" -o over.h5
does "nor has it learned" 0 "^1	[a-z0-9_]*	test	[0-9]*	nan	0	0	0	" "$run" --tsv -t "train mixer=e74 proj=full nonlin=linear z_mod=row $small task=parity lr=1000 target=0" -o over2.h5

# ---- plans ----

does "parity.ini is a plan" 0 "^6	train .* section=\|^6	train " "$run" -n "$srcdir/experiments/parity.ini"
does "a line pastes back" 0 "^1	train " "$run" -n -t "`"$run" -n "$srcdir/experiments/parity.ini" 2>err | sed -n 's/^1	//p'`"
does "the keys are listed" 0 "^    updates  *1 to " "$run" --list train
cp out keys
does "those of an ablation, too" 0 "^    confirm .*seeds of further runs" cat keys
does "and a mixer's" 0 "and of mixer = dual_memory" "$run" --list train
does "a plan that is there already" 0 "1 run, 0 diverged\|0 runs" "$run" --resume -t "train mixer=e74 $small task=word save=final seed=5" -o same1.h5

# ---- other lengths ----

does "a test at other lengths" 0 "lengths   3 0\.[0-9]*, 6 [01]\.[0-9]*, 24 0\.[0-9]*" "$run" -t "train mixer=e74 $small task=parity eval=\"24, 3, 6\"" -o lengths.h5
does "their page" 0 "^wrote" "$run" --report lengths.h5 -o lengths.html
does "has a figure of them" 0 "Accuracy of the test, by its length" cat lengths.html
does "and one without has none" 0 "^0$" sh -c 'grep -c "by its length" parity.html || true'
line=$("$run" -n -t "train mixer=e74 $small task=parity eval=\"24, 3, 6\"" 2>err | sed 's/^1	//')
does "a line with them pastes back" 0 "eval=\"24, 3, 6\"" "$run" -n -t "$line"
if "$PYTHON" -c 'import h5py' 2>err; then
    does "the training length's is that of the test" 0 "^\[3, 6, 24\] True True" "$PYTHON" -c '
import h5py
t = h5py.File("lengths.h5")["trial/0001"]
print(t["lengths/length"][()].astype(int).tolist(), t["lengths/loss"][1] == t["test"].attrs["loss"],
      t["lengths/accuracy"][1] == t["test"].attrs["accuracy"])'
else
    skip "the training length's is that of the test" "no h5py"
fi

# ---- sections ----

# sections NAME STATUS PATTERN SED: a plan of sections, changed by SED.
sections() {
    cat >sections.ini <<'INI'
[experiment]
measure = train
[model z]
mixer = e74
proj = full
nonlin = tanh, linear
n_state = 4
width = 8
[model none]
mixer = none
width = 8
[task bits]
task = parity
length = 8
[task words]
task = word
[train]
updates = 4
batch = 2
eval_rows = 2
lr = 1e-2, 1e-3
seed = 1 .. 3
[trial]
model = z, none
task = bits, words
INI
    sed "$4" sections.ini >now.ini
    does "$1" "$2" "$3" "$run" -n now.ini
}
sections "sections are composed: 3 variants, 2 tasks, 2 rates, 3 seeds" 0 "^36	train mixer=none .* task=word .* lr=0.001 .* seed=3" ""
awk -F'	' '{ print $1, ($2 ~ /nonlin=linear/), ($2 ~ /word/), ($2 ~ /lr=0.001/), ($2 ~ /seed=2/) }' out >order
does "seeds fastest, then rates, variants of a model, tasks, models" 0 "^2 0 0 0 1;3 0 0 0 0;4 0 0 1 0;7 1 0 0 0;13 0 1 0 0;25 0 0 0 0;" \
    awk '$1 == 2 || $1 == 3 || $1 == 4 || $1 == 7 || $1 == 13 || $1 == 25 { printf "%s;", $0 }' order
sections "a trial's own key stands in place of a section's" 0 "^12	.* lr=0.01 .* seed=2" "s/^model =.*/&\nseed = 2\nlr = 1e-2\ndtype = fp32, bf16/"
sections "a key in another section" 2 "^now.ini:11: .*updates in \[model none\]: it belongs in \[train\]\|^now.ini:1[0-9]: updates in \[model none\]: it belongs in \[train\]" "s/^mixer = none/&\nupdates = 3/"
sections "a name that there is not" 2 "model = zz: there is no \[model zz\]" "s/^model = .*/model = zz, z, none/"
sections "a section that no trial names" 2 "\[model none\]: no \[trial\] names it" "s/^model = .*/model = z/"
sections "a section twice" 2 "a second \[model z\]; the first is in line 3" "s/^.model none./[model z]/"
sections "sections of other measures" 2 "\[task bits\]: only measure = train" "s/^measure.*/checks = none/"
sections "an unknown key, once" 2 "unknown key 'lengt'" "s/^length = 8/lengt = 8/"
cp err said
does "and not for each model" 0 "^1$" grep -c lengt said
sections "a dump of sections" 0 "^36	" ""
sed "s/^measure.*/&\nbackends = ref32/" now.ini >run.ini # (36 on an emulated GPU take minutes)
"$run" run.ini -o sections.h5 >out 2>err
if "$PYTHON" -c 'import h5py' 2>err; then
    does "names variants and tasks" 0 "z_tanh bits;z_linear words;none bits" "$PYTHON" -c '
import h5py
t = h5py.File("sections.h5")["trial"]
print(";".join("%s %s" % (t[n].attrs["variant"], t[n].attrs["task_name"]) for n in ("0001", "0020", "0025")))'
else
    skip "names variants and tasks" "no h5py"
fi

# ---- models that are made equal, and what a plan says of them ----

sections "a model is made equal" 0 "^25	train mixer=none .* mlp=5 " \
    "s/^measure.*/&\nmatch = parameters\nreference = z_tanh/; s/^mixer = none/&\nadjust = mlp/; s/^proj =.*/proj = no_z/; s/^n_state =.*/n_state = 6/"
cp out plan
cp err said
does "the plan has a row for each variant and task" 0 "^6$" sh -c "grep -c '  bits  \|  words ' said"
does "with the runs, their sizes and their time" 0 "^z_tanh  *bits  *6  *240  *208  *144  *[0-9]*  .* [KM]iB  .* [KM]iB  *[0-9.]* s$" cat said
does "the equal one" 0 "^none  *words  *6  *[0-9]*  *208  *0 " cat said
does "and the time of all" 0 "^all runs take about [0-9.]* s on this machine" cat said
does "its lines paste back" 0 "^1	train .* mlp=5 " "$run" -n -t "`sed -n 's/^25	//p' plan`"
sed "s/^measure.*/&\nbackends = ref32/" now.ini >run.ini
"$run" run.ini -o equal.h5 >out 2>err
if "$PYTHON" -c 'import h5py' 2>err; then
    does "its dump has the sizes" 0 "208 144 240;208 0 5" "$PYTHON" -c '
import h5py
t = h5py.File("equal.h5")["trial"]
a, b = (t[n].attrs for n in ("0001", "0025"))
assert a["flops_per_token"] > 200
print("%d %d %d;%d %d %d" % (a["n_parameters_inner"], a["state_bytes"], a["n_parameters"], b["n_parameters_inner"],
      b["state_bytes"], b["mlp"]))'
else
    skip "its dump has the sizes" "no h5py"
fi
sections "a run that may end early" 0 "^1	train" "s/^updates.*/&\nstop = yes/"
cp err said
does "takes at most that long" 0 "^all runs take at most" cat said
# Most of the time is that of updates, of validations, of the test at another length.
for of in "updates=1000 eval_every=0" "updates=20 eval_every=1 eval_rows=2000" "updates=5 eval_rows=900 eval=240"; do
    words="train mixer=e74 n_state=16 width=32 batch=4 length=8 task=parity backends=ref32 $of"
    "$run" -n -t "$words" >out 2>err
    "$run" --force -t "$words" -o took.h5 >took 2>&1
    cat took >>err
    does "the time that a run takes: $of" 0 "good" awk '
        /^all runs take/ { predicted = $5 * ($6 == "min" ? 60 : 1) }
        /of 1 trials, / { sub(/.*trials, /, ""); took = $1 }
        END { print predicted, took, (took < 4 * predicted + 1 && predicted < 4 * took + 1 ? "good" : "bad") }' err
done

# ---- signals ----

# begin: a long run, of which $child is the process, until its checkpoint is there.
begin() {
    rm -rf long.*
    "$run" -t "train mixer=none width=8 batch=4 length=6 updates=1000000 checkpoint_every=0.05 backends=ref32" -o long.h5 >out 2>err &
    child=$!
    while [ ! -s long.state/0001 ] && kill -0 $child 2>/dev/null; do
        sleep 0.02
    done
}
begin
kill -TERM $child
kill -TERM $child
sleep 0.1
kill -INT $child 2>/dev/null
wait $child 2>/dev/null
got=$?
[ $got = 130 ] && grep -q "interrupted\|0 of 1 trials" out err
ok $? "signals right behind the first are one with it: exit status 130"
# One that does not end, in whose step nobody looks at the first signal.
cat >late.c <<'C'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
/* A part gets its name: what comes in the environment, WAIT or a signal, comes here. */
int rename(const char *from, const char *to)
{
    int (*const real)(const char *, const char *) = (int (*)(const char *, const char *))dlsym(RTLD_NEXT, "rename");
    const int e = real(from, to);
    const size_t n = strlen(to);
    if (n > 5 && strcmp(to + n - 5, ".part") == 0) {
        if (getenv("WAIT")) {
            puts("waits");
            fflush(stdout);
            for (;;)
                pause();
        }
        raise(SIGTERM);
    }
    return e;
}
C
if $CC -shared -fPIC -o late.so late.c -ldl 2>err; then
    short="train mixer=none width=8 batch=4 length=6 updates=4 backends=ref32"
    does "a signal when the file has begun leaves nothing half done" 130 "0 of 1 trials" preloaded late.so "$run" -t "$short" -o begun.h5
    does "and it goes on" 0 "1 run, 0 diverged" "$run" --resume -t "$short" -o begun.h5
    # preloaded() is a shell's function: its process would get the signals, and the program would stay.
    WAIT=1 LD_LIBRARY_PATH="$dir${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" LD_PRELOAD="late.so${LD_PRELOAD:+:$LD_PRELOAD}" \
        ASAN_OPTIONS="$ASAN_OPTIONS:verify_asan_link_order=0" "$run" -t "$short" -o waits.h5 >out 2>err &
    child=$!
    while ! grep -q waits out && kill -0 $child 2>/dev/null; do
        sleep 0.02
    done
    kill -TERM $child
    sleep 0.8
    kill -0 $child 2>/dev/null
    ok $? "one that does not look at the first signal"
    kill -TERM $child
    i=0
    while [ $i -lt 100 ] && kill -0 $child 2>/dev/null; do
        sleep 0.05
        i=$((i + 1))
    done
    kill -KILL $child 2>/dev/null # where that failed
    wait $child 2>/dev/null
    got=$?
    [ $got = 143 ]
    ok $? "ends at a second one, half a second later"
else
    for name in "a signal when the file has begun leaves nothing half done" "and it goes on" \
        "one that does not look at the first signal" "ends at a second one, half a second later"; do
        skip "$name" "no library can be made"
    done
fi

# ---- what is refused ----

# refuse NAME PATTERN WORDS: exit status 2, and nothing is written.
refuse() {
    does "$1" 2 "$2" "$run" -t "train $3" -o none.h5
    test ! -e none.h5 -a ! -e none.h5.part
    ok $? "$1: nothing is written"
}
refuse "no mixer" "the line has no mixer" "task=parity"
refuse "an unknown mixer" "mixer = lstm: not one of e74" "mixer=lstm"
refuse "two mixers" "one in a section" "mixer=e74,none"
refuse "a size that follows" "steps: it follows from width, length and batch" "mixer=e74 steps=5"
refuse "another operation's key" "unknown key 'rank_'; did you mean 'rank'" "mixer=e74 rank_=3"
refuse "a key of other trials" "input: a run of training has none" "mixer=e74 input=text"
refuse "a rate of 0" "lr = 0: must be" "mixer=e74 lr=0"
refuse "a rate that is none" "lr = nan" "mixer=e74 lr=nan"
refuse "more warm-up than updates" "warmup = 9 and decay = 0 are more than updates = 5" "mixer=e74 warmup=9 updates=5"
refuse "a key that the task has not" "modulus: only task = counter" "mixer=e74 modulus=3"
refuse "a modulus of 1" "modulus = 1: must be" "mixer=e74 task=counter modulus=1"
refuse "a length that the task cannot have" "an odd number from 3 on" "mixer=e74 task=copy length=8"
refuse "a tied head of other classes" "head = tied: the task has 5 classes" "mixer=e74 head=tied task=counter moves=yes"
refuse "bytes of no file" "task = bytes needs file" "mixer=e74 task=bytes"
refuse "a corpus that is missing" "file = nothing: No such file" "mixer=e74 task=bytes file=nothing"
echo "a short one" >short
refuse "a corpus that is short" "corpus = 12 has too few bytes\|the corpus has 12 bytes" "mixer=e74 task=bytes file=short"
refuse "a corpus of another task" "file: only task = bytes has one" "mixer=e74 task=parity file=short"
refuse "a run that fits into no memory" "needs .* of memory" "mixer=none width=1048576 mlp=1048576"
refuse "a length of the test that the task cannot have" "eval = 8: .* an odd number" "mixer=e74 task=copy eval=9,8"
refuse "a length twice" "eval: 9 twice" "mixer=e74 task=parity eval=\"9, 9\""
refuse "a length of 0" "eval = 0: must be 1 to" "mixer=e74 task=parity eval=0"
does "lengths of an operation" 2 "eval: only measure = train" "$run" -n -t "softmax eval=5"
refuse "what a dump cannot keep" "save = all: measure = train keeps" "mixer=e74 save=all"
refuse "two backends" "a run trains on one" "mixer=e74 backends=ref64,ref32"
refuse "other checks" "checks: measure = train makes none but parity" "mixer=e74 checks=properties"
refuse "times" "op = train: that is measure = train" "mixer=e74 measure=time"
does "op = train in an ini of checks" 2 "op = train: that is measure = train" sh -c 'printf "[trial]\nop = train\nmixer = none\n" >op.ini; "$0" op.ini' "$run"
does "an operation in an ini of training" 2 "op = softmax: measure = train has models" sh -c 'printf "[experiment]\nmeasure = train\n[trial]\nop = softmax\n" >op.ini; "$0" op.ini' "$run"
does "an ini of training without a mixer" 2 "op.ini:3: the section has no mixer" sh -c 'printf "[experiment]\nmeasure = train\n[trial]\ntask = parity\n" >op.ini; "$0" op.ini' "$run"
does "final weights of checks" 2 "save = final: only measure = train" "$run" -t "softmax rows=2 save=final" -o none.h5
does "inputs of training" 2 "has no inputs" "$run" --inputs "train mixer=none" -o none.h5

echo "1..$n"
