"""ablate.torch: bits, gradients, PyTorch's own checks, compilation, graphs, memory, errors."""

import copy
import re
import threading

import numpy as np
import pytest

torch = pytest.importorskip("torch", minversion="2.6")

from torch import library as torch_library
from torch.autograd import forward_ad
from torch.fx.experimental.proxy_tensor import make_fx

import ablate
import ablate.torch as at
from ablate import _table
from ablate._case import Case
from ablate._table import INPUT, OUTPUT
from ablate.torch._ops import DTYPES, OPERATORS
from functions import drawn

CUDA = torch.cuda.is_available() and ablate.backends().get("gpu32", "no") is None
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(not CUDA, reason="no GPU"))]
gpu = pytest.mark.skipif(not CUDA, reason="no GPU")
DIFFERENTIABLE = [n for n, o in OPERATORS.items() if o.differentiable]


def example(name, dtype, device, most=10 ** 9, seed=3, n=400, inside=False):
    """Words that a seed draws, and the inputs of that case as tensors: (settings, inputs, case);
    `inside`: without tokens outside a table, whose rows are NaN."""
    for i in range(n):
        words = re.sub(" dtype=.*", "", drawn(name, seed, i))
        if "fill=" in words and " fill=normal" not in words or inside and " outside=yes" in words:
            continue
        case = Case(f"{words} dtype={dtype} seed=5 input=nonzero")
        if sum(case.tensors[t].count for t in case.names(INPUT)) <= most:
            break
    else:
        raise AssertionError(f"{name} has no case of at most {most} elements")
    settings = words.split(" ", 1)[1]
    kinds = {"fp64": "ref64", "fp32": "gpu32" if device == "cuda" else "ref32",
             "bf16": "gpu_bf16" if device == "cuda" else "ref_bf16"}
    from ablate._plan import Plan
    plan = Plan(case.words.split(" seed=")[0], kinds[dtype])
    inputs = {t.name: torch.tensor(case.get(t.name)).to(DTYPES[t.dtype]).to(device)
              for t in plan.tensors if t.role == INPUT}
    if dtype not in {t.dtype for t in plan.tensors if t.role == INPUT}:
        settings += f" dtype={dtype}"
    return settings, inputs, case


def arguments(name, settings, inputs):
    return (*[inputs.get(n) for n in OPERATORS[name].inputs], settings)


def outputs(name, settings, inputs):
    """The outputs with a gradient, and their names."""
    results = OPERATORS[name].forward(*arguments(name, settings, inputs))
    names = [t.name for t in _table.op_tensors(name) if t.role == OUTPUT]
    return {n: t for n, t in zip(names, results) if t.numel() and t.requires_grad}


