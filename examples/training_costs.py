"""What an update of training costs on a GPU: ablate's, by run-ablation, beside the same model in PyTorch, eager and by
torch.compile, and with flash-linear-attention for a linear state (where `fla` is there).

    python training_costs.py RUN-ABLATION FILE [--updates 200] [--dtype bf16]

The model: bytes of FILE, d 256, 2 blocks of E74, 4 heads of 64, full state; length 256, batch 256.  An update is the
zeroed gradients, both passes, clip_grad_norm_ and a fused AdamW step."""

import argparse
import os
import re
import subprocess
import tempfile
import time

import h5py
import torch
from torch import nn
from torch.nn import functional as F

DIM, HEADS, N, LENGTH, BATCH, BLOCKS, VOCABULARY = 256, 4, 64, 256, 256, 2, 256


def cell_steps(k_hat, v, q, S, nonlin):
    """Some steps, [steps,B,H,n]; the outputs and the state behind them."""
    out = []
    for t in range(k_hat.shape[0]):
        rho = (S @ k_hat[t, ..., None])[..., 0]
        S = nonlin(S + (v[t] - rho)[..., None] * k_hat[t, ..., None, :])
        y = (S @ q[t, ..., None])[..., 0]
        out.append(y * y * torch.sigmoid(y))
    return torch.stack(out), S


class Block(nn.Module):
    """x + W_o e74(rmsnorm(x)); its loop by `steps`, a chunk at a time."""

    def __init__(self, nonlin, steps, chunk):
        super().__init__()
        self.nonlin, self.steps, self.chunk = nonlin, steps, chunk
        self.norm = nn.Parameter(torch.ones(DIM))
        for name in ("W_k", "W_v", "W_q"):
            setattr(self, name, nn.Linear(DIM, HEADS * N, bias=False))
        self.W_o = nn.Linear(HEADS * N, DIM, bias=False)

    def projected(self, x):
        n = F.rms_norm(x, x.shape[-1:], self.norm, 1e-6)
        return [W(n).view(*x.shape[:2], HEADS, N) for W in (self.W_k, self.W_v, self.W_q)]

    def forward(self, x):
        k, v, q = (y.float() for y in self.projected(x))
        k_hat = k / (k.norm(dim=-1, keepdim=True) + 1e-6)
        S, out = x.new_zeros(x.shape[1], HEADS, N, N, dtype=torch.float32), []
        for t in range(0, x.shape[0], self.chunk):
            some = slice(t, t + self.chunk)
            y, S = self.steps(k_hat[some], v[some], q[some], S, self.nonlin)
            out.append(y)
        read = torch.cat(out).reshape(*x.shape[:2], HEADS * N).to(x.dtype)
        return x + self.W_o(read)


class FlaBlock(Block):
    """The same by chunk_delta_rule, beta 1."""

    def forward(self, x):
        from fla.ops.delta_rule import chunk_delta_rule
        k, v, q = (y.transpose(0, 1).contiguous() for y in self.projected(x))
        k = F.normalize(k.float(), dim=-1).to(x.dtype)
        beta = torch.ones(*k.shape[:3], device=x.device, dtype=x.dtype)
        y, _ = chunk_delta_rule(q, k, v, beta, scale=1.0)
        y = y.transpose(0, 1).float()
        return x + self.W_o((y * y * torch.sigmoid(y)).to(x.dtype).reshape(*x.shape[:2], HEADS * N))


class Model(nn.Module):
    def __init__(self, block):
        super().__init__()
        self.E = nn.Embedding(VOCABULARY, DIM)
        self.blocks = nn.ModuleList(block() for _ in range(BLOCKS))
        self.norm = nn.Parameter(torch.ones(DIM))
        self.head = nn.Linear(DIM, VOCABULARY, bias=False)

    def forward(self, token, target):
        x = self.E(token)
        for block in self.blocks:
            x = block(x)
        logits = self.head(F.rms_norm(x, x.shape[-1:], self.norm, 1e-6))
        return F.cross_entropy(logits.float().flatten(0, 1), target.flatten())


