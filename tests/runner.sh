#!/bin/sh
# run-ablation as a user runs it: the main job, exit codes and messages,
# interruption and --resume, and the files as other tools read them.
# TAP on stdout.  $srcdir, $PYTHON and $H5DUMP come from the Makefile.
srcdir=`cd "${srcdir:-.}" && pwd`
run=`pwd`/run-ablation
dir=`mktemp -d "${TMPDIR:-/tmp}/runner.XXXXXX"` || exit 1
trap 'umount "$dir/small" 2>/dev/null; rm -rf "$dir"' EXIT
cd "$dir" || exit 1
n=0

# ok STATUS NAME: STATUS is 0 for a pass; out and err are shown where it is not.
ok() {
    n=$((n + 1))
    if [ "$1" = 0 ]; then
        echo "ok $n - $2"
    else
        echo "not ok $n - $2"
        for f in out err; do
            [ -f $f ] && sed "s/^/# $f: /" $f | tail -15
        done
    fi
}
skip() {
    n=$((n + 1))
    echo "ok $n - $1 # SKIP $2"
}
# does NAME STATUS PATTERN COMMAND...: it exits with STATUS and prints PATTERN on either stream.
does() {
    name=$1 status=$2 pattern=$3
    shift 3
    "$@" >out 2>err
    got=$?
    [ $got = "$status" ] && cat out err | grep -q -- "$pattern"
    e=$?
    [ $e = 0 ] || echo "# exit $got, expected $status and: $pattern"
    ok $e "$name"
}
# opens NAME PATTERN FILE [TRIAL...]: h5py and xarray open FILE, NumPy computes the same, and that prints
# PATTERN.
opens() {
    name=$1 pattern=$2
    shift 2
    if [ -z "$PYTHON" ]; then
        skip "$name" "no Python with numpy and h5py"
        return
    fi
    "$PYTHON" "$srcdir/tests/dump.py" "$@" >out 2>err && ! grep -q '^not ok' out && grep -q -- "$pattern" out
    ok $? "$name"
}
# With a tanh that is wrong where the oracle calls it, so that checks of its gradients fail.
echo 'double tanh(double x) { return x / (x < 0 ? 1 - x : 1 + x); }' >tanh.c
$CC -shared -fPIC -o tanh.so tanh.c || exit 1
# In float as well: then oracle and yardstick agree, and a kernel does not.
echo 'float tanhf(float x) { return x / (x < 0 ? 1 - x : 1 + x); }' | cat tanh.c - >tanhs.c
$CC -shared -fPIC -o tanhs.so tanhs.c || exit 1
wrongly() {
    env LD_PRELOAD="$dir/tanh.so${LD_PRELOAD:+:$LD_PRELOAD}" ASAN_OPTIONS="$ASAN_OPTIONS:verify_asan_link_order=0" "$run" "$@"
}
# Everything below /trial, as text, less where in the file an axis refers to.
content() {
    "$H5DUMP" -g /trial "$1" | sed -e 1d -e 's/DATASET [0-9][0-9]* /DATASET /'
}
same_content() {
    content "$1" >a.txt && content "$2" >b.txt && cmp a.txt b.txt >out 2>err
}

# ---- the main job ----

main=$srcdir/experiments/e74_diag.ini
if [ "$NVCC" = emulated ]; then
    # With all its steps that takes minutes.
    sed -e 's/^steps = 128/steps = 16/' -e "s|^file = \.\.|file = $srcdir|" "$main" >e74_diag.ini
    main=e74_diag.ini
fi
does "the main job" 0 "^[0-9]* checks, 0 failed, [0-9]* skipped" "$run" "$main"
[ -f e74_diag.h5 ] && [ ! -f e74_diag.h5.part ]
ok $? "the main job leaves its file under its name"
if [ -n "$H5DUMP" ]; then
    "$H5DUMP" -n e74_diag.h5 >out 2>err
    for path in /trial/0001/in/x /trial/0001/dout/out /trial/0024/ref64/d/W_z /trial/0001/ref32/out \
        /trial/0024/check /trial/0001/time; do
        grep -q "dataset    $path\$" out
        ok $? "h5dump shows $path"
    done
else
    skip "h5dump opens the file" "no h5dump"
fi
opens "h5py and xarray open it, NumPy computes the same outputs" "" e74_diag.h5 0001 0008 0013 0024

# All kinds of E74 in NumPy: the second, independent definition.
cat >all.ini <<EOF
[experiment]
checks = none
repeats = 0
[trial]
op = e74
state = full, diagonal, lowrank, blockdiag
proj = full, no_z, tied_kq, tied_kvq
z_mod = column, row, full
nonlin = tanh, linear, rmsnorm, frobnorm
steps = 7
batch = 2
heads = 2
n_state = 8
dim = 5
rank = 3
EOF
sed 's/^state.*/state = full, diagonal/' all.ini >none.ini
does "rank without lowrank is refused" 2 "none.ini:15: rank" "$run" none.ini
"$run" -n all.ini >out 2>err && [ `wc -l <out` = 96 ] && [ `grep -c ' rank=3 ' out` = 24 ]
ok $? "it applies to the low-rank state alone, and z_mod to proj = full"
does "all 64 combinations and z modulations" 0 "^0 checks" "$run" all.ini
opens "NumPy computes the same outputs for all of them" "" all.h5

# And all of the dual memory: its presets, and other combinations of their parts.
cat >dual.ini <<EOF
[experiment]
checks = none
repeats = 0
[trial]
op = dual_memory
preset = e23, e25, e26, e29a, e29b, e29c
tape = shared, each
tape_init = normal, zero
steps = 7
batch = 2
slots = 5
dim = 6
dim_in = 3
[trial]
op = dual_memory
preset = parts
attention = softmax, entmax15
write_query = h, v
gate = none, sum, matrix, scaled
dtype = fp32, bf16
steps = 9
batch = 2
slots = 12
dim = 5
[trial]
op = dual_memory
preset = e29c
clamp = 1
steps = 7
batch = 2
slots = 4
dim = 8
EOF
does "all presets and parts of the dual memory" 0 "^0 checks" "$run" dual.ini
[ `grep -c '^      warning   tape_init = zero: all slots stay equal' out` = 12 ]
ok $? "a zero tape is warned of, in each of its trials"
if [ -n "$H5DUMP" ]; then
    does "and in the file" 0 "tape_init = zero" "$H5DUMP" -a /trial/0002/warning dual.h5
    does "but not beside a drawn one" 1 "warning" "$H5DUMP" -a /trial/0001/warning dual.h5
else
    skip "and in the file" "no h5dump"
fi
opens "NumPy computes the same outputs for all of them" "" dual.h5

# And of the catalogue the rest that a dump can hold: integers, NaN and infinities, real numbers
# and choices as attributes.
cat >catalogue.ini <<EOF
[experiment]
checks = none
repeats = 0
[trial]
op = histogram
size = 200
bins = 7
data = uniform, level, wild
[trial]
op = cross_entropy
rows = 9
vocabulary = 5
ignore_index = 2
label_smoothing = 0, 0.1
[trial]
op = adamw
parameters = 30
tensors = 3
decay = all, alternate
master = no, yes
[trial]
op = gemm
M = 5
N = 6
K = 7
transpose_a = no, yes
alpha = 0.5
beta = 0, 2
EOF
does "trials of the catalogue" 0 "^0 checks" "$run" catalogue.ini
opens "NumPy computes the same outputs for all of them" "" catalogue.h5

# ---- plans ----

"$run" -n "$srcdir/experiments/e74_all.ini" >out 2>err
[ `wc -l <out` = 192 ]
ok $? "e74_all has 192 trials"
cut -f2 out | sed -n '1~8p' | while read -r line; do
    [ "`"$run" -n -t "$line" | cut -f2`" = "$line" ] || echo "$line"
