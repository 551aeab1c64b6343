#!/bin/sh
# experiments/peers on a dump of ours, without a GPU: PyTorch's eager loop, and
# the Triton kernels in Triton's interpreter, are right where they are and WRONG
# where the dump says otherwise; missing peers are listed; bad input is refused.
# TAP on stdout.  $srcdir and $PYTHON come from the Makefile.
if [ -z "$PYTHON" ]; then
    echo "1..0 # SKIP no Python with numpy and h5py"
    exit 0
fi
. "${srcdir:-.}/tests/runner_tap.sh"
CUDA_VISIBLE_DEVICES=
PYTHONDONTWRITEBYTECODE=1
export CUDA_VISIBLE_DEVICES PYTHONDONTWRITEBYTECODE

# peers ARGUMENT...: the driver, with its output in the files out and err.
peers() {
    timeout 300 "$PYTHON" "$srcdir/experiments/peers/run_peers.py" "$@" >out 2>err
}
# all_right PEER N: N passes of it were compared and found right.
all_right() {
    [ `awk -F'\t' -v peer="$1" '$2 == peer && $10 == "not timed" && $7 <= $8' out | wc -l` = $2 ]
}
has() {
    "$PYTHON" -c "import $1" >/dev/null 2>&1
}

# ---- dumps: the cells that peers know, in odd sizes ----

cat >cells.ini <<END
[experiment]
checks = none
repeats = 0
[trial]
op = e74_cell
state = full, diagonal
nonlin = tanh, linear
dtype = bf16, fp32
steps = 7
batch = 1
heads = 2
n_state = 5
checkpoint_interval = 3
END
"$run" cells.ini >out 2>err
ok $? "a dump of 8 trials"
"$run" -o other.h5 -t 'transpose rows=2 columns=3' >out 2>err
ok $? "a dump of another operation"
{
    printf '[experiment]\nchecks = none\nrepeats = 0\n'
    for op in softmax rmsnorm layernorm; do
        printf '[trial %s]\nop = %s\nrows = 3\ncolumns = 70\ndtype = fp32, bf16\n' $op $op
    done
    for op in silu relu swiglu add; do
        printf '[trial %s]\nop = %s\nrows = 3\ndim = 7\ndtype = fp32, bf16\n' $op $op
    done
    cat <<END
[trial rope]
op = rope
batch = 2
steps = 5
heads = 3
dim = 6
form = half, interleaved
dtype = fp32, bf16
[trial cross_entropy]
op = cross_entropy
rows = 5
vocabulary = 70
label_smoothing = 0, 0.1
dtype = fp32, bf16
[trial embedding]
op = embedding
rows = 9
vocabulary = 5
width = 3
dtype = fp32, bf16
[trial adamw]
op = adamw
parameters = 1000
tensors = 1, 5
step = 1, 7
lr = 0.3
eps = 0.2
weight_decay = 0.5
dtype = fp32
END
} >rows.ini
"$run" rows.ini >out 2>err
ok $? "a dump of 28 trials of the catalogue's rows"
cat >attention.ini <<END
[experiment]
checks = none
repeats = 0
[trial masks]
op = attention
steps = 9
keys = 0, 5, 13
heads = 6
kv_heads = 2, 6
dim = 8
mask = full, causal
d_lse = zero
dtype = fp32, bf16
[trial windows]
op = attention
steps = 9
keys = 13
dim = 8
dim_v = 5
mask = window
left = -1, 2
right = -1, 1
scale = 0.5
d_lse = zero
dtype = fp32, bf16
[trial biases]
op = attention
steps = 7
dim = 5
mask = full, causal
bias = full, alibi
d_lse = zero
dtype = fp32, bf16
[trial others]
op = attention
steps = 7
dim = 5
softcap = 0, 2
sink = no, yes
d_lse = zero, drawn
END
"$run" attention.ini >out 2>err
ok $? "a dump of 48 trials of attention"
cat >quantised.ini <<END
[experiment]
checks = none
repeats = 0
[trial rows]
op = gemm_quantised
format = q4_k, q5_k, q6_k, q8_0
rows = 1, 5
weights = 1, 3
dim_out = 32
dim_in = 512
dtype = fp32, bf16
[trial blocks]
op = gemm_quantised
format = nf4
double_quant = yes, no
block = 64, 128
rows = 3
weights = 1, 2
dim_out = 19
dim_in = 65, 1024
dtype = fp32, bf16
END
"$run" quantised.ini >out 2>err
ok $? "a dump of 64 trials of products with quantised weights"
"$run" -n "$srcdir/experiments/peers/bench_peers.ini" >out 2>err && [ `wc -l <out` = 11 ]
ok $? "bench_peers.ini is a plan of 11 trials"
"$run" -n "$srcdir/experiments/bench_attention.ini" >out 2>err && [ `wc -l <out` = 14 ]
ok $? "bench_attention.ini is a plan of 14 trials"
"$run" -n "$srcdir/experiments/peers/bench_rows.ini" >out 2>err && [ `wc -l <out` = 9 ]
ok $? "bench_rows.ini is a plan of 9 trials"
"$run" -n "$srcdir/experiments/peers/bench_training.ini" >out 2>err && [ `wc -l <out` = 23 ]
ok $? "bench_training.ini of 23"
"$run" -n "$srcdir/experiments/peers/bench_quantised_peers.ini" >out 2>err && [ `wc -l <out` = 30 ]
ok $? "bench_quantised_peers.ini is a plan of 30 trials"

