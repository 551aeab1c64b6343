"""What a call from PyTorch costs on a GPU: host time beside an empty operator, overlap of two streams,
and the step of a language model beside PyTorch's and flash-linear-attention's (where `fla` is there).

    python torch_costs.py"""

import argparse
import time

import torch
from torch import library
from torch.nn import functional as F

import ablate.torch as at
import language_model as lm

EMPTY = library.Library("empty_operator", "DEF")


def host_time(function, calls=3000):
    """The least microseconds of host time per call, of five rounds."""
    best = 1e9
    for _ in range(6):
        torch.cuda.synchronize()
        began = time.perf_counter()
        for _ in range(calls // 6):
            function()
        best = min(best, (time.perf_counter() - began) / (calls // 6) * 1e6)
    torch.cuda.synchronize()
    return best


def library_time(function, calls=500):
    """The microseconds that a call of `function` is in the library's passes, their launches included."""
    run, spent = at._ops.Plan.run, []

    def timed(*arguments):
        began = time.perf_counter()
        run(*arguments)
        spent.append(time.perf_counter() - began)

    at._ops.Plan.run = timed
    try:
        for i in range(calls):
            function()
            if i % 50 == 0:
                torch.cuda.synchronize()
    finally:
        at._ops.Plan.run = run
    passes = len(spent) // calls
    return sum(sorted(sum(spent[i:i + passes]) for i in range(0, len(spent), passes))[:calls // 2]) / (
        calls // 2) * 1e6


def empty_of(name, inputs, settings):
    """An operator with the schema of ablate's, that allocates the same results and does nothing."""
    operator = at._ops.OPERATORS[name]
    shapes = [(t.shape, t.dtype) for t in operator.forward(*inputs, settings)]
    schema = ", ".join(f"Tensor? {n}" for n in operator.inputs)
    EMPTY.define(f"{name}({schema}, str settings) -> Tensor[]")
    EMPTY.impl(name, lambda *_: [torch.empty(s, dtype=d, device="cuda") for s, d in shapes], "CUDA")
    forward = getattr(torch.ops.empty_operator, name).default
    n_inputs = len(operator.inputs)

    class Function(torch.autograd.Function):
        @staticmethod
        def forward(ctx, *arguments):
            ctx.save_for_backward(*[t for t in arguments[:-1] if t is not None])
            with torch._C._AutoDispatchBelowAutograd():
                return tuple(forward(*arguments))

        @staticmethod
        def backward(ctx, *upstream):
            given = iter(ctx.saved_tensors)
            return (*[torch.empty_like(next(given)) if t is not None else None for t in inputs], None)

    EMPTY.impl(name, lambda *a: list(Function.apply(*a)) if torch.is_grad_enabled() else
               _below(forward, a), "Autograd")
    assert n_inputs == len(inputs)
    return forward


def _below(forward, arguments):
    with torch._C._AutoDispatchBelowAutograd():
        return forward(*arguments)


def host_costs():
    print("host time per call in us: the operator, an empty one with the same results, the difference; "
          "of it, the library with its launches")
    one = torch.zeros(1, device="cuda")
    print(f"  one.add_(1), for comparison: {host_time(lambda: one.add_(1)):.2f}")
    k = torch.randn(4, 1, 1, 8, device="cuda")
    x = torch.randn(4, 64, device="cuda")
    cases = [("softmax", {"x": x}, ""), ("rmsnorm", {"x": x, "w": x[0].clone()}, ""),
             ("e74_cell", {"k": k, "v": k.clone(), "q": k.clone()}, "")]
    for name, given, settings in cases:
        inputs = [given.get(n) for n in at._ops.OPERATORS[name].inputs]
        ours, empty = at._ops.OPERATORS[name], empty_of(name, inputs, settings)
        with torch.no_grad():
            a, b = (host_time(lambda f=f: f(*inputs, settings)) for f in (ours, empty))
            within = library_time(lambda: ours(*inputs, settings))
        print(f"  {name:10} forward            {a:6.2f} {b:6.2f} {a - b:+6.2f}  {within:6.2f}")
        for t in given.values():
            t.requires_grad_()
        seed = torch.ones_like(ours(*inputs, settings)[0])

        def both(f):
            torch.autograd.grad(f(*inputs, settings)[0], list(given.values()), seed)
        a, b = (host_time(lambda f=f: both(f), 1500) for f in (ours, empty))
        within = library_time(lambda: both(ours))
        print(f"  {name:10} forward + backward {a:6.2f} {b:6.2f} {a - b:+6.2f}  {within:6.2f}")
    graph = torch.cuda.CUDAGraph()
    with torch.no_grad():
        at.softmax(x=x)
        torch.cuda.synchronize()
        with torch.cuda.graph(graph):
            for _ in range(100):
                at.softmax(x=x)
    print(f"  100 calls of softmax in a graph: {host_time(graph.replay, 600):.2f} us to replay, "
          f"no host time of a call")


def overlap():
    print("two streams: begin and end in ms after the first begin")
    given = [{n: torch.randn(2000, 4, 2, 32, device="cuda") for n in "kvq"} for _ in range(2)]
    streams = [torch.cuda.Stream() for _ in range(2)]
    for _ in range(2):
        alone = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        alone[0].record()
        at.e74_cell(**given[0])
        alone[1].record()
        torch.cuda.synchronize()
    events = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in streams]
    for stream, pair, tensors in zip(streams, events, given):
        with torch.cuda.stream(stream):
            pair[0].record()
            at.e74_cell(**tensors)
            pair[1].record()
    torch.cuda.synchronize()
    first = events[0][0]
    for i, pair in enumerate(events):
        print(f"  stream {i}: {first.elapsed_time(pair[0]):.3f} to {first.elapsed_time(pair[1]):.3f}; "
              f"alone it takes {alone[0].elapsed_time(alone[1]):.3f}")


class FlaBlock(lm.PlainBlock):
    """The same block by flash-linear-attention's chunk_delta_rule, beta 1."""

    def forward(self, x):
        from fla.ops.delta_rule import chunk_delta_rule
        T, B, _ = x.shape
        normed = F.rms_norm(x, x.shape[-1:], self.w_norm, 1e-6)
        k, v, q = ((normed @ W.t()).view(T, B, self.heads, self.n).transpose(0, 1).contiguous()
                   for W in (self.W_k, self.W_v, self.W_q))
        k = F.normalize(k.float(), dim=-1).to(x.dtype)
        beta = torch.ones(B, T, self.heads, device=x.device, dtype=x.dtype)
        y, _ = chunk_delta_rule(q, k, v, beta, scale=1.0)
        y = y.transpose(0, 1).float()
        read = (y * y * torch.sigmoid(y)).to(x.dtype).reshape(T, B, -1)
        return x + read @ self.W_o.t()


def step_of(what, model, loss, tokens, times=20):
    try:
        began = time.perf_counter()
        loss(tokens).backward()
        torch.cuda.synchronize()
        first = time.perf_counter() - began
        seconds, peak = lm.timed(model, loss, tokens, times)
    except Exception as error:
        print(f"  {what:28} {type(error).__name__}: {str(error).splitlines()[0][:100]}")
        return
    print(f"  {what:28} {seconds * 1e3:9.3f} ms, {peak / 2**20:8.1f} MiB, first call {first:.1f} s")


def graphed(model, tokens):
    """A step as a CUDA graph."""
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            model.zero_grad()
            model.loss(tokens).backward()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    model.zero_grad(set_to_none=True)
    with torch.cuda.graph(graph):
        model.loss(tokens).backward()
    seconds = 1e9
    for _ in range(3):
        torch.cuda.synchronize()
        began = time.perf_counter()
        for _ in range(20):
            graph.replay()
        torch.cuda.synchronize()
        seconds = min(seconds, (time.perf_counter() - began) / 20)
    print(f"  {'ablate, in a CUDA graph':28} {seconds * 1e3:9.3f} ms")


def steps(length, nonlin, compile_plain):
    a = argparse.Namespace(dim=256, heads=4, n_state=64, length=length, batch=16, text=__file__)
    print(f"a step, {nonlin}, bf16, length {length}, batch 16, dim 256, 4 heads of 64, 2 layers")
    ours, plain = lm.models(a, "cuda", torch.bfloat16, nonlin)
    tokens = torch.randint(256, (length + 1, 16), device="cuda")
    step_of("ablate, eager", ours, ours.loss, tokens)
    step_of("ablate, torch.compile", ours, torch.compile(ours.loss, fullgraph=True), tokens)
    graphed(ours, tokens)
    if nonlin == "linear":
        fla = lm.Model([FlaBlock(b) for b in ours.blocks], 256, 256)
        fla.load_state_dict({k: v for k, v in plain.state_dict().items()})
        fla = fla.to("cuda", torch.bfloat16)
        step_of("flash-linear-attention", fla, fla.loss, tokens)
        with torch.no_grad():
            print(f"    losses: ablate {ours.loss(tokens):.4f}, plain {plain.loss(tokens):.4f}", end="")
            try:
                print(f", fla {fla.loss(tokens):.4f}")
            except Exception as error:
                print(f", fla: {error}")
    step_of("PyTorch, eager", plain, plain.loss, tokens, 3)
    if compile_plain:
        step_of("PyTorch, torch.compile", plain, torch.compile(plain.loss), tokens, 10)


def main():
    print(f"PyTorch {torch.__version__}, {torch.cuda.get_device_name()}")
    host_costs()
    overlap()
    steps(1024, "linear", False)
    steps(1024, "tanh", False)
    steps(32, "tanh", True)


if __name__ == "__main__":
    main()