done >err
[ ! -s err ]
ok $? "a line of a plan pastes back"
"$run" -n -t all >out 2>err
"$run" --list | sed -n '/^run-ablation/q; s/ .*//p' >names
cut -f2 out | cut -d' ' -f1 | cmp - names >err 2>&1
ok $? "all is each operation that --list names"
for ini in "$srcdir"/experiments/*.ini; do
    "$run" -n "$ini" >out 2>err
    if [ -s err ] && ! grep -v ': .* needs .* of memory, ' err >/dev/null; then
        skip "`basename "$ini"` is a plan" "it needs more memory than there is here"
    else
        grep -q '^1	' out && [ ! -s err ]
        ok $? "`basename "$ini"` is a plan"
    fi
done

# ---- options ----

does "--help" 0 "^usage" "$run" --help
does "--version" 0 "ref64" "$run" --version
does "-h" 0 "^usage" "$run" -h
does "--list" 0 "^rmsnorm  *y = w x" "$run" --list
[ `wc -l <out` -lt 80 ]
ok $? "is short"
grep -q "^ *judge  *\[auto\]  *.*full, all elements; sampled, some rows" out
ok $? "and has the key judge"
does "--list e74_cell" 0 "tied_kvq" "$run" --list e74_cell
does "--list prints the cost of a pass" 0 "chain of 512 steps, 8 FLOP + 1 special each" "$run" --list e74_cell
does "--list of nothing" 2 "no operation nothing" "$run" --list nothing
does "--list says which setting gives another shape" 0 \
    "S0 .*\[batch,heads,n_state,n_state\]; state=diagonal: \[batch,heads,n_state\]" "$run" --list e74
small=$srcdir/tests/small.gguf
does "--list FILE.gguf" 0 "^blk\.0\.q6_k  *q6_k  *\[3,512\]  *1260$" "$run" --list "$small"
head -c 700 "$small" >cut.gguf
does "--list of one that is cut off" 2 "run-ablation: cut\.gguf: ends within tensor" "$run" --list cut.gguf
does "--list of one that is not there" 2 "no\.gguf: No such file or directory" "$run" --list no.gguf

# ---- input = gguf ----

# gguf NAME STATUS PATTERN WORDS: with tensors of that file.
gguf() {
    does "input=gguf: $1" "$2" "$3" "$run" -t "$4 input=gguf file=$small" -o gguf.h5
    rm -f gguf.h5
}
gguf "sizes and format are the tensor's" 0 "dim_out=2 dim_in=256 format=q5_k" \
    "dequantise tensor=blk.0.q5_k"
gguf "the report names it" 0 "inputs    read W from .*small.gguf:blk.0.q6_k" "dequantise tensor=blk.0.q6_k"
gguf "several tensors" 0 "2 of 2 trials" "dequantise tensor=blk.0.q4_k,blk.0.q8_0"
gguf "f16 for a real input" 0 "rows=3 columns=40" "softmax tensor=plain.f16"
gguf "bf16" 0 "rows=3 columns=40" "softmax tensor=plain.bf16"
gguf "an input by name" 0 "read w from .*; drawn x" "rmsnorm rows=4 tensor=w:norm.weight"
gguf "no input by name" 2 "which input of rmsnorm is it to be? Write INPUT:norm.weight" \
    "rmsnorm tensor=norm.weight"
gguf "another format" 2 "small.gguf: blk.0.q6_k is q6_k, format = q4_k" \
    "dequantise tensor=blk.0.q6_k format=q4_k"
gguf "another size" 2 "small.gguf: blk.0.q4_k is \[3,512\], dim_out = 1024" \
    "dequantise tensor=blk.0.q4_k dim_out=1024"
gguf "no such tensor" 2 "no tensor blk.9.q4_k; like it: blk.0.q4_k" "dequantise tensor=blk.9.q4_k"
gguf "a type that is not supported" 2 "blk.0.q4_0: q4_0 is not supported: dequantise's W takes q4_k q5_k" \
    "dequantise tensor=blk.0.q4_0"
gguf "bytes for a real input" 2 "blk.0.q4_k: q4_k is not supported: softmax's x takes f32 f16 bf16" \
    "softmax tensor=blk.0.q4_k"
gguf "other axes" 2 "experts is \[2,3,4\], softmax's x has 2 axes" "softmax tensor=experts"
gguf "two sizes of one axis" 2 "norm.weight is \[5\], rmsnorm's w is \[40\]" \
    'rmsnorm tensor="w:norm.weight x:plain.f32"'
gguf "one input twice" 2 "plain.f32 and plain.f16 are both to be x" 'softmax tensor="plain.f32 plain.f16"'
does "quantised_model.ini: what q4_k costs" 0 \
    "^ *ref64 .* 4\.5 *36864 *0\.08217 *0\.03336 " "$run" "$srcdir/experiments/quantised_model.ini" -o model.h5
does "quantised_model.ini: records" 0 "ref32.plain.round_trip.rmse.0\.0821" \
    "$run" --tsv "$srcdir/experiments/quantised_model.ini" -o model.h5
cat >lost.ini <<'EOF'
[experiment]
name = lost
checks = none
repeats = 0
[trial]
op = quantise
format = q4_k, q5_k, q6_k, q8_0
dim_out = 3
dim_in = 512
data = weights, hard
dtype = fp32, bf16
[trial]
op = quantise
format = nf4
double_quant = yes, no
dim_out = 3
dim_in = 65
EOF
does "quantise, all tensors saved" 0 "18 of 18 trials" "$run" lost.ini
opens "NumPy computes the same bits, bytes, RMSE and worst error" "the round trip" lost.h5
does "input=gguf: no GGUF" 2 "sample.txt: begins with" \
    "$run" -t "softmax tensor=a input=gguf file=$srcdir/data/sample.txt"

does "--list of a name nearly right" 2 "no operation linaer; did you mean 'linear'?" "$run" --list linaer
# usage NAME SENTENCE ARGUMENT...: refused, in one line.
usage() {
    name=$1 sentence=$2
    shift 2
    "$run" "$@" >out 2>err
    [ $? = 2 ] && [ ! -s out ] && echo "run-ablation: $sentence; try run-ablation --help" | cmp -s - err
    ok $? "usage: $name"
}
usage "no arguments" "no FILE.ini and no -t WORDS is given"
usage "an unknown option" "there is no option --no-such-option, or more than one that begins so" \
    --no-such-option x.ini
usage "an unknown letter" "there is no option -x" -x x.ini
usage "a missing argument" "-t needs an argument" -t
usage "a missing argument of a long option" "--baseline needs an argument" x.ini --baseline
usage "an argument too many" "--tsv takes no argument" --tsv=yes x.ini
usage "two files" "a.ini and b.ini are two files; give one" a.ini b.ini
usage "--version and a word" "--version takes no argument; leave out extra" --version extra
usage "--help and a word" "--help takes no argument; leave out extra" --help extra
usage "-h behind a word" "--help takes no argument; leave out a.ini" a.ini -h
usage "--help and -t" "--help takes no other option beside it" --help -t relu
usage "--version and an option" "--version takes no other option beside it" --tsv --version
usage "--list and -t" "--list takes no other option beside it" --list -t relu
usage "--list with --random" "--list takes no other option beside it" --random 3 --list relu
usage "two operations" "relu and silu are two operations; give one" --list relu silu
usage "a file and words" "-t and the file a.ini cannot both be run; give one" a.ini -t relu

# ---- terms ----

for term in yardstick handover no_z z_mod; do
    grep -q "^| [^|]*\<$term\>[^|]* | " "$srcdir/doc/glossary.md"
    ok $? "the glossary has $term"
done
sed -n '/^## The report/,/^## Requirements/p' "$srcdir/README.md" | grep -q 'doc/glossary\.md'
ok $? "README names the glossary where it shows a report"
does "--help names it" 0 "doc/glossary.md" "$run" --help
grep -q 'doc/glossary\.md' "$srcdir/man/run-ablation.1"
ok $? "so does the man page"
if [ -c /dev/full ]; then
    for option in --help --version --list "--list e74" "-n -t relu"; do
        "$run" $option >/dev/full 2>err
        [ $? = 2 ] && grep -q "standard output: No space left" err
        ok $? "$option to a full disk exits with 2"
    done
else
    skip "options to a full disk" "no /dev/full"
fi

# ---- an earlier run's times ----

# The times are in files, so that no clock decides these tests: --resume of a
# finished file runs nothing, and compares the times that are in it.
cat >times.ini <<EOF
[experiment]
checks = none
[trial]
op = diag_delta
steps = 3, 4
batch = 2
n_state = 4
EOF
sed 's/^steps.*/steps = 3, 5/' times.ini >other_times.ini
against() {
    "$run" --resume --baseline "$@" times.ini
}
does "a run to compare with" 0 "^0 checks" "$run" times.ini
does "a run against itself" 0 "^[1-9][0-9]* checks, 0 failed" against times.h5
[ `grep -c 'ratio 1.000, .*: as before' out` = `tail -1 out | cut -d' ' -f1` ]
ok $? "each of its times is as before"
does "--tsv of a run against itself" 0 "	baseline	forward	1	[1-9][0-9.]*	pass	" \
    against times.h5 --tsv