def ask(name, inputs):
    for t in _table.op_tensors(name):
        if t.role == INPUT and t.has_gradient and t.name in inputs:
            inputs[t.name].requires_grad_()
    return inputs


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
@pytest.mark.parametrize("name", OPERATORS)
def test_the_bits_of_a_call_on_numpy(name, dtype, device):
    settings, inputs, case = example(name, dtype, device)
    backend = {"cpu": {"fp32": "ref32", "bf16": "ref_bf16"},
               "cuda": {"fp32": "gpu32", "bf16": "gpu_bf16"}}[device][dtype]
    upstream = {n: case.get(n) for n in case.gradients(OUTPUT)}
    choices = dict(w.split("=", 1) for w in settings.split())
    want = ablate.op(name, **choices)(
        **{n: case.get(n) for n in case.names(INPUT)}, **upstream, backend=backend)
    with torch.no_grad():
        plain = OPERATORS[name].forward(*arguments(name, settings, inputs))
    names = [t.name for t in _table.op_tensors(name) if t.role == OUTPUT]
    for n, t in zip(names, plain):
        if t.numel():
            assert np.array_equal(t.double().cpu().numpy(), np.asarray(want[n], float),
                                  equal_nan=True), n
    if not OPERATORS[name].differentiable:
        return
    found = outputs(name, settings, ask(name, inputs))
    seeds = [torch.tensor(upstream["d_" + n]).to(t.dtype).to(device) for n, t in found.items()]
    torch.autograd.backward(list(found.values()), seeds)
    wide = OPERATORS[name].plan(arguments(name, settings, inputs)[:-1], settings).plan
    for t in wide.tensors:
        if t.role == INPUT and t.has_gradient:
            got = inputs[t.name].grad
            exact = torch.tensor(np.asarray(want["d_" + t.name])).to(got.dtype)
            assert np.array_equal(got.double().cpu().numpy(), exact.double().numpy(),
                                  equal_nan=True), t.name


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_gradcheck(name):
    settings, inputs, _ = example(name, "fp64", "cpu", most=150, inside=True)
    leaves = [t for t in ask(name, inputs).values() if t.requires_grad]

    def function(*_):
        return tuple(outputs(name, settings, inputs).values())

    small = sum(t.numel() for t in leaves) <= 60
    assert torch.autograd.gradcheck(function, leaves, fast_mode=not small, atol=1e-5, rtol=1e-3,
                                    nondet_tol=0)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", OPERATORS)
def test_opcheck(name, device):
    settings, inputs, _ = example(name, "fp32", device, most=2000)
    if OPERATORS[name].differentiable:
        ask(name, inputs)
    torch_library.opcheck(OPERATORS[name].forward, arguments(name, settings, inputs))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_compiled_in_one_graph(name, device):
    settings, inputs, _ = example(name, "fp32", device, most=2000)
    ask(name, inputs)
    choices = {k: v for k, v in (w.split("=", 1) for w in settings.split()) if k not in inputs}
    function = getattr(at, name)

    def total(given):
        found = function(**given, **choices)
        found = found if isinstance(found, tuple) else (found,)
        return sum((t * t).sum() for t in found if t is not None and t.is_floating_point())

    plain = total(inputs)
    plain.backward()
    want = {n: t.grad.clone() for n, t in inputs.items() if t.grad is not None}
    for t in inputs.values():
        t.grad = None
    compiled = torch.compile(total, fullgraph=True, backend="aot_eager")(inputs)
    compiled.backward()
    assert torch.equal(compiled, plain) or (plain.isnan() and compiled.isnan())
    for n, g in want.items():
        assert torch.equal(inputs[n].grad.nan_to_num(), g.nan_to_num()), n
    torch._dynamo.reset()


def model(device, dtype=torch.float32, **more):
    torch.manual_seed(1)
    settings = {"dim": 16, "heads": 2, "n_state": 8, "device": device, "dtype": dtype, **more}
    return torch.nn.Sequential(at.nn.E74Block(**settings), at.nn.E74Block(**settings))


def step(m, x):
    m.zero_grad()
    m(x).float().square().mean().backward()
    return [p.grad.clone() for p in m.parameters()]


@pytest.mark.parametrize("device", DEVICES)
def test_checkpointing(device):
    from torch.utils.checkpoint import checkpoint
    m, x = model(device), torch.randn(5, 3, 16, device=device)
    want = step(m, x)
    m.zero_grad()
    m[1](checkpoint(m[0], x, use_reentrant=False)).float().square().mean().backward()
    got = [p.grad for p in m.parameters()]
    assert all(torch.equal(a, b) for a, b in zip(want, got))


@pytest.mark.parametrize("device", DEVICES)
def test_autocast(device):
    m, x = model(device), torch.randn(5, 3, 16, device=device)
    with torch.autocast(device, torch.bfloat16):
        assert m(x).dtype == torch.bfloat16
        grads = step(m, x)
    assert all(g.dtype == torch.float32 and g.isfinite().all() for g in grads)
    with torch.autocast(device, torch.float16), pytest.raises(ablate.Error, match="autocast to fp16"):
        m(x)


