"""A language model of two E74 layers, trained on a text: by ablate's kernels, and by plain PyTorch.

    python language_model.py [--steps 200] [--plain] [--text FILE]

prints the losses of both side by side (--plain: the second as well, which is slow), the gradients of
one step against the oracle's, and the time and memory of a step: eager and compiled."""

import argparse
import pathlib
import sys
import time

import torch
from torch import nn
from torch.nn import functional as F

import ablate
import ablate.torch as at


class PlainBlock(nn.Module):
    """What ablate.torch.nn.E74Block computes, in PyTorch: the same weights by the same names."""

    def __init__(self, like):
        super().__init__()
        self.heads, self.n = like.settings["heads"], like.settings["n_state"]
        self.nonlin = torch.tanh if like.settings["nonlin"] == "tanh" else lambda S: S
        for name, p in like.named_parameters():
            self.register_parameter(name, nn.Parameter(p.detach().clone()))

    def forward(self, x):
        T, B, _ = x.shape
        normed = F.rms_norm(x.float(), x.shape[-1:], self.w_norm.float(), 1e-6).to(x.dtype)
        k, v, q = ((normed @ W.t()).view(T, B, self.heads, self.n).float()
                   for W in (self.W_k, self.W_v, self.W_q))
        k_hat = k / (k.norm(dim=-1, keepdim=True) + 1e-6)
        S, out = x.new_zeros(B, self.heads, self.n, self.n, dtype=torch.float32), []
        for t in range(T):
            rho = (S @ k_hat[t, ..., None])[..., 0]
            S = self.nonlin(S + (v[t] - rho)[..., None] * k_hat[t, ..., None, :])
            y = (S @ q[t, ..., None])[..., 0]
            out.append(y * y * torch.sigmoid(y))
        read = torch.stack(out).view(T, B, -1).to(x.dtype)
        return x + read @ self.W_o.t()


class Model(nn.Module):
    def __init__(self, blocks, vocabulary, dim):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, dim)
        nn.init.normal_(self.embedding.weight, std=0.5)
        self.blocks = nn.ModuleList(blocks)
        self.norm = nn.Parameter(torch.ones(dim))

    def forward(self, tokens):
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        x = F.rms_norm(x, x.shape[-1:], self.norm, 1e-6)
        return x @ self.embedding.weight.t()

    def loss(self, tokens):
        return F.cross_entropy(self(tokens[:-1]).float().flatten(0, 1), tokens[1:].flatten())


def models(a, device, dtype, nonlin="tanh"):
    torch.manual_seed(0)
    blocks = [at.nn.E74Block(dim=a.dim, heads=a.heads, n_state=a.n_state, nonlin=nonlin)
              for _ in range(2)]
    ours = Model(blocks, 256, a.dim)
    plain = Model([PlainBlock(b) for b in blocks], 256, a.dim)
    plain.load_state_dict(ours.state_dict())
    return ours.to(device, dtype), plain.to(device, dtype)


def batches(a, device, steps):
    text = torch.frombuffer(bytearray(pathlib.Path(a.text).read_bytes()), dtype=torch.uint8)
    draw = torch.Generator().manual_seed(1)
    for _ in range(steps):
        at_ = torch.randint(len(text) - a.length - 1, (a.batch,), generator=draw)
        yield torch.stack([text[i:i + a.length + 1] for i in at_], 1).long().to(device)


def train(model, loss, data, lr):
    """The losses."""
    optimiser = torch.optim.AdamW(model.parameters(), lr=lr)
    found = []
    for tokens in data:
        optimiser.zero_grad()
        value = loss(tokens)
        value.backward()
        optimiser.step()
        found.append(value.detach())
    return torch.stack(found).tolist()


def timed(model, loss, tokens, times=20):
    """Seconds per step, forward and backward, and its peak of memory in bytes."""
    cuda = tokens.is_cuda
    for i in range(times + 3):
        if i == 3:
            if cuda:
                torch.cuda.synchronize()
                torch.cuda.reset_peak_memory_stats()
            began = time.perf_counter()
        model.zero_grad()
        loss(tokens).backward()
    if cuda:
        torch.cuda.synchronize()
    return ((time.perf_counter() - began) / times,
            torch.cuda.max_memory_allocated() if cuda else 0)


def gradients_of_a_step(model, tokens):
    """Those of the first block's weights, judged by the oracle: the call that the step makes."""
    block, seen = model.blocks[0], {}
    hooks = [block.register_forward_hook(lambda m, given, out: (
        seen.update(x=given[0].detach()), out.register_hook(lambda g: seen.update(d_out=g))) and None)]
    model.zero_grad()
    model.loss(tokens).backward()
    for hook in hooks:
        hook.remove()
    settings = " ".join(f"{k}={v}" for k, v in block.settings.items())
    dtype = {torch.float32: "fp32", torch.bfloat16: "bf16"}[seen["x"].dtype]
    weights = dict(block.named_parameters())
    return ablate.judge_results(f"e74_block {settings} dtype={dtype}", {"x": seen["x"], **weights},
                                {f"d_{n}": p.grad for n, p in weights.items()},
                                upstream={"d_out": seen["d_out"]})


def main():
    a = argparse.ArgumentParser()
    a.add_argument("--steps", type=int, default=200)
    a.add_argument("--plain", action="store_true")
    a.add_argument("--text", default=str(pathlib.Path(__file__).parent.parent / "README.md"))
    for name, size in ("dim", 256), ("heads", 4), ("n_state", 32), ("length", 128), ("batch", 16):
        a.add_argument("--" + name, type=int, default=size)
    a.add_argument("--no-compile", action="store_true")
    a = a.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    dtype = torch.bfloat16
    print(f"PyTorch {torch.__version__}, "
          f"{torch.cuda.get_device_name() if device == 'cuda' else 'CPU'}, ablate {ablate.__version__}")
    ours, plain = models(a, device, dtype)
    step = ours.loss if a.no_compile else torch.compile(ours.loss, fullgraph=True)
    data = list(batches(a, device, a.steps))

    verdicts = gradients_of_a_step(ours, data[0])
    print("gradients of one step,", verdicts)
    losses = [train(ours, step, data, 2e-3)]
    if a.plain:
        losses.append(train(plain, plain.loss, data, 2e-3))
    print("step  ablate" + "  plain" * a.plain)
    for i in sorted({*range(0, a.steps, max(1, a.steps // 10)), a.steps - 1}):
        print(f"{i:4}  " + "  ".join(f"{found[i]:.4f}" for found in losses))
    for name, model, loss in [("ablate, eager", ours, ours.loss), ("ablate, compiled", ours, step)]:
        seconds, peak = timed(model, loss, data[0])
        print(f"{name:18} {seconds * 1e3:8.3f} ms a step, {peak / 2**20:.1f} MiB")
    if a.plain:
        seconds, peak = timed(plain, plain.loss, data[0], 3)
        print(f"{'plain, eager':18} {seconds * 1e3:8.3f} ms a step, {peak / 2**20:.1f} MiB")
    return 1 if verdicts.failed or not losses[0][-1] < losses[0][0] else 0


if __name__ == "__main__":
    sys.exit(main())