[ `grep -v '^#' out | awk -F'\t' '{print NF}' | sort -u` = 11 ]
ok $? "its records have nine fields, too"
if [ -n "$PYTHON" ]; then
    "$PYTHON" - >out 2>err <<EOF
import h5py, shutil
def doctored(name, scale, **attributes):
    shutil.copy("times.h5", name)
    with h5py.File(name, "r+") as f:
        for trial in f["trial"].values():
            rows = trial["time"][...]
            rows["median"] *= scale
            rows["spread"] = 0
            trial["time"][...] = rows
        f.attrs.update(attributes)
doctored("calm.h5", 1)
doctored("tenth.h5", .1)
doctored("long.h5", 1e6)
doctored("device.h5", 1, device="gpu32: an abacus\nref64: an abacus\nref32: an abacus")
doctored("schema.h5", 1, schema="ablate-0")
EOF
    ok $? "times can be doctored"
    does "times ten times as long" 1 "ratio 10.000, .*: SLOWER" against tenth.h5 -o calm.h5
    grep -q 'again: run-ablation --baseline tenth.h5 --threshold 5 -t' out
    ok $? "and how to see that again"
    does "ten times as long, where that may be" 0 ", 0 failed" \
        against tenth.h5 -o calm.h5 --threshold 901
    does "times a tenth as long" 0 "ratio 0.100, .*: faster" against calm.h5 -o tenth.h5
    does "times that are taken now" 0 ": faster" "$run" --baseline long.h5 -o now.h5 times.ini
    does "a trial that has no counterpart" 0 "trial 2, .* no such trial then" \
        "$run" --force --baseline long.h5 -o now.h5 other_times.ini
    sed -e '/^dtype/d' -e '$adtype = bf16' times.ini >bf16.ini
    does "times in bf16" 0 "^0 checks" "$run" bf16.ini
    "$PYTHON" - >out 2>err <<EOF
import h5py, shutil
shutil.copy("bf16.h5", "former.h5")
with h5py.File("former.h5", "r+") as f:
    for trial in f["trial"].values():
        rows = trial["time"][...]
        for row in rows:
            row["backend"] = row["backend"].replace(b"_bf16", b"16")
        assert b"ref16" in rows["backend"]
        trial["time"][...] = rows
    f.attrs["device"] = f.attrs["device"].replace("_bf16:", "16:")
EOF
    ok $? "backends can have their former names"
    does "a baseline with the former names of backends" 0 "^baseline .* 0 not compared" \
        "$run" --resume --baseline former.h5 bf16.ini
    sed 's/^\[experiment\]/&\nbackends = ref16/' bf16.ini >former.ini
    does "the former name of a backend" 0 " ref_bf16 " "$run" -o one.h5 --force former.ini
    does "another device" 2 "device.h5: .*another device's: 'an abacus'" against device.h5
    does "another schema" 2 "schema.h5: has the schema 'ablate-0'" against schema.h5
    "$PYTHON" -c 'import h5py
h5py.File("foreign.h5", "w")["k"] = 1' 2>err
    does "an HDF5 file that is no dump" 2 "foreign.h5: was not written by" against foreign.h5
else
    for name in doctored slower again threshold faster now counterpart bf16 former baseline name \
        device schema foreign; do
        skip "times beside others: $name" "no Python with numpy and h5py"
    done
fi
does "a baseline that is no HDF5 file" 2 "times.ini: is no HDF5 file" against times.ini
does "a baseline that is not there" 2 "nowhere.h5: No such file" against nowhere.h5
does "a baseline without times" 2 "all.h5: has no times" against all.h5
does "a run without times" 2 "repeats = 0: there are no times" "$run" --baseline times.h5 all.ini
does "a threshold that is no number" 2 "threshold 5%: not a decimal number" against times.h5 --threshold 5%
does "a threshold without a baseline" 2 "--threshold needs --baseline" "$run" --threshold 5 times.ini

# ---- cases that are drawn ----

closing=' cases, 0 failed, [0-9]* cannot be judged, [1-9][0-9]* checks, [0-9]* skipped, [0-9]* s$'
does "drawn cases" 0 "^20$closing" "$run" --random 20
does "drawn cases of one operation, from one on, others" 0 "^12$closing" \
    "$run" --random 32 --from 20 --seed 7 --op relu --checks differences
grep -q 'random cases 20 to 31 of seed 7, relu$' out
ok $? "and the head says which"
does "drawn cases, and nothing to check" 0 '^3 cases, 0 checks, [0-9]* skipped: nothing was checked' \
    "$run" --random 3 --checks none
does "drawn cases and a file" 2 "it takes no file" "$run" --random 3 all.ini
does "drawn cases and an output" 2 "takes only --from, --seed, --op, --checks and --judge" \
    "$run" --random 3 -o drawn.h5
does "cases from one on that is not drawn" 2 "--from 3: " "$run" --random 3 --from 3
does "drawn cases of no operation" 2 "--op nosuch: there is no such operation" \
    "$run" --random 3 --op nosuch
does "drawn cases and no such check" 2 "--checks: checks = nosuch: not one of" \
    "$run" --random 3 --checks nosuch
does "no number of cases" 2 "--random 0: " "$run" --random 0
does "an option of drawn cases alone" 2 "need --random" "$run" --op relu

# ---- bad input ----

does "nothing to check" 0 "^0 checks, [0-9]* skipped: nothing was checked" "$run" -t 'relu rows=3 checks=none'
does "nothing but a GPU to check" 0 "^[1-9].* checks, 0 failed\|: nothing was checked" \
    "$run" -t 'relu rows=3 checks=parity'
mkfifo pipe
does "a pipe for an ini" 2 "pipe: cannot be read: is a pipe" "$run" pipe
does "a pipe for a text" 2 "file = pipe: is a pipe" "$run" -t 'e74 input=text file=pipe'
does "standard input" 2 "standard input cannot be read" "$run" -
printf '[trial \033[31m]\nop = relu\nrows = 3\n[trial b]\nop = relu\nrows = 3\n' >red.ini
does "control characters in a section's name" 0 '\\x1b\[31m' "$run" red.ini
# Limits end with a sentence, and in time: a hang would be status 124.
does "more threads than can be" 0 "100000 threads are too many for" env OMP_NUM_THREADS=100000 \
    timeout 60 "$run" -t 'relu rows=30 repeats=0'
# (AddressSanitizer takes an address space of terabytes.)
if (ulimit -s 1000000 && ulimit -v 2000000) 2>err && [ "${CFLAGS#*-fsanitize=address}" = "$CFLAGS" ]; then
    # Each thread's stack is half of the memory.
    (ulimit -s 1000000 && ulimit -v 2000000 && OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=8 \
        exec timeout -s KILL 60 "$run" -t 'relu rows=30 repeats=0') >out 2>err
    [ $? = 0 ] && grep -q "of 8 threads could be started (see ulimit); using 1" err
    ok $? "threads that ulimit does not let start"
    for limit in "-v 100000" "-v 150000" "-v 200000" "-v 300000" "-d 60000" "-d 100000" "-d 200000"; do
        (ulimit $limit && exec timeout -s KILL 60 "$run" -t 'linear rows=9') >out 2>err
        got=$?
        [ $got = 2 -o $got = 127 ] && grep -q "ulimit ${limit% *} leaves\|shared librar" err
        ok $? "ulimit $limit"
    done
    # Libraries that take much address space, as CUDA's do, leave little of a limit that looks large.
    echo 'static char bulk[768 << 20]; char *bulk_at(void) { return bulk; }' >bulk.c
    $CC -shared -fPIC -o bulk.so bulk.c || exit 1
    beside_bulk() {
        hung=0
        for left in 40 100 130 160 200 240 280; do
            (ulimit -v $(((768 + left) * 1024)) && exec timeout -s KILL 20 \
                env LD_PRELOAD="$dir/bulk.so" "$run" "$@") >out 2>err
            [ $? = 137 ] && hung=1 && echo "# $left MiB left: no end in 20 s"
        done
        ok $hung "little address space beside large libraries: $*"
    }
    beside_bulk --version
    beside_bulk --list
    beside_bulk -t 'linear rows=9'
    does "a small stack that can be made larger" 0 "0 failed" sh -c \
        'ulimit -S -s 64 && exec "$@"' sh "$run" -t 'linear rows=9 repeats=0'
    does "a small stack" 2 "ulimit -s leaves 64 KiB of stack, a run needs 512" sh -c \
        'ulimit -s 64 && exec "$@"' sh "$run" -t 'linear rows=9 repeats=0'
    does "small stacks of OpenMP's threads" 0 "0 failed" env OMP_STACKSIZE=64k OMP_NUM_THREADS=2 \
        "$run" -t 'linear rows=9 repeats=0'
    does "a plan is held against ulimit -d" 2 "needs .* GiB" sh -c \
        'ulimit -d 1000000 && exec timeout -s KILL 60 "$@"' sh "$run" -t 'silu rows=60000 dim=4000'