@pytest.mark.parametrize("device", DEVICES)
def test_what_an_autocast_leaves_alone(device):
    """Ties, sums and steps that bf16 would make or lose."""
    logits = torch.randn(2000, 64, device=device)
    target, p = logits.argmax(-1), torch.full((4,), 1.0, device=device)
    with torch.autocast(device, torch.bfloat16):
        assert int(at.accuracy(logits=logits, target=target).count) == 2000
        made = at.adamw(p=p, g=p, m=p, v=p, lr=1e-5).p_next
        y = at.sum_squares(x=logits.reshape(-1))
    assert made.dtype == torch.float32 and (made != 1).all() and (made - 1).abs().max() < 1e-4
    assert torch.equal(y, at.sum_squares(x=logits.reshape(-1)))


@pytest.mark.parametrize("device", DEVICES)
def test_modules(device):
    for m, x in [(at.nn.E74(dim=16, heads=2, n_state=4, device=device), (5, 3, 16)),
                 (at.nn.E74(dim=16, n_state=8, state="lowrank", rank=2, device=device), (5, 3, 16)),
                 (at.nn.E74(dim=16, heads=2, n_state=8, state="lowrank", rank=2, V="shared",
                            device=device), (5, 3, 16)),
                 (at.nn.E74Block(dim=16, heads=2, n_state=4, proj="full", batch_first=True,
                                 device=device), (3, 5, 16)),
                 (at.nn.DualMemory(dim=8, slots=4, device=device), (5, 3, 8)),
                 (at.nn.Attention(16, 4, 2, device=device), (2, 5, 16))]:
        x = torch.randn(*x, device=device)
        y = m(x)
        y.square().sum().backward()
        assert all(p.grad is not None and p.grad.isfinite().all() for p in m.parameters())
        other = copy.deepcopy(m)
        for p in other.parameters():
            torch.nn.init.zeros_(p)
        other.load_state_dict(m.state_dict())
        assert torch.equal(other(x), y)


def test_a_state_is_handed_over():
    m = at.nn.E74(dim=16, heads=2, n_state=4)
    x = torch.randn(9, 3, 16)
    whole = m(x)
    first, state = m(x[:4], return_state=True)
    second, _ = m(x[4:], state)
    assert torch.allclose(torch.cat([first, second]), whole, atol=1e-6)


X = torch.ones(4, 5)


@pytest.mark.parametrize("call, sentence", [
    (lambda: at.softmax(), "softmax has no input; it has x"),
    (lambda: at.softmax(x=X, z=X), "softmax has no input or parameter z"),
    (lambda: at.softmax(x=X[0]), r"x is \[5\], it has the axes rows, columns"),
    (lambda: at.softmax(x=X, scale="much"), "not a decimal number"),
    (lambda: at.swiglu(a=X), "b is missing"),
    (lambda: at.swiglu(a=X, b=X[:, :4]), "b has 4 along dim, a has 5"),
    (lambda: at.swiglu(a=X, b=X.bfloat16()), "a is torch.float32, in this call it is to be torch.b"),
    (lambda: at.softmax(x=X.half()), "x is torch.float16, in this call it is to be torch.float32"),
    (lambda: at.softmax(x=X.int()), "x is torch.int32, in this call it is to be torch.float32"),
    (lambda: at.softmax(x=X[:0]), "rows = 0"),
    (lambda: at.lora(x=X, W=X.clone().requires_grad_(), A=X[:2], B=torch.ones(4, 2)),
     "W of lora has no gradient"),
    (lambda: at.nn.Attention(10, 3), "heads = 3 does not divide dim = 10"),
    (lambda: at.nn.E74(dim=4, n_states=4), "unknown key 'n_states'; did you mean"),
    (lambda: at.nn.E74(dim=4, n_state=4)(X), r"x is \[4, 5\], it has three axes"),
])
def test_wrong_calls_have_a_sentence(call, sentence):
    with pytest.raises(ablate.Error, match=sentence):
        call()


