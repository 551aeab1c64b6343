#!/bin/sh
# run-ablation's tensors in files: results that NumPy computes, too, from the dump, and inputs from GGUF
# and HDF5: which are read, which are refused, and why.  TAP on stdout.
# $srcdir, $PYTHON and $H5DUMP come from the Makefile.
. "${srcdir:-.}/tests/runner_tap.sh"
wrong_tanh
small=$srcdir/tests/small.gguf

# ---- results in NumPy ----

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
decayed = -1, 17
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
    "^ *3 *k_quants *q4_k .* wide *ref64 .* 4\.5 *36864 *0\.08217 *0\.03336 " \
    env COLUMNS=160 "$run" "$srcdir/experiments/quantised_model.ini" -o model.h5
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

# Files that tests/odd_gguf.py writes: a tensor of theirs that cannot be read, names that a terminal must
# not get, and a model in three files.
# clean NAME: neither stream of the last command has a byte that is not printable ASCII, but for the
# ellipsis of a table's cell, and tabs where NAME says --tsv.
ellipsis=`printf '\342\200\246'`
clean() {
    case $1 in
    *--tsv) tab='\011' ;;
    *) tab= ;;
    esac
    [ `cat out err | sed "s/$ellipsis//g" | LC_ALL=C tr -d '\012\040-\176'"$tab" | wc -c` = 0 ]
    ok $? "$1: what is printed is printable"
}
if [ -n "$PYTHON" ] && "$PYTHON" "$srcdir/tests/odd_gguf.py" >out 2>err; then
    read_n() {
        does "$1: the tensor beside it is read" 0 "read w from" \
            "$run" -t "rmsnorm rows=1 columns=4 input=gguf file=$2 tensor=w:n" -o n.h5 --force
    }
    for kind in empty scalar unknown blocks axes huge none odd; do
        does "a tensor that is $kind: listed" 0 "^n  *f32  *\[4\]  *16$" "$run" --list $kind.gguf
        read_n "a tensor that is $kind" $kind.gguf
    done
    does "an empty one in the list" 0 "^tag  *f32  *\[0\]  *0$" "$run" --list empty.gguf
    does "an unknown type in the list" 0 "^tag  *unknown(139)  *\[4\]  *-$" "$run" --list unknown.gguf
    does "huge lengths in the list" 0 "^tag  *f32  *\[1099511627776,1099511627776\]  *-$" "$run" --list huge.gguf
    does "and beside a length of 0" 0 "^tag  *f32  *\[9223372036854775808,0\]  *0$" "$run" --list none.gguf
    does "and of an unknown type" 0 "^tag  *unknown(139)  *\[18446744073709551615\]  *-$" "$run" --list odd.gguf
    for asked in "empty:is \[0\]: it has no elements" "unknown:has type 139, which is not known" \
        "huge:is \[1099511627776,1099511627776\]: it has 2^63 elements or more" \
        "none:is \[9223372036854775808,0\]: it has no elements" "odd:has type 139, which is not known" \
        "scalar:is \[\], rmsnorm's w has 1 axes" "axes:has 5 axes, at most 4 are read" \
        "blocks:has rows of 8: q8_0 has blocks of 32"; do
        kind=${asked%%:*}
        does "a tensor that is $kind, asked for" 2 "^-t: $kind.gguf: \(tensor \)\?tag ${asked#*:}$" \
            "$run" -n -t "rmsnorm input=gguf file=$kind.gguf tensor=w:tag"
        [ `wc -l <err` = 1 ]
        ok $? "is one sentence"
    done
    does "a name with control characters: listed" 0 '^a\\x1b\[31m\\x09b\\x0a\\xff\\xc2\\x9b ' \
        "$run" --list names.gguf
    clean "the list"
    does "and read" 0 "read w from" "$run" -t \
        'rmsnorm rows=1 columns=4 input=gguf file=names.gguf tensor="w:a\x1b[31m\x09b\x0a\xff\xc2\x9b"' -o n.h5 --force
    clean "the report"
    does "a message with it" 2 "key a.x1b\[31m has type 77" "$run" --list key.gguf
    clean "the message"

    does "a shard, the others beside it" 0 "^shards: 1 2 3 of 3$" "$run" --list m-00001-of-00003.gguf
    does "has the tensors of all" 0 "^t3  *f32  *\[4\]  *16$" "$run" --list m-00002-of-00003.gguf
    for k in 1 2 3; do
        does "tensor $k of three shards" 0 "read w from" "$run" -o n.h5 --force -t \
            "rmsnorm rows=1 columns=4 input=gguf file=m-00002-of-00003.gguf tensor=w:t$k"
    done
    printf '[trial]\nop = rmsnorm\nrows = 1\ncolumns = 4\ninput = gguf\nfile = %s\ntensor = w:t1\n' \
        m-00002-of-00003.gguf >shards.ini
    does "an ini of another shard's tensor" 0 "1 of 1 trials" "$run" shards.ini
    cp m-00001-of-00003.gguf before.gguf
    printf '\1' | dd of=m-00001-of-00003.gguf bs=1 seek=$((`wc -c <before.gguf` - 32)) conv=notrunc 2>/dev/null
    does "is not gone on with when that has changed" 2 "trial 1 read another m-00002-of-00003.gguf then" \
        "$run" --resume shards.ini
    cp before.gguf m-00001-of-00003.gguf
    does "but when it is as it was" 0 "1 trials are there already" "$run" --resume shards.ini
    for k in 1 2 3; do
        does "a tensor that two shards have, from shard $k" 2 \
            "again-00001-of-00003.gguf: tensor t4 is in another shard, too: again-00003-of-00003.gguf$" \
            "$run" --list again-0000$k-of-00003.gguf
        does "is not read" 2 "tensor t4 is in another shard, too" "$run" -n -t \
            "rmsnorm rows=1 columns=4 input=gguf file=again-0000$k-of-00003.gguf tensor=w:t4"
    done
    mkdir alone && cp m-00002-of-00003.gguf alone
    does "a shard alone" 0 "^shards: 2 of 3; all have 3 tensors; 2 not read: .*m-00001-of-00003.gguf: No such file" \
        "$run" --list alone/m-00002-of-00003.gguf
    does "a tensor of another shard" 2 "no tensor t1; like it: t2; it may be in one of the 2 shards of 3 that are not read: .*m-00001-of-00003.gguf: No such file" \
        "$run" -n -t "rmsnorm input=gguf file=alone/m-00002-of-00003.gguf tensor=w:t1"
    cp m-00003-of-00003.gguf alone/m-00001-of-00003.gguf
    does "a shard under another's name" 0 "m-00001-of-00003.gguf: is not shard 1 of 3, as its name says" \
        "$run" --list alone/m-00002-of-00003.gguf
    head -c 100 m-00001-of-00003.gguf >alone/m-00001-of-00003.gguf
    does "a shard that is cut off" 0 "2 not read: .*m-00001-of-00003.gguf: ends within" \
        "$run" --list alone/m-00002-of-00003.gguf
    cp m-00002-of-00003.gguf alone/renamed.gguf
    does "a shard with a name of its own" 0 "the name .*renamed.gguf does not end in -00002-of-00003.gguf" \
        "$run" --list alone/renamed.gguf