else
    for what in "threads that ulimit does not let start" "small address spaces" "little data" \
        "large libraries" "small stacks"; do
        skip "$what" "ulimit -v cannot be set here"
    done
fi
# The program begins again at its start, with other variables; named PROGRAM NAME: it keeps its name.
named() {
    env -u OMP_WAIT_POLICY -u OPENBLAS_NUM_THREADS "$1" -o named.h5 \
        -t 'linear rows=1000 dim_in=1000 dim_out=1000' >out 2>err &
    pid=$!
    for i in 1 2 3 4 5 6 7 8 9 10; do
        sleep 0.2
        tr '\0' '\n' 2>/dev/null </proc/$pid/environ | grep -q '^OMP_WAIT_POLICY=' && break
    done
    sleep 0.1
    cat /proc/$pid/comm >out
    kill -KILL $pid
    wait $pid 2>/dev/null
    rm -f named.h5*
    [ "`cat out`" = run-ablation ]
    ok $? "$2"
}
if [ -r /proc/$$/comm ]; then
    named "$run" "the name of the process"
    cp "$run" removed && exec 3<removed && rm removed
    named /proc/self/fd/3 "the name of the process of a file that was removed"
    exec 3<&-
else
    skip "the name of the process" "no /proc here"
fi
# 2.7e9 parameters at 1008 GB/s: 10.7 ms in fp32, 1.51 ms in q4_k.
does "--decode, fp32" 0 "^2.70 G parameters of 32 bits: 10.1 GiB; read at 1008 GB/s in 10.7 ms, 93.33 tokens" \
    "$run" --decode 2.7e9 32 1008
does "--decode, q4_k" 0 " 1.51 ms, 663.7 tokens per second" "$run" --decode 2.7e9 4.5 1008
does "--decode without a rate" 2 "three words" "$run" --decode 2.7e9 4.5
does "--decode with words too many" 2 "three words" "$run" --decode 2.7e9 4.5 1008 9
does "--decode beside an option" 2 "nothing else" "$run" --tsv --decode 2.7e9 4.5 1008
does "--decode of no number" 2 "bits of a parameter: four" "$run" --decode 2.7e9 four 1008
does "--decode at no speed" 2 "GB per second: 0" "$run" --decode 2.7e9 4 0
does "an ini that is not there" 2 "nowhere.ini" "$run" nowhere.ini
printf '[trial]\nop = e74\nnonlin = tahn\n' >bad.ini
does "an unknown choice" 2 "^bad.ini:3: .*tahn" "$run" bad.ini
does "more than memory holds" 2 "needs .* GiB" "$run" -t 'e74_cell steps=1000000 batch=1000000'
does "an output that cannot be written" 2 "nowhere/x.h5" "$run" -o nowhere/x.h5 -t 'e74 steps=2 batch=2 n_state=4 dim=3'
printf '[experiment]\nbackends = gpu32\nrepeats = 0\n[trial]\nop = linear\nrows = 3\n' >gpu.ini
does "a device that is not there" 3 "device = 1000 cannot be used: " "$run" -t 'linear device=1000'
does "a required backend that is missing" 3 "gpu32 is required and missing" \
    env CUDA_VISIBLE_DEVICES= "$run" gpu.ini
if [ -n "$PYTHON" ]; then
    "$PYTHON" -c 'import h5py, numpy
h5py.File("k.h5", "w")["k"] = numpy.cos(numpy.arange(24.)).reshape(4, 2, 1, 3)
h5py.File("nan.h5", "w")["k"] = numpy.full((4, 2, 1, 3), numpy.nan)' 2>err
    does "a failed check" 1 "again: run-ablation -t" wrongly -t \
        'e74_cell steps=4 batch=2 n_state=3 input=hdf5 file=k.h5 repeats=0'
    does "names the inputs read and drawn" 0 "inputs    read k from nan.h5:/; drawn v q" "$run" -t \
        'e74_cell steps=4 batch=2 n_state=3 input=hdf5 file=nan.h5 repeats=0'
    grep -q 'warning   nan.h5:/k has a NaN at \[0,0,0,0\], and 23 more such values' out
    ok $? "and warns of a NaN"
    "$PYTHON" -c 'import h5py, numpy
h5py.File("near.h5", "w")["K"] = numpy.zeros((4, 2, 1, 3))' 2>err
    does "a dataset nearly named like an input" 2 "near.h5:/K is no input of e74_cell, but nearly its k" \
        "$run" -t 'e74_cell steps=4 batch=2 n_state=3 input=hdf5 file=near.h5 repeats=0'
    # A target that is no class: in the second trial, of a file whose first trial could run.
    "$PYTHON" -c 'import h5py, numpy
h5py.File("target.h5", "w")["target"] = numpy.array([6, 7, 0])
h5py.File("minus.h5", "w")["target"] = numpy.array([6, 0, -1])' 2>err
    does "an index that is out of range" 2 "target.h5:/target has 7 at \[1\]: 0 to 6" "$run" \
        -o classes.h5 -t 'cross_entropy rows=3 vocabulary=8,7 input=hdf5 file=target.h5 repeats=0'
    [ ! -s out ] && [ ! -e classes.h5 ] && [ ! -e classes.h5.part ]
    ok $? "is found before anything runs"
    does "a negative index" 2 "minus.h5:/target has -1 at \[2\]: 0 to 6" "$run" \
        -t 'cross_entropy rows=3 vocabulary=7 input=hdf5 file=minus.h5 repeats=0'
    does "which ignore_index allows" 0 ", 0 failed" "$run" -o minus_out.h5 -t \
        'cross_entropy rows=3 vocabulary=7 ignore_index=-1 input=hdf5 file=minus.h5 repeats=0'
    "$PYTHON" -c 'import h5py, numpy
x = numpy.ones((4, 2)); x[3, 0] = 1e39; x[0, 0] = numpy.inf
h5py.File("large.h5", "w")["x"] = x
h5py.File("inf.h5", "w")["x"] = x.astype(numpy.float32)' 2>err
    does "a value that fp32 cannot hold" 2 "large.h5:/x has 1e+39 at \[3,0\]: the largest fp32 is 3.4" "$run" \
        -o large_out.h5 -t 'silu rows=4 dim=2 input=hdf5 file=large.h5 repeats=0'
    does "but infinity" 0 "inf.h5:/x has an infinity at \[0,0\], and 1 more" "$run" \
        -o inf_out.h5 -t 'silu rows=4 dim=2 input=hdf5 file=inf.h5 repeats=0'
    "$PYTHON" -c 'import h5py, numpy