def test_views_are_taken():
    x = torch.randn(6, 9)
    assert torch.equal(at.softmax(x=x.t()), at.softmax(x=x.t().contiguous()))
    assert torch.equal(at.softmax(x=x.flatten()[1:49].view(6, 8)),
                       at.softmax(x=x.flatten()[1:49].clone().view(6, 8)))


# ---- derivatives that are not there ----

def floats(inputs):
    return [n for n, t in inputs.items() if t.is_floating_point()]


@pytest.mark.parametrize("asks", [False, True])
@pytest.mark.parametrize("name", OPERATORS)
def test_forward_mode_is_refused(name, asks):
    settings, inputs, _ = example(name, "fp32", "cpu", most=2000)
    if asks and OPERATORS[name].differentiable:
        ask(name, inputs)
    for n in floats(inputs):
        for operator in OPERATORS[name], OPERATORS[name].forward:
            sentence = f"^{n} of {name} has a tangent"
            with forward_ad.dual_level(), pytest.raises(ablate.Error, match=sentence):
                dual = forward_ad.make_dual(inputs[n], torch.ones_like(inputs[n]))
                operator(*arguments(name, settings, {**inputs, n: dual}))


@pytest.mark.parametrize("name", OPERATORS)
def test_transforms_are_refused(name):
    settings, inputs, _ = example(name, "fp32", "cpu", most=2000)
    for n in floats(inputs):
        def function(t):
            found = OPERATORS[name](*arguments(name, settings, {**inputs, n: t}))
            return next(t for t in found if t.numel()).sum()
        t = inputs[n]
        for transformed in (lambda: torch.func.jvp(function, (t,), (t,)),
                            lambda: torch.func.jacfwd(function)(t),
                            lambda: torch.func.linearize(function, t)[1](t),
                            lambda: torch.func.grad(function)(t),
                            lambda: torch.func.hessian(function)(t),
                            lambda: torch.func.vmap(function)(t[None])):
            with pytest.raises(ablate.Error, match=f"{name} is not supp|{n} of {name} has a tangent"):
                transformed()
        with torch.no_grad(), pytest.raises(ablate.Error, match=f"trace does not record {name}"):
            torch.jit.trace(function, (t,))


@pytest.mark.parametrize("name", [n for n, o in OPERATORS.items() if o.differentiable])
def test_forward_mode_through_backward_is_refused(name):
    settings, inputs, _ = example(name, "fp32", "cpu", most=2000)
    ask(name, inputs)
    of = [t for t in inputs.values() if t.requires_grad]
    y = next(t for t in OPERATORS[name](*arguments(name, settings, inputs)) if t.requires_grad)
    ones = torch.ones_like(y)

    def back(upstream):
        return torch.autograd.grad(y, of, upstream, retain_graph=True, allow_unused=True)
    with forward_ad.dual_level(), pytest.raises(ablate.Error, match=f"of {name} has a tangent"):
        back(forward_ad.make_dual(ones, ones))
    for transformed in (lambda: torch.func.jvp(back, (ones,), (ones,)),
                        lambda: torch.func.jacfwd(back)(ones)):
        with pytest.raises(ablate.Error, match=f"{name} is not supp|d_.* is sparse"):
            transformed()