else
    skip "odd tensors in GGUF" "no Python"
fi

# ---- input = hdf5 ----

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
    # Names with ESC, tab, newline and bytes that are no UTF-8, wherever a name of a file is printed.
    "$PYTHON" -c 'import h5py, numpy
f = h5py.File("names.h5", "w")
bad = b"x\033[1m\t\n\177\xff\xc2\x9b"
f.create_dataset("a", data=numpy.full((4, 2), numpy.nan))
f.create_dataset(bad, data=numpy.ones((4, 2)))
g = h5py.File("nearly.h5", "w")
g.create_dataset(b"A\t\033", data=numpy.ones((4, 2)))' 2>err
    for how in "" --tsv --verbose; do
        does "a dataset with control characters $how" 0 'not used: x\\x1b\[1m\\x09\\x0a\\x7f\\xff\\xc2\\x9b$' "$run" $how \
            -o used.h5 --force -t 'swiglu rows=4 dim=2 input=hdf5 file=names.h5 repeats=0 checks=none'
        clean "the report $how"
    done
    does "in a message" 2 'nearly.h5:/A\\x09\\x1b is no input' "$run" \
        -o used.h5 --force -t 'swiglu rows=4 dim=2 input=hdf5 file=nearly.h5 repeats=0'
    clean "the message"
    "$run" --inputs 'softmax rows=2 columns=3' -o judged.h5 >out 2>err
    "$PYTHON" -c 'import h5py, numpy
f = h5py.File("judged.h5", "r+")
t = f["trial/0001"]
for name in b"m\033[1m", b"m\ttab", b"m\nline\xff":
    g = t.create_group(name)
    g.create_dataset("y", data=numpy.zeros((2, 3)))
    g.create_dataset(b"z\033\t\n\xff", data=numpy.zeros(3))' 2>err
    for how in "" --tsv --verbose; do
        "$run" judge judged.h5 $how >out 2>err
        [ $? != 0 ] && cat out err | grep -q 'm\\x\(1b\|09\)'
        ok $? "programs with control characters in their names are named $how"
        clean "run-ablation judge $how"
        [ "$how" != --tsv ] || ! grep -v '^#' out | awk -F'\t' 'NF != 15' | grep .
        ok $? "records have 15 columns $how"
    done
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
echo "the user's text" >notes.txt
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
        refused "a file of another kind" "notes.txt cannot be read as HDF5: file signature not found" \
            'file = notes.txt' $option
    done
done
growing='swiglu rows=2 dim=3 input=hdf5 file=in.h5 group=/trial/0001/in measure=crossover'
does "a dataset of one batch alone" 2 "^-t: in.h5:/trial/0001/in/a is \[2,3\], swiglu's a is \[1,3\] at a batch of 1," \
    "$run" -o no.h5 -t "$growing"
does "which is right where there is no other" 0 "0 failed\|nothing was checked" \
    "$run" -o one.h5 -t "`echo "$growing" | sed s/measure=crossover//` repeats=0"
[ ! -e no.h5.part ]
ok $? "leaves no part"

echo "1..$n"