f = h5py.File("more.h5", "w")
for name in "a", "X", "b\033[1m", "weight": f[name] = numpy.ones((4, 2))' 2>err
    does "datasets that nothing used" 0 '^  more.h5: not used: X, b\\x1b\[1m, weight$' "$run" \
        -o used.h5 -t 'swiglu rows=4 dim=2 input=hdf5 file=more.h5 repeats=0'
    does "in records, too" 0 '^# more.h5: not used: X, ' "$run" --tsv \
        -o used.h5 --force -t 'swiglu rows=4 dim=2 input=hdf5 file=more.h5 repeats=0'
    # README's lines for tensors of PyTorch's, on something that has the same methods.
    {
        cat <<EOF
import numpy
class Tensor:
    def __init__(self, a): self.a = a
    def detach(self): return self
    def cpu(self): return self
    def double(self): return Tensor(self.a.astype(numpy.float64))
    def numpy(self): return self.a
ones = lambda *shape: Tensor(numpy.ones(shape, numpy.float32))
tensors = {"x": ones(64, 8, 96), "W_k": ones(32, 96)}
EOF
        sed -n '/^import h5py$/,/^```$/p' "$srcdir/README.md" | sed '$d'
    } >model.py
    "$PYTHON" model.py >out 2>err && [ -f model.h5 ]
    ok $? "README's lines for PyTorch write a file"
    words=`sed -n "s/^run-ablation -t '\(.*file=model.h5\)'\$/\1/p" "$srcdir/README.md"`
    does "which README's command reads" 0 "inputs    read x W_k from model.h5:/; drawn W_v W_q S0" \
        "$run" -o model_out.h5 -t "$words repeats=0 checks=none"
    does "and whose output it reads, too" 0 "read x W_k W_v W_q S0 from model_out.h5:/trial/0001/in" \
        "$run" -o back.h5 -t "`echo "$words" | sed s/model.h5/model_out.h5/` group=/trial/0001/in repeats=0 checks=none"
    ! grep -q "not used" out
    ok $? "without a list of datasets that nothing used"
    # The line to run it again is one that a shell reads as it is meant.
    mkdir -p "it's \$HOME" && cp k.h5 "it's \$HOME/a \"b\".h5"
    wrongly -t 'e74_cell steps=4 batch=2 n_state=3 input=hdf5 file="it'"'"'s $HOME/a ""b"".h5" repeats=0' \
        >out 2>err
    first=`grep -c FAILED out`
    again=`sed -n 's/^ *again: run-ablation //p' out | head -1`
    eval "wrongly $again" >out 2>err
    [ $? = 1 ] && [ "$first" -gt 0 ] && [ `grep -c FAILED out` = "$first" ]
    ok $? "the line to run it again pastes back, with quotes, blanks and \$ in a name"
    does "an input of another shape" 2 "\[4,2,1,3\].*\[5,2,1,3\]" "$run" -t \
        'e74_cell steps=5 batch=2 n_state=3 input=hdf5 file=nan.h5 repeats=0'
else
    skip "a failed check" "no Python with numpy and h5py"
    for what in "the inputs read and drawn" "a warning of a NaN" "README's lines for PyTorch"; do
        skip "$what" "no Python with numpy and h5py"
    done
    for what in "an index that is out of range" "which is found before anything runs" \
        "a negative index" "which ignore_index allows" "a value that fp32 cannot hold" \
        "but infinity" "datasets that nothing used" "in records, too"; do
        skip "$what" "no Python with numpy and h5py"
    done
    skip "a dataset nearly named like an input" "no Python with numpy and h5py"
    skip "the line to run it again pastes back" "no Python with numpy and h5py"
    skip "an input of another shape" "no Python with numpy and h5py"
fi
"$run" --tsv -t 'e74_cell steps=4 batch=2 n_state=3 repeats=1' >out 2>err
ok $? "--tsv"
[ `grep -v '^#' out | awk -F'\t' '{print NF}' | sort -u` = 11 ]
ok $? "--tsv has nine fields in every record"

# ---- the names of checks ----

named='e74_cell steps=4 batch=2 n_state=3 repeats=0'
does "--verbose" 0 "^      checks    ref64 plain: differences [1-9][0-9]*$" "$run" --verbose -t "$named"
sed -n 's/^ .*  \([0-9]*\) ok$/\1/p' out >rows
sed -n 's/^      checks .*: //p' out | awk '{n = 0; for (i = 2; i <= NF; i += 2) n += $i; print n}' >sums
[ -s rows ] && cmp rows sums >>err
ok $? "its numbers add up to those of the rows"
sed -n 's/^      checks    \([^ ]*\) [^:]*: /\1 /p' out | tr -d , |
    awk '{for (i = 2; i < NF; i += 2) print $1, $i, $(i + 1)}' | sort >names
"$run" --tsv -t "$named" >records 2>err
awk -F'\t' '/^[0-9]/ {n[$2 " " $4]++} END {for (k in n) print k, n[k]}' records | sort | cmp names - >>err
ok $? "it names each check that --tsv has"
[ `grep -c '^ref32 ' names` -ge 7 ]
ok $? "all seven properties"
for check in `cut -d' ' -f2 names | sort -u` parity; do
    grep -q "^| .$check. |" "$srcdir/doc/experiments.md"
    ok $? "doc/experiments.md says what $check means"
done
"$run" -t "$named" >out 2>err && ! grep -q '^      checks' out
ok $? "without --verbose there are no such lines"
usage "--verbose and --tsv" "--tsv has a record for each check already; leave out --verbose" \
    --verbose --tsv -t relu
usage "--random and --verbose" "--random takes only --from, --seed, --op, --checks and --judge beside it" \
    --random 3 --verbose

# ---- colour ----

# on_terminal COMMAND: its output is a terminal, whose contents go to the file out.
on_terminal() {
    script -qc "$1" /dev/null </dev/null >out 2>err
}
coloured() {
    grep -q "`printf '\033'`\[[0-9;]*m" out
}
green=`printf '\033[32mok\033[0m'` red=`printf '\033[31mFAILED\033[0m'`
yellow=`printf '\033[33m'`
words="'$named'"
# Gradients of 1e-12 of logits near 1e4: most of a difference of them is rounding.
unsure='softmax rows=2 columns=47 scale=1e-06 fill=outliers seed=169795 checks=differences repeats=0'
if on_terminal "test -t 1 && echo a terminal" && grep -q "a terminal" out; then
    on_terminal "TERM=xterm NO_COLOR= '$run' -t $words" && grep -qF " $green" out
    ok $? "on a terminal ok is green"
    preload="LD_PRELOAD='$dir/tanh.so${LD_PRELOAD:+:$LD_PRELOAD}' ASAN_OPTIONS='$ASAN_OPTIONS:verify_asan_link_order=0'"
    on_terminal "TERM=xterm NO_COLOR= $preload '$run' -t $words"
    grep -qF "  $red " out
    ok $? "FAILED is red"
    on_terminal "TERM=xterm NO_COLOR= '$run' -t '$unsure'"
    grep -qF ": ${yellow}cannot be judged" out && grep -qF "${yellow}not judged" out
    ok $? "what cannot be judged is yellow"
    for how in "TERM=xterm NO_COLOR=1" "TERM=dumb NO_COLOR=" "TERM= NO_COLOR="; do
        on_terminal "$how '$run' -t $words" && grep -q '[0-9] ok' out && ! coloured
        ok $? "no colour with $how"
    done
    on_terminal "TERM=xterm NO_COLOR= '$run' --tsv -t $words" && grep -q 'pass' out && ! coloured
    ok $? "nor with --tsv"
    on_terminal "TERM=xterm NO_COLOR= '$run' -t $words | cat" && grep -q '[0-9] ok' out && ! coloured
    ok $? "nor into a pipe"
else
    for name in "on a terminal ok is green" "FAILED is red" "what cannot be judged is yellow" \
        "no colour with NO_COLOR" "no colour with TERM=dumb" "no colour without TERM" "nor with --tsv" \
        "nor into a pipe"; do
        skip "$name" "no script of util-linux"
    done
fi

# ---- the output ----

cat >own.ini <<EOF
[experiment]
repeats = 0
[trial]
op = softmax
rows = 3
columns = 4
EOF
today=`date -u +%Y-%m-%d`
does "an output" 0 ", 0 failed" "$run" own.ini
grep -q "^own.h5  [1-9][0-9.]* KiB, 1 of 1 trials" out
ok $? "its size is in a unit that fits"
does "the same plan once more" 0 "^  replaces own.h5 of $today" "$run" own.ini
"$run" --tsv own.ini >out 2>err && head -1 out | grep -q "^# replaces own.h5 of $today"
ok $? "--tsv says so in a comment"
sed -i 's/^rows.*/rows = 5/' own.ini
cp own.h5 own.was
does "another plan" 0 "^  replaces own.h5 of $today, which holds another plan and becomes own.h5.~1~$" "$run" own.ini
cmp -s own.was own.h5.~1~ && ! cmp -s own.was own.h5
ok $? "the dump of the plan before is kept"
sed -i 's/^rows.*/rows = 6/' own.ini
"$run" --tsv own.ini >out 2>err && head -1 out | grep -q "^# replaces own.h5 .* becomes own.h5.~2~$"
ok $? "--tsv says so in a comment, and the next name is taken"
sed -i 's/^rows.*/rows = 5/' own.ini
does "another plan, by force" 0 "^  replaces own.h5 of $today$" "$run" --force own.ini
cmp -s own.was own.h5.~1~ && [ -s own.h5.~2~ ] && [ ! -e own.h5.~3~ ]
ok $? "that is not kept, and those that are stay"
rm own.h5.~2~
cp own.ini copy.ini
ln own.ini hard.h5
ln -s own.ini soft.h5
for name in own.ini ./own.ini "$dir/own.ini" hard.h5 soft.h5; do
    does "-o of the ini, as $name" 2 "is the experiment's own ini; write elsewhere with -o$" "$run" --force -o "$name" own.ini