def gradient(name, settings, inputs, leaf, operator, **more):
    """That of the outputs, each times a constant, with respect to a leaf."""
    results = operator(*arguments(name, settings, inputs))
    total = sum((torch.linspace(1, 2, t.numel()).view(t.shape) * t).sum() for t in results
                if t.requires_grad)
    return torch.autograd.grad(total, leaf, **more)[0]


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_a_gradient_is_differentiated_rightly_or_not_at_all(name):
    """Whichever input asks: the gradient does not depend on it, or says that it cannot be
    differentiated."""
    settings, inputs, _ = example(name, "fp32", "cpu", most=2000)
    for n in [t for t in ask(name, dict(inputs)) if inputs[t].requires_grad]:
        for operator in OPERATORS[name], OPERATORS[name].forward:
            there = {k: t.detach() for k, t in inputs.items()}
            leaf = there[n].requires_grad_()
            g = gradient(name, settings, there, leaf, operator, create_graph=True)
            if g.requires_grad:
                with pytest.raises(ablate.Error, match=f"{name} has no second derivative"):
                    torch.autograd.grad(g.sum(), leaf)
            else:
                there[n] = (3 * leaf - 1).detach().requires_grad_()
                assert torch.equal(g, gradient(name, settings, there, there[n], operator)), n


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_a_gradient_is_not_differentiated_by_upstream(name):
    settings, inputs, _ = example(name, "fp32", "cpu", most=2000)
    results = OPERATORS[name](*arguments(name, settings, ask(name, inputs)))
    out = next(t for t in results if t.requires_grad)
    upstream = torch.ones_like(out).requires_grad_()
    leaf = next(t for t in inputs.values() if t.requires_grad)
    g, = torch.autograd.grad(out, leaf, upstream, create_graph=True)
    with pytest.raises(ablate.Error, match=f"{name} has no second derivative"):
        torch.autograd.grad(g.sum(), upstream)


def silu(x):
    return at.silu(x=x).sum()


@pytest.mark.parametrize("call, sentence", [
    (lambda x: torch.autograd.functional.hessian(silu, x), "second derivative"),
    (lambda x: torch.autograd.functional.hessian(silu, x, vectorize=True), "second derivative"),
    (lambda x: torch.autograd.functional.hvp(silu, x, x), "second derivative"),
    (lambda x: torch.autograd.functional.vhp(silu, x, x), "second derivative"),
    (lambda x: torch.autograd.functional.jvp(silu, x, x), "second derivative"),
    (lambda x: torch.autograd.functional.jacobian(silu, x, vectorize=True), "d_y is sparse, nested,"),
    (lambda x: torch.autograd.functional.jacobian(silu, x, vectorize=True,
                                                  strategy="forward-mode"), "has a tangent"),
    (lambda x: torch.autograd.gradgradcheck(silu, x.requires_grad_()), "second derivative"),
    (lambda x: torch.autograd.gradcheck(silu, x.requires_grad_(), check_forward_ad=True), "tangent"),
    (lambda x: make_fx(torch.func.grad(silu))(x), "transforms of torch.func"),
    (lambda x: torch.compile(lambda x: torch.func.jvp(silu, (x,), (x,)), backend="eager")(x),
     "x of silu has a tangent"),
    (lambda x: torch.func.vmap(torch.func.grad(silu))(x[None]), "transforms of torch.func"),
])
def test_higher_derivatives_have_a_sentence(call, sentence):
    # (PyTorch 2.11 puts what its compiler's trace meets into an error of its own, sentence and all.)
    with pytest.raises((ablate.Error, torch._dynamo.exc.TorchRuntimeError), match=sentence):
        call(torch.tensor([[1.0, 2.0]], dtype=torch.float64))


def test_transforms_pass_constants():
    x, t = torch.randn(3, 4, requires_grad=True), torch.randn(3, 4)
    y = at.silu(x=x)
    assert torch.equal(torch.func.grad(lambda t: (at.silu(x=x) * t).sum())(t), y)
    assert torch.equal(torch.func.functionalize(lambda x: at.silu(x=x))(x), y)


def test_the_weights_of_a_saved_input():
    x, w = (torch.tensor([[t]], dtype=torch.float64, requires_grad=True) for t in (1.0, 2.0))
    g, = torch.autograd.grad(silu(x @ w), x, create_graph=True)
    assert torch.isclose(g, torch.tensor(2.18156, dtype=torch.float64), atol=1e-5)
    with pytest.raises(ablate.Error, match="silu has no second derivative"):
        g.square().sum().backward()
    assert w.grad is None