# (PyTorch's layernorm on a CPU keeps mean and deviation in bf16, and is wrong by 1.5 bounds in d_x.)
cat >few.ini <<END
[experiment]
judge = sampled
repeats = 0
[trial]
op = layernorm
rows = 200
columns = 70
dtype = fp32
[trial]
op = softmax
rows = 200
columns = 70
dtype = bf16
[trial]
op = e74_cell
state = diagonal
nonlin = tanh
steps = 3
batch = 100
heads = 2
n_state = 5
END
(unset CUDA_VISIBLE_DEVICES && "$run" few.ini) >out 2>err
ok $? "a dump of 3 trials judged by a sample"

# ---- refusals, and missing peers ----

does "an unknown peer is refused" 2 "there is no peer nobody; there are triton" peers cells.h5 --peers nobody
if has torch; then
    does "a file that is not there is refused" 2 "nothing.h5: cannot be opened" peers nothing.h5
    does "a file that is no dump is refused" 2 "cells.ini: cannot be opened" peers cells.ini
    does "a trial that is not there is refused" 2 "has no trial 9" peers cells.h5 --trial 9
    does "another operation is refused" 2 "has no trial that a peer could run" peers other.h5
    does "missing peers are listed" 0 "fla-chunk: not there: flash-linear-attention" \
        peers cells.h5 --trial 1 --peers fla-chunk
else
    does "without PyTorch nothing is compared" 0 "torch is not there" peers cells.h5
fi

# ---- right and wrong ----

if has torch; then
    peers cells.h5 --no-times --tsv --peers eager
    [ $? = 0 ] && all_right eager 16
    ok $? "PyTorch's eager loop is right in all trials, both passes"
    peers rows.h5 --no-times --tsv --peers eager
    [ $? = 0 ] && all_right eager 52
    ok $? "and PyTorch's rows and adamw"
    if has torch.nn.attention; then
        peers attention.h5 --no-times --tsv --peers sdpa-math
        [ $? = 0 ] && all_right sdpa-math 78 && [ `grep -c "declines: " out` = 9 ]
        ok $? "and PyTorch's attention, which declines what it has not"
        peers attention.h5 --no-times --tsv --peers sdpa-flash,sdpa-cudnn
        [ $? = 0 ] && grep -q "declines: .*same last dimension" out
        ok $? "what a backend of it refuses is declined, with PyTorch's reason"
        "$PYTHON" - <<END
import h5py
with h5py.File("attention.h5", "r+") as f:
    f["trial/0001/dout/o"][...] *= 1.01
    f["trial/0002/in/v"][...] *= 1.1