done
echo "the user's text" >notes.txt
cp notes.txt notes.was
does "-o of a text" 2 "notes.txt: is no dump .*; move it away, or write elsewhere with -o$" "$run" --force -o notes.txt own.ini
does "a text as input and output" 2 "notes.txt: is the input of trial 1" "$run" --force -o notes.txt \
    -t 'e74 steps=3 batch=1 n_state=2 dim=2 input=text file=notes.txt'
cmp -s own.ini copy.ini && cmp -s notes.txt notes.was
ok $? "they stay as they were"
mkfifo fifo
for name in . "$dir" /dev/null fifo; do
    does "-o $name" 2 "is a folder\|is no regular file" "$run" -o "$name" own.ini
done
does "-o ''" 2 "the name of the output is empty" "$run" -o '' own.ini
does "-o -" 2 "^run-ablation: -: a dump cannot be written to standard output; give a file, ./- for" \
    "$run" -o - own.ini
sed 's/^repeats.*/&\noutput = -/' own.ini >minus.ini
does "output = -" 2 "-: a dump cannot be written to standard output" "$run" --force minus.ini
[ ! -e ./- ] && [ ! -e ./-.part ]
ok $? "no file of that name is made"
does "-o ./-" 0 ", 0 failed" "$run" -o ./- own.ini
[ -s ./- ]
ok $? "is such a file"
ln -s behind.h5 link.h5
does "-o of a link" 0 ", 0 failed" "$run" -o link.h5 own.ini
[ -h link.h5 ] && [ -s behind.h5 ] && [ ! -h behind.h5 ]
ok $? "is written through the link"
does "words" 0 ", 0 failed" "$run" -t 'softmax rows=2 columns=2 repeats=0'
does "other words replace trial.h5" 0 "replaces trial.h5" "$run" -t 'softmax rows=3 columns=2 repeats=0'
does "but keep it if it is named" 0 "which holds another plan and becomes trial.h5.~1~$" "$run" -o trial.h5 \
    -t 'softmax rows=2 columns=2 repeats=0'
if [ -n "$PYTHON" ]; then
    "$PYTHON" - 2>err <<EOF
import h5py, numpy
h5py.File("model.h5", "w")["x"] = numpy.ones((3, 4))
h5py.File("lzf.h5", "w").create_dataset("x", data=numpy.ones((3, 4)), chunks=(3, 4), compression="lzf")
EOF
    sed -e 's/^rows.*/rows = 3/' -e '$a input = hdf5\nfile = model.h5' own.ini >model.ini
    cp model.h5 model.was
    does "tensors that the output would replace" 2 "model.h5: is the input of trial 1" "$run" model.ini
    does "by another name" 2 "model.h5: is the input" "$run" -o "../`basename "$dir"`/model.h5" model.ini
    does "another program's HDF5 file" 2 "was not written by this program" "$run" --force -o model.h5 own.ini
    cmp -s model.h5 model.was
    ok $? "they stay as they were"
    does "a filter that is not there" 2 "needs the filter 'lzf'" "$run" \
        -t 'softmax rows=3 columns=4 input=hdf5 file=lzf.h5 repeats=0'
    rm -f model.h5.part
else
    for name in "tensors that the output would replace" "by another name" \
        "another program's HDF5 file" "they stay as they were" "a filter that is not there"; do
        skip "$name" "no Python with numpy and h5py"
    done
fi

# ---- inputs that a file does not hold ----

"$run" -o in.h5 -t 'swiglu rows=2 dim=3 repeats=0' >out 2>err
ok $? "a dump, to be an input"
# refused NAME MESSAGE LINES [OPTION]: with these lines of [trial] from line 6 on, and as words.
refused() {
    name=$1 message=$2 lines=$3
    shift 3
    rm -f no.h5*
    printf '[experiment]\nmeasure = %s\n[trial]\nop = swiglu\nrows = 1, 2\n%b\ndim = 3\ninput = hdf5\n' \
        "$measure" "$lines" >hdf5.ini
    "$run" "$@" -o no.h5 hdf5.ini >out 2>err
    [ $? = 2 ] && [ ! -s out ] && [ `wc -l <err` = 1 ] && grep -q "^hdf5.ini:[67]: $message\$" err &&
        ! ls no.h5* >ls.txt 2>&1
    ok $? "$name, in an ini file: measure = $measure $*"
    words=`printf "%b" "$lines" | sed 's/ = /=/'`
    rm -f no.h5*
    "$run" "$@" -o no.h5 -t "swiglu rows=1,2 dim=3 input=hdf5 measure=$measure $words" >out 2>err
    [ $? = 2 ] && [ ! -s out ] && [ `wc -l <err` = 1 ] && grep -q "^-t: $message\$" err &&
        ! ls no.h5* >ls.txt 2>&1
    ok $? "$name, in words: measure = $measure $*"
}
long=`printf '%0127d' 0`
for measure in check crossover; do
    for option in '' --resume; do
        none="has none of the inputs of swiglu: a b"
        refused "no dataset of that name" "in.h5:/trial $none" 'file = in.h5\ngroup = /trial' $option
        refused "nor in /" "in.h5:/ $none" 'file = in.h5\ngroup = /' $option
        refused "nor in the default group" "in.h5:/ $none" 'file = in.h5' $option
        refused "a group without a name" "group: a value is missing" 'file = in.h5\ngroup = ""' $option
        refused "no such group" "in.h5 has no group /none" 'file = in.h5\ngroup = none' $option
        refused "a dataset as a group" "in.h5 has no group /trial/0001/in/a" \
            'file = in.h5\ngroup = /trial/0001/in/a' $option
        refused "a long name" "in.h5 has no group /$long" "file = in.h5\\ngroup = $long" $option
        refused "a longer one" "group: longer than 127 characters" "file = in.h5\\ngroup = 0$long" $option
        refused "a control character" "group: a control character (27) stands in it" \
            'file = in.h5\ngroup = a\0033[1mb' $option
        refused "no such file" "file = none.h5: No such file or directory" 'file = none.h5' $option
        refused "a file of another kind" "own.ini cannot be read as HDF5: file signature not found" \
            'file = own.ini' $option
    done
done
growing='swiglu rows=2 dim=3 input=hdf5 file=in.h5 group=/trial/0001/in measure=crossover'
does "a dataset of one batch alone" 2 "^-t: in.h5:/trial/0001/in/a is \[2,3\], swiglu's a is \[1,3\] at a batch of 1," \
    "$run" -o no.h5 -t "$growing"
does "which is right where there is no other" 0 "0 failed\|nothing was checked" \
    "$run" -o one.h5 -t "`echo "$growing" | sed s/measure=crossover//` repeats=0"
[ ! -e no.h5.part ]
ok $? "leaves no part"

# ---- descriptors, and trials that cannot be run ----

rm -f own.h5
"$run" own.ini >&- 2>&- <&-
ok $? "all descriptors closed"
[ -s own.h5 ] && ! grep -q 'checks, ' own.h5
ok $? "the report is not in the file"
does "which is whole" 0 "1 trials are there already" "$run" --resume own.ini
if [ -c /dev/full ]; then
    "$run" own.ini >/dev/full 2>err
    [ $? = 2 ] && grep -q "standard output: No space" err
    ok $? "a full standard output is an error, a closed one is not"
else
    skip "a full standard output is an error, a closed one is not" "no /dev/full"