# Tensors that are no dense numbers of the type that the contract has.
OTHER = {
    "bool": lambda t: t > 0,
    "complex": lambda t: torch.complex(t.float(), t.float()),
    "another whole type": lambda t: t.to(torch.int16),
    "quantised": lambda t: torch.quantize_per_tensor(t.float(), 0.1, 0, torch.quint8),
    "sparse": lambda t: t.to_sparse(),
    "zeros without storage": lambda t: torch._efficientzerotensor(t.shape, dtype=t.dtype),
    "an array of NumPy": lambda t: t.numpy(),
}


@pytest.mark.parametrize("name", OPERATORS)
def test_other_tensors_are_refused(name):
    settings, inputs, _ = example(name, "fp32", "cpu", most=2000)
    for n, t in inputs.items():
        for kind, other in OTHER.items():
            given = arguments(name, settings, {**inputs, n: other(t)})
            with pytest.raises(ablate.Error, match=f"^{n} is "):
                OPERATORS[name](*given)
            if kind in ("bool", "complex", "another whole type"):
                with torch.autocast("cpu", torch.bfloat16), pytest.raises(ablate.Error):
                    OPERATORS[name](*given)


@pytest.mark.parametrize("name", OPERATORS)
def test_negative_views_are_taken(name):
    settings, inputs, _ = example(name, "fp32", "cpu", most=2000)
    want = OPERATORS[name](*arguments(name, settings, inputs))
    views = {n: torch._neg_view(-t) if t.is_floating_point() else t for n, t in inputs.items()}
    got = OPERATORS[name](*arguments(name, settings, views))
    assert all(torch.equal(a.nan_to_num(), b.nan_to_num()) for a, b in zip(want, got))


def test_an_upstream_gradient_that_is_a_negative_view():
    x = torch.randn(3, 4, requires_grad=True)
    d_y = torch.randn(3, 4)
    want, = torch.autograd.grad(at.softmax(x=x), x, d_y)
    assert torch.equal(torch.autograd.grad(at.softmax(x=x), x, torch._neg_view(-d_y))[0], want)


def test_a_meta_tensor_gives_shapes():
    y = at.softmax(x=torch.ones(4, 5, device="meta"))
    assert y.device.type == "meta" and y.shape == (4, 5)
    y = at.softmax(x=torch.empty(10**7, 10**6, device="meta"))  # 40 TB are nowhere
    assert y.shape == (10**7, 10**6)