def measure(what, model, loss, data, updates):
    """A line: the median of an update, tokens per second, the peak of memory, the first call."""
    adamw = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)

    def update():
        adamw.zero_grad(set_to_none=True)
        value = loss(*data)
        value.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        adamw.step()
        return value

    try:
        torch.cuda.reset_peak_memory_stats()
        began = time.perf_counter()
        update()
        torch.cuda.synchronize()
        first, seconds = time.perf_counter() - began, []
        update()
        for _ in range(updates):
            torch.cuda.synchronize()
            began = time.perf_counter()
            update()
            torch.cuda.synchronize()
            seconds.append(time.perf_counter() - began)
    except Exception as error:
        print(f"  {what:36} {type(error).__name__}: {str(error).splitlines()[0][:120]}", flush=True)
        return
    median = sorted(seconds)[len(seconds) // 2]
    print(f"  {what:36} {median * 1e3:9.3f} ms, {LENGTH * BATCH / median * 1e-6:8.3f} M tokens/s, "
          f"{torch.cuda.max_memory_allocated() / 2**20:9.1f} MiB, first call {first:.1f} s", flush=True)


def peers(nonlin, dtype, data, limit):
    """Each within its own time."""
    f = torch.tanh if nonlin == "tanh" else (lambda S: S)

    def built(block):
        torch.manual_seed(0)
        return Model(block).to("cuda", dtype)

    began = time.perf_counter()
    if nonlin == "linear":
        model = built(lambda: FlaBlock(f, cell_steps, LENGTH))
        measure("flash-linear-attention, eager", model, model, data, 20)
        measure("flash-linear-attention, torch.compile", model, torch.compile(model), data, 20)
    model = built(lambda: Block(f, cell_steps, LENGTH))
    measure("PyTorch, eager", model, model, data, 3)
    for chunk in (1, 8):
        if time.perf_counter() - began > limit:
            print(f"  torch.compile of {chunk} steps: no time was left")
            continue
        steps = torch.compile(cell_steps)
        model = built(lambda: Block(f, steps, chunk))
        measure(f"torch.compile, a loop of {chunk} step{'s' * (chunk > 1)}", model, model, data, 5)


def ours(program, file, nonlin, dtype, updates):
    with tempfile.TemporaryDirectory() as folder:
        words = (f"train mixer=e74 state=full nonlin={nonlin} heads={HEADS} n_state={N} width={DIM} blocks={BLOCKS} "
                 f"task=bytes file={os.path.abspath(file)} length={LENGTH} batch={BATCH} updates={updates} dtype={dtype} "
                 f"lr=1e-3 parity_every=0 eval_rows={BATCH} eval_every={updates}")
        done = subprocess.run([program, "--tsv", "-t", words, "-o", os.path.join(folder, "run.h5")],
                              capture_output=True, text=True)
        test = re.search(r"^1\t(\S+)\ttest\t.*$", done.stdout, re.M)
        if not test:
            print(f"  ablate: {done.stdout[-300:]}{done.stderr[-300:]}")
            return
        rate = float(test.group(0).split("\t")[8])
        with h5py.File(os.path.join(folder, "run.h5")) as f:
            taken = int(f["trial/0001/speed"].attrs["device_bytes"])
        print(f"  {'ablate, run-ablation, ' + test.group(1):36} {LENGTH * BATCH / rate * 1e3:9.3f} ms, {rate * 1e-6:8.3f} "
              f"M tokens/s, {taken / 2**20:9.1f} MiB, batches drawn and curves read back within", flush=True)


def main():
    a = argparse.ArgumentParser()
    a.add_argument("program")
    a.add_argument("file")
    a.add_argument("--updates", type=int, default=200)
    a.add_argument("--dtype", default="bf16", choices=("bf16", "fp32"))
    a.add_argument("--limit", type=float, default=100, help="seconds of peers, about")
    a = a.parse_args()
    dtype = torch.bfloat16 if a.dtype == "bf16" else torch.float32
    print(f"PyTorch {torch.__version__}, {torch.cuda.get_device_name()}, {a.dtype}")
    data = [torch.randint(VOCABULARY, (LENGTH, BATCH), device="cuda") for _ in range(2)]
    for nonlin in ("linear", "tanh"):
        print(f"an update, {nonlin}, length {LENGTH}, batch {BATCH}, d {DIM}, {HEADS} heads of {N}, {BLOCKS} blocks")
        ours(a.program, a.file, nonlin, a.dtype, a.updates)
        peers(nonlin, dtype, data, a.limit)


if __name__ == "__main__":
    main()