fi
# 6000 x 4000 elements in double are 183 MiB.
cat >memory.ini <<EOF
[experiment]
checks = none
repeats = 0
[trial]
op = silu
rows = 3, 6000
dim = 4000
EOF
cat >both.ini <<EOF
[experiment]
repeats = 0
[trial]
op = e74_cell
steps = 4
batch = 2
n_state = 3
input = hdf5
file = k.h5
[trial]
op = silu
rows = 6000
dim = 4000
EOF
# Memory that is gone when a trial runs, though it was there for the plan: more than 100 MiB at once.
cat >nomem.c <<'EOF'
#include <stddef.h>
void *__libc_malloc(size_t n);
void *malloc(size_t n)
{
    return n > 100 << 20 ? NULL : __libc_malloc(n);
}
void *__libc_calloc(size_t m, size_t n);
void *calloc(size_t m, size_t n)
{
    return m * n > 100 << 20 ? NULL : __libc_calloc(m, n);
}
EOF
$CC -shared -fPIC -o nomem.so nomem.c || exit 1
limited() {
    (
        export ASAN_OPTIONS="$ASAN_OPTIONS:max_allocation_size_mb=100:allocator_may_return_null=1"
        test "${CFLAGS#*-fsanitize=address}" != "$CFLAGS" || export LD_PRELOAD="$dir/nomem.so"
        "$@"
    )
}
if limited "$run" own.ini >/dev/null 2>&1; then
    does "a trial without memory" 4 "FAILED: silu: no memory" limited "$run" memory.ini
    [ -f memory.h5.part ] && [ ! -f memory.h5 ]
    ok $? "the other one is in the part"
    does "which is not thrown away" 2 "memory.h5.part: holds 1 finished trial, .*; go on with --resume, or begin again with --force$" \
        "$run" memory.ini
    does "--resume runs the one that is missing" 0 "1 trials are there already" "$run" --resume memory.ini
else
    for name in "a trial without memory" "the other one is in the part" "which is not thrown away" \
        "--resume runs the one that is missing"; do
        skip "$name" "memory cannot be limited so far here"
    done
fi
if [ -f k.h5 ] && [ -f memory.h5 ]; then
    does "a failed check is worse" 1 "FAILED: silu: no memory" limited wrongly both.ini
else
    skip "a failed check is worse" "no Python with numpy and h5py, or memory cannot be limited"
fi

# ---- measuring ----

gpu=`"$run" --version | sed -n 's/^  gpu_bf16 *//p'`
small='e74_cell steps=40 batch=2 n_state=16 dtype=fp32,bf16'
case $gpu in
*capability* | emulated*) timed=gpu_bf16 head='ceilings  memory .*B/s' ;;
*) timed=ref_bf16 head='no ceilings measured' ;;
esac
does "measure = time" 0 "$head" "$run" --goals report -o time.h5 -t "$small measure=time"
grep " $timed  *[a-z]*  *forward  *[0-9.]* [mu]*s " out >/dev/null
ok $? "a row for each pass of $timed"
# Widths: all lines fit but those that paste back, and a line of 80 has no less than the median.
for width in 80 120; do
    for what in time check crossover; do
        COLUMNS=$width "$run" --force -o wide.h5 -t "e74_cell steps=40 batch=1,2 n_state=16 proj=full \
            nonlin=tanh,rmsnorm z_mod=column,full dtype=fp32,bf16 measure=$what repeats=2" >out 2>err
        ! grep -v 'again: ' out | LC_ALL=C.UTF-8 awk -v width=$width 'length > width { print; n++ } END { exit !n }' &&
            grep -q '^ *1  .*[0-9]' out
        ok $? "measure = $what in $width columns"
    done
done
COLUMNS=80 "$run" --force -o wide.h5 -t 'op=all cases=contract repeats=0 checks=none' >out 2>err
! grep -v 'again: ' out | LC_ALL=C.UTF-8 awk 'length > 80 { print; n++ } END { exit !n }' &&
    [ `grep -c '^   #  ' out` = `"$run" --list | sed -n '/^run-ablation/q; p' | wc -l` ]
ok $? "the cases of all operations in 80 columns, a table for each"
"$run" --tsv --goals report --force -o time.h5 -t "$small nonlin=tanh,rmsnorm measure=time repeats=2" >out 2>err
ok $? "measure = time, as records"
[ "`grep -v '^#' out | awk -F'\t' '{print NF}' | sort -u`" = 36 ]
ok $? "they have 36 fields each"
# On a GPU others may free memory meanwhile; tests/memory is there for that.  On a busy machine the
# first of two runs may take all the time that there is for both.
case $gpu in emulated*) alone=1 ;; *) alone=0 ;; esac
grep -v '^#' out | awk -F'\t' -v alone=$alone 'NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i; next }
    $at["verdict"] ~ /^declined: ./ { next }
    { n++ }
    $at["runs"] < 1 || $at["runs"] > 2 || $at["min"] > $at["median"] || $at["median"] > $at["max"] ||
    $at["min"] <= 0 || $at["tokens_per_s"] <= 0 || $at["predicted_bytes"] <= 0 { bad = 1 }
    $at["bound_by"] != "" {
        largest = ""
        for (c = at["memory"]; c <= at["latency"]; c++)
            if (largest == "" || $c > $largest) largest = c
        if ($largest > $at[$at["bound_by"]]) bad = 1
        if (alone && $at["used_bytes"] < $at["predicted_bytes"]) bad = 1
    }
    END { exit bad || n < 8 }'
ok $? "with times in order, and bound by the largest fraction"
if [ $timed = gpu_bf16 ]; then
    does "kernels that decline a case are listed" 0 "declined  gpu_bf16 rows: " "$run" --goals report --force -o time.h5 \
        -t "$small nonlin=rmsnorm measure=time"
else
    skip "kernels that decline a case are listed" "no GPU"
fi
opens "h5py and xarray open its file" "" time.h5
if [ $timed = ref_bf16 ]; then
    skip "a kernel that is wrong has no time" "no GPU"
else
    does "a kernel that is wrong has no time" 1 "no time: it failed parity" \
        env LD_PRELOAD="$dir/tanhs.so" ASAN_OPTIONS="$ASAN_OPTIONS:verify_asan_link_order=0" "$run" \
        -o bad.h5 -t 'e74_cell steps=4 batch=2 n_state=3 nonlin=tanh measure=time'
fi
does "measure = crossover" 0 "is bound by throughput" "$run" -o crossover.h5 \
    -t "e74_cell steps=9 batch=5 n_state=8 dtype=bf16 measure=crossover"
[ `awk -v b=$timed '($1 == b || $2 == b) && $3 ~ /^[0-9]*$/ { print $3 }
    $2 == b && $4 ~ /^[0-9]*$/ { print $4 }' out | sort -nu | tr '\n' ' ' | grep -c '^1 2 4 5 $'` = 1 ]
ok $? "at batches of 1, 2, 4 and the trial's"
opens "h5py and xarray open its file, too" "" crossover.h5
"$run" --tsv --force -o crossover.h5 -t "e74_cell steps=9 batch=5 n_state=8 measure=crossover" >out 2>err
[ "`grep -v '^#' out | awk -F'\t' '{print NF}' | sort -u`" = 12 ]
ok $? "its records have 12 fields each"

# ---- goals ----

# With a kernel that is named, so that no verdict on the default decides.
goals='softmax rows=8 columns=64 measure=time'
does "a goal without measure = time" 2 "^-t: goal: only with measure = time" "$run" -n -t 'softmax goal="1 ns"'
does "--goals with another word" 2 "^run-ablation: --goals no: must be fail or report; try" "$run" --goals no \
    -o goal.h5 -t "$goals"
does "--goals without measure = time" 2 "^run-ablation: --goals report: only measure = time judges goals" \
    "$run" --goals report -o goal.h5 -t relu
"$run" -n -t "$goals goal=\"90 % memory\" goal_backward=\"12 us\"" >out 2>err
line=`cut -f2 out`
[ "`"$run" -n -t "$line" | cut -f2`" = "$line" ] && [ -n "$line" ]
ok $? "a line with goals pastes back"
if [ $timed = ref_bf16 ]; then
    does "a goal without a GPU is skipped" 0 "^skipped .*; goal: no kernel ran on a GPU" \
        "$run" -o goal.h5 -t "$goals goal=\"1 ns\""
    grep -q "^0 checks, 2 skipped: nothing was checked" out
    ok $? "and counted"