def test_threads():
    m, x = model("cpu"), torch.randn(5, 3, 16)
    want, found = m(x), []
    threads = [threading.Thread(target=lambda: found.append(m(x))) for _ in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(found) == 8 and all(torch.equal(y, want) for y in found)


# ---- on a GPU alone ----

@gpu
def test_a_cuda_graph():
    m, x = model("cuda"), torch.randn(5, 3, 16, device="cuda")
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            want = step(m, x)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    m.zero_grad(set_to_none=True)
    with torch.cuda.graph(graph):
        m(x).float().square().mean().backward()
    for p in m.parameters():
        p.grad.zero_()
    m_grads = [p.grad for p in m.parameters()]
    graph.replay()
    torch.cuda.synchronize()
    # backward of the graph writes gradients that are new in it
    assert all(torch.equal(a, b) for a, b in zip(m_grads, want))


@gpu
def test_a_thousand_calls_leave_memory_as_it_was():
    m, x = model("cuda", torch.bfloat16), torch.randn(5, 3, 16, device="cuda").bfloat16()
    for _ in range(3):
        step(m, x)
    torch.cuda.synchronize()
    own = torch.cuda.memory_allocated(), torch.cuda.memory_reserved()
    for _ in range(1000):
        step(m, x)
    torch.cuda.synchronize()
    assert (torch.cuda.memory_allocated(), torch.cuda.memory_reserved()) == own


@gpu
def test_two_streams():
    m, x = model("cuda"), torch.randn(5, 3, 16, device="cuda")
    want = m(x)
    torch.cuda.synchronize()
    found = []
    for stream in [torch.cuda.Stream() for _ in range(2)]:
        with torch.cuda.stream(stream):
            found += [m(x) for _ in range(20)]
    torch.cuda.synchronize()
    assert all(torch.equal(y, want) for y in found)


@gpu
@pytest.mark.parametrize("call, sentence", [
    (lambda: at.swiglu(a=X.cuda(), b=X), "b is on cpu, a on cuda"),
    (lambda: at.softmax(x=X.cuda().double()), "no backend stores fp64 on cuda"),
    (lambda: ablate.op("swiglu")(a=X.cuda(), b=np.ones((4, 5))), "b is on the host, a on a GPU"),
    (lambda: ablate.op("softmax")(x=X.cuda().t()), "x is not dense"),
    (lambda: ablate.op("softmax")(x=X.cuda().flatten()[1:9].view(2, 4)), "x is misaligned"),
    (lambda: ablate.op("softmax")(x=X.cuda(), backend="ref32"), "are gpu32's, not ref32's"),
])
def test_wrong_calls_on_a_gpu(call, sentence):
    with pytest.raises(ablate.Error, match=sentence):
        call()


def test_plans_are_not_kept_for_ever(monkeypatch):
    monkeypatch.setattr("ablate.torch._ops.MOST_PLANS", 3)
    for n in range(2, 12):
        x = torch.randn(2, n, requires_grad=True)
        y = at.softmax(x=x)
        at.softmax(x=torch.randn(3, n))  # another plan takes the place of y's
        y.backward(torch.ones_like(y))
        assert torch.allclose(y, x.softmax(-1), atol=1e-6) and x.grad.abs().max() < 1e-6
        assert len(OPERATORS["softmax"]._plans) <= 3


@gpu
def test_a_new_shape_compiles_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_CACHE_PATH", str(tmp_path))
    from torch._dynamo.utils import counters
    counters.clear()
    for n in range(2, 52):
        at.softmax(x=torch.randn(n, 3 * n + 1, device="cuda"))
        at.e74_cell(**{a: torch.randn(n, 2, 1, 4, device="cuda") for a in "kvq"})
    torch.cuda.synchronize()
    assert not counters and not list(tmp_path.iterdir())


@gpu
@pytest.mark.parametrize("library", ["torch", "cupy", "jax"])
@pytest.mark.parametrize("name", ["softmax", "e74", "e74_cell", "attention", "cross_entropy"])
def test_arrays_of_other_libraries(name, library):
    module = pytest.importorskip(library)
    case = example(name, "fp32", "cuda")[2]
    choices = dict(w.split("=", 1) for w in case.words.split()[1:]
                   if w.split("=")[0] not in ("dtype", "seed", "input"))
    given = {n: case.get(n) for n in case.names(INPUT) + case.gradients(OUTPUT)}
    whole = {n for n in given if case.tensor(n).whole and not n.startswith("d_")}
    host = {n: np.asarray(a, np.int64 if n in whole else np.float32) for n, a in given.items()}
    want = ablate.op(name, **choices)(**host, backend="gpu32")
    if library == "jax":
        module.config.update("jax_enable_x64", True)
        arrays = {n: module.device_put(a) for n, a in host.items()}
    else:
        arrays = {n: module.as_tensor(a).cuda() if library == "torch" else module.asarray(a)
                  for n, a in host.items()}
    got = ablate.op(name, **choices)(**arrays)
    assert set(got) == set(want)
    for n, a in want.items():
        there = got[n].get() if library == "cupy" else got[n].cpu() if library == "torch" else got[n]
        assert np.array_equal(np.asarray(there), a, equal_nan=True), n