END
        does "another gradient of o makes its gradients WRONG" 1 \
            "sdpa-math  *backward .* d_.*WRONG by" peers attention.h5 --trial 1 --peers sdpa-math
        does "another v makes its o WRONG" 1 \
            "sdpa-math  *forward .*WRONG by" peers attention.h5 --trial 2 --peers sdpa-math
    else
        skip "PyTorch's attention is right" "no torch.nn.attention"
    fi
    peers quantised.h5 --no-times --tsv --peers cublas
    [ $? = 0 ] && all_right cublas 128
    ok $? "and products with weights that the script decodes"
    if has bitsandbytes; then
        peers quantised.h5 --no-times --tsv --peers bnb-4bit
        [ $? = 0 ] && all_right bnb-4bit 64 && [ `grep -c "declines: it has no q" out` = 32 ]
        ok $? "and bitsandbytes with the bytes of nf4"
    else
        skip "bitsandbytes is right with the bytes of nf4" "no bitsandbytes"
    fi
    if "$PYTHON" -c 'import torch; torch.ops.aten._weight_int4pack_mm_for_cpu' >out 2>err; then
        peers quantised.h5 --no-times --tsv --peers torchao-int4
        [ $? = 0 ] && all_right torchao-int4 4 && [ `grep -c "declines: .* no gradient" out` = 4 ]
        ok $? "and PyTorch's int4 kernel with weights near those of q4_k"
    else
        skip "PyTorch's int4 kernel is right" "this PyTorch has none"
    fi
    "$PYTHON" - <<END
import h5py
with h5py.File("quantised.h5", "r+") as f:
    f["trial/0001/in/W"][0, 20] ^= 1
    f["trial/0002/in/W"][0, 16:144] ^= 255
    f["trial/0033/in/W"][5] ^= 1
END
    does "another code makes the product WRONG" 1 "cublas  *forward .*WRONG by" peers quantised.h5 \
        --trial 1 --trial 33 --peers cublas
    [ `grep -c "cublas  *forward .*WRONG by" out` = 2 ]
    ok $? "of blocks with scales of their own, and of nf4"
    if "$PYTHON" -c 'import torch; torch.ops.aten._weight_int4pack_mm_for_cpu' >out 2>err; then
        does "and other quants weights that are not those of the int4 kernel" 1 \
            "FAILED: .* its weights are off from q4_k's" peers quantised.h5 --trial 2 --peers torchao-int4
    fi
    if has triton; then
        TRITON_INTERPRET=1 peers cells.h5 --no-times --tsv --peers triton
        [ $? = 0 ] && all_right triton 16
        ok $? "the Triton kernels are right in all trials, both passes"
    else
        skip "the Triton kernels are right in all trials, both passes" "no Triton"
    fi
    "$PYTHON" - <<END
import h5py
with h5py.File("cells.h5", "r+") as f:
    f["trial/0002/dout/out"][...] *= 1.01
    f["trial/0004/in/v"][...] *= 1.01
END
    does "other upstream gradients make its gradients WRONG" 1 \
        "eager  *backward .* d_.*WRONG by" peers cells.h5 --trial 2 --peers eager
    grep -q "eager  *forward .* not timed" out
    ok $? "and leave its outputs right"
    does "other inputs make its outputs WRONG" 1 "eager  *forward .*WRONG by" peers cells.h5 \
        --trial 4 --peers eager
    if "$PYTHON" -c 'import h5py; h5py.File("few.h5")["trial/0001/sample/ref64"]' >out 2>err; then
        peers few.h5 --no-times --tsv --peers eager
        [ $? = 0 ] && all_right eager 6
        ok $? "PyTorch is right on the samples, both passes"
        grep -q "^trial 0001: .* (judged by a sample, which does not cover d_b, d_w)" err &&
            grep -q "^trial 0003: .* (judged by a sample)" err
        ok $? "the titles say that these are samples, and what they do not cover"
        "$PYTHON" - <<END
import h5py
with h5py.File("few.h5", "r+") as f:
    f["trial/0001/in/x"][1:-1, 0] += 0.1
    f["trial/0003/sample/ref64/d/q"][-1] *= 1.01
END
        does "other inputs in sampled rows make its outputs WRONG" 1 \
            "eager  *forward .*WRONG by" peers few.h5 --trial 1 --peers eager
        does "another gradient in one of them makes its gradients WRONG" 1 \
            "eager  *backward .* d_q .*WRONG by" peers few.h5 --trial 3 --peers eager
    else
        skip "PyTorch is right on the samples" "no GPU backend is here to be judged by one"
    fi
else
    for name in "PyTorch's eager loop is right" "the Triton kernels are right" \
        "PyTorch is right on the samples" "a result that is off is WRONG"; do
        skip "$name" "no PyTorch"
    done
fi
echo "1..$n"