else
    does "a goal that is missed" 1 "^ *gpu32 softmax warp: forward took .*, the goal is 1 ns" \
        "$run" -o goal.h5 -t "$goals kernel=warp goal=\"1 ns\""
    again=`sed -n "s/^ *again: run-ablation -t '\(.*\)'/\1/p" out`
    does "its command" 1 "forward took .*, the goal is 1 ns" "$run" --force -o goal.h5 -t "$again"
    does "--goals report" 0 "^[0-9]* checks, 0 failed, 0 skipped, 1 goal missed" "$run" --goals report --force \
        -o goal.h5 -t "$again"
    grep -q "forward took .*, the goal is 1 ns" out
    ok $? "names it, too"
    does "resumed with it" 0 ", 0 failed, 0 skipped, 1 goal missed" "$run" --goals report --resume -o goal.h5 -t "$again"
    does "resumed without it" 1 ", 1 failed, 0 skipped" "$run" --resume -o goal.h5 -t "$again"
    does "resumed with another goal" 2 "holds another plan: trial 1 is" "$run" --resume -o goal.h5 \
        -t "$goals kernel=warp goal=\"2 ns\""
    does "a goal that is reached" 0 "^[0-9]* checks, 0 failed, 0 skipped" "$run" --force -o goal.h5 \
        -t "$goals kernel=warp goal=\"1000 s\" goal_backward=\"1000 s\""
    does "a ceiling that does not apply" 0 "^skipped  *goal: the ceiling tensor does not apply to forward" \
        "$run" --force -o goal.h5 -t "$goals kernel=warp goal=\"90 % tensor\""
    does "without a kernel's name the default is judged" 0 "^[0-9]* checks, 0 failed" \
        "$run" --goals report --force --verbose -o goal.h5 -t "$goals"
    grep -q "^ *checks  *gpu32 warp: parity 2, default 2" out
    ok $? "for both passes"
    opens "h5py and xarray open a file with goals" "" goal.h5
fi

# ---- judged by a sample ----

product='gemm M=200 N=130 K=9 judge=sampled repeats=0'
does "judge = sampled" 0 "1 of 1 trials judged by sample: 64 rows of each long axis" "$run" -o few.h5 -t "$product"
does "--tsv with it" 0 "^trial	.*	verdict	judged	elements	line$" "$run" --tsv --force -o few.h5 -t "$product"
if [ $timed = ref_bf16 ]; then
    for name in "the rows that were sampled are printed" "and how many elements were judged" \
        "a result that no sample covers is not judged" "h5py and xarray open a file with a sample" \
        "again: has judge = sampled" "measure = time of a sample"; do
        skip "$name" "no GPU"
    done
else
    grep -q "^# judged  *by sample of 64 of 200 M, 63 of 130 N (seed 1); all elements of .* by Freivalds' check" out
    ok $? "the rows that were sampled are printed"
    grep -q "	parity	C	.*	pass	4032	26000	gemm " out && grep -q "	products	C	.*	pass	26000	26000	gemm " out
    ok $? "and how many elements were judged"
    opens "h5py and xarray open a file with a sample" "NumPy agrees: gemm" few.h5
    does "a result that no sample covers is not judged" 0 "^  *judged  *by sample of 64 of 200 rows" \
        "$run" --force -o few.h5 -t 'layernorm rows=200 columns=70 dtype=fp32 judge=sampled repeats=0'
    grep -q "^[0-9]* checks, 0 failed, 0 skipped, [24] cannot be judged" out
    ok $? "and the closing line counts it"
    does "again: has judge = sampled" 1 "again: run-ablation -t 'e74_cell .* judge=sampled'" \
        env LD_PRELOAD="$dir/tanhs.so" ASAN_OPTIONS="$ASAN_OPTIONS:verify_asan_link_order=0" "$run" \
        --force -o few.h5 -t 'e74_cell steps=3 batch=70 heads=1 n_state=3 judge=sampled repeats=0'
    does "measure = time of a sample" 0 "^  *judged  *by sample of 64 of 200 M, 63 of 130 N" \
        "$run" --goals report --force -o few.h5 -t 'gemm M=200 N=130 K=9 judge=sampled measure=time'
fi
"$run" --force -o few.h5 -t "$product" >out 2>err && mv few.h5 few.h5.part
does "--resume with another judgement" 2 "another plan: trial 1 is judged by a sample there" \
    "$run" --resume -o few.h5 -t 'gemm M=200 N=130 K=9 judge=full checks=parity repeats=0'

# ---- interruption ----

cat >long.ini <<EOF
[experiment]
checks = differences
repeats = 0
[trial]
op = e74
state = full
nonlin = tanh, linear, rmsnorm, frobnorm
seed = 1, 2, 3
steps = 48
batch = 3
n_state = 20
dim = 32
EOF
"$run" -o whole.h5 long.ini >out 2>err
ok $? "a run that is not interrupted"

# interrupt SIGNAL STATUS: stop a run in the middle, check the part, resume.
interrupt() {
    rm -f cut.h5 cut.h5.part
    : >cut.out
    "$run" -o cut.h5 long.ini >cut.out 2>err &
    child=$!
    while [ `grep -c ref64 cut.out` -lt 3 ] && kill -0 $child 2>/dev/null; do
        sleep 0.05
    done
    live=2 # unless it ends before it is looked at
    if [ -n "$H5DUMP" ] && kill -STOP $child 2>/dev/null; then
        HDF5_USE_FILE_LOCKING=FALSE "$H5DUMP" -d /trial/0001/ref64/out cut.h5.part >out 2>&1
        live=$?
        kill -CONT $child
    fi
    kill -$1 $child
    wait $child 2>/dev/null
    got=$?
    [ $got = $2 ]
    ok $? "$1 ends it with $2"
    [ ! -f cut.h5 ] && [ -f cut.h5.part ]
    ok $? "$1 leaves a part"
    if [ -z "$H5DUMP" ]; then
        skip "before $1 the finished trials are readable, without a lock" "no h5dump"
        skip "after $1 the finished trials are readable" "no h5dump"
        skip "--resume after $1 completes the file to the same content" "no h5dump"
        return
    fi
    ok $live "before $1 the finished trials are readable, without a lock"
    "$H5DUMP" -d /trial/0003/ref64/out cut.h5.part >out 2>err
    ok $? "after $1 the finished trials are readable"
    "$run" --resume -o cut.h5 long.ini >out 2>err && grep -q 'are there already' out &&
        same_content whole.h5 cut.h5
    ok $? "--resume after $1 completes the file to the same content"
}
interrupt INT 130
interrupt KILL 137

if [ -n "$H5DUMP" ]; then
    "$run" -o again.h5 long.ini >out 2>err && same_content whole.h5 again.h5
    ok $? "two runs give the same datasets, bit for bit"
fi
# A write limit is a full disk: in blocks of 512 bytes.
rm -f cut.h5 cut.h5.part
(ulimit -f 8 && exec "$run" -o cut.h5 long.ini) >out 2>err
[ $? = 2 ] && grep -q 'cut.h5.part: ' err && ! ls | grep -q '^cut\.h5'
ok $? "a disk that is full from the start is an error, and no file is left"
(ulimit -f 5000 && exec "$run" -o cut.h5 long.ini) >out 2>err
[ $? = 2 ] && grep -q 'cut.h5.part: needs' err
ok $? "a full disk is an error, with exit status 2"
if [ -n "$H5DUMP" ]; then
    "$H5DUMP" -d /trial/0001/ref64/out cut.h5.part >out 2>err
    ok $? "after a full disk the finished trials are readable"
    "$run" --resume -o cut.h5 long.ini >out 2>err && same_content whole.h5 cut.h5
    ok $? "--resume after a full disk completes the file to the same content"
fi
# A disk of 64 KiB, with as many bytes free as are named; nothing but one sentence is said.
no_space() {
    name="a disk with $1 bytes free is one sentence, with exit status 2, and no file is left"
    mkdir -p small
    if ! mount -t tmpfs -o size=64k none small 2>/dev/null; then
        skip "$name" "a file system cannot be mounted here"
        return
    fi
    head -c $((65536 - $1)) /dev/zero >small/full
    "$run" -o small/cut.h5 long.ini >out 2>err
    [ $? = 2 ] && [ `wc -l <err` = 1 ] && grep -q 'small/cut.h5.part: .*No space left' err &&
        [ "`ls small`" = full ]
    ok $? "$name"
    umount small
}
no_space 0
no_space 4096
no_space 65536
cp whole.h5 other.h5.part
does "a part is not thrown away" 2 "other.h5.part: holds 12 finished trials, .*; go on with --resume" \
    "$run" -o other.h5 long.ini
sed -i 's/^repeats.*/repeats = 1/' long.ini
does "--resume with another key" 2 "another plan: repeats = 0, not 1" "$run" --resume -o other.h5 long.ini
sed -i 's/^dim.*/dim = 33/' long.ini
does "--resume of another plan" 2 "another plan" "$run" --resume -o other.h5 long.ini
echo "1..$n"
